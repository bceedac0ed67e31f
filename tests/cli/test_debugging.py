"""Ways to look closer: --debug, --profile, --no-compile, the bottleneck line, memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from etude.cli import run as etude
from etude.cli.train import debugger_attached
from etude.runs.run import Run
from etude.telemetry.jsonl import read_rows
from tests.runs_compared import assert_same_run

TINY = ("CartPole-v1:ppo", "training.total_steps=1500", "algorithm.epochs=2", "evaluation.episodes=1", "-q")


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_debug_names_the_module_and_the_step_where_a_nan_appears(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from etude.workflows.ppo import PPO

    original = PPO._prepare
    calls = 0

    def poisoned(self: PPO, columns: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3:
            with torch.no_grad():
                self.actor.layers[2].weight[0, 0] = float("nan")  # type: ignore[index, union-attr]
        return original(self, columns)

    monkeypatch.setattr(PPO, "_prepare", poisoned)
    assert etude(["train", *TINY, "--debug"]) == 1
    shown = capsys.readouterr().err
    assert "NaN in the output of actor.layers.2 (Linear), its input was not; at 768 environment steps" in shown
    assert not Path("runs").exists()
    assert Run.resolve("@last", Path("debug")).status == "failed"


def test_debug_trains_to_the_end_when_nothing_is_wrong() -> None:
    assert etude(["train", *TINY, "--debug"]) == 0
    assert "mode: eager" in Run.resolve("@last", Path("debug")).resolved_path.read_text()


def test_profile_writes_a_trace_and_a_table_quietly_and_changes_nothing_about_the_run(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert etude(["train", *TINY]) == 0
    silence = len(capfd.readouterr().err.splitlines())
    assert etude(["train", *TINY, "--profile", "2"]) == 0
    assert len(capfd.readouterr().err.splitlines()) == silence, "defect 39: torch's tracer said what it does"
    profiled, plain = Run.list(Path("runs"))
    assert "aten::" in (profiled.logs / "profile.txt").read_text()
    assert (profiled.logs / "trace.json").stat().st_size > 1000
    assert_same_run(profiled, plain)
    assert all(row["system/memory_mib"] > 50 for row in read_rows(plain.metrics_path))


def test_a_debugger_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys
    import types

    assert not debugger_attached()
    monkeypatch.setitem(sys.modules, "debugpy", types.ModuleType("debugpy"))
    assert debugger_attached()

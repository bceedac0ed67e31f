"""Ways to look closer: --debug, --profile, --no-compile, the bottleneck line, memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from etude.cli import run as etude
from etude.cli.train import debugger_attached
from etude.runs.run import Run
from etude.telemetry.alert_log import alerts_of
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


def poison(monkeypatch: pytest.MonkeyPatch, rollout: int) -> None:
    """Write a NaN into a weight before the n-th rollout is learnt from."""
    import torch

    from etude.workflows.ppo import PPO

    original, calls = PPO._prepare, 0

    def poisoned(self: PPO, columns: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == rollout:
            with torch.no_grad():
                self.actor.layers[2].weight[0, 0] = float("nan")  # type: ignore[index, union-attr]
        return original(self, columns)

    monkeypatch.setattr(PPO, "_prepare", poisoned)


def test_a_nan_leaves_a_dump_that_etude_debug_opens(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from safetensors.torch import load_file

    poison(monkeypatch, 2)
    assert etude(["train", *TINY, "--debug"]) == 1
    run = Run.resolve("@last", Path("debug"))
    (dump,) = (run.path / "debug").iterdir()
    assert dump.name == "nan-0000000512"
    assert {path.name for path in dump.iterdir()} >= {"report.json", "batch.safetensors", "weights.safetensors"}
    assert load_file(dump / "weights.safetensors")["actor.layers.2.weight"].isnan().sum() == 1
    assert "observation" in "".join(load_file(dump / "batch.safetensors"))
    capsys.readouterr()
    assert etude(["debug"]) == 0
    shown = capsys.readouterr().out
    assert "NaN in the output of actor.layers.2 (Linear), its input was not" in shown
    assert "at 512 environment steps" in shown
    assert "! actor.layers.2.weight" in shown
    assert "the weight actor.layers.2.weight was broken before" in shown
    assert etude(["debug", "@last", "--dump", "nan-1"]) == 2
    (alert,) = alerts_of(run.path)
    assert (alert["id"], alert["state"], alert["env_steps"]) == ("non_finite", "raised", 512)
    assert "actor.layers.2" in alert["message"]


def test_a_run_without_a_nan_has_nothing_to_open_but_has_histograms(capsys: pytest.CaptureFixture[str]) -> None:
    assert etude(["train", *TINY, "--debug"]) == 0
    run = Run.resolve("@last", Path("debug"))
    assert etude(["debug", run.id]) == 1
    assert "has no dump of a NaN" in capsys.readouterr().err
    first, *_ = (run.logs / "histograms.jsonl").read_text().splitlines()
    found = json.loads(first)["histograms"]
    assert sum(found["weights/actor.layers.0.weight"]["counts"]) > 0
    assert "gradients/actor.layers.0.weight" in found


def test_histograms_change_nothing_about_the_run() -> None:
    assert etude(["train", *TINY, "--no-compile"]) == 0
    assert etude(["train", *TINY, "--no-compile", "logging.histograms_every_updates=3", "logging.tensorboard=true"]) == 0
    watched, plain = Run.list(Path("runs"))
    assert (watched.logs / "histograms.jsonl").exists()
    assert_same_run(watched, plain)


def test_a_report_of_a_strangers_does_no_harm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from etude.cli.debug import _lines
    from etude.files.tensor_dump import find_dumps, read_report

    assert etude(["train", "CartPole-v1:random", "training.total_steps=64", "-q"]) == 0
    run = Run.resolve("@last", Path("runs"))
    folder = run.path / "debug" / "nan-1"
    folder.mkdir(parents=True)
    hostile = {
        "version": 1,
        "message": "\x1b[2J",
        "counters": [],
        "tensors": {"batch": {"a": {"shape": "x", "nan": "y"}, "b": 3}},
    }
    (folder / "report.json").write_text(json.dumps(hostile))
    assert find_dumps(run.path) == [folder]
    assert "\x1b" not in "\n".join(_lines(run, folder, read_report(folder)))
    (folder / "report.json").write_text("[" * 100_000)
    assert etude(["debug", str(run.path)]) == 1
    (run.path / "debug" / "nan-2").symlink_to(folder)
    assert find_dumps(run.path) == [folder]


@pytest.mark.parametrize("spec", ["quadruped-flat:ppo", "CartPole-v1:dqn", "CartPole-v1:ppo", "Pendulum-v1:sac"])
def test_debug_comes_to_its_first_update_soon(spec: str) -> None:
    """Defect: a robot took 24,576 steps to its first update."""
    from etude.cli.train import soon_learning
    from etude.config.compose import compose

    words = soon_learning(compose(spec).config, [])
    algorithm = compose(spec, words=words).config.algorithm
    assert "environment.num_envs=1" in words
    assert max(value for value in (algorithm.rollout_steps, algorithm.learning_starts) if value is not None) <= 256
    assert "algorithm.learning_starts=9" not in soon_learning(compose(spec).config, ["algorithm.learning_starts=9"])


def test_debug_learns_soon_from_a_robot_too() -> None:
    from etude.cli.train import DEBUG_ROLLOUT, soon_learning
    from etude.config.compose import compose

    words = soon_learning(compose("quadruped-flat:ppo").config, [])
    small = compose("quadruped-flat:ppo", words=words).config
    assert small.environment.num_envs * (small.algorithm.rollout_steps or 0) == DEBUG_ROLLOUT
    said = ["environment.num_envs=64"]
    several = compose(
        "quadruped-flat:ppo", words=[*said, *soon_learning(compose("quadruped-flat:ppo", words=said).config, said)]
    )
    assert (several.config.environment.num_envs, several.config.algorithm.rollout_steps) == (64, 4)

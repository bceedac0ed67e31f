"""A run made by an earlier version is found, shown, evaluated and continued; one made by a newer version is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from etude.cli import run as etude
from etude.config import migrate
from etude.config.schema import SCHEMA_VERSION
from etude.errors import UserError
from etude.runs.index import find_runs
from etude.runs.record_migration import VERSION
from etude.runs.run import Run
from etude.telemetry.jsonl import read_rows

# Made by the code whose run records had version 1, and stopped half-way.
SAMPLES = Path(__file__).parent / "samples"
SAMPLE = SAMPLES / "run-v1"
# Stopped half-way too, by the code before packages and buffers were redesigned; end.safetensors is the policy that the same
# code then ended with.
STOPPED = ("a2c-rewound", "dqn-frames", "dqn-prioritized", "ppo-memory", "sac-hindsight")


@pytest.fixture
def old(tmp_path: Path) -> Run:
    shutil.copytree(SAMPLE, tmp_path / "runs" / "old", symlinks=True)
    return Run.open(tmp_path / "runs" / "old")


def test_the_record_says_what_the_run_is_of_and_its_file_is_left_alone(old: Run) -> None:
    before = old.record_path.read_bytes()
    assert json.loads(before)["version"] == 1
    record = old.record
    assert record["version"] == VERSION
    assert (record["environment"], record["algorithm"], record["seed"], record["total_steps"]) == ("CartPole-v1", "ppo", 1, 512)
    assert old.record_path.read_bytes() == before


def test_it_is_found_shown_and_evaluated(old: Run, capsys: pytest.CaptureFixture[str]) -> None:
    root = str(old.path.parent)
    (found,) = find_runs(root, environment="CartPole-v1", algorithm="ppo", seed=1)
    assert (found.id, found.status, found.env_steps) == ("old", "interrupted", 256)
    assert etude(["runs", "show", "old", "--runs", root]) == 0
    assert etude(["evaluate", "old", "--episodes", "2", "--runs", root, "--json"]) == 0
    assert '"env_steps": 256' in capsys.readouterr().out


def test_it_goes_on_to_its_end_and_says_what_was_brought_up_to_date(old: Run) -> None:
    assert etude(["resume", "old", "--runs", str(old.path.parent), "-q"]) == 0
    assert old.status == "finished"
    assert old.stored_record["version"] == VERSION
    steps = [row["env_steps"] for row in read_rows(old.metrics_path)]
    assert steps == sorted(set(steps))
    assert steps[-1] == 512
    said = old.log_path.read_text()
    assert "this run was made by an earlier Etude; brought up to date:" in said
    assert "run.json: environment: None → CartPole-v1" in said


@pytest.mark.parametrize("name", STOPPED)
def test_it_is_evaluated_and_ends_as_it_would_have_then(name: str, tmp_path: Path) -> None:
    run = Run.open(Path(shutil.copytree(SAMPLES / name, tmp_path / name, symlinks=True)))
    assert etude(["evaluate", str(run.path), "--episodes", "1", "--json"]) == 0
    assert etude(["resume", str(run.path), "-q"]) == 0
    policy: Any = run.checkpoints().find("last").load(["policy"])["policy"]
    found = {name: tensor for name, tensor in policy.items() if isinstance(tensor, torch.Tensor)}
    ended = load_file(SAMPLES / name / "end.safetensors")
    assert found.keys() == {path.removeprefix("/") for path in ended}
    for path, tensor in ended.items():
        # Another processor rounds differently, and a few dozen updates make little of it.
        torch.testing.assert_close(found[path.removeprefix("/")], tensor, rtol=1e-3, atol=1e-4)


def test_an_older_config_is_shown_with_what_changed(old: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def rename(data: dict[str, Any]) -> dict[str, Any]:
        checkpoint = dict(data["checkpoint"])
        checkpoint["keep"] = checkpoint["keep"] + 1
        return {**data, "checkpoint": checkpoint}

    monkeypatch.setattr(migrate, "SCHEMA_VERSION", SCHEMA_VERSION + 1)
    monkeypatch.setitem(migrate.MIGRATIONS, SCHEMA_VERSION, rename)
    assert etude(["resume", "old", "--runs", str(old.path.parent), "-q"]) == 0
    assert "config: checkpoint.keep: 1 → 2" in old.log_path.read_text()


@pytest.mark.parametrize("version", [VERSION + 1, 99])
def test_a_newer_record_is_refused(old: Run, version: int) -> None:
    old.record_path.write_text(json.dumps({**old.stored_record, "version": version}))
    with pytest.raises(UserError, match="written by a newer Etude; upgrade"):
        Run.open(old.path)


@pytest.mark.parametrize("version", [0, -1, True, "1", None, 1.5])
def test_a_version_that_is_none_is_refused(old: Run, version: object) -> None:
    old.record_path.write_text(json.dumps({**old.stored_record, "version": version}))
    with pytest.raises(UserError, match="not of a run"):
        Run.open(old.path)


def test_a_record_whose_config_is_gone_still_reads(old: Run) -> None:
    old.resolved_path.write_text("][")
    old.summary_path.unlink()
    assert old.record["environment"] is None
    assert old.status == "interrupted"

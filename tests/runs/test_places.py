"""Commands that are printed find the run they name."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from etude.cli import run as etude
from etude.runs.places import command, runs_option


def test_a_command_names_the_place_where_it_is_not_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert command("resume", Path("runs/a")) == "etude resume a"
    assert command("resume", tmp_path / "runs" / "a", "x=1") == "etude resume a x=1"
    assert command("evaluate", Path("my runs/a")) == "etude evaluate a --runs 'my runs'"
    assert command("resume", Path("runs/a;rm b")) == "etude resume 'a;rm b'"
    monkeypatch.setenv("ETUDE_RUNS", "my runs")
    assert runs_option(tmp_path / "my runs") == ""
    assert runs_option(Path("runs")) == " --runs runs"


def test_the_next_commands_of_a_run_work_as_they_are_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Defect 20: they left out --runs."""
    monkeypatch.chdir(tmp_path)
    words = ["CartPole-v1:random", "training.total_steps=32", "evaluation.every_steps=0"]
    assert etude(["train", *words, "--runs", "my runs"]) == 0
    shown = capsys.readouterr().err.split("Next:\n")[1].splitlines()
    assert len(shown) == 2
    for line in shown:
        assert etude([*shlex.split(line)[1:]]) == 0


def test_a_run_whose_phases_are_over_is_not_told_to_raise_its_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    phases = "training.phases=[{name: look, hooks: [collect, discard], duration_steps: 16}]"
    assert etude(["train", "CartPole-v1:random", phases, "training.total_steps=32", "evaluation.every_steps=0"]) == 0
    assert "training.total_steps" not in capsys.readouterr().err.split("Next:\n")[1]

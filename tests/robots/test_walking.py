"""A robot dog learns to walk as it is asked to, by the preset that the README names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from etude.cli import run as command
from tests.runs_compared import train


@pytest.mark.slow
def test_the_quadruped_follows_every_command_without_a_fall(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = train("quadruped-flat:ppo", tmp_path)
    capsys.readouterr()
    assert command(["trials", str(run.path), "--json"]) == 0
    trials = {trial["name"]: trial for trial in json.loads(capsys.readouterr().out)["trials"]}
    asked = {"stand": (0, 0.0), "forward": (0, 0.8), "backward": (0, -0.6), "sideways": (1, 0.4), "turn": (2, 0.8)}
    done = {name: trials[name]["velocity"][axis] for name, (axis, _) in asked.items()}
    assert done == pytest.approx({name: value for name, (_, value) in asked.items()}, abs=0.15)
    assert sum(trial["falls"] for trial in trials.values()) == 0
    lifts = [trials[name]["foot_lift"] for name in ("forward", "backward", "sideways", "turn")]
    assert lifts == pytest.approx([0.06] * 4, rel=0.3)

"""A robot of one's own, from MJCF and from URDF, with a reward of one's own, by what docs/robots.md says and no more."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from etude.cli import run as etude
from etude.robots.models.description import MODELS
from etude.runs.run import Run
from tests.robots.urdf_dog import write_dog
from tests.runs_compared import assert_same_run, resume, stopped_after, train

PAGE = (Path(__file__).parents[2] / "docs" / "robots.md").read_text()
WORDS = (
    *("environment.robot.rewards={my_terms.bounce: {weight: -0.5, target: 0.28}}", "environment.num_envs=4"),
    *("environment.robot.observations.actor={my_terms.ground_speed: {scale: 0.5}}", "environment.robot.terrain={levels: 2}"),
    *("environment.robot.commands.own=my_terms.circle", "environment.robot.randomization={my_terms.Wind: {range: [0, 2]}}"),
    *("algorithm.rollout_steps=8", "algorithm.epochs=1", "evaluation.every_steps=0", "experiment.compile=off"),
    *("environment.robot.rewards.collisions=null", "training.total_steps=96"),
)  # fmt: skip


def block(title: str) -> str:
    """Return the page's file of this name."""
    found = re.search(rf'```\w+ title="{re.escape(title)}"\n(.*?)```', PAGE, re.DOTALL)
    assert found is not None, f"docs/robots.md has no {title}"
    return found[1]


@pytest.fixture(params=["mjcf", "urdf"])
def model(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder with the page's files and a model; the robot's YAML, as the page writes it or as `etude robots --yaml` does."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "my_terms", raising=False)
    (tmp_path / "my_terms.py").write_text(block("my_terms.py"))
    robot = tmp_path / "my_robot.yaml"
    if request.param == "mjcf":
        (tmp_path / "my_robot.xml").write_text((MODELS / "quadruped.xml").read_text().replace('name="base"', 'name="trunk"'))
        robot.write_text(block("my_robot.yaml"))
    else:
        capsys: pytest.CaptureFixture[str] = request.getfixturevalue("capsys")
        assert etude(["robots", str(write_dog(tmp_path)), "--yaml"]) == 0
        robot.write_text(capsys.readouterr().out)
    return f"environment.robot.model={robot.name}"


@pytest.mark.slow
def test_it_trains_resumes_verifies_and_is_exported_with_its_own_reward(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = train("quadruped-rough:ppo", tmp_path / "whole", model, *WORDS)
    assert "collect/reward/my_terms.bounce" in whole.metrics_path.read_text()
    stored = {path.name for path in (whole.path / "provenance" / "robot").rglob("*")}
    assert {"my_robot.yaml", "my_robot.xml" if (tmp_path / "my_robot.xml").is_file() else "dog.urdf"} <= stored
    with stopped_after(1):
        cut = train("quadruped-rough:ppo", tmp_path / "cut", model, *WORDS)
    resume(cut)
    assert_same_run(cut, whole)
    assert etude(["train", "quadruped-rough:ppo", model, *WORDS, "-q"]) == 0
    capsys.readouterr()
    assert etude(["verify", str(Run.resolve("@last", tmp_path / "runs").path)]) == 0
    assert "reproduced" in capsys.readouterr().out


@pytest.mark.slow
def test_its_export_is_walked_with_its_height_scan_and_fails_where_it_does_not_walk(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [word for word in WORDS if "ground_speed" not in word]
    run = train("quadruped-rough:ppo", tmp_path / "runs", model, *words)
    capsys.readouterr()
    assert etude(["export", str(run.path), "--out", str(tmp_path / "out"), "--check-walk", "2"]) == 1
    said = capsys.readouterr()
    assert "m/s" in said.out + said.err
    metadata = next((tmp_path / "out").rglob("metadata.json"))
    assert "height_scan" in metadata.read_text()
    assert (metadata.parent / "assets" / "ground.hf").is_file()

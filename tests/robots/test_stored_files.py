"""A user's robot is part of its run: what becomes of the files later, or where a command is given, changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from etude.cli import run as etude
from etude.config.robots import RobotConfig
from etude.errors import EtudeError
from etude.robots.models.description import MODELS, load_robot
from etude.robots.models.stored_files import store_robot, use_stored_robot
from etude.runs.run import Run
from etude.verification import rerun
from tests.forked import fork_instead
from tests.robots.test_urdf import write_mesh
from tests.robots.urdf_dog import write_dog

WORDS = (
    *("environment.robot.model=mine/quadruped.yaml", "environment.num_envs=4", "training.total_steps=32"),
    *("algorithm.rollout_steps=8", "algorithm.epochs=1", "evaluation.every_steps=0", "experiment.compile=off"),
)


def test_a_robot_that_has_changed_or_is_elsewhere_is_the_stored_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    fork_instead(rerun, monkeypatch)
    (tmp_path / "mine").mkdir()
    for name in ("quadruped.yaml", "quadruped.xml"):
        (tmp_path / "mine" / name).write_text((MODELS / name).read_text())
    assert etude(["train", "quadruped-flat:ppo", *WORDS, "-q"]) == 0
    run = Run.resolve("@last", tmp_path / "runs")
    stored = run.path / "provenance" / "robot" / "quadruped.xml"
    assert stored.read_text() == (MODELS / "quadruped.xml").read_text()
    (tmp_path / "mine" / "quadruped.xml").write_text("<mujoco/>")  # no robot any more
    assert etude(["resume", str(run.path), "training.total_steps=64", "-q"]) == 0
    assert run.log_path.read_text().count("the robot's files have changed since: quadruped.xml;") == 1
    assert etude(["verify", str(run.path)]) == 0, capsys.readouterr()
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    capsys.readouterr()
    assert etude(["evaluate", str(run.path), "--episodes", "1"]) == 0, capsys.readouterr().err


def _stored(tmp_path: Path) -> tuple[RobotConfig, Path]:
    (tmp_path / "mine").mkdir()
    for name in ("quadruped.yaml", "quadruped.xml"):
        (tmp_path / "mine" / name).write_text((MODELS / name).read_text())
    task = RobotConfig(model=str(tmp_path / "mine" / "quadruped.yaml"))
    provenance = tmp_path / "provenance"
    provenance.mkdir()
    store_robot(task, provenance)
    return task, provenance


def _edit(provenance: Path) -> None:
    with open(provenance / "robot" / "quadruped.xml", "a") as file:
        file.write("<!-- heavier -->")


def _remove(provenance: Path) -> None:
    (provenance / "robot" / "quadruped.xml").unlink()


def _link(provenance: Path) -> None:
    copy = provenance / "robot" / "quadruped.xml"
    copy.rename(provenance / "elsewhere.xml")
    copy.symlink_to(provenance / "elsewhere.xml")


def _lead_out(provenance: Path) -> None:
    note = json.loads((provenance / "robot.json").read_text())
    note["files"]["../robot.json"] = "0"
    (provenance / "robot.json").write_text(json.dumps(note | {"entry": "../robot.json"}))


def _tear(provenance: Path) -> None:
    (provenance / "robot.json").write_text('{"model": ')


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (_edit, "is not the file that was stored"),
        (_remove, "is missing"),
        (_link, "is a link"),
        (_lead_out, "no note of a robot"),
        (_tear, "put it back from a backup"),
    ],
)
def test_copies_that_are_not_what_was_stored_are_refused(tmp_path: Path, harm: Callable[[Path], None], said: str) -> None:
    task, provenance = _stored(tmp_path)
    assert use_stored_robot(task, provenance) is None
    harm(provenance)
    with pytest.raises(EtudeError, match=said):
        use_stored_robot(task, provenance)


def test_a_urdf_is_stored_with_the_meshes_of_its_package(tmp_path: Path) -> None:
    package = tmp_path / "dog_description"
    write_mesh(package / "meshes" / "trunk.stl")
    task = RobotConfig(model=str(write_dog(package / "urdf", mesh="package://dog_description/meshes/trunk.stl")))
    provenance = tmp_path / "provenance"
    provenance.mkdir()
    store_robot(task, provenance)
    package.rename(tmp_path / "gone")
    assert use_stored_robot(task, provenance) is None
    assert task.files is not None
    assert load_robot(task.files).path.is_relative_to(provenance)

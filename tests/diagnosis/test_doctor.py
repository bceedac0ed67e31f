"""`etude doctor`: each family in a process of its own, and the line that fixes what is wrong."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from etude.cli import run as etude
from etude.diagnosis import doctor
from etude.diagnosis.isolation import Result
from etude.environments.families import Family, family_of


def report(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = etude(["doctor", *arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_a_family_that_works_is_measured(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, found = report(capsys, "--family", "classic", "--steps", "50", "--runs", str(tmp_path / "new" / "runs"))
    (classic,) = found["families"]
    assert code == 0
    assert (classic["status"], classic["snapshot"], classic["backend"]) == ("works", "exact", "CartPole")
    assert classic["steps_per_s"] > 0
    machine = {fact["name"]: fact["value"] for fact in found["machine"]}
    assert {"python", "torch", "gpu", "cores", "display", "video", "runs", "disk"} <= machine.keys()
    assert machine["runs"].endswith(f"(to be made in {tmp_path})")
    assert not (tmp_path / "new").exists()
    assert list(tmp_path.iterdir()) == []


def test_a_family_that_is_absent_is_a_line_and_no_failure(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "Box2D", None)
    assert etude(["doctor", "--family", "box2d"]) == 0
    assert "pip install 'etude[box2d]'" in capsys.readouterr().out


def test_a_family_that_crashes_is_a_row_and_exit_code_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Result("box2d", "died", "died by SIGSEGV", {"stage": "step"})
    monkeypatch.setattr(doctor, "run_isolated", lambda calls, **_: iter([broken]))
    assert etude(["doctor", "--family", "box2d"]) == 1
    shown = capsys.readouterr().out
    assert "LunarLander-v3 does not step: died by SIGSEGV" in shown
    assert "pip install --upgrade 'etude[box2d]'" in shown


def drawing(monkeypatch: pytest.MonkeyPatch, family: Family, by_gl: dict[str | None, Result]) -> doctor.Finding:
    def answer(calls: Any, *, environ: dict[str, str] | None = None, **_: Any) -> Any:
        if calls and calls[0].function.__name__ == "probe_steps":
            return iter([Result(family.name, "done", facts={"steps_per_s": 9.0})])
        return iter([replace(by_gl[(environ or {}).get("MUJOCO_GL")], name=call.name) for call in calls])

    monkeypatch.setattr(doctor, "run_isolated", answer)
    (found,) = doctor.examine([family])
    return found


def test_the_way_of_drawing_that_works_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    family = family_of("HalfCheetah-v5")
    no_egl = Result("x", "died", "died by SIGABRT: FatalError: gladLoadGL error", {"gl": "egl"})
    assert drawing(monkeypatch, family, {None: Result("x", "done", facts={"gl": "egl"})}).pictures == "egl"
    other = drawing(monkeypatch, family, {None: no_egl, "osmesa": Result("x", "done")})
    assert (other.status, other.pictures, other.fixes) == ("works", "osmesa", ["export MUJOCO_GL=osmesa"])
    none = drawing(monkeypatch, family, {None: no_egl, "osmesa": no_egl})
    assert (none.status, none.pictures) == ("works", "")
    assert "apt install libegl1" in none.fixes[0]


def test_a_runs_folder_that_cannot_be_written_to_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(**_: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(doctor.tempfile, "NamedTemporaryFile", refuse)
    runs = next(fact for fact in doctor._place(tmp_path) if fact.name == "runs")
    assert "can't be written to: Permission denied" in runs.value
    assert "ETUDE_RUNS" in runs.fix


# Defect 38: sixteen seconds without a sign of life, one family after the other.
def test_each_family_is_told_as_soon_as_it_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def answer(calls: Any, *, jobs: int, **_: Any) -> Any:
        asked.append([call.name for call in calls])
        assert jobs >= 1
        return iter([Result(call.name, "died" if call.name == "box2d" else "done") for call in reversed(calls)])

    monkeypatch.setattr(doctor, "run_isolated", answer)
    families = [family_of(name) for name in ("CartPole-v1", "LunarLander-v3", "FrozenLake-v1")]
    told = [(finding.family.name, finding.status) for finding in doctor.examine(families)]
    assert told == [("box2d", "broken"), ("classic", "works"), ("toy", "works")]
    assert asked == [["classic", "box2d", "toy"], ["toy", "classic"]]


def test_robots_have_a_line_each_for_mujoco_its_renderer_and_warp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    monkeypatch.setattr("ctypes.util.find_library", lambda _: None)
    robots, renderer, warp = doctor.robot_facts()
    assert robots.value.startswith("mujoco 3")
    assert (renderer.name, renderer.value) == ("renderer", "osmesa, but libOSMesa is not there")
    assert "apt install libosmesa6" in renderer.fix
    assert warp.name == "warp"
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert [fact.fix for fact in doctor.robot_facts()] == ["pip install 'etude[mujoco]'"]

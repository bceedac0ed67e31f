"""The Neptune sink against a double of the package's documented interface."""

from __future__ import annotations

import math
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from etude.cli import run as etude
from etude.telemetry.neptune import NeptuneSink
from etude.telemetry.plug_in import SinkRun
from etude.telemetry.results import Result
from tests.faults.tiny_run import TRAIN


class Field:
    def __init__(self, kept: dict[str, Any], place: str) -> None:
        self.kept, self.place = kept, place

    def append(self, value: float, *, step: float) -> None:
        self.kept.setdefault(self.place, []).append((step, value))

    def upload(self, value: Any) -> None:
        self.kept[self.place] = value

    add = upload


class FakeRun:
    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}
        self.stopped = 0

    def __getitem__(self, place: str) -> Field:
        return Field(self.kept, place)

    def __setitem__(self, place: str, value: Any) -> None:
        self.kept[place] = value

    def stop(self) -> None:
        self.stopped += 1


class File:
    def __init__(self, path: str) -> None:
        self.path = path

    @staticmethod
    def from_content(content: bytes, *, extension: str) -> tuple[bytes, str]:
        return content, extension


@pytest.fixture
def neptune(monkeypatch: pytest.MonkeyPatch) -> Any:
    module, kinds, utils = (types.ModuleType(name) for name in ("neptune", "neptune.types", "neptune.utils"))
    module.run, module.asked = FakeRun(), []  # type: ignore[attr-defined] # a double

    def init_run(**options: Any) -> FakeRun:
        module.asked.append(options)
        return module.run

    module.init_run = init_run  # type: ignore[attr-defined] # a double
    kinds.File = File  # type: ignore[attr-defined] # a double
    utils.stringify_unsupported = lambda value: value  # type: ignore[attr-defined] # a double
    for each in (module, kinds, utils):
        monkeypatch.setitem(sys.modules, each.__name__, each)
    return module


def test_rows_results_and_names_reach_neptune(neptune: Any, tmp_path: Path) -> None:
    known = SinkRun("run-1", tmp_path, "cartpole", "seeds", ("a",), {"algorithm": {"name": "ppo"}}, 0, "updates")
    sink = NeptuneSink(known, project="me/p")
    sink.write([{"env_steps": 8.0, "updates": 1.0, "train/loss": 0.5, "train/q": math.nan}])
    files: dict[str, Path | bytes] = {"report.md": tmp_path / "report.md", "checkpoints/1/manifest.json": b"{}"}
    sink.write_results([Result("report", "run-1", files, {"seed": 1}), Result("checkpoint", "run-1", files, {})])
    sink.flush()
    sink.close()
    (asked,) = neptune.asked
    assert {key: asked[key] for key in ("project", "name", "custom_run_id", "tags", "mode")} == {
        "project": "me/p",
        "name": "run-1",
        "custom_run_id": "run-1",
        "tags": ["a"],
        "mode": "offline",
    }
    kept = neptune.run.kept
    assert kept["metrics/train/loss"] == [(1.0, 0.5)]
    assert "metrics/train/q" not in kept
    assert kept["sys/group_tags"] == ["seeds"]
    assert kept["artifacts/report/report"].path.endswith("report.md")
    assert kept["artifacts/report/checkpoints/1/manifest"] == (b"{}", "json")
    assert not any(place.startswith("artifacts/checkpoint/") for place in kept)
    assert neptune.run.stopped == 1


def test_without_the_package_no_run_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from etude.telemetry import neptune as module

    monkeypatch.setattr(module, "find_spec", lambda _: None)
    assert etude([*TRAIN, "logging.sinks=[{type: neptune}]", "--runs", str(tmp_path)]) == 2
    assert "logging.sinks[0] (neptune): needs a package that is not installed: pip install neptune" in capsys.readouterr().err
    assert not list(tmp_path.glob("2*"))

"""`etude export`: what it prints and writes, and one clear line for each slip."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from etude.cli import run as command
from etude.deploy import export as exporting
from etude.deploy.metadata import read_metadata
from etude.runs.run import Run
from tests.deploy.conftest import needs_onnx
from tests.runs_compared import train


def _without(monkeypatch: pytest.MonkeyPatch, *absent: str) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name in absent else real(name, *rest))


def test_json_has_every_file_and_its_difference(
    pendulum: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command(["export", str(pendulum.path), "--format", "torchscript,torch", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    folder = Path("exports") / pendulum.id
    assert report["folder"] == str(folder)
    assert report["problems"] == []
    assert {Path(file["path"]).name for file in report["files"].values()} == {"policy.pt", "policy.pt2"}
    assert all(file["max_difference"] <= 1e-5 for file in report["files"].values())
    assert sorted(path.name for path in folder.iterdir()) == ["act.py", "metadata.json", "policy.pt", "policy.pt2"]


def test_files_of_an_earlier_export_are_pointed_out(pendulum: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "policy.onnx").write_bytes(b"of another run")
    assert command(["export", str(pendulum.path), "--format", "torchscript", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr()
    assert "largest difference" in printed.out
    assert "policy.onnx is of an earlier export" in printed.err
    assert list(read_metadata(tmp_path).files) == ["torchscript"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--format", "onxn"], "--format onxn: unknown format; did you mean 'onnx'?"),
        (["--format", ","], "choose at least one of onnx, torchscript, torch, mnn"),
        (["--format", "torch", "--check-walk", "5"], "--check-walk: Pendulum-v1 is no robot's task"),
        (["--check-walk", "0"], "--check-walk 0: must be above 0"),
        (["--format", "torchscript", "--checkpoint", "bets"], "did you mean 'best'?"),
    ],
)
def test_a_slip_is_one_line(words: list[str], said: str, pendulum: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["export", str(pendulum.path), *words]) == 2
    printed = capsys.readouterr().err
    assert said in printed
    assert len([line for line in printed.splitlines() if line.startswith("etude: ")]) == 1


def test_a_folder_that_can_not_be_made_is_one_line(pendulum: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "taken").write_text("a file")
    assert command(["export", str(pendulum.path), "--format", "torchscript", "--out", str(tmp_path / "taken")]) == 2
    assert f"--out {tmp_path / 'taken'}: File exists" in capsys.readouterr().err


def test_a_run_without_checkpoints_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = train("CartPole-v1:random", tmp_path, "training.total_steps=16", "evaluation.episodes=1")
    assert command(["export", str(run.path), "--format", "torch", "--out", str(tmp_path / "out")]) == 2
    assert "a policy of random can't be exported" in capsys.readouterr().err
    for folder in run.checkpoints_path.iterdir():
        folder.rename(tmp_path / folder.name)
    assert command(["export", str(run.path), "--format", "torch", "--out", str(tmp_path / "out")]) == 2
    assert "no checkpoints" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_missing_packages_are_named_with_the_line_that_installs_them(
    pendulum: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _without(monkeypatch, "onnx", "onnxscript", "onnxruntime")
    assert command(["export", str(pendulum.path), "--out", str(tmp_path / "out")]) == 2
    assert "--format onnx needs onnx, onnxscript, onnxruntime: pip install 'etude[export]'" in capsys.readouterr().err


@needs_onnx
def test_without_mnn_the_onnx_file_is_there_all_the_same(
    pendulum: Run,
    exports: Callable[[str], exporting.Export],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    contents = (exports("pendulum").folder / "policy.onnx").read_bytes()
    monkeypatch.setattr(exporting, "onnx_model", lambda *_: contents)  # made once already
    _without(monkeypatch, "MNN")
    words = ["export", str(pendulum.path), "--format", "mnn", "--out", str(tmp_path / "out")]
    assert command(words) == 1
    assert "--format mnn needs MNN: pip install 'etude[mnn]'" in capsys.readouterr().err
    assert list(read_metadata(tmp_path / "out").files) == ["onnx"]

    broken = tmp_path / "process.py"
    broken.write_text("print('unsupported: this and that')\nraise SystemExit(3)\n")
    monkeypatch.setattr("etude.deploy.mnn_file._PROCESS", broken)
    monkeypatch.setitem(exporting._PACKAGES, "mnn", ((), ""))
    assert command(words) == 1
    assert "MNN can't convert policy.onnx: unsupported: this and that" in capsys.readouterr().err
    assert not (tmp_path / "out" / "policy.mnn").exists()

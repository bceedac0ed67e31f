"""Policies and checkpoints to W&B and back; the package is a double that keeps artifacts in a folder."""

from __future__ import annotations

import importlib.machinery
import shutil
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from etude.cli import run as etude
from etude.errors import EtudeError, UserError
from etude.runs import trust
from etude.runs.run import Run
from etude.telemetry.results import Result
from etude.training.run_results import run_results
from etude.training.wandb_artifacts import download
from tests.faults.tiny_run import TRAIN, only_run, train


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    root = tmp_path_factory.mktemp("trained")
    assert train(root) == 0
    return only_run(root)


class Artifact:
    """What `wandb.Api().artifact(…)` gives."""

    def __init__(self, result: Result) -> None:
        self.type, self.version, self.metadata = result.kind, "v0", dict(result.facts)
        self._files = result.files

    def download(self, root: str) -> str:
        for name, content in self._files.items():
            path = Path(root, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content) if isinstance(content, bytes) else shutil.copyfile(content, path)
        return root


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch, trained: Run) -> dict[str, Any]:
    kept: dict[str, Any] = {f"me/p/{result.kind}": Artifact(result) for result in run_results(trained)}

    class CommError(Exception): ...

    def artifact(name: str) -> Artifact:
        if name not in kept:
            raise CommError(f"artifact {name}\nnot found")
        return kept[name]

    module: Any = types.ModuleType("wandb")
    module.__spec__ = importlib.machinery.ModuleSpec("wandb", None)
    module.errors = types.SimpleNamespace(Error=CommError)
    module.Api = lambda: types.SimpleNamespace(artifact=artifact)
    monkeypatch.setitem(sys.modules, "wandb", module)
    return kept


def test_a_policy_comes_back_as_a_run_that_is_evaluated_and_begun_with(
    wandb: dict[str, Any], trained: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert etude(["wandb", "download", "me/p/policy", "--runs", str(tmp_path)]) == 0
    path = Path(capsys.readouterr().out.strip())
    assert path.name == f"{trained.id}-policy-v0"
    (kept,) = Run.open(path).checkpoints().list()
    kept.verify()
    assert kept.kind == "policy"
    assert not trust.is_own(path)
    assert etude(["evaluate", str(path), "--episodes", "1", "--checkpoint", kept.name]) == 0
    # A second time nothing is fetched.
    wandb["me/p/policy"].download = None
    assert etude([*TRAIN, "--init-from", "wandb:me/p/policy", "--runs", str(tmp_path)]) == 0
    (new,) = [run for run in Run.list(tmp_path) if run.path != path]
    assert str(path) in new.resolved_path.read_text()


def test_a_checkpoint_comes_back_as_a_run_that_goes_on(wandb: dict[str, Any], tmp_path: Path) -> None:
    path = download("me/p/checkpoint", tmp_path)
    assert etude(["resume", str(path), "training.total_steps=384", "-q"]) == 0
    assert Run.open(path).summary["counters"]["env_steps"] == 384


def test_what_is_no_run_or_leads_elsewhere_is_refused_and_leaves_nothing(
    wandb: dict[str, Any], tmp_path: Path, trained: Run
) -> None:
    with pytest.raises(UserError, match="no policy or checkpoint"):
        download("me/p/report", tmp_path)
    hostile = wandb["me/p/policy"]
    hostile.metadata["run"] = "../../outside"
    with pytest.raises(UserError, match="no policy or checkpoint"):
        download("me/p/policy", tmp_path)
    hostile.metadata["run"] = "fine"

    def with_a_link(root: str) -> None:
        Path(root).mkdir()
        Path(root, "run.json").symlink_to(trained.record_path)

    hostile.download = with_a_link
    with pytest.raises(EtudeError, match="neither a file nor a folder"):
        download("me/p/policy", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_artifact_that_is_not_there_is_one_line(
    wandb: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert etude([*TRAIN, "--init-from", "wandb:me/p/none:v1", "--runs", str(tmp_path)]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("etude: wandb:me/p/none:v1: W&B can't be asked: artifact me/p/none:v1 not found")

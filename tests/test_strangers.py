"""A run from a stranger runs nothing on this machine."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import pytest
import yaml

from etude.cli import run as etude
from etude.errors import ConfigError, EtudeError
from etude.runs.run import Run
from etude.training import stored_config
from etude.using.stored_policy import open_policy
from tests.runs_compared import forge_settings, resume, stopped_after, train

TINY = ("training.total_steps=2000", "algorithm.epochs=1", "evaluation.every_steps=0")


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module that leaves a mark when it is imported."""
    mark = tmp_path / "mark"
    folder = tmp_path / "code"
    folder.mkdir()
    folder.joinpath("trap_module.py").write_text(
        f"from pathlib import Path\nPath({str(mark)!r}).write_text('ran')\n"
        "from etude.orchestration.callbacks import Callback\nclass Trap(Callback): pass\n"
        "from etude.workflows.ppo import PPO\nclass Algo(PPO): pass\n"
        "import torch\nclass Optim(torch.optim.SGD): pass\n"
    )
    monkeypatch.chdir(folder)
    return mark


def _foreign(run: Run, change: dict[str, object]) -> Run:
    """The run as it would arrive from elsewhere: the same files, with settings of the sender's."""
    for path in (run.resolved_path, run.config_path):
        data = yaml.safe_load(path.read_text())
        for dotted, value in change.items():
            node = data
            *parents, last = dotted.split(".")
            for part in parents:
                node = node.setdefault(part, {})
            node[last] = value
        path.write_text(yaml.safe_dump(data))
    forge_settings(run, run.resolved_path.read_text())
    return run


@pytest.mark.parametrize(
    "change",
    [
        {"training.callbacks": [{"type": "trap_module.Trap"}]},
        {"training.callbacks": [{"_target_": "trap_module.Trap"}]},
        {"algorithm.name": "trap_module.Algo"},
        {"algorithm.optimizer": {"type": "trap_module.Optim"}},
        {"network.actor.type": "trap_module:Trap"},
        {"environment.id": "trap_module:CartPole-v1"},
    ],
    ids=["callback", "target", "algorithm", "optimizer", "network", "environment"],
)
def test_an_import_path_that_came_with_a_run_is_not_followed(change: dict[str, object], trap: Path, tmp_path: Path) -> None:
    with stopped_after(2):
        run = train("CartPole-v1:ppo", tmp_path / "runs", *TINY)
    _foreign(run, change)
    for attempt in (
        lambda: resume(run),
        lambda: open_policy(run, "last"),
        lambda: stored_config.load_config(run),
    ):
        with pytest.raises((ConfigError, EtudeError)):
            attempt()
    assert etude(["train", "--from-run", str(run.path), "--runs", str(tmp_path / "runs")]) == 2
    assert etude(["evaluate", str(run.path)]) != 0
    assert not trap.exists(), "somebody else's code ran"


def test_a_run_copied_from_another_machine_with_an_import_path_needs_trust(
    trap: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = (*TINY, "training.callbacks=[{type: trap_module.Trap}]")
    with stopped_after(2):
        run = train("CartPole-v1:ppo", tmp_path / "runs", *words)
    assert trap.exists(), "one's own file is honoured"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "another machine"))
    copy = Run.open(Path(shutil.copytree(run.path, tmp_path / "elsewhere" / run.id, symlinks=True)))
    with pytest.raises(ConfigError, match="--trust"):
        resume(copy)
    assert resume(copy, trusted=True).status == "finished"


def test_a_pickle_in_place_of_a_checkpoint_file_runs_nothing(tmp_path: Path) -> None:
    mark = tmp_path / "mark"

    class Bomb:
        def __reduce__(self) -> tuple[object, ...]:
            return (Path.write_text, (mark, "ran"))

    with stopped_after(2):
        run = train("CartPole-v1:ppo", tmp_path / "runs", *TINY)
    newest = run.checkpoints().newest_whole()
    for name in ("shared/tensors.safetensors", "shared/state.json", "policy/tensors.safetensors", "manifest.json"):
        keep = (newest.path / name).read_bytes()
        (newest.path / name).write_bytes(pickle.dumps(Bomb()))
        with pytest.raises(EtudeError):
            resume(run)
        (newest.path / name).write_bytes(keep)
    assert not mark.exists()
    assert resume(run).status == "finished"

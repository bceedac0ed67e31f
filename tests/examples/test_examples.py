"""Each example runs as it stands, with a small budget."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import pytest

from etude.config.registry import algorithms

EXAMPLES = Path(__file__).parents[2] / "examples"
FEW = ("evaluation.every_steps=0", "logging.terminal=false", "logging.report=false", "experiment.compile=off")
BUDGETS = {
    "own_environment": ("training.total_steps=512", "algorithm.rollout_steps=64", "algorithm.batch_size=64", *FEW),
    "own_algorithm": ("training.total_steps=512", *FEW),
    "offline": ("training.total_steps=512", *FEW),
    "multi_goal": ("training.total_steps=400", "training.callbacks=[]", *FEW),
    "world_model": (
        *("training.total_steps=120", "algorithm.size=tiny", "algorithm.learning_starts=60", "algorithm.batch_size=4"),
        *("buffers.replay.sequence=8", "algorithm.train_ratio=4", *FEW),
    ),
    "robot": (
        *("training.total_steps=192", "environment.num_envs=4", "environment.max_episode_steps=200", "experiment.device=cpu"),
        *FEW,
    ),
    "sweep": ("training.total_steps=256", *FEW),
}
SECONDS = ("own_environment", "own_algorithm", "offline")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])
    known, named = dict(gymnasium.registry), dict(vars(algorithms))
    yield tmp_path
    for environment in set(gymnasium.registry) - set(known):
        del gymnasium.registry[environment]
    vars(algorithms).update(named)
    sys.modules.pop("robot", None)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in SECONDS else pytest.mark.slow) for name in sorted(BUDGETS)]
)
def test_an_example_runs(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *BUDGETS[name]])
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert capsys.readouterr().out.strip()
    assert list((folder / "runs").glob("*/run.json"))


def test_every_example_is_here_and_in_the_readme() -> None:
    scripts = {path.stem for path in EXAMPLES.glob("*.py")}
    assert scripts == set(BUDGETS)
    said = (EXAMPLES / "README.md").read_text()
    assert all(f"`{name}.py`" in said for name in scripts)

"""Gymnasium's MuJoCo tasks go on bit for bit from what is stored of their simulator; other classes claim nothing."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import torch

from etude.environments.gymnasium import GymnasiumVector
from etude.runs.checkpoint import CheckpointStore
from tests.environments.test_conformance import actions
from tests.environments.test_snapshot import stored, trajectory
from tests.forked import run_forked

pytest.importorskip("mujoco")
from gymnasium.envs.mujoco.half_cheetah_v5 import HalfCheetahEnv

IDS = sorted(
    name
    for name, spec in gymnasium.registry.items()
    if name.endswith("-v5") and str(spec.entry_point).startswith("gymnasium.envs.mujoco")
)


def make(name: str) -> GymnasiumVector:
    return GymnasiumVector(lambda: gymnasium.make(name, max_episode_steps=120, disable_env_checker=True), 2)


def wrapped(wrap: Any = lambda env: env, kind: Any = HalfCheetahEnv) -> GymnasiumVector:
    environment = GymnasiumVector(lambda: wrap(kind()), 1)
    environment.reset([1])
    return environment


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # MuJoCo leaves its log where it is used


def test_all_tasks_are_here() -> None:
    assert len(IDS) == 11


def test_a_fresh_process_goes_on_bit_for_bit(tmp_path: Path) -> None:
    """In every task; the last observation alone would do for most of them, but not for Ant and Humanoid."""
    expected = []
    for name in IDS:
        environment = make(name)
        environment.reset([21, 22])
        assert environment.snapshot == "exact"
        moves = actions(environment.single_action_space, 257, num_envs=2, seed=5)
        trajectory(environment, moves[:137])
        store = CheckpointStore(tmp_path / name, keep=1)
        store.save({"rank/0": environment.state_dict()}, counters={"env_steps": 137, "updates": 0}, metadata={})
        expected.append(f"{name} {trajectory(environment, moves[137:])}")
    code = (
        "import sys; from pathlib import Path; from tests.environments.test_snapshot_mujoco import *\n"
        "for name in IDS:\n"
        "    environment = make(name)\n"
        "    environment.load_state_dict(CheckpointStore(Path(sys.argv[1]) / name, keep=1).find('last').load()['rank/0'])\n"
        "    moves = actions(environment.single_action_space, 257, num_envs=2, seed=5)\n"
        "    print(name, trajectory(environment, moves[137:]))"
    )
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(root)!r})\n{code}", str(tmp_path)]
    done = run_forked(command, cwd=tmp_path, env=os.environ)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if "-v5 " in line] == expected


@pytest.mark.parametrize("name", ["Ant-v5", "Walker2d-v5"])
def test_an_environment_goes_back_in_time(name: str) -> None:
    environment = make(name)
    environment.reset([1, 2])
    moves = actions(environment.single_action_space, 150, num_envs=2)
    trajectory(environment, moves[:50])
    state = stored(environment.state_dict())
    expected = trajectory(environment, moves[50:])
    environment.load_state_dict(state)
    assert repr(stored(environment.state_dict())) == repr(state)
    assert trajectory(environment, moves[50:]) == expected


def test_the_simulator_is_written_into_and_not_replaced() -> None:
    """The renderer, and whoever else holds it, go on seeing it."""
    environment = wrapped()
    env: Any = environment._envs[0]
    data = env.data
    environment.load_state_dict(stored(environment.state_dict()))
    assert env.data is data
    assert env.mujoco_renderer.data is data


def test_another_model_is_refused() -> None:
    environment = wrapped()
    state = environment.state_dict()
    changed = wrapped()
    changed._envs[0].unwrapped.model.body_mass[2] *= 1.1  # type: ignore[attr-defined] # a MuJoCo environment has one
    with pytest.raises(ValueError, match="of another model"):
        changed.load_state_dict(state)
    with pytest.raises(ValueError, match="other arrays"):
        make("Ant-v5").load_state_dict({"envs": [make_state("Hopper-v5")] * 2})


def make_state(name: str) -> Any:
    environment = make(name)
    environment.reset([1, 2])
    return environment.state_dict()["envs"][0]


def test_a_class_of_the_users_own_claims_nothing() -> None:
    """It may read contacts before a step, or change the model as it goes."""

    class Own(HalfCheetahEnv):
        pass

    environment = wrapped(kind=Own)
    assert environment.snapshot == "restart"
    assert environment.state_dict() == {}


def test_a_wrapper_that_looks_into_the_simulator_is_seen() -> None:
    class Peek(gymnasium.Wrapper[Any, Any, Any, Any]):
        def __init__(self, env: Any) -> None:
            super().__init__(env)
            self.velocity = env.data.qvel

    assert wrapped(Peek).snapshot == "restart"


def test_a_saved_state_does_not_change_while_the_simulation_goes_on() -> None:
    environment = wrapped()
    state = environment.state_dict()
    before = repr(stored(state))
    trajectory(environment, [torch.ones(1, 6)] * 20)
    assert repr(stored(state)) == before

"""Worker processes give what one process gives."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.wrappers import TimeLimit

from etude.environments.gymnasium import GymnasiumVector
from tests.environments.test_conformance import copied, parts
from tests.environments.test_snapshot import stored, trajectory

with warnings.catch_warnings():  # SWIG's types crash the interpreter where their warning is an error
    warnings.simplefilter("ignore")
    import gymnasium.envs.box2d

from tests.environments.worker_doubles import MAKERS, SEEDS, Sensors, make_sensors, moves_for, workers_of

pytestmark = pytest.mark.usefixtures("folder", "nursery_stays")


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("name", MAKERS)
def test_trajectories_are_those_of_one_process(name: str, workers: int, opened: Any) -> None:
    inside, outside = GymnasiumVector(MAKERS[name], 4), opened(MAKERS[name], workers=workers)
    assert outside.single_observation_space == inside.single_observation_space
    assert outside.single_action_space == inside.single_action_space
    assert outside.return_threshold == inside.return_threshold
    first, other = inside.reset(SEEDS)[0], outside.reset(SEEDS)[0]
    assert outside.snapshot == inside.snapshot
    assert parts(first).keys() == parts(other).keys()
    assert all(torch.equal(value, parts(other)[key]) for key, value in parts(first).items())
    assert {key: value.dtype for key, value in parts(first).items()} == {
        key: value.dtype for key, value in parts(other).items()
    }
    moves = moves_for(inside, 90)
    ends = 0
    for action in moves:
        here, there = inside.step(action), outside.step(action)
        for value, same in zip(here[:5], there[:5], strict=True):
            assert all(torch.equal(part, parts(same)[key]) for key, part in parts(value).items())
        assert (here.final_observation is here.observation) == (there.final_observation is there.observation)
        ends += int((there.terminated | there.truncated).sum())
    assert ends >= 8


@pytest.mark.parametrize("name", MAKERS)
def test_a_state_goes_on_in_workers_and_out_of_them(name: str, opened: Any) -> None:
    one, other = opened(MAKERS[name]), GymnasiumVector(MAKERS[name], 4)
    one.reset(SEEDS)
    other.reset(SEEDS)
    moves = moves_for(one, 170)
    assert trajectory(one, moves[:70]) == trajectory(other, moves[:70])
    state = stored(one.state_dict())
    assert repr(state) == repr(stored(other.state_dict()))
    expected = trajectory(one, moves[70:])
    for fresh in (GymnasiumVector(MAKERS[name], 4), opened(MAKERS[name], workers=3), one):
        fresh.load_state_dict(state)
        assert fresh.snapshot == ("rewind" if name == "LunarLander-v3" else "exact")
        assert trajectory(fresh, moves[70:]) == expected


def test_what_cannot_be_known_is_not_claimed(opened: Any) -> None:
    vector = opened(lambda: Sensors(engine=object()))
    vector.reset(SEEDS)
    assert vector.snapshot == "restart"
    assert vector.state_dict() == {}


def test_a_step_is_a_view_of_shared_memory_that_stays_valid_through_the_next_one(opened: Any) -> None:
    vector = opened(MAKERS["Pendulum-v1"])
    vector.reset(SEEDS)
    moves = moves_for(vector, 3)
    first = vector.step(moves[0])
    kept = copied(first.observation)
    second = vector.step(moves[1])
    assert torch.equal(first.observation, kept[""])
    third = vector.step(moves[2])
    assert first.observation.data_ptr() == third.observation.data_ptr() != second.observation.data_ptr()
    assert first.reward.data_ptr() == third.reward.data_ptr()


def test_what_was_seen_last_outlives_the_workers(opened: Any) -> None:
    vector = opened(make_sensors)
    observation, _ = vector.reset(SEEDS)
    kept = copied(observation)
    vector.close()
    assert all(torch.equal(observation[key], value) for key, value in kept.items())


def test_more_workers_than_copies_are_not_started(opened: Any) -> None:
    assert len(workers_of(opened(make_sensors, num_envs=2, workers=5))) == 2


def test_a_picture_comes_from_the_first_copy(opened: Any) -> None:
    vector = opened(make_sensors)
    vector.reset(SEEDS)
    vector.step(moves_for(vector, 1)[0])
    assert vector.render().tolist() == np.ones((2, 2, 3)).tolist()


def test_global_generators_differ_between_workers(opened: Any) -> None:
    class Careless(Sensors):
        def observation(self) -> dict[str, Any]:
            return {"image": np.zeros((4, 4), np.uint8), "pose": np.array([np.random.normal(), torch.rand(()).item(), 0.0])}  # noqa: NPY002

    vector = opened(Careless, num_envs=2)
    pose = vector.reset([1, 2])[0]["pose"]
    assert pose[0, 0] != pose[1, 0]
    assert pose[0, 1] != pose[1, 1]


def test_workers_are_where_this_process_is(opened: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if it has moved since the first of them was made: files, modules and variables are found."""
    tmp_path.joinpath("late_module.py").write_text("import os\nLEVEL = int(os.environ['LEVEL']) + int(open('level').read())")
    tmp_path.joinpath("level").write_text("2")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("LEVEL", "40")

    def make() -> gymnasium.Env[Any, Any]:
        import late_module  # type: ignore[import-not-found] # written above

        return TimeLimit(Sensors(), late_module.LEVEL)

    vector = opened(make, num_envs=1, workers=1)
    vector.reset([1])
    (state,) = vector.state_dict()["envs"]
    assert state[0]["attributes"]["_max_episode_steps"] == 42


# ---- faults ---------------------------------------------------------------------------------------------------------------

"""MiniGrid and BabyAI: read as a policy can, and gone on with bit for bit, objects and all."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

pytest.importorskip("minigrid")

from minigrid.core.world_object import Ball, Box
from minigrid.envs import EmptyEnv
from minigrid.envs.wfc.config import PATTERN_PATH

from etude.config.schema import EnvironmentConfig
from etude.environments.families import FAMILIES
from etude.environments.make import make_environment
from etude.environments.minigrid.missions import VOCABULARY, MissionReader
from etude.environments.minigrid.observations import one_hot
from etude.environments.snapshots import snapshot
from etude.environments.vector import Observation, VectorEnvironment
from etude.errors import EtudeError, UserError

next(family for family in FAMILIES if family.name == "minigrid").register()
WORLDS = sorted(
    name for name in gymnasium.registry if name.startswith(("MiniGrid-", "BabyAI-")) and not name.startswith("MiniGrid-WFC")
)
# A door and a key, balls that move, rooms that know each other, and a level whose verifier knows its world.
FEW = ("MiniGrid-DoorKey-5x5-v0", "MiniGrid-Dynamic-Obstacles-5x5-v0", "BabyAI-GoToSeqS5R2-v0", "BabyAI-PutNextS4N1-v0")
FEW_OR_ALL = [*FEW, *(pytest.param(name, marks=pytest.mark.slow) for name in WORLDS if name not in FEW)]
pytestmark = pytest.mark.filterwarnings("ignore:.*is out of date:DeprecationWarning")


def make(name: str, num_envs: int = 2, **kwargs: Any) -> VectorEnvironment:
    return make_environment(EnvironmentConfig(id=name, num_envs=num_envs, kwargs=kwargs))


def parts(observation: Observation) -> list[bytes]:
    values = observation.values() if isinstance(observation, dict) else [observation]
    return [value.numpy().tobytes() for value in values]


def record(environment: VectorEnvironment, steps: int, seed: int) -> list[Any]:
    found = []
    # Few of the seven do anything at all; going on, picking up and dropping happen to what is in the way.
    drawn = np.random.default_rng(seed).choice(7, (steps, environment.num_envs), p=[0.15, 0.15, 0.3, 0.15, 0.1, 0.1, 0.05])
    for action in torch.from_numpy(drawn):
        step = environment.step(action)
        found.append([parts(step.observation), parts(step.final_observation), *(part.tolist() for part in step[1:4])])
    return found


@pytest.mark.parametrize("name", FEW_OR_ALL)
def test_a_fresh_environment_goes_on_bit_for_bit(name: str) -> None:
    environment, fresh = make(name), make(name)
    environment.reset([1, 2])
    fresh.reset([3, 4])
    for steps in (0, 25, 100):
        record(environment, steps, seed=steps)
        state = environment.state_dict()
        assert environment.snapshot == "exact"
        expected = record(environment, 60, seed=99)
        fresh.load_state_dict(state)
        assert record(fresh, 60, seed=99) == expected
        environment.load_state_dict(state)


@pytest.mark.parametrize("name", FEW_OR_ALL)
def test_missions_can_be_read(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    environment = make(name, num_envs=1)
    for seed in range(12):
        environment.reset([seed])
    assert capsys.readouterr().out == ""  # levels that were drawn and rejected


def test_an_episode_goes_through_its_end_alike() -> None:
    environment = make("MiniGrid-DoorKey-5x5-v0", max_steps=20)
    environment.reset([1, 2])
    record(environment, 15, seed=0)
    state = environment.state_dict()
    expected = record(environment, 50, seed=1)
    assert sum(any(truncated) for *_, truncated in expected) >= 2
    fresh = make("MiniGrid-DoorKey-5x5-v0", max_steps=20)
    fresh.load_state_dict(state)
    assert record(fresh, 50, seed=1) == expected


def test_trajectories_are_those_of_the_package() -> None:
    environment = make("MiniGrid-DoorKey-5x5-v0", num_envs=1)
    plain = gymnasium.make("MiniGrid-DoorKey-5x5-v0", disable_env_checker=True)
    observation, _ = environment.reset([5])
    seen, _ = plain.reset(seed=5)
    for action in np.random.default_rng(0).integers(7, size=300).tolist():
        assert isinstance(observation, dict)
        assert np.array_equal(observation["image"][0].numpy(), seen["image"])
        assert observation["direction"].item() == seen["direction"]
        step = environment.step(torch.tensor([action]))
        seen, reward, terminated, truncated, _ = plain.step(action)
        assert (step.reward.item(), step.terminated.item(), step.truncated.item()) == (
            np.float32(reward),
            terminated,
            truncated,
        )
        if terminated or truncated:
            seen, _ = plain.reset()
        observation = step.observation


@pytest.mark.parametrize(
    ("kwargs", "shapes"),
    [
        ({}, {"image": (7, 7, 3), "direction": ()}),
        ({"agent_view_size": 5}, {"image": (5, 5, 3), "direction": ()}),
        ({"observation": "full"}, {"image": (5, 5, 3), "direction": ()}),
        ({"observation": "rgb"}, {"": (56, 56, 3)}),
        ({"observation": "flat"}, {"": (7 * 7 * 20 + 4,)}),
        ({"observation": "flat", "mission": "ids"}, {"flat": (7 * 7 * 20 + 4,), "mission": (24,)}),
        ({"observation": "rgb", "mission": "ids"}, {"image": (56, 56, 3), "mission": (24,)}),
    ],
)
def test_a_policy_observes_what_was_asked_for(kwargs: dict[str, Any], shapes: dict[str, tuple[int, ...]]) -> None:
    environment = make("MiniGrid-DoorKey-5x5-v0", **kwargs)
    observation, _ = environment.reset([1, 2])
    found = observation if isinstance(observation, dict) else {"": observation}
    assert {name: tuple(value.shape[1:]) for name, value in found.items()} == shapes
    row = {name: value[0].numpy() for name, value in found.items()}
    assert environment.single_observation_space.contains(row if isinstance(observation, dict) else row[""])


def test_missions_are_observed_where_they_differ() -> None:
    for name, there in (("MiniGrid-Empty-5x5-v0", False), ("MiniGrid-Fetch-5x5-N2-v0", True), ("BabyAI-GoToObj-v0", True)):
        observation, _ = make(name).reset([1, 2])
        assert isinstance(observation, dict)
        assert ("mission" in observation) == there
    off, _ = make("BabyAI-GoToObj-v0", mission=False).reset([1, 2])  # as YAML reads a bare off
    assert isinstance(off, dict)
    assert "mission" not in off


def test_a_mission_is_its_words() -> None:
    reader = MissionReader(8)
    numbers = reader.read("go to the red door, then")
    words = [VOCABULARY[number - 1] for number in numbers if number]
    assert words == ["go", "to", "the", "red", "door", ",", "then"]
    assert numbers[-1] == 0
    with pytest.raises(ValueError, match="'dragon' is not in the vocabulary"):
        reader.read("find the dragon")
    with pytest.raises(ValueError, match="more than 8 words"):
        reader.read("go to the red door and to the blue door")


def test_ones_stand_for_object_colour_and_state() -> None:
    image = np.zeros((3, 3, 3), np.uint8)
    image[0, 1] = (4, 5, 2)  # a locked grey door
    row = one_hot(image, direction=3)
    cells = row[:-4].reshape(9, 20)
    assert np.flatnonzero(cells[1]).tolist() == [4, 11 + 5, 11 + 6 + 2]
    assert row.sum() == 9 * 3 + 1
    assert row[-1] == 1


def test_the_whole_grid_shows_the_agent() -> None:
    observation, _ = make("MiniGrid-Empty-5x5-v0", observation="full").reset([1, 2])
    assert isinstance(observation, dict)
    assert observation["image"][0, 1, 1].tolist() == [10, 0, 0]


@pytest.mark.parametrize(
    ("kwargs", "said"),
    [
        ({"observation": "imgae"}, "environment.kwargs.observation=imgae: must be one of image, full, rgb, flat; did you mean"),
        ({"mission": "words"}, "environment.kwargs.mission=words: must be one of auto, ids, off"),
        ({"size": "large", "colour": 3}, "colour"),
    ],
)
def test_an_argument_that_means_nothing_is_named(kwargs: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        make("MiniGrid-Empty-5x5-v0", **kwargs)


def test_worlds_made_of_missing_pictures_say_so() -> None:
    if PATTERN_PATH.is_dir():
        pytest.skip("this minigrid has them")
    with pytest.raises(EtudeError, match="needs pictures that the installed minigrid lacks"):
        make("MiniGrid-WFC-MazeSimple-v0")


def test_workers_give_the_same_in_silence(capfd: pytest.CaptureFixture[str]) -> None:
    name = "MiniGrid-Dynamic-Obstacles-5x5-v0"
    inside, outside = (make_environment(EnvironmentConfig(id=name, num_envs=2, workers=workers)) for workers in (0, 1))
    for environment in (inside, outside):
        environment.reset([1, 2])
    assert record(inside, 30, seed=0) == record(outside, 30, seed=0)
    inside.load_state_dict(outside.state_dict())
    assert record(inside, 30, seed=1) == record(outside, 30, seed=1)
    outside.close()
    assert capfd.readouterr() == ("", "")


class Toys(EmptyEnv):
    """A world of one's own: a ball in a box, which two names know, and a list that holds itself."""

    def _gen_grid(self, width: int, height: int) -> None:
        super()._gen_grid(width, height)
        self.ball = Ball("red")
        self.box = Box("blue", self.ball)
        self.put_obj(self.box, 2, 1)
        self.circle: list[Any] = [self.box]
        self.circle.append(self.circle)
        self.thing: Any = None


def test_objects_keep_their_identity() -> None:
    world, other = Toys(size=5), Toys(size=5)
    world.reset(seed=1)
    world.agent_pos = np.array([1, 1])
    other.agent_pos = (2, 2)
    other.leftover = 1  # type: ignore[attr-defined]
    snapshot.restore(other, snapshot.capture(world))
    assert other.grid.get(2, 1) is other.box is other.circle[0]
    assert other.box.contains is other.ball is not world.ball
    assert other.circle[1] is other.circle
    assert isinstance(other.agent_pos, np.ndarray)
    assert not hasattr(other, "leftover")


def test_what_is_not_of_the_package_is_not_claimed() -> None:
    world = Toys(size=5)
    world.reset(seed=1)
    world.thing = EnvironmentConfig(id="CartPole-v1")
    with pytest.raises(snapshot.NotPlainError, match="thing is a EnvironmentConfig"):
        snapshot.capture(world)


def test_a_state_that_names_other_classes_is_refused() -> None:
    world = Toys(size=5)
    world.reset(seed=1)
    for name in ("subprocess:Popen", "minigrid.core.grid:np", "minigrid.core.grid:Gird"):
        state = snapshot.capture(world)
        state[0]["objects"]["classes"][0][0] = name
        with pytest.raises(ValueError, match="the saved state names"):
            snapshot.restore(world, state)

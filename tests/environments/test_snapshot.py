"""A captured environment goes on bit for bit, in a fresh process too; one that can't says so."""

from __future__ import annotations

import hashlib
import json
import random
import sys
from collections import deque
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from etude.config.schema import EnvironmentConfig
from etude.environments.gymnasium import GymnasiumVector
from etude.environments.make import make_environment
from etude.environments.snapshots import snapshot
from etude.environments.vector import Observation, VectorEnvironment
from etude.files.state_tree import TreeEncoder, decode
from etude.runs.checkpoint import CheckpointStore
from tests.environments.fresh_process import assert_goes_on_elsewhere
from tests.environments.test_conformance import IDS, actions

BOX = spaces.Box(-1, 1, (2,), np.float32)


def stored(state: Any) -> Any:
    """What comes back from a checkpoint: through JSON and named tensors."""
    encoded, tensors = TreeEncoder().encode("rank/0", state)
    return decode(json.loads(json.dumps(encoded, allow_nan=False)), lambda part, name: tensors[name].clone())


def trajectory(environment: VectorEnvironment, moves: list[torch.Tensor]) -> str:
    """A digest of everything that the steps return."""
    digest = hashlib.sha256()

    def add(observation: Observation) -> None:
        for value in observation.values() if isinstance(observation, dict) else (observation,):
            digest.update(value.numpy().tobytes())

    for action in moves:
        step = environment.step(action)
        for value in step[:5]:
            add(value)
    return digest.hexdigest()


def make(name: str) -> VectorEnvironment:
    return make_environment(EnvironmentConfig(id=name, num_envs=2, max_episode_steps=40, backend="gymnasium"))


# ---- exactness ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", IDS)
def test_a_restored_environment_goes_on_bit_for_bit(name: str, tmp_path: Path) -> None:
    environment = make(name)
    environment.reset([21, 22])
    assert environment.snapshot == "exact"
    moves = actions(environment.single_action_space, 437, num_envs=2, seed=5)
    trajectory(environment, moves[:137])
    store = CheckpointStore(tmp_path, keep=1)
    saved = store.save({"rank/0": environment.state_dict()}, counters={"env_steps": 137, "updates": 0}, metadata={})
    expected = trajectory(environment, moves[137:])
    fresh = make(name)
    fresh.load_state_dict(saved.load()["rank/0"])  # type: ignore[arg-type] # what was saved is a dict
    assert fresh.snapshot == "exact"
    assert trajectory(fresh, moves[137:]) == expected
    environment.load_state_dict(saved.load()["rank/0"])  # type: ignore[arg-type] # and back in time
    assert trajectory(environment, moves[137:]) == expected


def test_a_fresh_process_goes_on_bit_for_bit(tmp_path: Path) -> None:
    assert_goes_on_elsewhere(
        __name__, make, trajectory, ["CartPole-v1", "Pendulum-v1", "Blackjack-v1", "FrozenLake-v1"], tmp_path
    )


def test_saving_does_not_change_what_follows() -> None:
    one, other = make("Acrobot-v1"), make("Acrobot-v1")
    moves = actions(one.single_action_space, 200, num_envs=2)
    for environment in (one, other):
        environment.reset([1, 2])
        trajectory(environment, moves[:50])
    for _ in range(3):
        one.state_dict()
    assert trajectory(one, moves[50:]) == trajectory(other, moves[50:])


def test_a_saved_state_does_not_change_while_the_environment_goes_on() -> None:
    environment = make("CartPole-v1")
    environment.reset([1, 2])
    state = environment.state_dict()
    before = stored(state)
    trajectory(environment, actions(environment.single_action_space, 60, num_envs=2))
    assert repr(stored(state)) == repr(before)


# ---- environments of the user's own ---------------------------------------------------------------------------------


class Own(gymnasium.Env[Any, Any]):
    """A random walk that keeps all it knows in attributes; `extra` makes it more interesting."""

    observation_space = BOX
    action_space = spaces.Discrete(2)

    def __init__(self, **extra: Any) -> None:
        self.position = np.zeros(2)
        self.clock = 0  # counts steps here; a clock is something to draw with elsewhere
        for name, value in extra.items():
            setattr(self, name, value(self) if callable(value) else value)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.position[:] = self.np_random.normal(size=2)
        self.clock = 0
        return self.position.astype(np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.position += self.np_random.normal(size=2) * (1 + action)
        self.clock += 1
        return self.position.astype(np.float32), float(self.clock), self.clock == 7, False, {}


def own(**extra: Any) -> GymnasiumVector:
    environment = GymnasiumVector(lambda: Own(**extra), 2)
    environment.reset([1, 2])
    return environment


def assert_goes_on(environment: GymnasiumVector, fresh: GymnasiumVector) -> None:
    moves = [torch.tensor([i % 2, 1]) for i in range(60)]
    trajectory(environment, moves[:17])
    assert environment.snapshot == "exact"
    fresh.load_state_dict(stored(environment.state_dict()))
    assert trajectory(fresh, moves[17:]) == trajectory(environment, moves[17:])


GENERATORS = np.random.Generator | np.random.RandomState
PLAIN: dict[str, Any] = {
    "numbers": {"a": 3, "b": 0.1, "c": True, "d": None, "e": "text", "f": float("nan"), "g": 2**80, "h": b"bytes"},
    "numpy scalars": {"a": lambda _: np.float64(0.1), "b": lambda _: np.int16(-3), "c": lambda _: np.bool_(True)},
    "containers": {"a": [1, [2.5, "x"], (3, 4)], "b": {(1, 2): {"k": [None]}, "s": np.arange(3)}},
    "arrays": {
        "a": lambda _: np.arange(6, dtype=np.uint16).reshape(2, 3),
        "b": lambda _: np.array(["ab", "c"]),
        "c": lambda _: np.arange(4, dtype=">f4"),
        "d": lambda _: np.asfortranarray(np.random.default_rng(0).normal(size=(5, 7))),
        "e": lambda _: np.array(1.5),
        "f": lambda _: np.zeros((0, 3)),
        "g": lambda _: np.array(["2026-01-01"], "datetime64[D]"),
    },
    "torch tensors": {"a": lambda _: torch.arange(5)},
    "generators": {
        "a": lambda _: np.random.Generator(np.random.MT19937(3)),
        "b": lambda _: np.random.Generator(np.random.Philox(4)),
        "old": lambda _: np.random.RandomState(3),
        "c": lambda _: np.random.Generator(np.random.SFC64(5)),
        "d": lambda _: np.random.Generator(np.random.PCG64DXSM(6)),
    },
    "a drawing surface": {"screen": lambda _: object(), "surf": lambda _: object()},
}


@pytest.mark.parametrize("extra", PLAIN.values(), ids=PLAIN)
def test_plain_data_is_captured_exactly(extra: dict[str, Any]) -> None:
    environment, fresh = own(**extra), own(**extra)
    assert environment.snapshot == "exact"
    for env in environment._envs:
        for generator in (value for value in vars(env).values() if isinstance(value, GENERATORS)):
            generator.normal(size=5)
    assert_goes_on(environment, fresh)
    for left, right in zip(environment._envs, fresh._envs, strict=True):
        for name in extra:
            if name not in ("screen", "surf"):
                assert_equal(getattr(left, name), getattr(right, name))


def assert_equal(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, GENERATORS):
        assert one.normal(size=5).tolist() == other.normal(size=5).tolist()
    elif isinstance(one, np.ndarray):
        assert (one.dtype, one.shape, one.strides) == (other.dtype, other.shape, other.strides)
        assert one.tobytes() == other.tobytes()
    elif isinstance(one, torch.Tensor):
        assert torch.equal(one, other)
    elif isinstance(one, list | tuple):
        for left, right in zip(one, other, strict=True):
            assert_equal(left, right)
    elif isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            assert_equal(one[key], other[key])
    else:
        assert one == other or (one != one and other != other)


NOT_PLAIN: dict[str, Any] = {
    "an object": {"engine": lambda _: object()},
    "a function": {"rule": lambda _: lambda x: x},
    "Python's generator": {"luck": lambda _: random.Random(3)},
    "an array of objects": {"things": lambda _: np.array([object()], dtype=object)},
    "an array of records": {"table": lambda _: np.zeros(2, dtype=[("x", "f4"), ("y", "i4")])},
    "a masked array": {"holes": lambda _: np.ma.masked_array([1.0, 2.0], [True, False])},
    "a subclass of dict": {"odd": lambda _: __import__("collections").defaultdict(int)},
    "a deque": {"queue": lambda _: deque([1, 2])},
    "an open file": {"file": lambda _: sys.stdout},
    "deep inside": {"tree": lambda _: {"a": [(1, {"b": object()})]}},
    "one array under two names": {"alias": lambda env: env.position},
    "a view of another array": {"view": lambda env: env.position[1:]},
    "one list under two names": {"shared": lambda env: [env.__dict__.setdefault("items", [1]), env.items]},
    "one generator under two names": {"pair": lambda _: [np.random.default_rng(0)] * 2},
    "a tensor over an array": {"tensor": lambda env: torch.from_numpy(env.position)},
    "two tensors over one storage": {"pair": lambda _: (lambda t: [t[:2], t[1:]])(torch.zeros(3))},
}


@pytest.mark.parametrize("extra", NOT_PLAIN.values(), ids=NOT_PLAIN)
def test_what_cannot_be_known_is_not_claimed(extra: dict[str, Any]) -> None:
    environment = own(**extra)
    assert environment.snapshot == "restart"
    assert environment.state_dict() == {}


def test_an_attribute_that_appears_later_ends_exactness_and_not_the_run() -> None:
    environment = own()
    assert environment.snapshot == "exact"
    environment._envs[1].engine = object()  # type: ignore[attr-defined] # that is the point
    assert environment.state_dict() == {}
    assert environment.snapshot == "restart"


def test_arrays_shared_between_a_wrapper_and_its_environment_are_seen() -> None:
    class Peek(gymnasium.Wrapper[Any, Any, Any, Any]):
        def __init__(self, env: Own) -> None:
            super().__init__(env)
            self.peek = env.position

    environment = GymnasiumVector(lambda: Peek(Own()), 1)
    environment.reset([1])
    assert environment.snapshot == "restart"


def test_wrappers_are_captured_layer_by_layer() -> None:
    class Every(gymnasium.Wrapper[Any, Any, Any, Any]):
        """Its own counter, its own space (of which it is not the only owner)."""

        def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
            super().__init__(env)
            self.count = 0
            self.action_space = env.action_space

        def step(self, action: Any) -> Any:
            self.count += 1
            observation, reward, *rest = super().step(action)
            return observation, float(reward) + self.count, *rest

    def make() -> GymnasiumVector:
        environment = GymnasiumVector(lambda: gymnasium.wrappers.TimeLimit(Every(Own()), 5), 2)
        environment.reset([1, 2])
        return environment

    assert_goes_on(make(), make())


def test_draws_from_an_environments_own_spaces_are_captured() -> None:
    class Drawing(Own):
        # On the class, as many write it: still no copy shares a generator with another, or with an evaluation.
        observation_space = spaces.Dict({"a": spaces.Box(-1, 1, (2,)), "b": spaces.Discrete(1_000)})

        def reset(self, **options: Any) -> Any:
            super().reset(**options)
            return self.observation_space.sample(), {}

        def step(self, action: Any) -> Any:
            return self.observation_space.sample(), *super().step(action)[1:]

    def make() -> GymnasiumVector:
        environment = GymnasiumVector(Drawing, 2)
        environment.reset([1, 2])
        return environment

    assert_goes_on(make(), make())
    moves = [torch.tensor([0, 0])] * 20
    alone = trajectory(make(), moves)
    training, evaluation = make(), make()
    trajectory(evaluation, moves)
    assert trajectory(training, moves) == alone


class Keeper(Own):
    """Holds something that can't be captured, and knows itself how to save it."""

    def __init__(self) -> None:
        super().__init__(engine=lambda _: object())

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position, "clock": self.clock, "rng": self.np_random, "t": torch.tensor(self.clock)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        assert state["t"] == state["clock"]
        self.position[:] = state["position"]
        self.clock, self._np_random = state["clock"], state["rng"]


def test_an_environment_that_saves_itself_is_taken_at_its_word() -> None:
    def make() -> GymnasiumVector:
        environment = GymnasiumVector(lambda: gymnasium.wrappers.TimeLimit(Keeper(), 5), 2)
        environment.reset([1, 2])
        return environment

    assert_goes_on(make(), make())


def test_saving_without_loading_is_no_word() -> None:
    class Half(Own):
        def state_dict(self) -> dict[str, Any]:
            return {}

    environment = GymnasiumVector(lambda: Half(engine=lambda _: object()), 1)
    environment.reset([1])
    assert environment.snapshot == "restart"


def test_another_stack_of_wrappers_is_refused() -> None:
    state = snapshot.capture(Own())
    with pytest.raises(ValueError, match="1 layers, this one 2"):
        snapshot.restore(gymnasium.wrappers.TimeLimit(Own(), 5), state)

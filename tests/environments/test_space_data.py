"""Spaces become plain data and come back as they were; what is no space, or too large a one, is one clear line."""

from __future__ import annotations

import json
from collections import OrderedDict
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from etude.config.space_settings import Space
from etude.config.validate import Validator
from etude.environments.space_data import difference, from_data, to_data
from etude.errors import UserError

LOW = np.array([-4.8, -3.4e38, -np.inf], np.float32)
HIGH = np.array([4.8, 3.4e38, np.inf], np.float32)
FOUR = spaces.Discrete(4)
SPACES: list[gymnasium.Space[Any]] = [
    spaces.Box(-1, 1, (3,)),
    spaces.Box(-np.inf, np.inf, (2, 2)),
    spaces.Box(LOW, HIGH),
    spaces.Box(0, 255, (84, 84, 3), np.uint8),
    spaces.Box(0, 1, (2,), np.bool_),
    spaces.Box(-3, 2**62 + 1, (2,), np.int64),
    spaces.Box(-0.1, 0.1, (), np.float64),
    spaces.Box(0, 1, (0,)),
    spaces.Discrete(5, start=2),
    spaces.Discrete(3, dtype=np.int32),
    spaces.MultiDiscrete([[2, 3], [4, 5]], start=[[1, 0], [0, -1]]),
    spaces.MultiBinary((2, 3)),
    spaces.MultiBinary(4),
    spaces.Dict(OrderedDict(z=spaces.Discrete(2), a=spaces.Box(0, 1, (2,)))),
    spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 1, (2,))]),
]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_a_space_comes_back_as_it_was(space: gymnasium.Space[Any]) -> None:
    again = from_data(json.loads(json.dumps(to_data(space), allow_nan=False)))
    assert again == space
    assert type(again) is type(space)
    if isinstance(space, spaces.Box):
        assert isinstance(again, spaces.Box)
        assert again.low.tobytes() == space.low.tobytes()
        assert again.high.tobytes() == space.high.tobytes()
    if isinstance(space, spaces.Dict):
        assert isinstance(again, spaces.Dict)
        assert list(again.spaces) == list(space.spaces) == ["z", "a"]  # networks read parts in this order


def test_uniform_bounds_are_one_number() -> None:
    assert to_data(spaces.Box(0, 255, (210, 160, 3), np.uint8))["low"] == 0
    assert to_data(spaces.Box(-np.inf, np.inf, (300,)))["high"] == "inf"
    assert to_data(spaces.Box(LOW, HIGH))["low"] == [float(LOW[0]), float(LOW[1]), "-inf"]
    signed = spaces.Box(np.array([0.0, -0.0], np.float32), 1)
    assert to_data(signed)["low"] == [0.0, -0.0]
    assert np.signbit(from_data(to_data(signed)).low).tolist() == [False, True]  # type: ignore[attr-defined] # a Box


@pytest.mark.parametrize(
    ("space", "said"),
    [
        (spaces.Text(5), "a Text space has no form as data"),
        (spaces.Box(-1, 1, (2,), np.float16), "a space of float16 has no form"),
        (spaces.Dict(a=spaces.Dict(b=spaces.Discrete(2))), "one level of parts"),
        (spaces.Dict({1: spaces.Discrete(2)}), "is called 1"),  # type: ignore[dict-item] # what is tested
    ],
)
def test_a_space_that_etude_does_not_read_is_not_stored(space: gymnasium.Space[Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        to_data(space)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (3, "a space is a mapping"),
        ({}, "space.type: is required"),
        ({"type": "boxx"}, "did you mean 'box'"),
        ({"type": "box", "shape": [2], "hihg": 1}, "space.hihg: unknown key; did you mean 'high'"),
        ({"type": "box"}, "space.shape: is needed for a box"),
        ({"type": "box", "shape": [2], "high": 1}, "space.low: is needed for a box"),
        ({"type": "box", "shape": [-1], "low": 0, "high": 1}, "must be at least 0"),
        ({"type": "box", "shape": [10**6, 10**6], "low": 0, "high": 1}, "more than 16,777,216 entries"),
        ({"type": "box", "shape": [1] * 100, "low": 0, "high": 1}, "dimension"),
        ({"type": "box", "shape": [2], "low": "a", "high": 1}, "space.low=a: must be a number"),
        ({"type": "box", "shape": [2], "low": [0], "high": 1}, "low has 1 entries"),
        ({"type": "box", "shape": [2], "low": float("nan"), "high": 1}, "must be a finite number"),
        ({"type": "box", "shape": [2], "low": 0, "high": 1e300}, "high of a box is no float32"),
        ({"type": "box", "shape": [2], "low": 0, "high": 300, "dtype": "uint8"}, "high of a box is no uint8"),
        ({"type": "box", "shape": [2], "low": 3, "high": 1}, "lower bound above its upper one"),
        ({"type": "box", "shape": [2], "low": 0, "high": 1, "dtype": "object"}, "must be one of float32"),
        ({"type": "discrete", "n": 10**12}, "at most 16,777,216"),
        ({"type": "discrete", "n": 2, "shape": [1]}, "shape says nothing about a discrete space"),
        ({"type": "discrete", "n": 2, "dtype": "float32"}, "must be an integer dtype"),
        ({"type": "multi_discrete", "nvec": [2, 3], "start": [1]}, "start has 1 entries"),
        ({"type": "multi_discrete", "nvec": [2, 3], "shape": [3]}, "nvec has 2 entries"),
        ({"type": "dict", "spaces": {"a": {"type": "dict", "spaces": {}}}}, "space.spaces.a.type=dict"),
        ({"type": "dict", "spaces": [{"type": "discrete", "n": 2}]}, "spaces of a dict are a mapping"),
        ({"type": "tuple"}, "space.spaces: is needed for a tuple"),
    ],
)
def test_data_that_is_no_space_is_refused(data: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        from_data(data)


@pytest.mark.parametrize(
    ("data", "space", "said"),
    [
        ({"type": "box"}, spaces.Box(-1, 1, (3,)), None),
        ({"type": "box", "shape": [3], "low": -1}, spaces.Box(-1, 1, (3,)), None),
        ({"type": "box", "low": -0.1}, spaces.Box(-0.1, 1, (3,)), None),  # written in decimals, held in single precision
        ({"type": "box", "low": "-inf"}, spaces.Box(-np.inf, 1, (3,)), None),
        ({"type": "box", "shape": [4]}, spaces.Box(-1, 1, (3,)), "shape [3], not [4]"),
        ({"type": "box", "high": [1, 1, 2]}, spaces.Box(-1, 1, (3,)), "high 1.0, not [1, 1, 2]"),
        ({"type": "box", "high": [1, 2]}, spaces.Box(-1, 1, (3,)), "high 1.0, not [1, 2]"),
        ({"type": "box", "dtype": "uint8"}, spaces.Box(-1, 1, (3,)), "dtype float32, not uint8"),
        ({"type": "box"}, spaces.Discrete(3), "a discrete, not a box"),
        ({"type": "discrete", "n": 3}, spaces.Discrete(3, start=4), None),
        ({"type": "discrete", "n": 2, "start": 0}, spaces.Discrete(3), "n 3, not 2"),
        ({"type": "multi_discrete", "start": 0}, spaces.MultiDiscrete([2, 3]), None),
        ({"type": "multi_discrete", "nvec": [2, 2]}, spaces.MultiDiscrete([2, 3]), "nvec [2, 3], not [2, 2]"),
        ({"type": "dict"}, spaces.Dict(a=spaces.Discrete(2)), None),
        ({"type": "dict", "spaces": {"b": {"type": "box"}}}, spaces.Dict(a=spaces.Discrete(2)), "has the parts a, not b"),
        (
            {"type": "dict", "spaces": {"a": {"type": "discrete", "n": 3}}},
            spaces.Dict(a=spaces.Discrete(2)),
            "its part a: n 2, not 3",
        ),
        (
            {"type": "tuple", "spaces": [{"type": "box"}]},
            spaces.Tuple([spaces.Discrete(2)]),
            "its part 0: a discrete, not a box",
        ),
    ],
)
def test_what_is_said_of_a_space_is_compared_and_nothing_else(data: Any, space: Any, said: str | None) -> None:
    assert difference(Validator().build(Space, data, "space"), space) == said

from __future__ import annotations

import json
import math
import random
import struct
from collections import OrderedDict
from collections.abc import Callable
from enum import IntEnum

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.files.state_tree import MAX_DEPTH, STORABLE_DTYPES, TreeEncoder, decode

Same = Callable[[object, object], bool]


def through_json(state: object) -> object:
    encoded, tensors = TreeEncoder().encode("shared", state)
    # Strict: what another language's parser refuses is not JSON.
    text = json.dumps(encoded, allow_nan=False)
    return decode(json.loads(text), lambda part, name: {("shared", key): t for key, t in tensors.items()}[part, name])


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    dtype = draw(st.sampled_from(list(STORABLE_DTYPES)))
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    count = math.prod(shape) * dtype.itemsize
    data = draw(st.binary(min_size=count, max_size=count))
    if dtype is torch.bool:
        data = bytes(byte & 1 for byte in data)
    if count == 0:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).view(dtype).reshape(shape)


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(max_size=8)
keys = st.text() | st.integers() | st.booleans() | st.none() | st.tuples(st.integers(), st.text())
trees = st.recursive(
    scalars | tensors(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(), inner, max_size=4)
        | st.dictionaries(keys, inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(state=trees)
def test_any_state_comes_back_exactly(same: Same, state: object) -> None:
    assert same(state, through_json(state))


def test_what_training_really_stores_comes_back_exactly(same: Same) -> None:
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    state = {
        "model": dict(model.state_dict()),
        "optimizer": optimizer.state_dict(),
        "random": random.getstate(),
        "numpy": np.random.default_rng(0).bit_generator.state,
        "torch": torch.get_rng_state(),
        "huge": 7**9000,
        "nan": [math.nan, math.inf, -math.inf, -0.0, 5e-324, struct.unpack(">d", bytes.fromhex("7ff8000000000001"))[0]],
        "$tensor": ["looks", "tagged"],
    }
    assert same(state, through_json(state))


def test_a_module_s_ordered_dict_comes_back_in_order() -> None:
    restored = through_json(OrderedDict(b=1, a=2))
    assert list(restored.items()) == [("b", 1), ("a", 2)]  # pyright: ignore[reportAttributeAccessIssue]


def test_tensors_that_share_memory_are_stored_once_across_parts() -> None:
    weight = torch.nn.Parameter(torch.randn(3, 3))
    encoder = TreeEncoder()
    _, in_policy = encoder.encode("policy", {"w": weight})
    in_json, in_shared = encoder.encode("shared", {"w": weight.data, "flat": weight.view(-1), "turned": weight.t()})
    assert list(in_policy) == ["w"]
    assert in_json == {
        "w": {"$tensor": ["policy", "w"]},
        "flat": {"$tensor": ["shared", "flat"]},
        "turned": {"$tensor": ["shared", "turned"]},
    }
    assert list(in_shared) == ["flat", "turned"]


def test_equal_paths_do_not_collide(same: Same) -> None:
    state = {"a.b": torch.zeros(1), "a": {"b": torch.ones(1)}, "__metadata__": torch.ones(2), "\ud800": torch.ones(3)}
    assert same(state, through_json(state))


class Colour(IntEnum):
    RED = 1


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (object(), r"^workflow\.optimizers\.0\.foo: a object can't be stored$"),
        (len, "a builtin_function_or_method can't be stored"),
        (np.zeros(2), r"a ndarray can't be stored; store torch\.from_numpy"),
        (np.float64(1), r"a float64 can't be stored; store value\.item"),
        (Colour.RED, "a Colour can't be stored"),
        ({torch.zeros(1): 1}, "a Tensor can't be stored as a dict's key"),
        ({1, 2}, "a set can't be stored"),
        (torch.zeros(1, dtype=torch.complex128), r"torch\.complex128 tensor .* can't be stored"),
        (torch.zeros(1, device="meta"), "meta"),
        (torch.zeros(2, 2).to_sparse(), "sparse"),
    ],
)
def test_what_can_t_be_stored_is_named_by_its_path(value: object, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        TreeEncoder().encode("shared", {"workflow": {"optimizers": [{"foo": value}]}})


def test_a_state_that_contains_itself_is_an_error() -> None:
    state: list[object] = []
    state.append(state)
    with pytest.raises(TypeError, match=f"deeper than {MAX_DEPTH}"):
        TreeEncoder().encode("shared", {"loop": state})


def test_the_deepest_state_that_can_be_saved_can_be_loaded(same: Same) -> None:
    state: object = 1
    for _ in range(MAX_DEPTH):
        state = {0: state}
    assert same(state, through_json(state))


@pytest.mark.parametrize(
    "text",
    [
        '{"$tensor": "x"}',
        '{"$nope": 1}',
        '{"$bytes": "%"}',
        '{"$dict": [[{}, 1]]}',
        '{"$dict": [1]}',
        '{"$int": "z"}',
        '{"$float": "00"}',
        '{"$tuple": 3}',
        '{"$dict": [[{"$tuple": [[]]}, 1]]}',
    ],
)
def test_json_that_is_not_a_state_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="not a state"):
        decode(json.loads(text), lambda part, name: torch.zeros(()))

"""Equal means equal in every bit, and what is not equal is named."""

from __future__ import annotations

import math

import pytest
import torch

from etude.verification.differences import MISSING, Difference, compare_rows, compare_states

ROW = {"env_steps": 8, "train/loss": 0.1, "eval/return_mean": math.nan, "time/elapsed_s": 1.0, "system/memory_mib": 5.0}


def test_equal_rows_are_equal_whatever_the_clock_says() -> None:
    found = compare_rows([ROW], [{**ROW, "time/elapsed_s": 2.0, "system/memory_mib": 6.0}])
    assert (found.first, found.rows, found.values, found.differing_rows) == (None, 1, 3, 0)


@pytest.mark.parametrize("value", [math.nextafter(0.1, 1), -0.1, math.nan, 0])
def test_one_bit_in_a_row_is_a_difference(value: float) -> None:
    found = compare_rows([ROW, ROW], [ROW, {**ROW, "train/loss": value}])
    assert found.first is not None
    assert (found.first.key, found.first.row, found.first.env_steps, found.first.stored) == ("train/loss", 2, 8, 0.1)
    assert (found.differing_rows, found.differing_keys) == (1, {"train/loss"})


def test_minus_zero_is_not_zero() -> None:
    assert compare_rows([{"train/loss": 0.0}], [{"train/loss": -0.0}]).first is not None


def test_the_first_difference_is_named_and_all_are_counted() -> None:
    other = {**ROW, "train/loss": 0.2, "train/entropy": 1.0}
    found = compare_rows([ROW, ROW, ROW], [ROW, other, other])
    assert found.first == Difference("train/loss", 0.1, 0.2, row=2, env_steps=8)
    assert (found.differing_rows, found.differing_keys) == (2, {"train/loss", "train/entropy"})


def test_a_row_that_only_one_has_is_a_difference() -> None:
    assert compare_rows([ROW, {**ROW, "env_steps": 16}], [ROW]).first == Difference("env_steps", 16, MISSING, 2, 16)
    assert compare_rows([], [ROW]).first == Difference("env_steps", MISSING, 8, 1, 8)
    assert compare_rows([], []).first is None


def _state(**changes: object) -> dict[str, object]:
    workflow = {"actor": {"weight": torch.tensor([1.0, math.nan, -0.0])}, "optimizer": [{"step": torch.tensor(3)}, (1, "x")]}
    return {"shared": {"counters": {"env_steps": 8}, "workflow": {**workflow, **changes}, "elapsed_s": 1.0}}


def test_equal_states_are_equal_but_for_their_clock() -> None:
    other = _state()
    other["shared"]["elapsed_s"] = 2.0  # type: ignore[index] # a dict
    found = compare_states(_state(), other)
    assert (found.first, found.tensors, found.values) == (None, 2, 3)


@pytest.mark.parametrize("weight", [[1.0, math.nan, 0.0], [1.0000001, math.nan, -0.0], [1.0, 1.0, -0.0]])
def test_one_bit_in_a_tensor_is_a_difference(weight: list[float]) -> None:
    found = compare_states(_state(), _state(actor={"weight": torch.tensor(weight)}))
    assert found.differing_tensors == ["shared.workflow.actor.weight"]


def test_shape_type_and_absence_are_differences() -> None:
    for actor in ({"weight": torch.zeros(3, 1)}, {"weight": torch.zeros(3, dtype=torch.float64)}, {}, {"weight": 1.0}):
        found = compare_states(_state(), _state(actor=actor))
        assert found.first is not None
        assert found.first.key == "shared.workflow.actor.weight"


def test_a_tensor_is_named_before_a_plain_value_with_the_element_that_differs() -> None:
    one, other = _state(), _state(actor={"weight": torch.tensor([1.0, math.nan, 5.0])})
    other["shared"]["counters"]["env_steps"] = 9  # type: ignore[index] # a dict
    found = compare_states(one, other)
    assert found.first == Difference("shared.workflow.actor.weight", -0.0, 5.0)
    assert found.differing_values == ["shared.counters.env_steps"]

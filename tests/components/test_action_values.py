"""What each action is worth: dueling streams, shapes, masks."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from etude.components.action_values import ActionValues, DuelingHead, allowed, of_action
from etude.components.value_distributions import MeanValue, QuantileValue


def head(units: int = 6, actions: int = 3, size: int = 1, seed: int = 0) -> DuelingHead:
    return DuelingHead(units, actions, size, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("size", [1, 4])
def test_dueling_streams_add_up_by_the_book(size: int) -> None:
    dueling, features = head(size=size), torch.randn(5, 12, generator=torch.Generator().manual_seed(1))
    value = dueling.value(features[:, :6].relu())  # (5, size)
    advantage = dueling.advantage(features[:, 6:].relu()).view(5, 3, size)
    expected = torch.stack([value + advantage[:, a] - advantage.mean(1) for a in range(3)], dim=1)
    torch.testing.assert_close(dueling(features), expected)
    torch.testing.assert_close(dueling(features).mean(1), value)


def test_a_dueling_head_depends_on_its_generator_alone() -> None:
    torch.manual_seed(1)
    one = head().state_dict()
    torch.manual_seed(2)
    for name, weight in head().state_dict().items():
        assert torch.equal(weight, one[name])


@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("size", [1, 4])
def test_outputs_are_by_action(dueling: bool, size: int) -> None:
    distribution = MeanValue() if size == 1 else QuantileValue(size)
    network = nn.Linear(2, 12 if dueling else 3 * size)
    q = ActionValues(network, 3, distribution, head(size=size) if dueling else None)
    outputs = q(torch.randn(7, 2))
    assert outputs.shape == (7, 3, size)
    assert q.values(outputs).shape == (7, 3)


def test_of_action_takes_the_outputs_of_each_rows_action() -> None:
    outputs = torch.arange(24.0).view(4, 3, 2)
    assert of_action(outputs, torch.tensor([2, 0, 1, 2])).tolist() == [[4, 5], [6, 7], [14, 15], [22, 23]]


def test_what_a_mask_forbids_is_worth_nothing() -> None:
    values = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    masked = allowed(values, {"x": torch.zeros(2), "action_mask": torch.tensor([[1, 0], [1, 1]], dtype=torch.int8)})
    assert masked.argmax(-1).tolist() == [0, 1]
    assert allowed(values, values) is values

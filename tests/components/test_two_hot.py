"""Numbers as two-hot distributions, and the scale of returns."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.components.return_scale import ReturnScale, percentiles
from etude.components.two_hot import TwoHot, symexp, symlog

BOTH = [TwoHot(255, 20.0, "as is"), TwoHot(101, 10.0, "in symlog"), TwoHot(8, 5.0, "as is")]


@settings(deadline=None)
@given(st.floats(-1e6, 1e6))
def test_symexp_undoes_symlog(x: float) -> None:
    value = torch.tensor(x, dtype=torch.float64)
    torch.testing.assert_close(symexp(symlog(value)), value, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("two_hot", BOTH)
def test_a_number_comes_back(two_hot: TwoHot) -> None:
    values = torch.tensor([0.0, 1e-3, -1e-3, 0.5, -3.0, 17.0, 147.0])
    back = two_hot.mean(two_hot.encode(values).clamp(min=1e-30).log())
    torch.testing.assert_close(back, values, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("two_hot", BOTH)
def test_numbers_beyond_the_ends_are_the_ends(two_hot: TwoHot) -> None:
    encoded = two_hot.encode(torch.tensor([1e30, -1e30]))
    assert encoded[0, -1] == 1
    assert encoded[1, 0] == 1
    assert encoded.sum() == 2


@pytest.mark.parametrize("two_hot", BOTH)
def test_bins_are_met_exactly_and_have_all_the_weight(two_hot: TwoHot) -> None:
    values = symexp(two_hot.bins) if two_hot._in_symlog else two_hot.bins
    torch.testing.assert_close(two_hot.encode(values).argmax(-1), torch.arange(two_hot.size))


@pytest.mark.parametrize("two_hot", BOTH)
def test_the_first_prediction_is_exactly_0(two_hot: TwoHot) -> None:
    assert torch.equal(two_hot.mean(torch.zeros(3, two_hot.size)), torch.zeros(3))


@pytest.mark.parametrize("two_hot", BOTH[:2])
def test_the_loss_is_that_of_a_slow_loop(two_hot: TwoHot) -> None:
    logits, values = torch.randn(5, two_hot.size), torch.randn(5) * 30
    expected = []
    for row, value in zip(logits.double(), values.double(), strict=True):
        x, bins = (symlog(value) if two_hot._in_symlog else value), two_hot.bins.double()
        k = max(i for i in range(two_hot.size - 1) if bins[i] <= x)
        share = (x - bins[k]) / (bins[k + 1] - bins[k])
        logs = row - row.exp().sum().log()
        expected.append(-((1 - share) * logs[k] + share * logs[k + 1]))
    torch.testing.assert_close(two_hot.loss(logits, values).double(), torch.stack(expected), rtol=1e-4, atol=1e-4)


@settings(deadline=None)
@given(st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=40), st.floats(0, 1))
def test_percentiles_are_numpys(values: list[float], share: float) -> None:
    given_values = torch.tensor(values)
    torch.testing.assert_close(percentiles(given_values, share)[0], torch.quantile(given_values, share), rtol=1e-4, atol=1e-3)


def test_the_scale_follows_the_range_and_never_divides_by_less_than_1() -> None:
    scale = ReturnScale(rate=0.5)
    state = scale.initial("cpu")
    assert scale.divisor(state) == 1
    returns = torch.linspace(0, 100, 101)
    state = scale.updated(state, returns)
    torch.testing.assert_close(scale.divisor(state), torch.tensor(45.0))
    assert scale.divisor(scale.updated(scale.initial("cpu"), returns / 1000)) == 1

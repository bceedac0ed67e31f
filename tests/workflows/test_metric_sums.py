from __future__ import annotations

import math

import pytest
import torch

from etude.workflows.metrics import MetricSums
from tests.workflows.tiny_runs import copied


def test_a_row_is_the_mean_since_the_last_one() -> None:
    sums = MetricSums()
    for value in (1.0, 2.0, 6.0):
        sums.add({"train/loss": torch.tensor(value), "train/flag": value > 1})
    assert sums.drain() == pytest.approx({"train/loss": 3.0, "train/flag": 2 / 3})
    assert sums.drain() == {}
    sums.add({"train/loss": torch.tensor(5.0), "train/flag": 0.0})
    assert sums.drain() == {"train/loss": 5.0, "train/flag": 0.0}


def test_nan_makes_a_mean_nan_or_is_left_out_as_one_wishes() -> None:
    values = [{"train/loss": torch.tensor(value), "train/kl": torch.tensor(1.0)} for value in (1.0, math.nan, math.inf, 3.0)]
    keeps, skips, cut, table = MetricSums(), *(MetricSums(skips_non_finite=True) for _ in range(3))
    for each in values:
        keeps.add(each)
        skips.add(each)
    assert math.isnan(keeps.drain()["train/loss"])
    for each in values[:2]:
        cut.add(each)
    cut.load_state_dict(copied(cut.state_dict()))
    rows = torch.stack([torch.stack([*each.values()]) for each in values])
    cut.add_rows(rows[2:], ("train/loss", "train/kl"))
    table.add_rows(rows, ("train/loss", "train/kl"))
    assert skips.drain() == cut.drain() == table.drain() == {"train/loss": 2.0, "train/kl": 1.0}
    skips.add(values[1])
    assert math.isnan(skips.drain()["train/loss"]), "where nothing is finite there is no mean"
    keeps.add(values[0])
    skips.load_state_dict(keeps.state_dict())
    assert skips.drain() == {}, "another policy begins with its own sums"


def test_a_count_beside_a_loss_does_not_round_it() -> None:
    sums = MetricSums()
    sums.add({"train/count": torch.tensor(3), "train/loss": torch.tensor(0.75), "train/on": torch.tensor(True)})
    assert sums.drain() == {"train/count": 3.0, "train/loss": 0.75, "train/on": 1.0}


def test_half_precision_is_summed_in_full() -> None:
    sums = MetricSums()
    for _ in range(4_000):
        sums.add({"train/loss": torch.tensor(1.0, dtype=torch.bfloat16)})
    assert sums.drain() == {"train/loss": 1.0}


def test_values_are_copied_and_cut_from_the_graph() -> None:
    sums, value = MetricSums(), torch.tensor(2.0, requires_grad=True)
    loss = value * 1
    sums.add({"train/loss": loss})
    with torch.no_grad():
        loss.fill_(100.0)
    assert not sums.state_dict()["update"]["sums"].requires_grad
    assert sums.drain() == {"train/loss": 2.0}


def test_groups_have_their_own_weights() -> None:
    sums = MetricSums()
    sums.add({"train/loss": 1.0})
    sums.add({"train/loss": 3.0})
    sums.add({"train/value": 8.0}, group="rollout")
    assert sums.drain() == {"train/loss": 2.0, "train/value": 8.0}


def test_a_changed_set_of_names_is_an_error_that_names_them() -> None:
    sums = MetricSums()
    sums.add({"a": 1.0, "b": 2.0})
    with pytest.raises(ValueError, match="'update' reported other metrics than before: b, c"):
        sums.add({"a": 1.0, "c": 2.0})


def test_saved_sums_go_on_where_they_were() -> None:
    sums = MetricSums()
    sums.add({"train/loss": 1.0})
    saved = copied(sums.state_dict())
    fresh = MetricSums()
    fresh.load_state_dict(saved)
    for one in (sums, fresh):
        one.add({"train/loss": 4.0})
        one.add({"train/late": 9.0}, group="late")
    assert fresh.drain() == sums.drain() == {"train/loss": 2.5, "train/late": 9.0}
    sums.add({"train/late": 7.0}, group="late")
    sums.load_state_dict(saved)  # back in time: what came later is forgotten
    assert sums.drain() == {"train/loss": 1.0}

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.buffers.sum_tree import SumTree

VALUES = st.lists(st.floats(0, 1e6, allow_subnormal=False), min_size=1, max_size=40)


def tree_of(values: list[float]) -> SumTree:
    tree = SumTree(len(values))
    tree.fill(0, len(values), torch.tensor(values, dtype=torch.float64))
    return tree


@given(values=VALUES, share=st.floats(0, 1))
@settings(max_examples=200, deadline=None)
def test_a_draw_finds_the_leaf_at_which_the_running_sum_passes_it(values: list[float], share: float) -> None:
    if not any(values):
        return
    tree = tree_of(values)
    amount = share * float(tree.total)
    leaf = int(tree.find(torch.tensor([amount], dtype=torch.float64)))
    assert values[leaf] > 0, "what has no value is never drawn"
    assert sum(values[:leaf]) <= amount * (1 + 1e-12)
    assert sum(values[: leaf + 1]) >= amount * (1 - 1e-12)


@given(data=st.data(), values=VALUES)
@settings(max_examples=100, deadline=None)
def test_however_it_came_about_the_tree_is_the_one_built_anew(data: st.DataObject, values: list[float]) -> None:
    tree = tree_of(values)
    for _ in range(3):
        index = torch.tensor(data.draw(st.lists(st.integers(0, len(values) - 1), min_size=1, max_size=8)))
        given = torch.tensor(data.draw(st.lists(st.floats(0, 1e6), min_size=len(index), max_size=len(index))))
        tree.write(index, given.double())
        for leaf in index.unique().tolist():
            assert tree.leaves[leaf] == given.double()[index == leaf].max()
        first = data.draw(st.integers(0, len(values) - 1))
        tree.fill(first, data.draw(st.integers(first, len(values))), torch.tensor(0.1, dtype=torch.float64))
    assert torch.equal(tree.nodes, tree_of(tree.leaves.tolist()).nodes), "to the last bit"


@pytest.mark.parametrize("size", [1, 2, 3, 8, 9])
def test_any_size_will_do(size: int) -> None:
    tree = tree_of([1.0] * size)
    assert tree.total == size
    drawn = tree.find(torch.arange(size, dtype=torch.float64) + 0.5)
    assert drawn.tolist() == list(range(size))
    tree.clear()
    assert tree.total == 0

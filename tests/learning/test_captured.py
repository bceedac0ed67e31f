"""What surrounds a captured update: inputs copied to where it reads, warm-up put back, noise and batches drawn inside.

A real capture needs a GPU (`test_execute.py`, `test_modes.py`). Here a call that is done again stands in for a graph: like one,
it reads and writes the tensors that it was made with, and nothing else.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Generator

from etude.learning import captured, execute
from etude.learning.captured import Captured
from etude.learning.execute import Packed
from tests.learning.test_execute import assert_same
from tests.learning.toys import Rows, Toy


class Again:
    """Does a call again, and puts what it says where it was said first."""

    def __init__(self, function: Callable[[], Packed], said: Packed) -> None:
        self._function, self._said = function, said

    def replay(self) -> None:
        for place, value in zip(self._said.tensors, self._function().tensors, strict=True):
            place.copy_(value)


class Stream:
    def wait_stream(self, other: Any) -> None:
        """Nothing waits here."""


CAPTURED: list[Toy] = []
"""The toys of a test that are captured."""


@pytest.fixture(autouse=True)
def captures(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Stand in for CUDA; returns how many generators each capture was given."""
    found: list[int] = []

    def capture(function: Callable[[], Packed], generators: Sequence[Generator] = ()) -> tuple[Again, Packed]:
        found.append(len(generators))
        # Capturing computes nothing: it only finds places for what will be said.
        touched = [tensor for toy in CAPTURED for tensor in toy.executor.touched()]
        before, drawn = [tensor.clone() for tensor in touched], [generator.get_state() for generator in generators]
        said = function()
        for tensor, value in zip(touched, before, strict=True):
            tensor.copy_(value)
        for generator, state in zip(generators, drawn, strict=True):
            generator.set_state(state)
        return Again(function, said), said

    CAPTURED.clear()
    monkeypatch.setattr(captured, "capture", capture)
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda: torch.zeros(1))
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state: None)
    return found


def captured_toy(**options: Any) -> Toy:
    toy = Toy(**options)
    toy.executor = Captured(toy.executor)
    CAPTURED.append(toy)
    return toy


def test_it_is_the_eager_update_to_the_bit(captures: list[int]) -> None:
    eager, fast = Toy(every=2), captured_toy(every=2)
    eager.source.unit = fast.source.unit = 2
    for _ in range(3):
        said, also = eager.run(6), fast.run(6)
        for stage, table in said.items():
            assert table.keys == also[stage].keys
            assert torch.equal(table.values, also[stage].values)
        assert_same(eager.everything(), fast.everything(), 0)
    assert captures == [1, 1, 1], "two updates a call, with targets after every third: three patterns, one capture each"


def test_columns_that_move_are_copied_to_where_the_graph_reads() -> None:
    eager, fast = Toy(), captured_toy()
    for shift in (0.0, 1.0, 2.0):
        for toy in (eager, fast):
            toy.source = Rows(toy.rows)
            toy.source.is_fixed = False
            toy.source.columns["x"].add_(shift)
            toy.run(3)
        assert_same(eager.everything(), fast.everything(), 0)


class Inside(Rows):
    """Draws on the device, as part of the capture."""

    def __init__(self, generator: Generator) -> None:
        super().__init__(generator)
        self.generators = (generator,)


def test_batches_drawn_inside_are_those_drawn_outside() -> None:
    eager, fast = Toy(), captured_toy()
    fast.source = Inside(fast.rows)
    for _ in range(2):
        eager.run(4)
        fast.run(4)
        assert_same(eager.everything(), fast.everything(), 0)


def test_what_learning_writes_back_is_drawn_from_next() -> None:
    eager, fast = Toy(writes_back=True), captured_toy(writes_back=True)
    eager.run(5)
    fast.run(5)
    assert_same(eager.everything(), fast.everything(), 0)
    assert bool(fast.source.columns["latent"].any())


def test_calls_are_cut_only_between_units() -> None:
    source = Toy().source
    for unit, count, size in ((1, 8, 1), (4, 8, 4), (8, 8, 4), (6, 12, 2), (4, 6, 1)):
        source.unit = unit
        assert execute.size_of_calls(source, count) == size
    source.follows_learning = True
    assert execute.size_of_calls(source, 8) == 1

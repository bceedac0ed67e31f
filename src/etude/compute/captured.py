"""A function of tensors, captured as a CUDA graph: one launch for all that it does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Generator, Tensor

from etude.compute.trees import leaves, map_tree

Result = TypeVar("Result")
WARM_UP_CALLS = 3
"""Calls that run as they are before one is captured: libraries set themselves up in these."""
_depth = 0


class Captured:
    """Calls a function as it is a few times, then captures it and launches the graph instead.

    The function may change tensors in place, and draw from `generators`: a launch draws what the call itself would have. It
    must not ask the device for a number, nor depend on Python values that change. What it returns is overwritten by the next
    call; its inputs may be any trees of tensors of the same form and shapes.
    """

    def __init__(self, function: Callable[..., Any], *, generators: Sequence[Generator] = ()) -> None:
        self._function, self._generators = function, tuple(generators)
        self._calls = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: list[Tensor] = []
        self._result: Any = None

    def __call__(self, *inputs: Any) -> Any:
        """Return what the function returns."""
        if self._graph is None and self._calls < WARM_UP_CALLS:
            self._calls += 1
            with to_be_captured():
                return self._function(*inputs)
        if self._graph is None:
            own = map_tree(torch.clone, inputs)
            self._inputs = [*leaves(own)]
            self._graph, self._result = capture(partial(self._function, *own), self._generators)
        elif self._inputs:
            torch._foreach_copy_(self._inputs, [*leaves(inputs)])  # type: ignore[reportPrivateImportUsage] # torch has no public name for it
        self._graph.replay()
        return self._result


def capture(function: Callable[[], Result], generators: Sequence[Generator] = ()) -> tuple[torch.cuda.CUDAGraph, Result]:
    """Capture what a function does, and return the graph and where its results will be."""
    graph = torch.cuda.CUDAGraph()
    for generator in generators:
        graph.register_generator_state(generator)
    with torch.cuda.graph(graph), to_be_captured():
        result = function()
    # Capturing has set the place in each random stream to 0, on a CUDA stream of its own. On a busy GPU that can come after
    # the first launch has set it to where it belongs, which then draws the numbers that the random stream began with.
    torch.cuda.synchronize()
    return graph, result


@contextmanager
def to_be_captured() -> Iterator[None]:
    """Have everything within do what it does in a graph, whether it is captured already or only warms up."""
    global _depth  # one for the process, as torch's own mark of compiling is
    _depth += 1
    try:
        yield
    finally:
        _depth -= 1


def asks_nothing() -> bool:
    """Whether what runs now is to be part of a graph: it must not ask the device for a number."""
    return _depth > 0

"""A function of tensors, recorded once as a CUDA graph and replayed: one launch for all that it does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Generator, Tensor
from torch.utils import _pytree as pytree  # the only flattening of nested dicts and tuples that torch has

WARM_UP_CALLS = 3
"""Calls that run as they are before one is recorded: libraries set themselves up in these."""


class Captured:
    """Calls a function as it is a few times, then records it and replays the recording.

    The function may change tensors in place, and draw from `generators`: a replay draws what the call itself would have. It
    must not ask the device for a number, nor depend on Python values that change. What it returns is overwritten by the next
    call; its inputs may be any tensors of the same shapes.
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
            return self._function(*inputs)
        if self._graph is None:
            self._graph = self._record(*inputs)
        elif self._inputs:
            torch._foreach_copy_(self._inputs, pytree.tree_leaves(inputs))  # type: ignore[reportPrivateImportUsage] # torch has no public name for it
        self._graph.replay()
        return self._result

    def _record(self, *inputs: Any) -> torch.cuda.CUDAGraph:
        own = pytree.tree_map(torch.clone, inputs)
        self._inputs = pytree.tree_leaves(own)
        graph = torch.cuda.CUDAGraph()
        for generator in self._generators:
            graph.register_generator_state(generator)
        with torch.cuda.graph(graph):
            self._result = self._function(*own)
        return graph

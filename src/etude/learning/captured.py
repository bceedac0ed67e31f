"""Updates captured as CUDA graphs: one launch for several of them, eager or compiled."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from etude.compute.captured import WARM_UP_CALLS, capture, to_be_captured
from etude.compute.trees import Tree, at, copy_, leaves, map_tree
from etude.learning.execute import Before, Due, Executor, Packed, Table, merged, run_in_calls
from etude.learning.sources import Source

STEPS_PER_CAPTURE = 32
"""How many updates one launch may take."""


class Captured(Executor):
    """Another way to run, captured once for each pattern of stages and shape of batches."""

    def __init__(self, inner: Executor) -> None:
        super().__init__(inner.update, dict(inner.modules.items()), inner.generator)
        self.mode = "captured" if inner.mode == "eager" else "compiled and captured"
        self.inner = inner
        self.steps_per_call = STEPS_PER_CAPTURE
        self._graphs: dict[Any, _Graph] = {}

    def run(self, source: Source, count: int, before: Before | None = None) -> dict[str, Table]:
        """Take `count` updates on a source's batches, and return the metrics of each stage that took part."""
        source.begin()
        return run_in_calls(self, source, count, before)

    def draws_inside(self, source: Source) -> bool:
        """Whether drawing is part of a call: where a source draws on the device."""
        return bool(source.generators)

    def steps(self, source: Source, columns: Mapping[str, Any], drawn: Tree, pattern: tuple[Due, ...]) -> Packed:
        """Take as many updates as the pattern has, on batches gathered from `columns`."""
        key = (pattern, source.identity, *(leaf.shape for leaf in leaves([columns, drawn])))
        if key not in self._graphs:
            self._graphs[key] = _Graph(self.inner, source, columns, drawn, pattern)
        return self._graphs[key].run(columns, drawn)


class _Graph:
    """One call of `steps`, on memory of its own for whatever does not stay where it is."""

    def __init__(
        self, inner: Executor, source: Source, columns: Mapping[str, Any], drawn: Tree, pattern: tuple[Due, ...]
    ) -> None:
        """Warm up and capture; what that touches is put back, so that a captured run is the eager run."""
        self._columns, self._copied = (columns, None) if source.is_fixed else (map_tree(torch.clone, columns), columns)
        self._drawn = map_tree(torch.clone, drawn)
        generators = [generator for generator in (*source.generators, inner.generator) if generator is not None]

        # In a capture many calls of compiled code cost no more than one, and code of few updates is compiled sooner.
        together = any(stage.beforehand is not None for stage in inner.update.stages)
        most = inner.steps_per_call if together or inner.mode == "eager" else 1
        size = len(pattern) if inner.mode == "eager" else math.gcd(len(pattern), most)

        def steps() -> Packed:
            told = source.draw(len(pattern)) if source.generators else self._drawn
            if size == len(pattern):
                return inner.steps(source, self._columns, told, pattern)
            cuts = [slice(begin, begin + size) for begin in range(0, len(pattern), size)]
            return merged([inner.steps(source, self._columns, at(told, cut), pattern[cut]) for cut in cuts])

        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        drawn_before, others = [generator.get_state() for generator in generators], torch.cuda.get_rng_state()
        with torch.cuda.stream(stream):
            fresh = [stage.optimizer for stage in inner.update.stages if not stage.optimizer.state]
            touched = inner.touched()
            before = [tensor.clone() for tensor in touched]
            with to_be_captured():
                for _ in range(WARM_UP_CALLS):
                    steps()
            for tensor, value in zip(touched, before, strict=True):
                tensor.copy_(value)
            for optimizer in fresh:  # moments that the warm-up made: back to nothing, in place
                for state in optimizer.state.values():
                    for value in state.values():
                        value.zero_()
        torch.cuda.current_stream().wait_stream(stream)
        for generator, state in zip(generators, drawn_before, strict=True):
            generator.set_state(state)
        torch.cuda.set_rng_state(others)  # which dropout reads
        self._graph, self._said = capture(steps, generators)

    def run(self, columns: Mapping[str, Any], drawn: Tree) -> Packed:
        """Take the updates and return copies of what they say."""
        if self._copied is not None and self._copied is not columns:
            copy_(self._columns, columns)
            self._copied = columns
        copy_(self._drawn, drawn)
        self._graph.replay()
        return self._said._replace(tensors=tuple(tensor.clone() for tensor in self._said.tensors))

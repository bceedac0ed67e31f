"""CUDA graphs without CUDA: a call that is done again stands in for a graph.

Like one it reads and writes the tensors that it was made with, and nothing else; like capturing, making it computes nothing.
Who asks the device for a number within fails.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Generator, Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

import etude.acting.captured_rollout
import etude.compute.captured
import etude.learning.captured
from tests.device_double import _READS, HostReadError


class _NoHostReads(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _READS:
            raise HostReadError(f"{func} inside what is captured")
        return func(*args, **(kwargs or {}))


class Again:
    """Does a call again, and puts what it returns where it was first."""

    def __init__(self, function: Callable[[], Any], result: Any) -> None:
        self._function, self._places, self.replays = function, _tensors(result), 0

    def replay(self) -> None:
        self.replays += 1
        with _NoHostReads(), etude.compute.captured.to_be_captured():
            returned = _tensors(self._function())
        for place, value in zip(self._places, returned, strict=True):
            place.copy_(value)


class _Stream:
    def wait_stream(self, other: Any) -> None:
        """Nothing waits here."""


def pretend_capture(monkeypatch: pytest.MonkeyPatch, touched: Callable[[], Sequence[Tensor]] = tuple) -> list[Again]:
    """Stand in for CUDA graphs from here on; returns those that are made. `touched` are the tensors that graphs may change."""
    made: list[Again] = []

    def capture(function: Callable[[], Any], generators: Sequence[Generator] = ()) -> tuple[Again, Any]:
        before = [(tensor, tensor.clone()) for tensor in touched()]
        drawn = [generator.get_state() for generator in generators]
        with _NoHostReads(), etude.compute.captured.to_be_captured():
            result = pytree.tree_map_only(Tensor, lambda tensor: torch.full_like(tensor, 0), function())
        with torch.no_grad():
            for tensor, value in before:
                tensor.copy_(value)
        for generator, state in zip(generators, drawn, strict=True):
            generator.set_state(state)
        made.append(Again(function, result))
        return made[-1], result

    monkeypatch.setattr(etude.compute.captured, "capture", capture)
    monkeypatch.setattr(etude.learning.captured, "capture", capture)
    monkeypatch.setattr(etude.acting.captured_rollout, "capture", capture)
    monkeypatch.setattr(torch.cuda, "Stream", _Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", _Stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda: torch.zeros(1))
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state: None)
    return made


@contextlib.contextmanager
def no_host_reads() -> Iterator[None]:
    """Within, whoever asks a tensor for a number fails."""
    with _NoHostReads():
        yield


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]

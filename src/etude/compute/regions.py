"""Parts of an update that are compiled by themselves: the cell of a recurrence is compiled once and called T times.

Compiling a loop of 64 steps whole would unroll it. A method marked as a region is the plain method, unless what runs now was
asked to compile its regions:

    @region
    def cell(self, state, action, noise): ...      # of tensors, to a tuple of tensors

    with compiled_regions():                       # the executor of updates says so
        loss = update(batch)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any, Generic, ParamSpec, TypeVar, overload
from weakref import WeakKeyDictionary

import torch

Inputs = ParamSpec("Inputs")
Result = TypeVar("Result")
_depth = 0


class region(Generic[Inputs, Result]):  # noqa: N801 # used as a decorator
    """Marks a method of tensors that is compiled by itself, for each object and shape, where regions are."""

    def __init__(self, method: Callable[Inputs, Result]) -> None:
        self._method: Any = method
        self.__doc__ = method.__doc__
        self._compiled: WeakKeyDictionary[Any, Callable[..., Any]] = WeakKeyDictionary()

    @overload
    def __get__(self, owner: None, kind: type) -> region[Inputs, Result]: ...
    @overload
    def __get__(self, owner: object, kind: type) -> Callable[..., Result]: ...
    def __get__(self, owner: Any, kind: type) -> Any:
        if owner is None:
            return self
        if not are_compiled():
            return self._method.__get__(owner, kind)
        if owner not in self._compiled:
            self._compiled[owner] = _compiled_apart(self._method)
        return self._compiled[owner].__get__(owner, kind)


def _compiled_apart(method: Any) -> Callable[..., Any]:
    # The compiler keeps its results with the code object, and gives up after a few: one of its own for every object.
    code = method.__code__.replace()
    own = FunctionType(code, method.__globals__, method.__name__, method.__defaults__, method.__closure__)
    return torch.compile(own, dynamic=False, fullgraph=True)


@contextmanager
def compiled_regions(wanted: bool = True) -> Iterator[None]:
    """Have the regions of everything within compiled."""
    global _depth  # one for the process, as torch's own mark of compiling is
    _depth += wanted
    try:
        yield
    finally:
        _depth -= wanted


def are_compiled() -> bool:
    """Whether regions are compiled now."""
    return _depth > 0

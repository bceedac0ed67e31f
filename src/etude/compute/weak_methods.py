"""Methods that an object keeps of itself, without keeping itself alive: its memory goes when it goes, not some time later."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable
from typing import Any


class WeakMethod:
    """A bound method that does not hold its object."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self._owner, self._function = weakref.ref(method.__self__), method.__func__  # type: ignore[attr-defined] # a bound method's
        self.__signature__ = inspect.signature(method)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it; its object must still be there."""
        return self._function(self._owner(), *args, **kwargs)


def weakly(owner: object, method: Any) -> Any:
    """Return a method of `owner` as one that does not hold it; anything else as it is."""
    return WeakMethod(method) if getattr(method, "__self__", None) is owner else method

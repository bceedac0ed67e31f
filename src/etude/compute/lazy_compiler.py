"""Torch's compiler, left alone where nobody compiles: importing it takes a second and a half, on a busy machine ten.

Optimisers ask it, by importing it, not to look into some of their methods. Until something is compiled nobody looks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

from torch.optim import Optimizer

_MARK = "__dynamo_disable"
"""Where torch keeps what it calls in a method's place, once it has asked."""


def leave_compiler_out() -> None:
    """Have optimisers call their methods as they are, as long as the compiler has not been imported."""
    if "torch._dynamo" in sys.modules:
        return
    for plain in _marked():
        if not hasattr(plain, _MARK):
            setattr(plain, _MARK, plain)


def let_compiler_in() -> None:
    """Before something is compiled: have optimisers ask again."""
    for plain in _marked():
        if getattr(plain, _MARK, None) is plain:
            delattr(plain, _MARK)


def _marked() -> Iterator[Callable[..., Any]]:
    for member in vars(Optimizer).values():
        if getattr(member, "__globals__", {}).get("__name__") == "torch._compile" and hasattr(member, "__wrapped__"):
            yield member.__wrapped__

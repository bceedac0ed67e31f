"""A space of observations or actions in a config: {type: box, shape: [4]}, {type: discrete, n: 2}.

Only `type` must be said. Whoever describes an environment says as much as they know; what is stored says everything.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from etude.config.constraints import Bounds, NonNegativeInt

Bound = float | int | Literal["inf", "-inf"]
MOST_ENTRIES = 2**24
"""Far more than any observation has: what a stranger's file describes must not fill the memory."""
_Choices = Annotated[int, Bounds(low=1, high=MOST_ENTRIES)]
_KEYS = {
    "box": ("shape", "low", "high", "dtype"),
    "discrete": ("n", "start", "dtype"),
    "multi_discrete": ("nvec", "start", "shape", "dtype"),
    "multi_binary": ("shape",),
    "dict": ("spaces",),
    "tuple": ("spaces",),
}


@dataclass(frozen=True)
class PartSpace:
    """A space that has no parts."""

    type: Literal["box", "discrete", "multi_discrete", "multi_binary"]
    """box: numbers within bounds; discrete: one of n; multi_discrete: several of these; multi_binary: bits."""
    shape: tuple[NonNegativeInt, ...] | None = None
    """The shape of one observation or action; [] is a single number."""
    low: Bound | tuple[Bound, ...] | None = None
    """The lower bound of a box: one for all entries, or one for each, flat."""
    high: Bound | tuple[Bound, ...] | None = None
    """The upper bound, likewise."""
    dtype: Literal["float32", "float64", "uint8", "int8", "int16", "int32", "int64", "bool"] | None = None
    """The type of its numbers."""
    n: _Choices | None = None
    """How many values a discrete space has."""
    nvec: tuple[_Choices, ...] | None = None
    """How many values each entry of a multi_discrete space has, flat."""
    start: int | tuple[int, ...] | None = None
    """What a discrete space counts from, or each entry of a multi_discrete one, flat."""

    def __post_init__(self) -> None:
        """Refuse what says nothing about this type of space, and sizes that nobody has."""
        for name in ("shape", "low", "high", "dtype", "n", "nvec", "start", "spaces"):
            if getattr(self, name, None) is not None and name not in _KEYS[self.type]:
                raise ValueError(f"{name} says nothing about a {self.type} space (known: {', '.join(_KEYS[self.type])})")
        if self.shape is not None and math.prod(self.shape) > MOST_ENTRIES:
            raise ValueError(f"shape={list(self.shape)}: has more than {MOST_ENTRIES:,} entries")
        if self.type == "discrete" and isinstance(self.start, tuple):
            raise ValueError("start of a discrete space is one whole number")
        shape = (len(self.nvec),) if self.shape is None and self.nvec is not None else self.shape
        for name in ("low", "high", "nvec", "start"):
            given = getattr(self, name)
            if isinstance(given, tuple) and shape is not None and len(given) != math.prod(shape):
                raise ValueError(f"{name} has {len(given)} entries, where a shape of {list(shape)} has {math.prod(shape)}")


@dataclass(frozen=True)
class Space(PartSpace):
    """A space, with or without parts."""

    type: Literal["box", "discrete", "multi_discrete", "multi_binary", "dict", "tuple"]  # type: ignore[assignment] # two more
    """As of its parts; dict: parts by name; tuple: parts in order."""
    spaces: dict[str, PartSpace] | tuple[PartSpace, ...] | None = None
    """The parts of a dict by name, or of a tuple in order; parts have no parts."""

    def __post_init__(self) -> None:
        """Check the parts too."""
        super().__post_init__()
        if self.spaces is not None and isinstance(self.spaces, tuple) != (self.type == "tuple"):
            form = "list" if self.type == "tuple" else "mapping of names to spaces"
            raise ValueError(f"spaces of a {self.type} are a {form}")

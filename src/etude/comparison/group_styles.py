"""How groups of runs are told apart in plots: a colour for each method, and dashes that change every few."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from etude.comparison.groups import Group

# Okabe and Ito's colours, told apart with any kind of colour vision; black and yellow, too strong and too pale, are left out.
# Then some that are far from those, and beyond them hues a golden angle apart: none comes twice.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
_MORE = ("#882255", "#332288", "#999933", "#8B5A2B", "#E6194B", "#7F7F7F")
DASHES: Sequence[tuple[float, ...]] = ((), (8, 3), (2, 2), (8, 3, 2, 3))
"""Lengths of strokes and gaps; none for a solid line."""
_GOLDEN = 0.618034


class Style(NamedTuple):
    """What a group's line looks like."""

    colour: str
    dashes: tuple[float, ...]


def style(position: int) -> Style:
    """Return the line of the `position`-th method."""
    return Style(_colour(position), DASHES[position // len(PALETTE) % len(DASHES)])


def styles(groups: Sequence[Group]) -> list[Style]:
    """Return each group's line: the same method has the same one on every environment."""
    methods = list(dict.fromkeys(group.method for group in groups))
    return [style(methods.index(group.method)) for group in groups]


def _colour(position: int) -> str:
    fixed = (*PALETTE, *_MORE)
    if position < len(fixed):
        return fixed[position]
    beyond = position - len(fixed)
    red, green, blue = colorsys.hls_to_rgb(beyond * _GOLDEN % 1, (0.38, 0.52, 0.3)[beyond % 3], 0.6)
    return f"#{round(red * 255):02X}{round(green * 255):02X}{round(blue * 255):02X}"

"""Colours of what is drawn beside a robot: red, green, blue and how opaque, 0 to 1."""

from __future__ import annotations

Colour = tuple[float, float, float, float]
ASKED: Colour = (0.15, 0.40, 0.95, 1.0)
DONE: Colour = (0.10, 0.65, 0.30, 1.0)
FORCE: Colour = (0.90, 0.25, 0.15, 1.0)
SCAN: Colour = (0.95, 0.60, 0.10, 1.0)
GOAL: Colour = (0.75, 0.20, 0.80, 1.0)
MOTION: Colour = (0.20, 0.60, 0.90, 0.30)


def as_bytes(colour: Colour) -> tuple[int, int, int]:
    """Return red, green and blue, 0 to 255."""
    red, green, blue, _ = colour
    return round(255 * red), round(255 * green), round(255 * blue)

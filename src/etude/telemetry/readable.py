"""Numbers as people read them."""

from __future__ import annotations

import math


def number(value: float, digits: int = 4) -> str:
    """Return a value with few significant digits: ``312.4``, ``0.004123``, ``12,346``, ``2.500e-05``."""
    if not math.isfinite(value):
        return str(value)
    rounded = float(f"{value:.{digits - 1}e}")
    size = abs(rounded)
    if size == 0:
        return "0"
    if size < 1e-4 or size >= 1e9:
        return f"{rounded:.{digits - 1}e}"
    if size < 1:
        return f"{rounded:.{digits}g}"
    decimals = digits - 1 - math.floor(math.log10(size))
    return f"{rounded:.{decimals}f}" if decimals >= 0 and size < 1000 else f"{value:,.0f}"


def rate(per_second: float) -> str:
    """Return a speed in few characters: ``812/s``, ``9.8k/s``, ``1.2M/s``."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if per_second >= size:
            scaled = per_second / size
            return f"{scaled:.1f}{letter}/s" if scaled < 9.95 else f"{scaled:.0f}{letter}/s"
    return f"{per_second:.1f}/s" if per_second < 9.95 else f"{per_second:.0f}/s"


def duration(seconds: float) -> str:
    """Return a time span as ``0:06``, ``12:30``, ``1:02:03`` or ``2d 1:02:03``."""
    if not math.isfinite(seconds):
        return "?"
    minutes, second = divmod(max(0, round(seconds)), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days}d {hour}:{minute:02}:{second:02}"
    return f"{hour}:{minute:02}:{second:02}" if hour else f"{minute}:{second:02}"

"""How results are written in a terminal."""

from __future__ import annotations

_BYTE_UNITS = ("KiB", "MiB", "GiB", "TiB")
_TIME_UNITS = (("w", 7 * 86400), ("d", 86400), ("h", 3600), ("m", 60), ("s", 1))


def number(value: float | None) -> str:
    """Return a result in four digits, or a dash where there is none."""
    return "-" if value is None else f"{value:,.0f}" if 1e4 <= abs(value) < 1e12 else f"{value:.4g}"


def size(count: int) -> str:
    """Return a number of bytes as ``812 B``, ``1.4 MiB`` or ``23 GiB``."""
    if count < 1024:
        return f"{count} B"
    unit = min((count.bit_length() - 1) // 10, len(_BYTE_UNITS))
    amount = count / 1024**unit
    return f"{amount:.1f} {_BYTE_UNITS[unit - 1]}" if amount < 9.95 else f"{amount:,.0f} {_BYTE_UNITS[unit - 1]}"


def age(seconds: float | None) -> str:
    """Return a time span in its largest unit: ``40s``, ``12m``, ``5h``, ``3d``, ``8w``."""
    if seconds is None:
        return "-"
    for letter, length in _TIME_UNITS:
        # Two of a unit before it is used: 10d says more than 1w.
        if seconds >= (length if letter in "smhd" else 2 * length):
            return f"{seconds // length:.0f}{letter}"
    return "0s"


def moment(iso: str | None) -> str:
    """Return a stored time as this machine's clock would show it."""
    from datetime import datetime

    try:
        return f"{datetime.fromisoformat(iso or '').astimezone():%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError):
        return iso or "-"

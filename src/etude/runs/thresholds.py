"""How long a run took to get somewhere: steps and wall-clock until a metric first reached a threshold."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Reached(NamedTuple):
    """Where a threshold was first reached."""

    env_steps: int
    seconds: float
    """Of training, its evaluations and saves included; pauses between sittings are not."""


def first_reached(
    rows: Sequence[Mapping[str, float]], metric: str, threshold: float, *, lowest_is_best: bool = False
) -> Reached | None:
    """Return where a metric was first at the threshold or beyond, None where it never was."""
    for row in rows:
        value = row.get(metric, math.nan)
        if value <= threshold if lowest_is_best else value >= threshold:
            return Reached(int(row.get("env_steps", 0)), float(row.get("time/elapsed_s", math.nan)))
    return None

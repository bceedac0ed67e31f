"""Which number of an environment is NaN or infinite, among the rows that a buffer holds: to blame whom it came from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from etude.buffers.columns import named_leaves

_GIVEN = ("observation", "reward", "next_observation")


def given_non_finite(columns: Mapping[str, Any], oldest: int = 0) -> str | None:
    """Return the first such number in columns (rows, N, ...) whose oldest row is `oldest`: `a reward of nan to copy 3`.

    What an environment makes of an action that is not a number is no fault of its own, and counts as nothing.
    """
    leaves = {name: column for name, column in named_leaves(columns) if column.is_floating_point()}
    ages = {name: _age(column, oldest) for name, column in leaves.items() if name == "action" or _part(name) in _GIVEN}
    # Within a row an observation is seen first, then acted on; the rest is what that led to.
    order = sorted((age, _part(name) != "observation", name != "action", name) for name, age in ages.items() if age < math.inf)
    if not order or order[0][-1] == "action":
        return None
    age, *_, name = order[0]
    row = leaves[name][(int(age) + oldest) % len(leaves[name])]
    copy = int(_are_bad(row).nonzero()[0])
    values = row[copy].reshape(-1)
    key = name.partition(".")[2]
    what = "a reward" if name == "reward" else f"an observation ('{key}')" if key else "an observation"
    return f"{what} of {float(values[~torch.isfinite(values)][0]):g} to copy {copy}"


def _part(name: str) -> str:
    return name.partition(".")[0]


def _age(column: Tensor, oldest: int) -> float:
    """How many rows are older than the first bad one; infinite where there is none."""
    bad = _are_bad(column).nonzero().squeeze(1)
    return float(((bad - oldest) % len(column)).min()) if len(bad) else math.inf


def _are_bad(rows: Tensor) -> Tensor:
    """(rows, ...) → (rows,): whether anything in a row is NaN or infinite."""
    return ~torch.isfinite(rows.reshape(len(rows), -1)).all(1)

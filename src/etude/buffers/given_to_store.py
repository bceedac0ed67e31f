"""Which number of an environment is NaN or infinite, among all that a store holds, frames in files included."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from etude.buffers.columns import named_leaves
from etude.buffers.given import given_non_finite
from etude.buffers.store import AT, LEADS_TO, OBSERVATIONS, Store

READ_AT_ONCE = 2**24
"""Bytes of frames."""


def given_to_store(store: Store) -> str | None:
    """Return the first such number that a store holds."""
    columns = {name: value for name, value in store.columns.items() if name not in (AT, LEADS_TO)}
    parts = {name: _numbers(part) for name, part in named_leaves(store.memory) if part.is_floating_point()}
    for name, where in zip(OBSERVATIONS if parts else (), (AT, LEADS_TO), strict=False):
        place = store.columns[where]
        columns |= {part.replace("observation", name, 1): memory[place] for part, memory in parts.items()}
    return given_non_finite(columns, store.begin % store.rows)


def _numbers(part: Any) -> Tensor:
    """Return a part of a store's memory; of frames in a file one number each, the first that is bad, a few frames at a time."""
    if isinstance(part, Tensor):
        return part
    found, count = [torch.zeros(0)], max(1, READ_AT_ONCE // (part.shape[1:].numel() * part.element_size()))
    for first in range(0, part.shape[0], count):
        frames = part[first : first + count].flatten(1).float()
        bad = ~torch.isfinite(frames)
        found.append(torch.where(bad.any(1), frames.gather(1, bad.int().argmax(1, keepdim=True))[:, 0], 0.0))
    return torch.cat(found)

"""Nested dicts and lists of tensors and plain values: copied, and compared to the last bit."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def copied(tree: Any) -> Any:
    """Return a tree whose tensors no later work changes."""
    if isinstance(tree, dict):
        return {key: copied(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [copied(value) for value in tree] if not hasattr(tree, "_fields") else type(tree)(*map(copied, tree))
    return tree.clone() if isinstance(tree, Tensor) else tree


def difference(one: Any, other: Any, where: str = "state") -> str | None:
    """Return the first place in which two trees of tensors and plain values differ, or None."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        same = one.shape == other.shape and one.dtype == other.dtype and torch.equal(one.nan_to_num(9e9), other.nan_to_num(9e9))
        return None if same else where
    if isinstance(one, dict) and isinstance(other, dict):
        if one.keys() != other.keys():
            return f"{where} ({', '.join(map(str, one.keys() ^ other.keys()))})"
        return next((found for key in one if (found := difference(one[key], other[key], f"{where}.{key}"))), None)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        if len(one) != len(other):
            return f"{where} ({len(one)} and {len(other)} entries)"
        pairs = enumerate(zip(one, other, strict=True))
        return next((found for i, (a, b) in pairs if (found := difference(a, b, f"{where}[{i}]"))), None)
    return None if one == other or (one != one and other != other) else where

"""Tensors of a step from the host to a device in one copy: on its own, each of a handful costs as much as all together."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from etude.compute.trees import Tree, leaves, map_tree

ALIGNED = 16
"""Bytes: where each tensor begins, so that any type can be read there."""
TURNS = 3
"""How many copies may be in use or on their way at once."""


class PackedTransfer:
    """Copies a tree of host tensors, always of the same shapes, to a device.

    They lie side by side in pinned memory and arrive side by side; what is returned are views of that. They hold until the
    second next call: whoever keeps them longer copies them.
    """

    def __init__(self, tree: Mapping[str, Any], device: torch.device) -> None:
        size, self._places = 0, []
        for tensor in leaves(tree):
            self._places.append((size, tensor.dtype, tensor.shape))
            size += math.ceil(tensor.nbytes / ALIGNED) * ALIGNED
        self._is_cuda = device.type == "cuda"
        self._here = [torch.zeros(size, dtype=torch.uint8, pin_memory=self._is_cuda) for _ in range(TURNS)]
        self._there = [torch.zeros(size, dtype=torch.uint8, device=device) for _ in range(TURNS)]
        self._arrays = [[view.numpy() for view in self._views(packed)] for packed in self._here]
        self._trees = [self._like(tree, packed) for packed in self._there]
        self._arrived = [torch.cuda.Event() for _ in range(TURNS)] if self._is_cuda else []
        self._turn = 0

    def __call__(self, tree: Mapping[str, Any]) -> dict[str, Any]:
        """Return the tensors of a tree like the first one, on the device."""
        self._turn = (self._turn + 1) % TURNS
        turn = self._turn
        if self._is_cuda:
            self._arrived[turn].synchronize()  # the copy before last may still read this memory; it hardly ever does
        for array, tensor in zip(self._arrays[turn], leaves(tree), strict=True):
            np.copyto(array, tensor.numpy(), casting="no")
        self._there[turn].copy_(self._here[turn], non_blocking=True)
        if self._is_cuda:
            self._arrived[turn].record()
        return self._trees[turn]

    def _like(self, tree: Tree, packed: Tensor) -> Tree:
        views = iter(self._views(packed))
        return map_tree(lambda _: next(views), tree)

    def _views(self, packed: Tensor) -> list[Tensor]:
        return [
            packed[begin : begin + math.prod(shape) * dtype.itemsize].view(dtype).view(shape)
            for begin, dtype, shape in self._places
        ]

"""A binary tree of sums: draws leaves in proportion to their values, in as many steps as the tree is deep.

    node 1             42                 nodes in one flat tensor: the children of i are 2i and 2i + 1
    nodes 2, 3      29      13
    leaves        13  16   3  10          a draw of 24 goes right at 29 (24 - 13 = 11 left) ... to the second leaf

Every inner node is the sum of its two children and nothing else, so the tree is a function of its leaves: it can't drift,
and built anew it is the same to the last bit.
"""

from __future__ import annotations

import torch
from torch import Tensor

STRIDE = 5


class SumTree:
    """Non-negative values on any device. Nothing here asks the device for a number."""

    def __init__(self, size: int, device: torch.device | str = "cpu") -> None:
        self.depth = max(0, (size - 1).bit_length())
        self._first = 1 << self.depth
        # Double: a sum of a million single-precision values has no digits left for small ones.
        self.nodes = torch.zeros(2 * self._first, dtype=torch.float64, device=device)
        self.leaves = self.nodes[self._first : self._first + size]
        self._pairs = self.nodes.view(-1, 2)

    @property
    def total(self) -> Tensor:
        """The sum of all leaves."""
        return self.nodes[1]

    def find(self, amount: Tensor) -> Tensor:
        """Return the leaf at which the running sum of leaves passes each amount, from 0 to `total`; never one of value 0."""
        node = torch.ones(amount.shape, dtype=torch.int64, device=amount.device)
        if amount.device.type == "cpu":
            return self._find_in_strides(amount, node)
        for _ in range(self.depth):
            left, right = self._pairs.index_select(0, node).unbind(1)
            # Rounding may leave a little more than there is on the right; where nothing is, nothing is drawn.
            goes_right = (amount >= left) & (right > 0)
            amount = torch.where(goes_right, amount - left, amount)
            node = 2 * node + goes_right
        return node - self._first

    def _find_in_strides(self, amount: Tensor, node: Tensor) -> Tensor:
        """Go down several levels at a time: a node's descendants on a level lie side by side.

        Half the time of single steps on the CPU. On a GPU running sums may be refused where results must be reproducible.
        """
        left = self.depth
        while left:
            levels = left % STRIDE or STRIDE
            below = self.nodes.view(-1, 1 << levels).index_select(0, node).cumsum(1)
            # Rounding may leave a little more than there is; the last one with a value is meant.
            amount = torch.minimum(amount, torch.nextafter(below[:, -1], torch.zeros((), dtype=torch.float64)))
            child = torch.searchsorted(below, amount[:, None], right=True)
            before = below.gather(1, (child - 1).clamp_(min=0)).mul_(child > 0)
            amount = amount - before[:, 0]
            node = (node << levels) + child[:, 0]
            left -= levels
        return node - self._first

    def write(self, index: Tensor, value: Tensor) -> None:
        """Set leaves (n,). One that is named twice gets the larger value, whatever the order."""
        self.leaves.scatter_reduce_(0, index, value, "amax", include_self=False)
        self.update(index)

    def update(self, index: Tensor) -> None:
        """Sum anew above leaves that were changed."""
        node = index + self._first
        for _ in range(self.depth):
            node = node >> 1
            left, right = self._pairs.index_select(0, node).unbind(1)
            self.nodes.index_copy_(0, node, left + right)

    def fill(self, first: int, end: int, value: Tensor) -> None:
        """Set the leaves from `first` to `end` to one value, or to as many."""
        self.leaves[first:end] = value
        low, high = self._first + first, self._first + end
        for _ in range(self.depth):
            low, high = low >> 1, (high + 1) >> 1
            torch.add(self._pairs[low:high, 0], self._pairs[low:high, 1], out=self.nodes[low:high])

    def clear(self) -> None:
        """Set everything to 0."""
        self.nodes.zero_()

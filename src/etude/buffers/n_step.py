"""Returns of several steps (Sutton 1988), from transitions as they lie in a ring.

t          t+1        t+2        t+3                  n = 3, no end on the way:
o, a, r0 ─ o, a, r1 ─ o, a, r2 ─ final observation    reward = r0 + γ r1 + γ² r2,  discount = γ³
o, a, r0 ─ o, a, r1 ┤ cut by a time limit             reward = r0 + γ r1,          discount = γ²
o, a, r0 ─ o, a, r1 ■ terminated                      reward = r0 + γ r1,          discount = 0
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Outlook(NamedTuple):
    """What follows each of a batch's transitions. All (n,)."""

    reward: Tensor
    """The discounted sum over the steps used."""
    discount: Tensor
    """What the value after the last step used counts: gamma to the number of steps, 0 where the task ended."""
    last: Tensor
    """Where the last step used lies, in the same numbering as the index."""


class LookAhead:
    """Sums rewards over up to `steps` steps of the same episode, from flat columns (rows · N, ...).

    What stops earlier: the end of the episode, the beginning of another (after a resume that could not continue the
    episode, nothing says that it ended), and the ring's cursor, beyond which lie the oldest rows.
    """

    def __init__(self, steps: int, gamma: float, num_envs: int, device: torch.device) -> None:
        self._num_envs = num_envs
        self._offsets = torch.arange(steps, device=device)[:, None] * num_envs
        self._powers = gamma ** torch.arange(steps + 1, device=device, dtype=torch.float64)

    def __call__(self, flat: Mapping[str, Any], index: Tensor, cursor: int) -> Outlook:
        """Look ahead from the transitions at `index` (n,); `cursor` is the slot of the ring's next row."""
        window = (index + self._offsets) % len(flat["reward"])  # (steps, n)
        row = window.reshape(-1)

        def look(name: str) -> Tensor:
            return flat[name].index_select(0, row).view(window.shape)

        ended = look("terminated") | look("truncated")
        goes_on = ~ended[:-1] & ~look("is_first")[1:] & (window[1:] // self._num_envs != cursor)
        used = torch.cat([torch.ones_like(ended[:1]), goes_on]).cumprod(0)  # 1 while the step belongs to the sum
        count = used.sum(0)
        last = window.gather(0, (count - 1)[None])[0]
        rewards = look("reward")
        powers = self._powers.to(rewards.dtype)
        reward = (rewards * used * powers[:-1, None]).sum(0)
        discount = powers[count] * ~flat["terminated"].index_select(0, last)
        return Outlook(reward, discount, last)

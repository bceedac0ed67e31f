"""Transitions that say which ones they are: number `t` of environment `i` holds 1000·t + i in every column.

Each leads to what the next one sees; where an episode ends, to half of one more than it saw itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def transition(
    t: int,
    num_envs: int,
    *,
    terminated: Sequence[bool] | None = None,
    truncated: Sequence[bool] | None = None,
    is_first: Sequence[bool] | None = None,
    lost: Sequence[bool] | None = None,
) -> dict[str, Any]:
    """A row as the collector writes it."""
    mark = 1000 * t + torch.arange(num_envs)

    def flags(given: Sequence[bool] | None) -> Tensor:
        return torch.zeros(num_envs, dtype=torch.bool) if given is None else torch.tensor(given)

    ends = flags(terminated) | flags(truncated) | flags(lost)
    led_to = torch.where(ends, mark + 0.5, mark + 1000.0)[:, None].double()
    return {
        "observation": {"vector": mark[:, None].double().expand(num_envs, 2), "picture": _picture(mark)},
        "is_first": flags(is_first),
        "action": mark,
        "reward": mark.float(),
        "terminated": flags(terminated),
        "truncated": flags(truncated),
        "next_observation": {
            "vector": led_to.expand(num_envs, 2),
            "picture": _picture(torch.where(ends, mark + 1, mark + 1000)),
        },
    }


def _picture(mark: Tensor) -> Tensor:
    return (mark % 251).to(torch.uint8)[:, None, None, None].expand(len(mark), 1, 2, 2)

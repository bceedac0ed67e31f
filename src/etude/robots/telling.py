"""What robots tell of a step beside their rewards: why episodes end, how commands are followed, how far they have got.

Every value is of each robot, (N,), on its device: means over robots and steps are read when a row is logged.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from etude.robots.state import State
from etude.robots.terrain import Levels

END, ANY, TIME_OUT, FALL = "end/", "end/any", "end/time_out", "end/fall"


class Telling:
    """Knows which robots walk on which kind of ground: that never changes, so it is counted once."""

    def __init__(self, levels: Levels | None) -> None:
        self._levels = levels
        self._weights: dict[str, Tensor] = {}
        """For each kind of ground, what makes a mean over all robots that of those on it. (N,)"""
        if levels is None:
            return
        kinds, columns = levels.terrain.column_kinds, levels.column.tolist()
        for kind in dict.fromkeys(kinds):
            on_it = [float(kinds[column] == kind) for column in columns]
            if any(on_it):
                self._weights[kind] = levels.column.new_tensor(on_it, dtype=torch.float32) * (len(on_it) / sum(on_it))

    def tell(self, state: State, ends: Mapping[str, Tensor], timed_out: Tensor, broken: Tensor) -> dict[str, Tensor]:
        """Return what a step says; `ends` are the terminations by name, and the rest is whose, (N,) bool each."""
        command = state.memory.command
        walk = (state.base_linear_velocity[:, :2] - command[:, :2]).norm(dim=-1)
        turn = (state.base_angular_velocity[:, 2] - command[:, 2]).abs()
        told = {f"{END}{name}": end.float() for name, end in ends.items()}
        told |= {TIME_OUT: timed_out.float(), FALL: state.fell.float(), ANY: (timed_out | state.fell).float()}
        if state.goal == "velocity":
            told["error/linear_velocity"] = walk.masked_fill(broken, 0.0)
            told["error/turn"] = turn.masked_fill(broken, 0.0)
        if self._levels is not None:
            told |= {f"terrain_level/{kind}": self._levels.level * weight for kind, weight in self._weights.items()}
        return told


def shares_of_ends(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return which share of the episodes that ended did so for each reason; nothing where none ended."""
    ended = metrics.get(ANY, 0.0)
    if not ended > 0:
        return {}
    reasons = {name.removeprefix(END): value for name, value in metrics.items() if name.startswith(END) and name != ANY}
    fall_rate = reasons.pop(FALL.removeprefix(END), 0.0) / ended
    return {"fall_rate": fall_rate, **{f"end_share/{name}": value / ended for name, value in reasons.items()}}

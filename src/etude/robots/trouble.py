"""Robots whose state has become NaN or infinite: found on the device, reported once, never learnt from."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from etude.errors import EtudeError
from etude.robots.state import State

_NONE, _UNSTABLE, _REWARD = range(3)


class Trouble:
    """The first robot in trouble since the last look, and its state. Noted on the device, without asking it anything."""

    def __init__(self, terms: Sequence[str], joints: int, device: torch.device, *, asks: bool) -> None:
        """`asks`: whether asking the device costs nothing."""
        self._asks = asks
        self._terms = tuple(terms)
        self._kind = torch.zeros((), dtype=torch.int64, device=device)
        self._facts = {
            "robot": torch.zeros((), dtype=torch.int64, device=device),
            "age": torch.zeros((), dtype=torch.int64, device=device),
            "velocity": torch.zeros(6, device=device),
            "action": torch.zeros(joints, device=device),
            "terms": torch.zeros(len(self._terms), dtype=torch.bool, device=device),
        }

    def note(self, unstable: Tensor, unsound: Tensor, values: Tensor, state: State) -> None:
        """Note the first robot that is `unstable` (N,), or else has an `unsound` reward (N,) of terms (K, N)."""
        if self._asks and not bool((unstable | unsound).any()):
            return  # where asking costs nothing, there is nothing to look up
        memory = state.memory
        score = unstable.to(torch.int32) * 2 + unsound.to(torch.int32)
        worst, robot = score.max(0)
        kind = torch.where(worst >= 2, _UNSTABLE, torch.where(worst == 1, _REWARD, _NONE))
        is_new = (self._kind == _NONE) & (kind != _NONE)
        at = robot.view(1)
        found = {
            "robot": robot,
            "age": memory.age.index_select(0, at)[0],
            "velocity": memory.previous_base_velocity.index_select(0, at)[0],
            "action": memory.action.index_select(0, at)[0],
            "terms": ~torch.isfinite(values.index_select(1, at)[:, 0]) if self._terms else self._facts["terms"],
        }
        for name, tensor in self._facts.items():
            tensor.copy_(torch.where(is_new, found[name], tensor))
        self._kind.copy_(torch.where(is_new, kind, self._kind))

    def check(self) -> None:
        """Raise what was noted; reads the device."""
        kind = int(self._kind)
        if kind == _NONE:
            return
        self._kind.zero_()
        facts = {name: tensor.tolist() for name, tensor in self._facts.items()}
        robot = facts["robot"]
        if kind == _REWARD:
            term = next(name for name, bad in zip(self._terms, facts["terms"], strict=True) if bad)
            raise EtudeError(f"environment.robot.rewards.{term}: is NaN or infinite for robot {robot}, whose state is finite")
        velocity, action = ([round(x, 3) for x in facts[name]] for name in ("velocity", "action"))
        raise EtudeError(
            f"robot {robot} has become unstable {facts['age']} steps into its episode (its base moved at {velocity} m/s and "
            f"rad/s the step before; its last action was {action}): lower environment.robot.timestep, the motors' stiffness or "
            "the range of a randomisation, or end such episodes with the termination `unstable`"
        )

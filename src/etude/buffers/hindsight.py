"""Hindsight replay (Andrychowicz et al. 2017): what was reached by chance is replayed as if it had been the goal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from etude.buffers.base import Batch
from etude.buffers.episodes import STEP, Episodes
from etude.buffers.store import AT, LEADS_TO, Store
from etude.buffers.views import Held, View
from etude.config.constraints import NonNegativeFloat
from etude.errors import UserError

Judge = Callable[[Tensor, Tensor], Tensor]
"""Says of goals that were reached and goals that were asked for (n, ...) what that is worth, or whether it ends (n,)."""
GOAL_KEYS = ("observation", "achieved_goal", "desired_goal")


@dataclass(frozen=True)
class Hindsight:
    """Which transitions get another goal."""

    strategy: Literal["future", "final", "episode", "random"] = "future"
    """Which goals: future, reached later in the same episode; final, at its end; episode, anywhere in it; random, in any."""
    ratio: NonNegativeFloat = 4.0
    """Transitions with another goal for each one with its own. More learns sooner from failures, and less of the real goals."""
    ends_on_success: bool = False
    """Ask the environment whether the other goal would have ended the episode; for tasks that end once a goal is reached."""


class OtherGoals(View):
    """For tasks with goals: observations with the keys observation, achieved_goal and desired_goal.

    Where several rewards are summed, all of them are what the other goal would have brought.
    """

    draws = ("relabel", "goal")
    needs = ("observation", "next_observation", "is_first", "truncated")
    is_tensor_function = False  # the task's own reward may be written in NumPy
    bytes_each = 16

    def __init__(self, settings: Hindsight, store: Store) -> None:
        self.settings, self._store = settings, store
        self.compute_reward: Judge | None = None
        self.compute_terminated: Judge | None = None
        self.episodes = Episodes(store)

    def bind(self, environment: Any) -> None:
        """Take the task's own judgement of goals."""
        name = f"buffers.{self._store.name}"
        keys = getattr(environment.single_observation_space, "spaces", {})
        missing = [key for key in GOAL_KEYS if key not in keys]
        if missing:
            raise UserError(
                f"{name}: hindsight: observations have no '{missing[0]}'; it needs a task with goals, whose observations are a "
                f"Dict of {', '.join(GOAL_KEYS)}"
            )
        self.compute_reward, self.compute_terminated = environment.compute_reward, environment.compute_terminated
        wanted = {"compute_reward": "hindsight", "compute_terminated": "ends_on_success=true"}
        for method, why in wanted.items():
            if getattr(self, method) is None and (method == "compute_reward" or self.settings.ends_on_success):
                raise UserError(
                    f"{name}: {why}: the environment has no method {method}(achieved_goal, desired_goal, info), which says "
                    "what reaching another goal is worth"
                )

    def with_step(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return a step (N, ...) that is about to be added, with where in its episodes it is."""
        return {**row, STEP: self.episodes.next_step(row, self._store.device)}

    def facts(
        self, held: Held, batch: Batch, rows: Tensor, reward: Tensor, terminated: Tensor, drawn: Mapping[str, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Return what transitions would have brought, had the goal been the other one; and note that goal in the batch."""
        settings = self.settings
        if not settings.ratio:
            return reward, terminated
        index = batch["index"]
        is_other = drawn["relabel"] < settings.ratio / (settings.ratio + 1)
        own = held.remembered(AT, index, "desired_goal")
        other = held.remembered(LEADS_TO, self._goal_at(index, drawn["goal"]), "achieved_goal")
        goal = torch.where(_like(is_other, other), other.to(own.dtype), own)
        batch |= {"is_relabelled": is_other, "goal": goal}
        asked = goal.expand(len(rows), *goal.shape).flatten(0, 1)
        reached = held.remembered(LEADS_TO, rows.flatten(), "achieved_goal")

        def judged(judge: Judge | None, stored: Tensor) -> Tensor:
            assert judge is not None, "bind() comes first"
            return torch.where(is_other, judge(reached, asked).to(stored.dtype).view(stored.shape), stored)

        reward = judged(self.compute_reward, reward)
        return reward, judged(self.compute_terminated, terminated) if settings.ends_on_success else terminated

    def __call__(self, held: Held, batch: Batch, drawn: Mapping[str, Tensor]) -> Batch:
        """Put the other goal into the observations."""
        if "goal" not in batch:
            return batch
        batch = dict(batch)
        goal = batch.pop("goal")
        seen = {key: {**batch[key], "desired_goal": goal} for key in ("observation", "next_observation") if key in batch}
        return {**batch, **seen}

    def _goal_at(self, index: Tensor, share: Tensor) -> Tensor:
        """Return the transition whose outcome becomes the goal of each; `share` in [0, 1) picks one of those allowed."""
        store, strategy = self._store, self.settings.strategy
        if strategy == "random":
            place = (share * (store.held * store.num_envs)).to(torch.int64)
            offset = 0 if store.held == store.rows else store.begin % store.rows * store.num_envs
            return (place + offset) % (store.rows * store.num_envs)
        number, first, last = self.episodes.bounds(index)
        if strategy == "final":
            goal = last
        else:
            low = number if strategy == "future" else first
            goal = low + (share * (last - low + 1)).to(torch.int64)
        return goal % store.rows * store.num_envs + index % store.num_envs


def _like(mask: Tensor, values: Tensor) -> Tensor:
    return mask.view(-1, *[1] * (values.ndim - 1))

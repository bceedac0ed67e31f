"""Hindsight replay (Andrychowicz et al. 2017): what was reached by chance is replayed as if it had been the goal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Generator, Tensor

from etude.buffers.base import Batch
from etude.buffers.replay import ReplayBuffer, ReplayConfig
from etude.buffers.ring_episodes import STEP, RingEpisodes
from etude.config.constraints import NonNegativeFloat
from etude.config.schema import Config
from etude.errors import UserError

Strategy = Literal["future", "final", "episode", "random"]
GOAL_KEYS = ("observation", "achieved_goal", "desired_goal")


@dataclass(frozen=True)
class HindsightConfig(ReplayConfig):
    """The last transitions, most of them with goals that were reached later."""

    type: str = "hindsight"
    """The registered name of the buffer."""
    strategy: Strategy = "future"
    """Which goals: future, reached later in the same episode; final, at its end; episode, anywhere in it; random, in any."""
    ratio: NonNegativeFloat = 4.0
    """Transitions with another goal for each one with its own. More learns sooner from failures, and less of the real goals."""
    ends_on_success: bool = False
    """Ask the environment whether the other goal would have ended the episode; for tasks that end once a goal is reached."""


class HindsightBuffer(ReplayBuffer):
    """A replay for tasks with goals: observations with the keys observation, achieved_goal and desired_goal."""

    Config = HindsightConfig

    def __init__(
        self,
        capacity: int,
        num_envs: int,
        *,
        strategy: Strategy = "future",
        ratio: float = 4.0,
        ends_on_success: bool = False,
        compute_reward: Callable[[Tensor, Tensor], Tensor] | None = None,
        compute_terminated: Callable[[Tensor, Tensor], Tensor] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(capacity, num_envs, **options)
        if self.n_step > 1:
            raise UserError(f"buffers.{self.name}.n_step={self.n_step}: hindsight changes goals between steps; only 1 will do")
        for column in ("observation", "next_observation", "is_first", "truncated"):
            if column in self.leave_out:
                raise UserError(f"buffers.{self.name}.leave_out: '{column}' is needed for hindsight")
        self.strategy, self.ratio, self.ends_on_success = strategy, ratio, ends_on_success
        self.compute_reward, self.compute_terminated = compute_reward, compute_terminated
        self.episodes = RingEpisodes(self.ring)

    @classmethod
    def arguments(cls, options: Any, config: Config, name: str) -> dict[str, Any]:
        """Return what the constructor is given for these options."""
        own = {key: getattr(options, key) for key in ("strategy", "ratio", "ends_on_success")}
        return super().arguments(options, config, name) | own

    def bind(self, environment: Any) -> None:
        """Take the task's own judgement of goals."""
        super().bind(environment)
        keys = getattr(environment.single_observation_space, "spaces", {})
        missing = [key for key in GOAL_KEYS if key not in keys]
        if missing:
            raise UserError(
                f"buffers.{self.name}.type=hindsight: observations have no '{missing[0]}'; it needs a task with goals, whose "
                f"observations are a Dict of {', '.join(GOAL_KEYS)}"
            )
        self.compute_reward, self.compute_terminated = environment.compute_reward, environment.compute_terminated
        wanted = ["compute_reward", *(["compute_terminated"] if self.ends_on_success else [])]
        for method in wanted:
            if getattr(self, method) is None:
                why = "ends_on_success=true" if method == "compute_terminated" else "type=hindsight"
                raise UserError(
                    f"buffers.{self.name}.{why}: the environment has no method {method}(achieved_goal, desired_goal, info), "
                    "which says what reaching another goal is worth"
                )

    # ---- writing ------------------------------------------------------------------------------------------------------

    def add(self, row: Mapping[str, Any]) -> None:
        """Copy one vector step (N, ...) in, and note which episodes it belongs to."""
        step = self.episodes.next_step(row, self.ring.device)
        row = {**row, STEP: step}
        if not self.ring.columns:
            self._allocate({key: value for key, value in row.items() if key not in self.leave_out})
        self.episodes.add(row, step)
        super().add(row)

    def _allocate(self, row: Mapping[str, Any]) -> None:
        super()._allocate(row)
        self.episodes.start()

    def clear(self) -> None:
        """Forget everything; memory is kept."""
        super().clear()
        self.episodes.clear()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Hold the rows that were saved."""
        super().load_state_dict(state)
        if self.ring.columns:
            self.episodes.rebuild()

    # ---- sampling -----------------------------------------------------------------------------------------------------

    def _random(self, n: int, generator: Generator) -> dict[str, Tensor]:
        def uniform() -> Tensor:
            return torch.rand(n, dtype=torch.float64, generator=generator, device=generator.device)

        return super()._random(n, generator) | {"relabel": uniform(), "goal": uniform()}

    def _more(self, batch: Batch, random: Mapping[str, Tensor]) -> Batch:
        """Give some transitions another goal, and the reward that it would have brought."""
        if not self.ratio:
            return {}
        assert self.compute_reward is not None, "bind() comes first"
        ring, device = self.ring, self.ring.device
        shape, index = batch["index"].shape, batch["index"].reshape(-1)
        relabel, share = (random[name].to(device).reshape(-1) for name in ("relabel", "goal"))
        is_other = relabel < self.ratio / (self.ratio + 1)
        reached = ring.flat["next_observation"]["achieved_goal"]
        own, other = ring.flat["observation"]["desired_goal"][index], reached[self._goal_at(index, share)]
        goal = torch.where(_like(is_other, other), other.to(own.dtype), own)
        achieved = reached[index]
        stored = ring.flat["reward"][index]
        reward = torch.where(is_other, self.compute_reward(achieved, goal).to(stored.dtype), stored)
        ended = ring.flat["terminated"][index]
        if self.ends_on_success:
            assert self.compute_terminated is not None, "bind() comes first"
            ended = torch.where(is_other, self.compute_terminated(achieved, goal), ended)
        changed = {
            "reward": reward.view(shape),
            "terminated": ended.view(shape),
            "discount": ended.logical_not().to(stored.dtype).mul_(self.gamma).view(shape),
        }
        for name in ("observation", "next_observation"):
            if name in batch:
                changed[name] = {**batch[name], "desired_goal": goal.view(*shape, *goal.shape[1:])}
        kept = {key: value for key, value in changed.items() if key in batch}
        return {**kept, "is_relabelled": is_other.view(shape)}

    def _goal_at(self, index: Tensor, share: Tensor) -> Tensor:
        """Return the transition whose outcome becomes the goal of each; `share` in [0, 1) picks one of those allowed."""
        ring = self.ring
        if self.strategy == "random":
            return (share * self.size).to(torch.int64)
        number, first, last = self.episodes.bounds(index)
        if self.strategy == "final":
            goal = last
        else:
            low = number if self.strategy == "future" else first
            goal = low + (share * (last - low + 1)).to(torch.int64)
        return goal % ring.rows * ring.num_envs + index % ring.num_envs


def _like(mask: Tensor, values: Tensor) -> Tensor:
    return mask.view(-1, *[1] * (values.ndim - 1))

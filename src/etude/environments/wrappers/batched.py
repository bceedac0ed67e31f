"""Transforms around a vector environment of any kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from etude.environments.goals import GOAL_KEYS, GoalFunction, is_goal_space
from etude.environments.vector import RAW_REWARD, Observation, Step, VectorEnvironment
from etude.environments.wrappers.transform import Transform


class TransformedVector(VectorEnvironment):
    """A vector environment seen through transforms, the first of which is nearest to it."""

    def __init__(self, inner: VectorEnvironment, transforms: Sequence[Transform]) -> None:
        self._inner, self._transforms = inner, tuple(transforms)
        self._inwards = tuple(
            transform for transform in reversed(self._transforms) if type(transform).action is not Transform.action
        )
        self.num_envs, self.device = inner.num_envs, inner.device
        self.snapshot, self.action_repeat, self.return_threshold = inner.snapshot, inner.action_repeat, inner.return_threshold
        self.single_observation_space, self.single_action_space = inner.single_observation_space, inner.single_action_space
        for transform in self._transforms[-1:]:
            self.single_observation_space, self.single_action_space = transform.observation_space, transform.action_space
        self._on_host = self.device.type == "cpu"
        self._all = torch.arange(self.num_envs, device=self.device)
        if inner.compute_reward is not None and self._keeps_goals():
            self.compute_reward = relabelled(inner.compute_reward, self._transforms)
            self.compute_terminated = inner.compute_terminated

    @property
    def base(self) -> VectorEnvironment:
        """The environment inside all transforms."""
        return self._inner.base

    @property
    def transforms(self) -> Sequence[Transform]:
        """The transforms, innermost first."""
        return self._transforms

    def reset(self, seeds: Sequence[int]) -> tuple[Observation, dict[str, Tensor]]:
        """Begin new episodes, copy i with `seeds[i]`."""
        observation, info = self._inner.reset(seeds)
        self.snapshot = self._inner.snapshot
        for transform in self._transforms:
            transform.seed(seeds)
            observation = transform.begin(observation, self._all)
        return observation, info

    def step(self, action: Tensor) -> Step:
        """Act in every copy; one that ends begins its next episode in the same step."""
        for transform in self._inwards:
            action = transform.action(action)
        step = self._inner.step(action)
        raw = step.reward
        step = self._outwards(step)
        if step.reward is not raw:
            step = step._replace(info={RAW_REWARD: raw, **step.info})
        return step

    def _outwards(self, step: Step) -> Step:
        ended = None
        if step.final_observation is not step.observation:
            ended = step.terminated | step.truncated
            if not self._on_host:
                for transform in self._transforms:
                    step = transform.step_on_device(step, ended, self._all)
                return step
            ended = ended.nonzero().squeeze(1)
            if not len(ended):  # what it shows is the same, in two places
                step, ended = step._replace(final_observation=step.observation), None
        for transform in self._transforms:
            step = transform.step(step, ended)
        return step

    def check(self) -> None:
        """Raise what has gone wrong in the steps so far."""
        self._inner.check()

    def more_metrics(self, metrics: dict[str, float]) -> dict[str, float]:
        """Return what follows from the means of `Step.info`."""
        return self._inner.more_metrics(metrics)

    def render(self) -> Any:
        """Return a picture of the first copy."""
        return self._inner.render()

    def close(self) -> None:
        """Close the environment."""
        self._inner.close()

    def state_dict(self) -> dict[str, Any]:
        """Return the environment's state and what each transform remembers; nothing where the former can't be known."""
        inner = self._inner.state_dict()
        self.snapshot = self._inner.snapshot
        if not inner:
            return {}
        return {"environment": inner, "transforms": [transform.state_dict() for transform in self._transforms]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue every copy where it was."""
        if len(state.get("transforms", ())) != len(self._transforms):
            raise ValueError(
                "the saved environment has other wrappers than this one; keep environment.wrappers as they were, or begin a "
                "new run with experiment.init_from"
            )
        self._inner.load_state_dict(state["environment"])
        self.snapshot = self._inner.snapshot
        for transform, saved in zip(self._transforms, state["transforms"], strict=True):
            transform.load_state_dict(saved)

    def _keeps_goals(self) -> bool:
        """Whether goals look as the task itself knows them."""
        before, after = self._inner.single_observation_space, self.single_observation_space
        if not is_goal_space(before) or not is_goal_space(after):
            return False
        return all(before[key] == after[key] for key in GOAL_KEYS[1:])  # type: ignore[index] # both are Dict spaces


def relabelled(compute: GoalFunction, transforms: Sequence[Transform]) -> GoalFunction | None:
    """Return rewards of other goals as transforms would have changed them; None where that can't be known."""
    if any(transform.relabel(torch.zeros(1)) is None for transform in transforms):
        return None

    def compute_reward(achieved: Tensor, desired: Tensor) -> Tensor:
        reward = compute(achieved, desired)
        for transform in transforms:
            changed = transform.relabel(reward)
            assert changed is not None, "asked before"
            reward = changed
        return reward

    return compute_reward

"""Uniformly random actions: the baseline every result is compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Generator, Tensor

from etude.buffers.base import Batch
from etude.components.distributions import Distribution, Uniform, check_mask, make_head
from etude.config.algorithm import AlgorithmSettings
from etude.config.schema import Config
from etude.environments.spaces import finite_range
from etude.environments.vector import ACTION_MASK, Observation
from etude.errors import UserError
from etude.workflows.base import ActResult, HookResult, Mode, Phase, State, Workflow, hook
from etude.workflows.metrics import Metrics


@dataclass(frozen=True)
class RandomConfig(AlgorithmSettings):
    """Random actions have no settings."""

    name: str = "random"
    """The registered name of the algorithm."""


class RandomPolicy(Workflow):
    """Acts uniformly (continuous actions without bounds: normally or exponentially distributed) and learns nothing."""

    Config = RandomConfig
    evaluation_mode = "sample"
    supports_ranks = True

    @classmethod
    def default_buffers(cls) -> dict[str, Any]:
        """Return a buffer for one step: nothing is learnt from it."""
        return {"rollout": {"type": "rollout", "steps": 1}}

    @classmethod
    def default_phases(cls, config: Config) -> Sequence[Mapping[str, Any]]:
        """Collect, and drop what was collected."""
        return [{"name": "random", "hooks": ["collect", "discard"]}]

    @classmethod
    def check_spaces(cls, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]) -> None:
        """Any action space will do; a mask must fit it."""
        head = make_head(action_space)
        if head.takes_mask:
            check_mask(observation_space, head)

    def act(self, observation: Observation, state: State, is_first: Tensor, *, mode: Mode, generator: Generator) -> ActResult:
        """Draw an action for each row, among those that its mask allows."""
        mask = observation.get(ACTION_MASK) if isinstance(observation, dict) else None
        if mask is None or isinstance(self.context.action_space, spaces.Box):
            return ActResult(_draw(self.context.action_space, len(is_first), generator), state)
        head = make_head(self.context.action_space)
        equal = torch.zeros((len(mask), head.size), device=mask.device)
        return ActResult(head.to_environment(head(equal, mask).sample(generator)), state)

    def distribution(self, observation: Observation, count: int) -> Distribution:
        """Return what the actions of `count` rows are drawn from, flat (count, D) where they are vectors."""
        space, device = self.context.action_space, self.context.device
        if not isinstance(space, spaces.Box):
            head = make_head(space)
            mask = observation.get(ACTION_MASK) if isinstance(observation, dict) else None
            return head(torch.zeros((count, head.size), device=device), mask)
        if not finite_range(space).all():
            raise UserError(f"actions without bounds ({space}) are not drawn uniformly, and have no density of this kind")
        bounds = (torch.as_tensor(bound, dtype=torch.float32, device=device).flatten() for bound in (space.low, space.high))
        low, high = (bound.expand(count, -1) for bound in bounds)
        return Uniform(low, high, whole=np.issubdtype(np.dtype(space.dtype), np.integer))

    def log_prob(self, observation: Observation, action: Tensor) -> Tensor:
        """Return how likely actions (N, ...) are, as a logarithm (N,): of one in the volume, or among those allowed."""
        flat = action if isinstance(self.context.action_space, spaces.Discrete) else action.flatten(1)
        flat = flat if isinstance(self.context.action_space, spaces.Box) else flat.long()
        return self.distribution(observation, len(action)).log_prob(flat)

    def learn(self, batch: Batch) -> Metrics:
        """Learn nothing."""
        return {}

    @hook
    def discard(self, phase: Phase, count: int) -> HookResult:
        """Empty the buffer, which counts as no work."""
        self.buffer(phase).clear()
        return HookResult()


def _draw(space: gymnasium.Space[Any], n: int, generator: Generator) -> Tensor:
    """Return n independent actions (n, *space.shape)."""
    device = generator.device
    if isinstance(space, spaces.Discrete):
        return torch.randint(int(space.n), (n,), generator=generator, device=device)
    uniform = torch.rand((n, *(space.shape or ())), generator=generator, device=device)
    if isinstance(space, spaces.MultiDiscrete):
        return (uniform * torch.as_tensor(space.nvec, device=device)).long()
    if isinstance(space, spaces.MultiBinary):
        return (uniform < 0.5).to(torch.int8)
    assert isinstance(space, spaces.Box)
    low, high = (torch.as_tensor(bound, dtype=torch.float32, device=device) for bound in (space.low, space.high))
    if np.issubdtype(np.dtype(space.dtype), np.integer):
        return torch.minimum((low + uniform * (high - low + 1)).floor(), high)
    # With one bound: exponentially away from it; with none: normally around 0. As Gymnasium's own Box samples.
    away = -torch.log1p(-uniform)
    drawn = torch.randn(uniform.shape, generator=generator, device=device)
    drawn = torch.where(low.isfinite(), low + away, torch.where(high.isfinite(), high - away, drawn))
    bounded = torch.as_tensor(finite_range(space), device=device)
    drawn = torch.where(bounded, low + uniform * (high - low), drawn)
    return torch.maximum(torch.minimum(drawn, high), low)

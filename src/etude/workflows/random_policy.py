"""Uniformly random actions: the baseline every result is compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Generator, Tensor

from etude.buffers.base import Batch
from etude.config.schema import Config
from etude.environments.vector import Observation
from etude.workflows.base import ActResult, Context, HookResult, Mode, Phase, State, Workflow
from etude.workflows.metrics import Metrics


@dataclass(frozen=True)
class RandomConfig:
    """Random actions have no settings."""

    name: str = "random"
    """The registered name of the algorithm."""


class RandomPolicy(Workflow):
    """Acts uniformly within bounds (normally distributed where there are none) and learns nothing."""

    Config = RandomConfig
    evaluation_mode = "sample"

    @classmethod
    def default_buffers(cls) -> dict[str, Any]:
        """Return a buffer for one step: nothing is learnt from it."""
        return {"rollout": {"type": "rollout", "steps": 1}}

    @classmethod
    def default_phases(cls, config: Config) -> Sequence[Mapping[str, Any]]:
        """Collect, and drop what was collected."""
        return [{"name": "random", "hooks": ["collect", "discard"]}]

    def initialize(self, context: Context) -> None:
        """Remember the action space's bounds as tensors."""
        super().initialize(context)
        space = context.action_space
        if isinstance(space, spaces.Box):
            self._low = torch.as_tensor(np.asarray(space.low), dtype=torch.float32, device=context.device)
            self._high = torch.as_tensor(np.asarray(space.high), dtype=torch.float32, device=context.device)

    def act(self, observation: Observation, state: State, is_first: Tensor, *, mode: Mode, generator: Generator) -> ActResult:
        """Draw an action for each row."""
        return ActResult(self._draw(len(is_first), generator), state)

    def learn(self, batch: Batch) -> Metrics:
        """Learn nothing."""
        return {}

    def discard(self, phase: Phase, count: int) -> HookResult:
        """Empty the buffer, which counts as no work."""
        self.buffer(phase).clear()
        return HookResult()

    def _draw(self, n: int, generator: Generator) -> Tensor:
        space, device = self.context.action_space, self.context.device
        if isinstance(space, spaces.Discrete):
            return torch.randint(int(space.n), (n,), generator=generator, device=device)
        uniform = torch.rand((n, *(space.shape or ())), generator=generator, device=device)
        if isinstance(space, spaces.MultiDiscrete):
            return (uniform * torch.as_tensor(space.nvec, device=device)).long()
        if isinstance(space, spaces.MultiBinary):
            return (uniform < 0.5).to(torch.int8)
        normal = torch.randn(uniform.shape, generator=generator, device=device)
        bounded = self._low.isfinite() & self._high.isfinite()
        stretched = torch.where(bounded, self._low + uniform * (self._high - self._low), normal)
        return torch.maximum(torch.minimum(stretched, self._high), self._low)

"""Small stand-ins that prove the contracts: an environment made of tensors, and workflows from outside the package."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Generator, Tensor, nn

from etude.environments.vector import Observation, Step, VectorEnvironment
from etude.workflows.base import ActResult, Context, HookResult, Mode, Phase, State, Workflow, hook
from etude.workflows.metrics import Metrics


class WalkEnvironment(VectorEnvironment):
    """A walk on a line, all in tensors on any device: go right for reward; ends at ±5, cut after 20 steps."""

    snapshot = "exact"
    single_observation_space = gymnasium.spaces.Box(-10, 10, (2,), np.float32)
    single_action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, num_envs: int, device: torch.device | str = "cpu") -> None:
        self.num_envs, self.device = num_envs, torch.device(device)
        self.position = torch.zeros(num_envs, device=self.device)
        self.age = torch.zeros(num_envs, dtype=torch.int64, device=self.device)

    def reset(self, seeds: Sequence[int]) -> tuple[Observation, dict[str, Tensor]]:
        self.position.copy_(torch.tensor([seed % 3 - 1.0 for seed in seeds], device=self.device))
        self.age.zero_()
        return self._observe(), {}

    def step(self, action: Tensor) -> Step:
        self.position += action.to(torch.float32) * 2 - 1
        self.age += 1
        terminated = self.position.abs() >= 5
        truncated = (self.age >= 20) & ~terminated
        reward = action.to(torch.float32)
        final = self._observe()
        ended = terminated | truncated
        self.position *= ~ended
        self.age *= ~ended
        return Step(self._observe(), reward, terminated, truncated, final, {})

    def _observe(self) -> Tensor:
        return torch.stack([self.position, self.age.to(torch.float32) / 20], dim=-1)

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position, "age": self.age}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.position.copy_(state["position"])
        self.age.copy_(state["age"])


class TwoMethods(Workflow):
    """The smallest algorithm: it acts, and it learns."""

    def initialize(self, context: Context) -> None:
        super().initialize(context)
        self.weights = torch.zeros(2, device=context.device)

    def act(self, observation: Observation, state: State, is_first: Tensor, *, mode: Mode, generator: Generator) -> ActResult:
        right = self.weights[1] - self.weights[0]
        if mode == "greedy":
            return ActResult((right > 0).expand(len(is_first)).to(torch.int64), state)
        noise = torch.rand(len(is_first), generator=generator, device=generator.device)
        return ActResult((noise < torch.sigmoid(right)).to(torch.int64), state)

    def learn(self, batch: Any) -> Metrics:
        right = batch["action"].to(torch.float32)
        advantage = batch["reward"] - batch["reward"].mean()
        step = torch.stack([((1 - right) * advantage).mean(), (right * advantage).mean()])
        self.weights += step
        return {"advantage": advantage.abs().mean(), "train/right": right.mean()}


class Phased(Workflow):
    """A workflow with two buffers, and hooks of its own names; keeps a trace of what was called."""

    trace: list[tuple[str, str, int]]

    @classmethod
    def default_buffers(cls) -> dict[str, Any]:
        return {"model_data": {"type": "rollout", "steps": 8}, "play": {"type": "rollout", "steps": 4}}

    def initialize(self, context: Context) -> None:
        super().initialize(context)
        self.trace = []
        self.model = nn.Linear(2, 1)
        self.optimizer = torch.optim.Adam(self.model.parameters(), 1e-2)
        self.seen = torch.zeros((), dtype=torch.int64)

    def act(self, observation: Observation, state: State, is_first: Tensor, *, mode: Mode, generator: Generator) -> ActResult:
        return ActResult(torch.randint(2, (len(is_first),), generator=generator), state)

    def learn(self, batch: Any) -> Metrics:
        loss = (self.model(batch["observation"]).squeeze(-1) - batch["reward"]).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return {"loss": loss}

    def collect(self, phase: Phase, count: int) -> HookResult:
        self.trace.append(("collect", phase.name, count))
        return super().collect(phase, count)

    @hook
    def update_world_model(self, phase: Phase, count: int) -> HookResult:
        """Learn from a full buffer without emptying it, as a replay would be."""
        buffer = self.buffer(phase)
        if buffer.size < 16:
            return HookResult()
        self.trace.append(("update_world_model", phase.name, count))
        for _ in range(count):
            self.metrics.add(self.learn(buffer.sample(8, self.context.streams["buffer"])), group="model")
        return HookResult(updates=count)

    @hook
    def update_discriminator(self, phase: Phase, count: int) -> HookResult:
        """A hook that this workflow alone knows."""
        buffer = self.buffer(phase)
        if not buffer.ready:
            return HookResult()
        self.trace.append(("update_discriminator", phase.name, count))
        self.seen += buffer.size
        buffer.clear()
        return HookResult(updates=count, metrics={"train/seen": self.seen.float()})

    @hook
    def empty(self, phase: Phase, count: int) -> HookResult:
        """Make room; no work."""
        if self.buffer(phase).room == 0:
            self.buffer(phase).clear()
        return HookResult()

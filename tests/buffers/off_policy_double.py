"""The smallest algorithm with a replay buffer: Q-learning with a linear model, a target, and priorities where they count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor, nn

from etude.config.algorithm import AlgorithmSettings
from etude.environments.vector import Observation
from etude.workflows.base import ActResult, Context, HookResult, Mode, Phase, State, Workflow
from etude.workflows.metrics import Metrics


@dataclass(frozen=True)
class DoubleConfig(AlgorithmSettings):
    """Settings of the double."""

    name: str = ""
    batch_size: int = 16
    learning_starts: int = 50
    gamma: float = 0.9
    n_step: int = 2


class LinearQ(Workflow):
    """Acts at random now and then, and learns from a few batches at once."""

    Config = DoubleConfig

    @classmethod
    def default_buffers(cls) -> dict[str, Any]:
        return {"memory": {"type": "replay", "capacity": 300}}

    @classmethod
    def default_phases(cls, config: Any) -> Any:
        return [{"name": "train", "hooks": [{"collect": {"count": 3}}, {"update": {"count": 2}}]}]

    def initialize(self, context: Context) -> None:
        super().initialize(context)
        generator = Generator().manual_seed(0)
        self.q, self.target = nn.Linear(4, 2), nn.Linear(4, 2)
        with torch.no_grad():
            for parameter in self.q.parameters():
                parameter.copy_(torch.rand(parameter.shape, generator=generator) - 0.5)
        self.target.load_state_dict(self.q.state_dict())
        self.optimizer = torch.optim.Adam(self.q.parameters(), 1e-2)

    def act(self, observation: Observation, state: State, is_first: Tensor, *, mode: Mode, generator: Generator) -> ActResult:
        assert isinstance(observation, Tensor)
        greedy = self.q(observation).argmax(-1)
        if mode == "greedy":
            return ActResult(greedy, state)
        at_random = torch.randint(2, greedy.shape, generator=generator)
        explores = torch.rand(greedy.shape, generator=generator) < 0.3
        return ActResult(torch.where(explores, at_random, greedy), state)

    def update(self, phase: Phase, count: int) -> HookResult:
        buffer = self.buffer(phase)
        if not buffer.ready:
            return HookResult()
        self.set_schedules(phase)
        for _ in range(count):
            batch = buffer.sample(16, self.context.streams["buffer"])
            error = self._error(batch)
            loss = (batch.get("weight", 1.0) * error.square()).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            if "weight" in batch:
                buffer.learned(batch["index"], batch["generation"], priority=error)
            with torch.no_grad():
                for slow, fast in zip(self.target.parameters(), self.q.parameters(), strict=True):
                    slow.lerp_(fast, 0.05)
            self.metrics.add({"train/loss": loss.detach()})
        return HookResult(updates=count)

    def _error(self, batch: Any) -> Tensor:
        with torch.no_grad():
            wanted = batch["reward"] + batch["discount"] * self.target(batch["next_observation"]).amax(-1)
        return wanted - self.q(batch["observation"]).gather(1, batch["action"][:, None])[:, 0]

    def learn(self, batch: Any) -> Metrics:
        raise NotImplementedError("update does it all")

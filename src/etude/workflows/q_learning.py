"""Tabular Q-learning (Watkins 1989; Sutton and Barto, section 6.5), for discrete observations and actions.

One cycle is `collect` (one step) and `update` (the table takes that step in):

    Q[s, a] += rate · (r + γ max Q[s', ·] - Q[s, a])      s' terminated: r alone; cut by a time limit: as if it went on
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import gymnasium
import torch
from gymnasium import spaces
from torch import Generator, Tensor

from etude.buffers.base import Batch
from etude.config.algorithm import AlgorithmSettings
from etude.config.constraints import PositiveSchedule, UnitInterval, between
from etude.config.schedules import Schedule
from etude.environments.vector import Observation
from etude.errors import UserError
from etude.workflows.base import ActResult, Context, Mode, State, Workflow
from etude.workflows.metrics import Metrics

LARGEST_TABLE = 100_000_000
TO_GREEDY = Schedule(1.0, 0.05, 0.0, 0.5)


@dataclass(frozen=True)
class QLearningConfig(AlgorithmSettings):
    """Tabular Q-learning."""

    name: str = "q_learning"
    """The registered name of the algorithm."""
    learning_rate: PositiveSchedule = Schedule.constant(0.1)
    """How far a value moves towards each target; 1 forgets what was before, which suits tasks without chance."""
    gamma: UnitInterval = 0.99
    """Discount: how much the next step counts."""
    epsilon: Annotated[Schedule, between(0, 1)] = TO_GREEDY
    """Share of random actions while training data is gathered; from 1 down to 0.05 over the first half by default."""
    initial_value: float = 0.0
    """What every entry of the table begins with. Above what can be reached, it makes the agent try everything."""


class QLearning(Workflow):
    """Keeps one number for each pair of observation and action."""

    Config = QLearningConfig
    settings: QLearningConfig
    default_num_envs = 1

    @classmethod
    def default_buffers(cls) -> dict[str, Any]:
        """Return a buffer for one step, which is learnt from at once."""
        return {"rollout": {"type": "rollout", "steps": 1}}

    @classmethod
    def check_spaces(cls, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]) -> None:
        """A table has a row for each observation and a column for each action."""
        for what, space in (("observations", observation_space), ("actions", action_space)):
            if not isinstance(space, spaces.Discrete):
                raise UserError(f"q_learning keeps a table, so {what} must be Discrete, not {type(space).__name__}; try ppo")
        size = int(observation_space.n) * int(action_space.n)  # type: ignore[attr-defined] # both are Discrete
        if size > LARGEST_TABLE:
            raise UserError(f"q_learning's table would have {size:,} entries, more than {LARGEST_TABLE:,}; try ppo")

    def initialize(self, context: Context) -> None:
        """Make the table."""
        super().initialize(context)
        assert isinstance(context.observation_space, spaces.Discrete)
        assert isinstance(context.action_space, spaces.Discrete)
        self._first = int(context.observation_space.start)
        shape = (int(context.observation_space.n), int(context.action_space.n))
        # In double precision: values that differ by less than single precision shows still have an order.
        self.table = torch.full(shape, self.settings.initial_value, dtype=torch.float64, device=context.device)
        self.scheduled("epsilon")

    def act(self, observation: Observation, state: State, is_first: Tensor, *, mode: Mode, generator: Generator) -> ActResult:
        """Take the best action, the first of equals; while exploring, now and then any, and any of equals."""
        assert isinstance(observation, Tensor)
        values = self.table[observation - self._first]
        if mode != "explore":
            return ActResult(values.argmax(-1), state)
        count, width = values.shape
        noise = torch.rand((count, width + 1), generator=generator, device=generator.device)
        anything = noise[:, width] < self.scheduled("epsilon")
        candidates = anything.unsqueeze(-1) | (values == values.amax(-1, keepdim=True))
        return ActResult(noise[:, :width].masked_fill(~candidates, -1.0).argmax(-1), state)

    @torch.no_grad()
    def values(self, observation: Observation) -> Tensor:
        """Return the value of the best action in each observation (N,)."""
        assert isinstance(observation, Tensor)
        return self.table[observation - self._first].amax(-1)

    def learn(self, batch: Batch) -> Metrics:
        """Take transitions (T, N) in, one after the other: a later one sees what an earlier one changed."""
        errors = []
        rate = self.scheduled("learning_rate").double()
        places = (batch["observation"] - self._first, batch["action"], batch["next_observation"] - self._first)
        facts = (batch["reward"].double(), self.settings.gamma * ~batch["terminated"])
        for here, action, there, reward, discount in zip(*(part.flatten() for part in (*places, *facts)), strict=True):
            error = reward + discount * self.table[there].amax() - self.table[here, action]
            self.table[here, action] += rate * error
            errors.append(error.abs())
        return {"td_error": torch.stack(errors).mean()}

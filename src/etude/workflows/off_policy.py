"""What algorithms that learn from a replay buffer have in common: a warm-up, batches, and the pace of their updates."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import gymnasium
import torch
from torch import Generator, Tensor, nn

from etude.buffers.base import Batch, Buffer
from etude.buffers.columns import STEP_COLUMNS, map_columns, todays_name
from etude.buffers.prioritized import PrioritizedConfig
from etude.buffers.replay import ReplayBuffer, ReplayConfig, discounts
from etude.components.critics import space_with_action, with_action
from etude.components.networks.modes import evaluating, mode_dependent
from etude.components.normalizers import ObservationNormalizer
from etude.compute.accelerate import is_captured, is_compiled
from etude.config.constraints import (
    Bounds,
    Component,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    PositiveSchedule,
    UnitInterval,
)
from etude.config.registry import algorithms
from etude.config.schedules import Schedule
from etude.config.schema import Config
from etude.config.validate import Part
from etude.environments.vector import Observation
from etude.errors import did_you_mean
from etude.learning.update_step import EACH, PER_ROW, UpdateStep
from etude.workflows.base import HookResult, Phase, Workflow
from etude.workflows.counter import Counter
from etude.workflows.metrics import Metrics

SAMPLED_AT_ONCE = 2**21
"""Bytes of transitions gathered together for the updates of one call: as many as stay in the processor's cache."""


@dataclass(frozen=True)
class OffPolicyConfig:
    """Settings that every algorithm with a replay buffer has."""

    name: str = ""
    """The registered name of the algorithm."""
    learning_rate: PositiveSchedule = Schedule.constant(3e-4)
    """Step size. Higher learns faster and breaks sooner; lin_3e-4 lowers it to 0 over the run."""
    batch_size: PositiveInt = 256
    """Transitions per gradient step. More is steadier and slower."""
    gamma: UnitInterval = 0.99
    """Discount: how much the next step counts. Closer to 1 looks further ahead and is noisier."""
    tau: Annotated[float, Bounds(low=0, high=1, low_open=True)] = 0.005
    """How far target networks move towards the trained ones at each update; 1 copies them."""
    learning_starts: NonNegativeInt = 1000
    """Transitions with uniformly random actions before anything is learnt."""
    train_every: PositiveInt = 1
    """Vector steps between updates."""
    gradient_steps: PositiveInt = 1
    """Gradient steps per update. More learns faster from the same data, until it overfits to it."""
    n_step: PositiveInt = 1
    """Rewards summed before bootstrapping from the target network."""
    max_grad_norm: PositiveFloat | None = None
    """Clip each network's gradient to this norm; null leaves it alone."""
    optimizer: Annotated[Any, Component("optimizer")] = Part("adam", {})
    """adam, adamw, sgd or an import path, with its options."""

    def problems(self, config: Config) -> Iterator[str]:
        """Yield what is wrong with these settings taken together."""
        if config.environment.normalize_observations == "rolling":
            yield (
                f"environment.normalize_observations=rolling: {self.name} replays old observations, which would be scaled "
                "by other statistics than when they were seen; use static or off"
            )
        if config.environment.normalize_rewards:
            yield f"environment.normalize_rewards: not with {self.name}, which replays old rewards; use algorithm.reward_scale"
        read = getattr(algorithms.resolve(self.name), "columns", ())
        for name, options in config.buffers.items():
            for column in map(todays_name, getattr(options, "leave_out", ())):
                if column in read:
                    yield f"buffers.{name}.leave_out: '{column}' is what {self.name} learns from"
                elif column not in STEP_COLUMNS:
                    hint = did_you_mean(column, STEP_COLUMNS) or f" (known: {', '.join(STEP_COLUMNS)})"
                    yield f"buffers.{name}.leave_out: there is no column '{column}'{hint}"
        yield from _buffer_problems(config)


def _buffer_problems(config: Config) -> Iterator[str]:
    """Yield what is wrong with the buffers for an algorithm that warms up, and that may or may not know priorities."""
    settings, num_envs = config.algorithm, config.environment.num_envs
    held = {name: o.capacity // num_envs * num_envs for name, o in config.buffers.items() if isinstance(o, ReplayConfig)}
    if held and sum(held.values()) < settings.learning_starts:
        name = next(iter(held))
        yield (
            f"buffers.{name}.capacity={config.buffers[name].capacity}: holds {sum(held.values())} transitions, so the warm-up "
            f"of algorithm.learning_starts={settings.learning_starts} would never end; raise the one or lower the other"
        )
    knows_priorities = getattr(algorithms.resolve(settings.name), "writes_back", None) is not OffPolicy.writes_back
    for name, options in config.buffers.items():
        if isinstance(options, PrioritizedConfig) and not knows_priorities:
            yield (
                f"buffers.{name}.type={options.type}: {settings.name} does not say how wrong it was about each transition, so "
                f"priorities would do nothing; set buffers.{name}.type=replay, or use dqn"
            )


class OffPolicy(Workflow):
    """Collect a few steps, learn from batches of all experience, repeat."""

    learns_from = ReplayBuffer
    columns: tuple[str, ...] = ("observation", "sample", "reward", "discount", "next_observation")
    """What of a replayed transition the losses read."""

    @classmethod
    def default_buffers(cls) -> dict[str, Any]:
        """One replay buffer."""
        return {"replay": {"type": "replay"}}

    @classmethod
    def default_phases(cls, config: Config) -> Sequence[Mapping[str, Any]]:
        """Collect `train_every` vector steps, take `gradient_steps` gradient steps, repeat."""
        settings = config.algorithm
        hooks = [{"collect": {"count": settings.train_every}}, {"update": {"count": settings.gradient_steps}}]
        return [{"name": "train", "hooks": hooks}]

    @classmethod
    def gradient_steps(cls, config: Config) -> int:
        """Return how many gradient steps the whole run takes."""
        settings, steps = config.algorithm, max(0, config.training.total_steps - config.algorithm.learning_starts)
        return steps // (settings.train_every * config.environment.num_envs) * settings.gradient_steps

    @abstractmethod
    def update_step(self) -> UpdateStep:
        """Return the losses, optimisers and targets of one update."""

    def noise(self, count: int, generator: Generator) -> dict[str, Tensor]:
        """Return the random numbers that `count` updates need, as columns (count, B, ...)."""
        return {}

    def is_warming_up(self) -> bool:
        """Whether actions are still uniformly random: until enough is held, or all there is room for."""
        missing = self.context.config.algorithm.learning_starts
        for buffer in self.context.buffers.values():
            missing -= buffer.size
        return missing > 0 and not all(buffer.is_full for buffer in self.context.buffers.values())

    def update(self, phase: Phase, count: int) -> HookResult:
        """Take `count` gradient steps on batches from the phase's buffer, once it holds enough."""
        buffer = self.buffer(phase)
        assert isinstance(buffer, ReplayBuffer)
        if not buffer.ready:
            return HookResult()
        self.set_schedules(phase)
        calls, is_inside = list(self._calls(count)), self._gathers_inside(buffer)
        if is_inside and is_captured(self._step.mode):
            self._update_captured(buffer, calls)
        elif is_inside and is_compiled(self._step.mode):
            self._update_compiled(buffer, calls)
        else:
            self._update_sampled(buffer, calls)
        return HookResult(updates=count)

    def _gathers_inside(self, buffer: ReplayBuffer) -> bool:
        """Whether gathering batches can be captured or compiled with the updates on them."""
        return buffer.is_plain and buffer.ring.device.type == self.context.device.type

    def _update_sampled(self, buffer: ReplayBuffer, calls: Sequence[int]) -> None:
        """Take gradient steps on batches that the buffer puts together."""
        for steps, batch in self._batches(buffer, calls):
            rows = {key: batch[key] for key in (*self.columns, "weight") if key in batch}
            self._note(self._step(rows | self.noise(steps, self.context.streams["noise"]), first=self._updates.value), steps)
            self.learned(buffer, batch)

    def _update_compiled(self, buffer: ReplayBuffer, calls: Sequence[int]) -> None:
        """Take gradient steps that read the transitions where they lie, by the places drawn for all of them at once."""
        streams, batch_size, stored = self.context.streams, self.context.config.algorithm.batch_size, self._stored(buffer)
        places = buffer.draw_places(sum(calls), batch_size, streams["buffer"]).split(list(calls))
        batches = (({EACH: self.noise(len(index), streams["noise"]), **stored}, index) for index in places)
        self._note(self._step.in_calls(batches, calls[0], first=self._updates.value), sum(calls))

    def _stored(self, buffer: ReplayBuffer) -> dict[str, Any]:
        """Return the memory of the columns that the losses read, and of what discounts follow from."""
        return {key: buffer.ring.flat[key] for key in (*self.columns, "terminated") if key in buffer.ring.flat}

    def complete(self, rows: Mapping[str, Any]) -> Mapping[str, Any]:
        """Rows that are read where they lie have no discounts yet."""
        if "discount" in rows:
            return rows
        gamma = self.context.config.algorithm.gamma
        return {**rows, "discount": discounts(rows["terminated"], gamma, rows["reward"].dtype)}

    def _note(self, reports: Mapping[str, Tensor], steps: int) -> None:
        """Note what a call of updates did."""
        self._updates.value += steps
        for stage, table in reports.items():
            self.metrics.add_rows(table, self._step.keys[stage], group=stage or "update")

    def _update_captured(self, buffer: ReplayBuffer, calls: Sequence[int]) -> None:
        """Take gradient steps with all that belongs to them captured: places, gathering, noise, losses, steps."""
        streams = self.context.streams
        buffer.size_on(self.context.device)
        for steps in calls:
            rows = self._rows.setdefault((buffer.name, steps), partial(self._drawn, buffer, steps))
            drawn_from = (streams["buffer"], streams["noise"])
            self._note(self._step.drawing(rows, drawn_from, steps, first=self._updates.value), steps)

    def _drawn(self, buffer: ReplayBuffer, steps: int) -> tuple[dict[str, Any], None]:
        streams, batch_size = self.context.streams, self.context.config.algorithm.batch_size
        batch = buffer.rows(steps, batch_size, streams["buffer"], self.columns)
        return {key: batch[key] for key in self.columns} | self.noise(steps, streams["noise"]), None

    def _batches(self, buffer: ReplayBuffer, calls: Sequence[int]) -> Iterator[tuple[int, Batch]]:
        """Yield the steps and the batches (steps, B, ...) of each call, sampled for many calls at once where they are small."""
        generator, batch_size = self.context.streams["buffer"], self.context.config.algorithm.batch_size
        at_once = max(1, SAMPLED_AT_ONCE // (batch_size * buffer.bytes_per_transition * max(calls, default=1)))
        size = 1 if self.writes_back(buffer) else at_once
        for group in (calls[first : first + size] for first in range(0, len(calls), size)):
            sampled, done = buffer.sample_many(sum(group), batch_size, generator, self.columns), 0
            for steps in group:
                yield steps, sampled if len(group) == 1 else map_columns(sampled, partial(_part, begin=done, end=done + steps))
                done += steps

    def writes_back(self, buffer: Buffer) -> bool:
        """Whether the next batch depends on what is learnt from this one, as where replay is prioritised."""
        return False

    def _calls(self, count: int) -> Iterator[int]:
        """Cut `count` steps into calls. A cycle's steps are always cut alike, so that results don't depend on the cut."""
        per_cycle, at_once = self.context.config.algorithm.gradient_steps, self._step.steps_per_call
        size = at_once if per_cycle % at_once == 0 and count % at_once == 0 else 1
        yield from [size] * (count // size)

    def learned(self, buffer: ReplayBuffer, batch: Batch) -> None:
        """What else to do after a call of updates: write back priorities, copy targets."""

    def learn(self, batch: Batch) -> Metrics:
        """Take one gradient step on a batch."""
        rows = {key: batch[key] for key in (*self.columns, "weight") if key in batch} | {
            name: column[0] for name, column in self.noise(1, self.context.streams["noise"]).items()
        }
        return {key: value for report in self._step.eager(rows) for key, value in report.items() if key != PER_ROW}

    def _begin(self) -> None:
        """Make the update and its counter; the last act of `initialize`."""
        self._updates = Counter()
        self._step = self.update_step()
        self._rows: dict[tuple[str, int], Any] = {}


def _part(column: Tensor, begin: int, end: int) -> Tensor:
    return column[begin:end]


class WithCritics(OffPolicy):
    """Several critics that read an observation and a continuous action."""

    critic: nn.Module
    normalizer: ObservationNormalizer

    @classmethod
    def input_spaces(
        cls, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]
    ) -> dict[str, gymnasium.Space[Any]]:
        """Critics read the action too, on a scale where its bounds are ±1."""
        unit = gymnasium.spaces.Box(-1.0, 1.0, (math.prod(action_space.shape or ()),))
        return {"critic": space_with_action(observation_space, unit)}

    @classmethod
    def copies(cls, config: Config) -> dict[str, int]:
        """Several critics."""
        return {"critic": config.algorithm.critics}

    @abstractmethod
    def likeliest(self, observation: Observation) -> Tensor:
        """Return what the policy would do without noise in normalised observations (N, ...), on the critics' scale (N, D)."""

    @torch.no_grad()
    def values(self, observation: Observation) -> Tensor:
        """Return the lowest critic's value of what the policy would do in raw observations, in units of reward (N,).

        Where entropy counts as reward, it counts here too.
        """
        seen = self.normalizer(observation)
        with evaluating(mode_dependent(self.critic)):
            outputs = self.critic(with_action(seen, self.likeliest(seen)))  # (E, N, 1), or with several quantiles each
        return outputs.mean(-1).amin(0) / self.context.config.algorithm.reward_scale


def uniform_actions(space: gymnasium.spaces.Box, observation: Observation, generator: Generator) -> Tensor:
    """Return actions (N, D) drawn uniformly from [-1, 1]."""
    first = next(iter(observation.values())) if isinstance(observation, Mapping) else observation
    return torch.empty(len(first), math.prod(space.shape), device=first.device).uniform_(-1, 1, generator=generator)

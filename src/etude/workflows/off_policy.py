"""What algorithms that learn from a replay buffer have in common: a warm-up, batches, and the pace of their updates."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import gymnasium
import torch
from torch import Generator, Tensor, nn

from etude.buffers.columns import STEP_COLUMNS, todays_name
from etude.buffers.replay import ReplayBuffer
from etude.buffers.replay_config import StoreConfig
from etude.components.critics import space_with_action, with_action
from etude.components.distributions import BoundedHead
from etude.components.networks.modes import evaluating, mode_dependent
from etude.components.networks.spec import NetworkSpec
from etude.components.normalizers import ObservationNormalizer
from etude.config.algorithm import AlgorithmSettings
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
from etude.learning.sources import Replayed
from etude.learning.update import Batch, Out, Update
from etude.workflows.base import ActResult, HookResult, Phase, State, Workflow
from etude.workflows.metrics import Metrics


@dataclass(frozen=True)
class OffPolicyConfig(AlgorithmSettings):
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
    """Transitions with uniformly random actions before anything is learnt, of all processes together."""
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
        yield from left_out_problems(self.name, config)
        yield from _buffer_problems(config)


def left_out_problems(algorithm: str, config: Config) -> Iterator[str]:
    """Yield which columns can't be left out of replays: what the algorithm learns from, and what is none."""
    workflow = algorithms.resolve(algorithm)
    read = workflow.columns if issubclass(workflow, OffPolicy) else ()
    left_out = {name: replay.leave_out for name, replay in config.buffers.items() if isinstance(replay, StoreConfig)}
    for name, columns in left_out.items():
        for column in map(todays_name, columns):
            if column in read:
                yield f"buffers.{name}.leave_out: '{column}' is what {algorithm} learns from"
            elif column not in STEP_COLUMNS:
                hint = did_you_mean(column, STEP_COLUMNS) or f" (known: {', '.join(STEP_COLUMNS)})"
                yield f"buffers.{name}.leave_out: there is no column '{column}'{hint}"


def _buffer_problems(config: Config) -> Iterator[str]:
    """Yield what is wrong with the buffers for an algorithm that warms up and learns from transitions."""
    settings, num_envs = config.algorithm, config.environment.num_envs
    for name, options in config.buffers.items():
        if getattr(options, "sequence", None) is not None:
            yield f"buffers.{name}.sequence={options.sequence}: {settings.name} learns from single transitions; set it to null"
    held = {name: o.capacity // num_envs * num_envs for name, o in config.buffers.items() if isinstance(o, StoreConfig)}
    if held and sum(held.values()) * config.experiment.processes < settings.learning_starts:
        name = next(iter(held))
        yield (
            f"buffers.{name}.capacity={config.buffers[name].capacity}: holds {sum(held.values())} transitions, so the warm-up "
            f"of algorithm.learning_starts={settings.learning_starts} would never end; raise the one or lower the other"
        )


class OffPolicy(Workflow):
    """Collect a few steps, learn from batches of all experience, repeat."""

    learns_from = ReplayBuffer
    supports_ranks = True
    supports_samplers = True
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
        copies = config.environment.num_envs * config.experiment.processes
        return steps // (settings.train_every * copies) * settings.gradient_steps

    @abstractmethod
    def losses(self) -> Update:
        """Return the losses, optimisers and targets of one update."""

    def is_warming_up(self) -> bool:
        """Whether actions are still uniformly random: until enough is held, or all there is room for."""
        missing = self.settings.learning_starts
        for buffer in self.context.buffers.values():
            missing -= buffer.size * self.context.world.size
        return missing > 0 and not all(buffer.is_full for buffer in self.context.buffers.values())

    def update(self, phase: Phase, count: int) -> HookResult:
        """Take `count` gradient steps on batches from the phase's buffer, once it holds enough."""
        buffer = self.buffer(phase)
        assert isinstance(buffer, ReplayBuffer)
        if not buffer.ready:
            return HookResult()
        settings = self.settings
        source = Replayed(
            buffer, self.columns, settings.batch_size, self.context.streams["buffer"], unit=settings.gradient_steps
        )
        self.note(self._executor.run(source, count, self.scheduled_before(phase)))
        return HookResult(updates=count)

    def learn(self, batch: Batch) -> Metrics:
        """Take one gradient step on a batch."""
        return self._executor.learn({key: batch[key] for key in (*self.columns, "weight") if key in batch})


def judged(values: Tensor, targets: Tensor, batch: Batch, scale: float = 1.0) -> Out:
    """Return the squared errors of critics (E, B) against targets (B,): the mean over rows, summed over critics.

    Where a prioritised replay weighs its rows, so does the loss, and says how wrong the critics were about each.
    """
    errors = (values - targets).square()
    metrics = {"train/q_mean": values.detach().mean(), "train/q_target_mean": targets.mean()}
    if "weight" not in batch:
        return Out(scale * errors.mean(1).sum(), metrics)
    wrong = (values.detach() - targets).abs().mean(0)
    return Out(scale * (errors * batch["weight"]).mean(1).sum(), metrics, per_row={"priority": wrong})


class WithCritics(OffPolicy):
    """Several critics that read an observation and a continuous action."""

    critic: nn.Module
    normalizer: ObservationNormalizer

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
        return outputs.mean(-1).amin(0) / self.settings.reward_scale


def random_actions(head: BoundedHead, state: State, is_first: Tensor, generator: Generator) -> ActResult:
    """Return actions (N, ...) drawn uniformly between their bounds, for a warm-up."""
    sample = torch.empty(len(is_first), head.actions, device=is_first.device).uniform_(-1, 1, generator=generator)
    return ActResult(head.to_environment(sample), state, {"sample": sample})


def critics(config: Config, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]) -> NetworkSpec:
    """Return what critics are: they read the action too, on a scale where its bounds are ±1, and each says one number."""
    unit = gymnasium.spaces.Box(-1.0, 1.0, (math.prod(action_space.shape or ()),))
    return NetworkSpec(1, space_with_action(observation_space, unit), copies=config.algorithm.critics)

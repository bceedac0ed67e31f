"""PlaNet (Hafner et al. 2019): learn a model of the world, and plan in it at every decision by the cross-entropy method.

    state s ─→ S sequences of H actions ─→ dreams of the prior ─→ sums of predicted rewards ─→ the best K ─→ again, around these
                                                                                                   └─→ their mean's first action

Nothing is learnt but the model: no policy, no values. A plan knows nothing of the one before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import gymnasium
import torch
from gymnasium import spaces
from torch import Generator, Tensor

from etude.acting.policy import ActResult, Mode, State
from etude.components.networks.world_decoder import DETER, STOCH
from etude.components.planners import Planner
from etude.components.rssm import ModelState
from etude.components.world_model import PREVIOUS_ACTION, WorldModel
from etude.compute.noise import Noise
from etude.compute.regions import compiled_regions
from etude.config.constraints import Component, PositiveFloat, PositiveInt, PositiveSchedule
from etude.config.schedules import Schedule
from etude.config.schema import Config
from etude.config.validate import Part
from etude.environments.vector import Observation
from etude.errors import UserError
from etude.learning.optimizers import build_optimizer
from etude.learning.update import Batch, Out, Stage, Update
from etude.workflows.base import Context, HookResult, Phase
from etude.workflows.recurrent_model import ModelConfig, ModelPolicy, ModelWorkflow, drawn

WEIGHED = ("reconstruction", "reward", "dynamics", "representation")
"""Losses that have weights."""
LEAST_STD = 1e-3
"""Of planned actions: below, further rounds of planning would try the same again."""


@dataclass(frozen=True)
class PlanetConfig(ModelConfig):
    """PlaNet."""

    name: str = "planet"
    """The registered name of the algorithm."""
    horizon: PositiveInt = 12
    """Steps that a plan looks ahead. More see further and lean more on the model."""
    iterations: PositiveInt = 10
    """Rounds of planning: each draws around the best of the one before."""
    samples: PositiveInt = 1000
    """Action sequences that are imagined in each round."""
    elites: PositiveInt = 100
    """How many of the best make the next round's mean and deviation."""
    plan_std: PositiveFloat = 1.0
    """Deviation that planning begins with, on a scale where actions are between -1 and 1."""
    size: Literal["tiny", "classic", "1m", "12m", "25m", "50m", "100m", "200m"] = "classic"
    """How large the world model is: tiny for a CPU, classic about as in the paper; see `dreamer`."""
    train_ratio: float = 500.0
    """Replayed steps for each one collected."""
    batch_size: int = 50
    """Windows per update; how long they are says buffers.replay.sequence."""
    learning_rate: PositiveSchedule = Schedule.constant(1e-3)
    """Step size."""
    optimizer: Annotated[Any, Component("optimizer")] = Part("adam", {"eps": 1e-4})
    """laprop, adam, adamw or an import path, with its options."""
    max_grad_norm: float | None = 1000.0
    """Clip the gradient to this norm; null leaves it alone."""
    learning_starts: int = 2500
    """Decisions with random plans before anything is learnt: five episodes are good."""
    pretrain_updates: int = 100
    """Updates on these alone, before collecting goes on."""
    stochastic: Literal["categorical", "gaussian"] = "gaussian"
    """The part of the state that is drawn: groups of classes, or Gaussians."""
    latents: Literal["stored", "off"] = "off"
    """As in `dreamer`."""
    input_norm: Literal["each", "joint"] = "joint"
    """Whether memory, latents and action are normed each by itself as they enter the recurrence, or together."""
    numbers: Literal["two_hot", "squared"] = "squared"
    """How rewards are predicted: as bins that fit any scale, or as numbers by their squared error."""
    free_nats: float = 3.0
    """Divergence between posterior and prior, per step, that is left alone."""
    reward_weight: float = 10.0
    """Weight of predicting rewards."""
    representation_weight: float = 1.0
    """Weight of moving the posterior towards the prior."""
    exploration_noise: float = 0.3
    """While exploring: deviation of noise that is added to actions, on a scale where bounds are ±1."""

    def problems(self, config: Config) -> Iterator[str]:
        """Yield what is wrong with these settings taken together."""
        yield from super().problems(config)
        if self.elites > self.samples:
            yield f"algorithm.elites={self.elites}: must be at most algorithm.samples={self.samples}"


class Planet(ModelWorkflow):
    """A world model, and plans in it."""

    Config = PlanetConfig
    settings: PlanetConfig
    window_steps = 50

    @classmethod
    def check_spaces(cls, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]) -> None:
        """Bounded boxes."""
        super().check_spaces(observation_space, action_space)
        if not isinstance(action_space, spaces.Box):
            raise UserError(
                f"planet plans continuous actions, not {type(action_space).__name__}; use dreamer for discrete ones"
            )

    def initialize(self, context: Context) -> None:
        """Bind the networks, and build what surrounds them."""
        super().initialize(context)
        settings = self.settings
        self._policy = PlanetPolicy(self._world, settings, self._dtype(), compiles=self.compiles)
        parameters = [parameter for part in self.model_parts for parameter in part.parameters()]
        self.optimizer = build_optimizer(settings.optimizer, {"": (parameters, self.scheduled("learning_rate"))})
        stage = Stage("", self.loss, self.optimizer, settings.max_grad_norm)
        self._weights = {name: getattr(settings, f"{name}_weight") for name in WEIGHED}
        self._executor = self.executor(Update([stage], is_compilable=False))

    def loss(self, batch: Batch, noise: Noise) -> Out:
        """The losses of the world model, on windows (B, L, ...)."""
        steps = self._time_major(batch)
        with self._precision():
            seen = self._world.observe(steps, noise)
            found, metrics = self._world.losses(seen, steps)
        losses = {name: self._weights.get(name, 1.0) * loss for name, loss in found.items()}
        metrics |= {f"train/{name}_loss": loss.detach() for name, loss in losses.items()}
        return Out(torch.stack([*losses.values()]).sum(), metrics, per_row=self._world.entering(steps, seen.states))

    def update(self, phase: Phase, count: int) -> HookResult:
        """Take `count` steps on windows from the phase's buffer, once it holds enough."""
        return self._update(self._executor, phase, count)

    def is_warming_up(self) -> bool:
        """Whether actions are still random: until there is enough to learn from."""
        held = sum(buffer.size for buffer in self.context.buffers.values())
        return held * self.context.world.size < self.settings.learning_starts

    def act_randomly(self, observation: Observation, state: State, is_first: Tensor, *, generator: Generator) -> ActResult:
        """Any action, each as likely as the others; no model follows."""
        return self._policy.act_randomly(observation, state, is_first, generator=generator)


class PlanetPolicy(ModelPolicy):
    """Plans at every decision. Its exploring adds noise to what was planned; nothing else tells its ways apart."""

    def __init__(self, world: WorldModel, settings: PlanetConfig, dtype: torch.dtype, *, compiles: bool = False) -> None:
        super().__init__(world, settings, dtype, reward=world.reward, continues=world.continues)
        self._world, self._settings, self._compiles = world, settings, compiles
        self._planner = Planner(settings.elites, 0.0, LEAST_STD, settings.plan_std)

    def act_randomly(self, observation: Observation, state: State, is_first: Tensor, *, generator: Generator) -> ActResult:
        """Any action, each as likely as the others; no model follows."""
        chosen = torch.empty_like(state[PREVIOUS_ACTION]).uniform_(-1, 1, generator=generator)
        extras = self._extras(ModelState(state[DETER], state[STOCH]), state[PREVIOUS_ACTION])
        return ActResult(self._head.to_environment(chosen), {**state, PREVIOUS_ACTION: chosen}, extras)

    def choose(self, state: ModelState, mode: Mode, generator: Generator) -> Tensor:
        """Return the first action of the best plan from each state (N, ...): (N, A)"""
        settings, (count, actions) = self._settings, (state.deter.shape[0], self._head.actions)
        shape = (settings.iterations, count, settings.samples, settings.horizon, actions)
        noise = torch.empty(shape, device=generator.device).normal_(generator=generator)
        begin = torch.zeros(count, settings.horizon, actions, device=generator.device)
        with compiled_regions(self._compiles and mode == "explore"):  # others may act in as many tasks as they like
            return self._planner(lambda plans: self.value_of(state, plans, generator), begin, noise).mean[:, 0]

    def value_of(self, state: ModelState, actions: Tensor, generator: Generator) -> Tensor:
        """Return what sequences of actions earn in a dream, as far as it goes on: (N, ...), (N, S, H, A) → (N, S)"""
        count, samples = actions.shape[:2]
        dreamt = [ModelState(*(part.repeat_interleave(samples, 0) for part in state))]
        for action in actions.flatten(0, 1).unbind(1):
            noise = drawn(self._rssm.latents, count * samples, generator)
            dreamt.append(ModelState(*self._rssm._dream_cell(*dreamt[-1], action, noise)))
        features = torch.stack([each.features for each in dreamt[1:]])  # (H, N · S, F)
        goes_on = self._world.continuation(features)
        reached = torch.cat([torch.ones_like(goes_on[:1]), goes_on[:-1]]).cumprod(0)
        return (reached * self._world.rewards(features)).sum(0).view(count, samples)

"""Dreamer (Hafner et al. 2020, 2021, 2025): learn a model of the world, and to act in what it imagines.

    replay ─→ windows ─→ world model: posterior states, reconstruction, reward, continuation, KL      recurrent_model.py
                              │ states
                              └─→ imagination: H steps of the actor ─→ returns ─→ actor, critic       behaviour.py

One update is one step of one optimiser on the sum of all losses. The two halves are hooks of their own too, for curricula. The
three versions are one algorithm with other settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import torch
from torch import Generator, Tensor, nn

from etude.components.critics import Follow, target_of
from etude.components.networks.spec import POLICY_GAIN, NetworkSpec
from etude.components.rssm import ModelState
from etude.components.world_actions import world_actions
from etude.components.world_model import Followed, Imagined, Seen
from etude.compute.noise import Noise
from etude.compute.regions import region
from etude.config.schema import Config
from etude.learning.optimizers import build_optimizer, part_of
from etude.learning.update import Batch, Out, Stage, Update
from etude.workflows.base import Context, HookResult, Phase, hook
from etude.workflows.dreamer.behaviour import Behaviour, Dream, DreamerPolicy
from etude.workflows.dreamer.config import DreamerConfig, DreamerV1Config, DreamerV2Config
from etude.workflows.recurrent_model import SIZES, ModelWorkflow, make_latents, make_numbers


class Dreamer(ModelWorkflow):
    """A world model, and a policy that learns in its imagination."""

    Config = DreamerConfig
    settings: DreamerConfig
    actor: nn.Module
    critic: nn.Module
    holds_others = ("_world", "_behaviour", "_objective")

    @classmethod
    def default_networks(cls) -> dict[str, Any]:
        """Three layers for actor and critic."""
        return {**super().default_networks(), **{role: {"type": "world_mlp", "layers": 3} for role in ("actor", "critic")}}

    @classmethod
    def roles(
        cls, config: Config, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]
    ) -> dict[str, NetworkSpec]:
        """Actor and critic read both parts of a state, as the heads of the model do."""
        settings, size = config.algorithm, SIZES[config.algorithm.size]
        features, width = size.deter + make_latents(settings).size, size.hidden
        head = world_actions(action_space, settings.unimix)
        return {
            **super().roles(config, observation_space, action_space),
            "actor": NetworkSpec(head, features, output_gain=POLICY_GAIN, width=width),
            "critic": NetworkSpec(make_numbers(settings).size, features, output_gain=0.0, width=width),
        }

    # ---- making it ----------------------------------------------------------------------------------------------------

    def initialize(self, context: Context) -> None:
        """Bind the networks, and build what surrounds them."""
        super().initialize(context)
        settings = self.settings
        self.slow_critic = target_of(self.critic)
        self._behaviour = Behaviour(self._world, self.actor, self.critic, self.slow_critic, settings)
        self._objective = Objective(self._behaviour, settings)
        self.return_low, self.return_high = self._behaviour.scale.initial(context.device).values()
        self._policy = DreamerPolicy(self._world, self.actor, settings, self._dtype())
        parts = {"model": self.model_parts, "actor": [self.actor], "critic": [self.critic]}
        rates = {"actor": settings.actor_learning_rate, "critic": settings.critic_learning_rate}
        own = {name: f"{name}_learning_rate" for name, rate in rates.items() if rate is not None}
        learnt = {
            name: ([p for part in each for p in part.parameters()], self.scheduled(own.get(name, "learning_rate")))
            for name, each in parts.items()
        }
        self.optimizer = build_optimizer(settings.optimizer, learnt)
        self._executor, self._model_executor, self._controller_executor = map(self.executor, self.updates())

    def updates(self) -> tuple[Update, Update, Update]:
        """Return the update of everything, and those of the world model and of the controller alone."""
        settings, clip = self.settings, self.settings.max_grad_norm
        returns = {"return_low": self.return_low, "return_high": self.return_high}
        model, controller = part_of(self.optimizer, "model"), part_of(self.optimizer, "actor", "critic")
        # Compiling a scan whole would unroll it; its cells are regions, which are compiled by themselves.
        apart: dict[str, Any] = {"is_compilable": False}
        follow = Follow([self.critic], [self.slow_critic], settings.slow_critic_rate)
        following = {**apart, "after": follow, "after_every": settings.slow_critic_every}
        return (
            Update([Stage("", self.loss, self.optimizer, clip, True, state=returns)], **following),
            Update([Stage("model", self.model_loss, model, clip)], **apart),
            Update([Stage("controller", self.controller_loss, controller, clip, True, state=returns)], **following),
        )

    # ---- losses -------------------------------------------------------------------------------------------------------

    def loss(self, batch: Batch, state: Mapping[str, Tensor], noise: Noise) -> Out:
        """The sum of all losses, on windows (B, L, ...)."""
        steps = self._time_major(batch)
        with self._precision():
            followed = self._world.follow(steps, noise)
            dream, places = self._dream(followed, noise)
            loss, metrics, scale = self._objective.of_all(followed, _weighed(steps), dream, places, dict(state))
        return Out(loss, metrics, state=scale, per_row=self._world.entering(steps, followed.states))

    def model_loss(self, batch: Batch, noise: Noise) -> Out:
        """The losses of the world model alone."""
        steps = self._time_major(batch)
        with self._precision():
            followed = self._world.follow(steps, noise)
            loss, metrics = self._objective.of_model(followed, _weighed(steps))
        return Out(loss, metrics, per_row=self._world.entering(steps, followed.states))

    def controller_loss(self, batch: Batch, state: Mapping[str, Tensor], noise: Noise) -> Out:
        """The losses of actor and critic alone."""
        steps = self._time_major(batch)
        with self._precision():
            with torch.no_grad():
                followed = self._world.follow(steps, noise)
            dream, places = self._dream(followed, noise)
            loss, metrics, scale = self._objective.of_controller(followed, _weighed(steps), dream, places, dict(state))
        return Out(loss, metrics, state=scale, per_row=self._world.entering(steps, followed.states))

    def _dream(self, followed: Followed, noise: Noise) -> tuple[Dream, Tensor]:
        """Dream from some of the rows, and return which."""
        places = self._starts(followed.breaks.numel(), noise, followed.breaks.device)
        return self._behaviour.imagine(followed.states.flat().at(places), noise), places

    def _starts(self, rows: int, noise: Noise, device: torch.device) -> Tensor:
        """Return the rows (N,) that dreams begin in: all, or one at random in each N-th of them."""
        wanted = self.settings.imagination_starts
        if wanted is None or wanted >= rows:
            return torch.arange(rows, device=device)
        share = torch.arange(wanted, device=device) + noise.uniform("starts", (wanted,))
        return (share * (rows / wanted)).long().clamp(max=rows - 1)

    # ---- hooks --------------------------------------------------------------------------------------------------------

    def update(self, phase: Phase, count: int) -> HookResult:
        """Take `count` steps of everything on windows from the phase's buffer, once it holds enough."""
        return self._update(self._executor, phase, count)

    @hook
    def update_world_model(self, phase: Phase, count: int) -> HookResult:
        """Take `count` steps of the world model alone."""
        return self._update(self._model_executor, phase, count)

    @hook
    def update_controller(self, phase: Phase, count: int) -> HookResult:
        """Take `count` steps of actor and critic alone, in the imagination of the world model as it is."""
        return self._update(self._controller_executor, phase, count)

    # ---- looking into the model ---------------------------------------------------------------------------------------

    @torch.no_grad()
    def followed(self, batch: Batch, *, generator: Generator) -> tuple[ModelState, Tensor]:
        """Follow windows (B, L, ...): the model's states (L, B, ...), and what each is worth to the critic (L, B)."""
        with self._precision():
            states = self._world.observe(self._time_major(batch), Noise(generator)).states
            return states, self.numbers.mean(self.critic(states.features))

    @torch.no_grad()
    def imagine(self, horizon: int, start: ModelState | None = None, *, generator: Generator, count: int = 1) -> Imagined:
        """Dream `horizon` steps of the policy without an environment, from states (N, ...) or from `count` beginnings."""
        if start is None:
            begin = torch.zeros(count, self.head.actions, device=self.context.device)
            noise = self._world.noise(Noise(generator), "begin", (count,))
            start = self.rssm.dream(self.rssm.initial(count), begin, noise)
        with self._precision():
            dream = self._behaviour.imagine(start, Noise(generator), horizon)
            features = dream.states.features
            seen = self._behaviour.judge(features, self.numbers.mean(self.critic(features)))
            made = self._world.observations(dream.states)
        return Imagined(dream.states, dream.actions, made, seen.rewards, seen.discounts / max(self.settings.gamma, 1e-9))


class DreamerV2(Dreamer):
    """The second version."""

    Config = DreamerV2Config
    window_steps = 50


class DreamerV1(Dreamer):
    """The first version."""

    Config = DreamerV1Config
    window_steps = 50


class Objective(nn.Module):
    """All that is learnt, and its losses on windows that the recurrences have been through: the other regions of an update."""

    def __init__(self, behaviour: Behaviour, settings: DreamerConfig) -> None:
        super().__init__()
        self.behaviour, self.world = behaviour, behaviour.world
        names = ("reconstruction", "reward", "dynamics", "representation", "replay_value")
        self._weights = {name: getattr(settings, f"{name}_weight") for name in names}

    @region
    def of_all(
        self, followed: Followed, steps: dict[str, Any], dream: Dream, places: Tensor, scale: dict[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor], dict[str, Tensor]]:
        """Return the sum of all losses, metrics, and the scale of returns as it becomes."""
        seen = self.world.arrive(followed, steps)
        of_model, metrics = self.world.losses(seen, steps)
        of_controller, more, scale = self._controller(seen, steps, dream, places, scale)
        loss, losses = self._summed({**of_model, **of_controller})
        return loss, {**metrics, **more, **losses}, scale

    @region
    def of_model(self, followed: Followed, steps: dict[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the sum of the world model's losses, and metrics."""
        found, metrics = self.world.losses(self.world.arrive(followed, steps), steps)
        loss, losses = self._summed(found)
        return loss, {**metrics, **losses}

    @region
    def of_controller(
        self, followed: Followed, steps: dict[str, Any], dream: Dream, places: Tensor, scale: dict[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor], dict[str, Tensor]]:
        """Return the sum of the losses of actor and critic, metrics, and the scale of returns as it becomes."""
        with torch.no_grad():
            seen = self.world.arrive(followed, steps)
        found, metrics, scale = self._controller(seen, steps, dream, places, scale)
        loss, losses = self._summed(found)
        return loss, {**metrics, **losses}, scale

    def _controller(
        self, seen: Seen, steps: dict[str, Any], dream: Dream, places: Tensor, scale: dict[str, Tensor]
    ) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor]]:
        losses, metrics, scale, imagined = self.behaviour.losses(dream, scale)
        if self._weights["replay_value"]:
            losses["replay_value"] = self.behaviour.replay_value_loss(seen, steps, places, imagined)
        return losses, metrics, scale

    def _summed(self, found: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the sum of losses by their weights, and each for the log."""
        losses = {name: self._weights.get(name, 1.0) * loss for name, loss in found.items()}
        return torch.stack([*losses.values()]).sum(), {f"train/{name}_loss": loss.detach() for name, loss in losses.items()}


def _weighed(steps: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of windows the losses read."""
    return {name: steps[name] for name in ("observation", "action", "reward", "terminated")}

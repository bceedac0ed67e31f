"""DreamerV3 (Hafner et al. 2025): learn a model of the world, and to act in what it imagines.

    replay ─→ windows ─→ world model: posterior states, reconstruction, reward, continuation, KL      world_model.py
                              │ states
                              └─→ imagination: H steps of the actor ─→ returns ─→ actor, critic       behaviour.py

One update is one step of one optimiser on the sum of all losses. The two halves are hooks of their own too, for curricula.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from fractions import Fraction
from typing import Any

import gymnasium
import torch
from gymnasium import spaces
from torch import Generator, Tensor, nn

from etude.buffers.base import ColumnSpecs
from etude.buffers.replay import ReplayBuffer
from etude.components.critics import Follow, target_of
from etude.components.networks.spec import POLICY_GAIN, NetworkSpec, vector
from etude.components.networks.world_decoder import DETER, STOCH
from etude.components.open_loop_view import open_loop_media
from etude.components.return_scale import ReturnScale
from etude.components.rssm import RSSM, ModelState
from etude.components.two_hot import TwoHot
from etude.components.world_actions import world_actions
from etude.components.world_model import (
    PREVIOUS_ACTION,
    Followed,
    Imagined,
    OpenLoop,
    Parts,
    Seen,
    WorldModel,
    sensed,
    sensed_space,
    time_major,
)
from etude.compute.noise import Noise
from etude.compute.random_streams import derive_seed
from etude.compute.regions import region
from etude.config.schema import Config
from etude.environments.spaces import leaf_spaces
from etude.environments.vector import ACTION_MASK
from etude.errors import UserError
from etude.learning.execute import Executor
from etude.learning.optimizers import build_optimizer, part_of
from etude.learning.sources import Replayed
from etude.learning.update import Batch, Out, Stage, Update
from etude.workflows.base import Context, HookResult, Phase, PolicyWorkflow, hook
from etude.workflows.dreamer.behaviour import (
    Behaviour,
    BehaviourSettings,
    Dream,
    DreamerPolicy,
    compute_dtype,
    computing_in,
)
from etude.workflows.dreamer.config import COLUMNS, SIZES, DreamerConfig, make_latents, window
from etude.workflows.metrics import Metrics

UPDATES_REPAY_COMPILING = 4_000
"""Updates from which halving each of them repays two minutes of compiling."""
WINDOWS_SHOWN, STEPS_SEEN = 6, 5
"""Windows in a film of predictions, and how many steps of them the model sees before it predicts."""


class Dreamer(PolicyWorkflow):
    """A world model, and a policy that learns in its imagination."""

    Config = DreamerConfig
    learns_from = ReplayBuffer
    settings: DreamerConfig
    encoder: nn.Module
    decoder: nn.Module
    reward: nn.Module
    continues: nn.Module
    actor: nn.Module
    critic: nn.Module
    columns = COLUMNS
    holds_others = ("_world", "_behaviour", "_objective")
    compiles_on_gpu = True

    # ---- what the config needs to know --------------------------------------------------------------------------------

    @classmethod
    def default_networks(cls) -> dict[str, Any]:
        """As in the paper: three layers, but one for the heads of the world model."""
        heads = {"reward": 1, "continues": 1, "actor": 3, "critic": 3}
        return {
            "encoder": {"type": "world_encoder"},
            "decoder": {"type": "world_decoder"},
            **{role: {"type": "world_mlp", "layers": layers} for role, layers in heads.items()},
        }

    @classmethod
    def default_buffers(cls) -> dict[str, Any]:
        """Windows of 64 steps, with the states that the model had in them."""
        return {"replay": {"type": "replay", "sequence": 64}}

    @classmethod
    def default_phases(cls, config: Config) -> Sequence[Mapping[str, Any]]:
        """Collect seed experience, perhaps learn from it alone, then collect and learn by the train ratio."""
        settings = config.algorithm
        # In vector steps: of an action that is repeated, several environment steps make one of a window.
        seed = max(-(-settings.learning_starts // config.environment.num_envs), window(config))
        phases: list[dict[str, Any]] = [{"name": "seed", "hooks": ["collect"], "duration_cycles": seed}]
        if settings.pretrain_updates:
            whole = config.training.total_steps + settings.pretrain_updates
            phases[0]["share"] = min(0.5, seed * config.environment.num_envs / whole)
            learn = {"type": "offline", "hooks": ["update"], "duration_updates": settings.pretrain_updates}
            phases.append({"name": "pretrain", **learn})
        ratio = {"ratio": str(cls.updates_per_step(config))}
        return [*phases, {"name": "train", "hooks": ["collect", {"update": ratio}]}]

    @classmethod
    def updates_per_step(cls, config: Config) -> Fraction:
        """Return how many updates follow each decision: as many as replay `train_ratio` steps, exactly."""
        settings = config.algorithm
        return Fraction(str(settings.train_ratio)) / (settings.batch_size * window(config))

    @classmethod
    def gradient_steps(cls, config: Config) -> int:
        """Return how many updates the whole run takes."""
        steps = max(0, config.training.total_steps - config.algorithm.learning_starts)
        return config.algorithm.pretrain_updates + int(cls.updates_per_step(config) * steps)

    @classmethod
    def repays_compiling(cls, config: Config) -> int:
        """Early: an update takes long."""
        return UPDATES_REPAY_COMPILING

    @classmethod
    def check_spaces(cls, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]) -> None:
        """Bounded boxes and discrete actions, without masks."""
        world_actions(action_space, 0.0)
        if ACTION_MASK in leaf_spaces(observation_space):
            raise UserError(
                f"observation '{ACTION_MASK}': dreamer imagines states, and which actions these allow nobody knows; "
                "use ppo, dqn or sac"
            )

    @classmethod
    def roles(
        cls, config: Config, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]
    ) -> dict[str, NetworkSpec]:
        """The encoder's last layer is the observation's half of the posterior's first; heads read both parts of a state."""
        settings, size = config.algorithm, SIZES[config.algorithm.size]
        space, latents = sensed_space(observation_space), make_latents(settings)
        state = spaces.Dict({DETER: vector(size.deter), STOCH: vector(latents.size)})
        features, width, bins = size.deter + latents.size, size.hidden, TwoHot().size
        head = world_actions(action_space, settings.unimix)
        return {
            "encoder": NetworkSpec(size.hidden, space, width=width),
            "decoder": NetworkSpec(space, state, width=width),
            "reward": NetworkSpec(bins, features, output_gain=0.0, width=width),
            "continues": NetworkSpec(1, features, width=width),
            "actor": NetworkSpec(head, features, output_gain=POLICY_GAIN, width=width),
            "critic": NetworkSpec(bins, features, output_gain=0.0, width=width),
        }

    @classmethod
    def extra_columns(
        cls, config: Config, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]
    ) -> ColumnSpecs:
        """The state that enters each step, and the action before it."""
        settings, size = config.algorithm, SIZES[config.algorithm.size]
        dtype = compute_dtype(settings.precision, torch.device(config.experiment.device))
        columns: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
            PREVIOUS_ACTION: ((world_actions(action_space, settings.unimix).actions,), torch.float32)
        }
        if settings.latents == "stored":
            latents = make_latents(settings)
            drawn = latents.stored(torch.zeros(latents.size))
            columns |= {DETER: ((size.deter,), dtype), STOCH: (tuple(drawn.shape), drawn.dtype)}
        return columns

    # ---- making it ----------------------------------------------------------------------------------------------------

    def initialize(self, context: Context) -> None:
        """Bind the networks, and build what surrounds them."""
        super().initialize(context)
        settings, device = self.settings, context.device
        size, stores = SIZES[settings.size], settings.latents == "stored"
        self.head = world_actions(context.action_space, settings.unimix).to(device)
        generator = Generator().manual_seed(derive_seed(context.config.experiment.seed, "init", "rssm"))
        self.rssm = RSSM(
            make_latents(settings), self.head.actions, deter=size.deter, hidden=size.hidden, generator=generator
        ).to(device)
        self.numbers = TwoHot().to(device)
        self.slow_critic = target_of(self.critic)
        self._space = sensed_space(context.observation_space)
        parts = Parts(
            *(self.encoder, self.rssm, self.decoder, self.reward, self.continues, self.head, self.numbers, self._space)
        )
        self._world = WorldModel(parts, free_nats=settings.free_nats, stores_latents=stores)
        scale = ReturnScale()
        self.return_low, self.return_high = scale.initial(device).values()
        self._behaviour = Behaviour(
            *(self._world, self.actor, self.critic, self.slow_critic, scale),
            BehaviourSettings(
                horizon=settings.horizon,
                gamma=settings.gamma,
                td_lambda=settings.td_lambda,
                entropy_weight=settings.entropy_weight,
                slow_critic_weight=settings.slow_critic_weight,
            ),
        )
        self._objective = Objective(self._behaviour, settings)
        self._policy = DreamerPolicy(
            *(self.encoder, self.rssm, self.actor, self.head), stores_latents=stores, dtype=self._dtype()
        )
        rate = self.scheduled("learning_rate")
        model = [self.encoder, self.rssm, self.decoder, self.reward, self.continues]
        groups = {"model": model, "controller": [self.actor, self.critic]}
        learnt = {name: ([p for part in parts for p in part.parameters()], rate) for name, parts in groups.items()}
        self.optimizer = build_optimizer(settings.optimizer, learnt)
        self._executor, self._model_executor, self._controller_executor = map(self.executor, self.updates())

    def updates(self) -> tuple[Update, Update, Update]:
        """Return the update of everything, and those of the world model and of the controller alone."""
        returns = {"return_low": self.return_low, "return_high": self.return_high}
        follow = Follow([self.critic], [self.slow_critic], self.settings.slow_critic_rate)
        model, controller = (part_of(self.optimizer, name) for name in ("model", "controller"))
        # Compiling a scan whole would unroll it; its cells are regions, which are compiled by themselves.
        return (
            Update([Stage("", self.loss, self.optimizer, state=returns)], follow, is_compilable=False),
            Update([Stage("model", self.model_loss, model)], is_compilable=False),
            Update([Stage("controller", self.controller_loss, controller, state=returns)], follow, is_compilable=False),
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

    def _time_major(self, batch: Batch) -> dict[str, Any]:
        seen = {name: sensed(batch[name]) for name in ("observation", "next_observation")}
        return time_major({**batch, **seen})

    def _dtype(self) -> torch.dtype:
        return compute_dtype(self.settings.precision, self.context.device)

    def _precision(self) -> AbstractContextManager[Any]:
        return computing_in(self._dtype(), self.context.device)

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

    def _update(self, executor: Executor, phase: Phase, count: int) -> HookResult:
        buffer = self.buffer(phase)
        assert isinstance(buffer, ReplayBuffer)
        if not buffer.ready:
            return HookResult()
        source = Replayed(buffer, self.columns, self.settings.batch_size, self.context.streams["buffer"])
        self.note(executor.run(source, count, self.scheduled_before(phase)))
        replayed = self.settings.batch_size * window(self.context.config)
        for done in range(phase.updates + 1, phase.updates + count + 1):
            self.metrics.add({"train/replayed_per_step": done * replayed / max(1, phase.decisions)}, group="ratio")
        return HookResult(updates=count)

    def learn(self, batch: Batch) -> Metrics:
        """Take one step of everything on a batch of windows (B, L, ...)."""
        return self._executor.learn({key: batch[key] for key in self.columns if key in batch})

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

    def media(self, generator: Generator) -> Mapping[str, Tensor]:
        """What the model predicts of a few windows without looking, beside what came."""
        replay = next(iter(self.context.buffers.values()))
        if not isinstance(replay, ReplayBuffer) or not replay.ready:
            return {}
        batch = replay.peek(WINDOWS_SHOWN, generator, self.columns)
        length = batch["reward"].shape[1]
        context = min(STEPS_SEEN, length // 2)
        shown = self.open_loop(batch, context, length - context, generator=generator)
        return open_loop_media(*shown, self._space)

    @torch.no_grad()
    def open_loop(self, batch: Batch, context: int, horizon: int, *, generator: Generator) -> OpenLoop:
        """Follow windows (B, L, ...) for `context` steps, and predict the next `horizon` from their actions alone."""
        with self._precision():
            return self._world.open_loop(self._time_major(batch), context, horizon, Noise(generator))


class Objective(nn.Module):
    """All that is learnt, and its losses on windows that the recurrences have been through: the other regions of an update."""

    def __init__(self, behaviour: Behaviour, settings: DreamerConfig) -> None:
        super().__init__()
        self.behaviour, self.world = behaviour, behaviour.world
        names = ("reconstruction", "dynamics", "representation", "replay_value")
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
        value = self.behaviour.replay_value_loss(seen, steps, places, imagined)
        return {**losses, "replay_value": value}, metrics, scale

    def _summed(self, found: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the sum of losses by their weights, and each for the log."""
        losses = {name: self._weights.get(name, 1.0) * loss for name, loss in found.items()}
        return torch.stack([*losses.values()]).sum(), {f"train/{name}_loss": loss.detach() for name, loss in losses.items()}


def _weighed(steps: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of windows the losses read."""
    return {name: steps[name] for name in ("observation", "action", "reward", "terminated")}

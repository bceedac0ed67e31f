"""DreamerV3 (Hafner et al. 2025): learn a model of the world, and to act in what it imagines.

    replay ─→ windows ─→ world model: posterior states, reconstruction, reward, continuation, KL      world_model.py
                              │ states
                              └─→ imagination: H steps of the actor ─→ returns ─→ actor, critic       behaviour.py

One update is one step of one optimiser on the sum of all losses. The two halves are hooks of their own too, for curricula.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, Literal, NamedTuple

import gymnasium
import torch
from gymnasium import spaces
from torch import Generator, Tensor, nn

from etude.buffers.base import ColumnSpecs
from etude.buffers.replay import ReplayBuffer
from etude.buffers.replay_config import StoreConfig
from etude.components.critics import Follow, target_of
from etude.components.latents import Categorical, Gaussian, Latents
from etude.components.networks.spec import POLICY_GAIN, NetworkSpec, vector
from etude.components.networks.world_decoder import DETER, STOCH
from etude.components.open_loop_view import open_loop_media
from etude.components.return_scale import ReturnScale
from etude.components.rssm import RSSM, ModelState
from etude.components.two_hot import TwoHot
from etude.components.world_actions import world_actions
from etude.compute.random_streams import derive_seed
from etude.config.algorithm import AlgorithmSettings
from etude.config.constraints import (
    Component,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    PositiveSchedule,
    UnitInterval,
)
from etude.config.schedules import Schedule
from etude.config.schema import Config
from etude.config.validate import Part
from etude.environments.spaces import leaf_spaces
from etude.environments.vector import ACTION_MASK
from etude.errors import UserError
from etude.learning.execute import Executor
from etude.learning.noise import Noise
from etude.learning.optimizers import build_optimizer, part_of
from etude.learning.sources import Replayed
from etude.learning.update import Batch, Out, Stage, Update
from etude.workflows.base import Context, HookResult, Phase, PolicyWorkflow, hook
from etude.workflows.dreamer.behaviour import Behaviour, BehaviourSettings, DreamerPolicy, compute_dtype, computing_in
from etude.workflows.dreamer.world_model import (
    LATENTS,
    PREVIOUS_ACTION,
    Imagined,
    OpenLoop,
    Parts,
    Seen,
    WorldModel,
    sensed,
    sensed_space,
    time_major,
)
from etude.workflows.metrics import Metrics

WINDOWS_SHOWN, STEPS_SEEN = 6, 5
"""Windows in a film of predictions, and how many steps of them the model sees before it predicts."""
WARM_UP = Schedule(4e-8, 4e-5, 0.0, 1000.0, "updates")


class Size(NamedTuple):
    """How large a world model is."""

    deter: int
    hidden: int
    groups: int
    classes: int


SIZES = {
    "tiny": Size(128, 64, 16, 8),
    "1m": Size(512, 64, 32, 4),
    "12m": Size(2048, 256, 32, 16),
    "25m": Size(3072, 384, 32, 24),
    "50m": Size(4096, 512, 32, 32),
    "100m": Size(6144, 768, 32, 48),
    "200m": Size(8192, 1024, 32, 64),
}
"""Hidden layers everywhere are as wide as `hidden`; pictures begin with a sixteenth of that, doubled, in channels."""


@dataclass(frozen=True)
class DreamerConfig(AlgorithmSettings):
    """DreamerV3."""

    name: str = "dreamer"
    """The registered name of the algorithm."""
    size: Literal["tiny", "1m", "12m", "25m", "50m", "100m", "200m"] = "12m"
    """How large the world model is, by about how many parameters it has for pictures; tiny is for a CPU. Larger models learn
    from fewer steps and cost more."""
    train_ratio: PositiveFloat = 512.0
    """Replayed steps for each one collected. Higher learns more from the same experience and takes more time."""
    batch_size: PositiveInt = 16
    """Windows per update; how long they are says buffers.replay.sequence."""
    learning_rate: PositiveSchedule = WARM_UP
    """Step size. By default it rises to 4e-5 over the first thousand updates; smaller models can take 1e-4 to 4e-4."""
    optimizer: Annotated[Any, Component("optimizer")] = Part("laprop", {})
    """laprop, adam, adamw or an import path, with its options. One for everything that is learnt."""
    learning_starts: NonNegativeInt = 1024
    """Steps of the untrained policy before anything is learnt."""
    pretrain_updates: NonNegativeInt = 0
    """Updates on these alone, before collecting goes on."""
    gamma: UnitInterval = 0.997
    """Discount: how much the next step counts. Closer to 1 looks further ahead."""
    td_lambda: UnitInterval = 0.95
    """How far returns reach into a dream before they lean on the critic."""
    horizon: PositiveInt = 15
    """Steps of a dream."""
    imagination_starts: PositiveInt | None = None
    """How many rows of a batch dreams begin in, spread at random. Fewer is cheaper and noisier. Default: all."""
    entropy_weight: NonNegativeFloat = 3e-4
    """Weight of the policy's entropy. Higher explores longer; returns are scaled, so it fits most tasks."""
    unimix: UnitInterval = 0.01
    """Share of every choice, the actor's and the latents', that is uniform: nothing becomes impossible."""
    stochastic: Literal["categorical", "gaussian"] = "categorical"
    """The part of the state that is drawn: groups of classes, or Gaussians."""
    latents: Literal["stored", "off"] = "stored"
    """stored: a window begins with the state that was remembered when it was collected or last learnt from; off: with zeros."""
    free_nats: NonNegativeFloat = 1.0
    """Divergence between posterior and prior, per step, that is left alone."""
    reconstruction_weight: PositiveFloat = 1.0
    """Weight of reconstructing observations. Higher remembers finer detail; numbers far below 1 count for little."""
    dynamics_weight: NonNegativeFloat = 1.0
    """Weight of moving the prior towards the posterior."""
    representation_weight: NonNegativeFloat = 0.1
    """Weight of moving the posterior towards the prior."""
    replay_value_weight: NonNegativeFloat = 0.3
    """Weight of the critic's loss on real rewards. It reaches the world model too."""
    slow_critic_rate: UnitInterval = 0.02
    """How far the slow critic moves towards the critic at each update."""
    slow_critic_weight: NonNegativeFloat = 1.0
    """Weight of staying close to the slow critic."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of matrix products; parameters are always float32. auto: bfloat16 on CUDA, float32 elsewhere."""

    @property
    def rewritten(self) -> tuple[str, ...]:  # type: ignore[override] # follows from `latents`
        """The state that enters each step, where it is stored."""
        return LATENTS if self.latents == "stored" else ()

    def problems(self, config: Config) -> Iterator[str]:
        """Yield what is wrong with these settings taken together."""
        environment = config.environment
        if environment.normalize_observations != "off":
            value = environment.normalize_observations
            yield f"environment.normalize_observations={value}: {self.name} takes observations by their symlog; set it to off"
        if environment.normalize_rewards:
            yield f"environment.normalize_rewards=true: {self.name} scales returns itself; set it to false"
        for name, replay in config.buffers.items():
            if not isinstance(replay, StoreConfig):
                continue
            if replay.sequence is None:
                yield f"buffers.{name}.sequence=null: {self.name} learns from windows; set it to 16 or more"
            if (replay.n_step or 1) > 1:
                yield f"buffers.{name}.n_step={replay.n_step}: {self.name} sums rewards itself; set it to 1"
            for column in replay.leave_out:
                if column in Dreamer.columns:
                    yield f"buffers.{name}.leave_out: '{column}' is what {self.name} learns from"


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
    columns = (
        *("observation", "action", "reward", "terminated", "next_observation", "is_first"),
        *(PREVIOUS_ACTION, *LATENTS),
    )
    """What of replayed steps is read."""

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
        seed = max(-(-settings.learning_starts // config.environment.num_envs), _window(config))
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
        return Fraction(str(settings.train_ratio)) / (settings.batch_size * _window(config))

    @classmethod
    def gradient_steps(cls, config: Config) -> int:
        """Return how many updates the whole run takes."""
        steps = max(0, config.training.total_steps - config.algorithm.learning_starts)
        return config.algorithm.pretrain_updates + int(cls.updates_per_step(config) * steps)

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
            seen = self._world.observe(steps, noise)
            of_model, metrics = self._model_losses(seen, steps)
        of_controller, more, scale = self._controller_losses(seen, steps, state, noise)
        metrics = {**metrics, **more, **_named({**of_model, **of_controller})}
        loss = torch.stack([*of_model.values(), *of_controller.values()]).sum()
        return Out(loss, metrics, state=scale, per_row=self._world.entering(steps, seen.states))

    def model_loss(self, batch: Batch, noise: Noise) -> Out:
        """The losses of the world model alone."""
        steps = self._time_major(batch)
        with self._precision():
            seen = self._world.observe(steps, noise)
            losses, metrics = self._model_losses(seen, steps)
        entering = self._world.entering(steps, seen.states)
        return Out(torch.stack([*losses.values()]).sum(), {**metrics, **_named(losses)}, per_row=entering)

    def controller_loss(self, batch: Batch, state: Mapping[str, Tensor], noise: Noise) -> Out:
        """The losses of actor and critic alone."""
        steps = self._time_major(batch)
        with self._precision(), torch.no_grad():
            seen = self._world.observe(steps, noise)
        losses, metrics, scale = self._controller_losses(seen, steps, state, noise)
        entering = self._world.entering(steps, seen.states)
        return Out(torch.stack([*losses.values()]).sum(), {**metrics, **_named(losses)}, state=scale, per_row=entering)

    def _model_losses(self, seen: Seen, steps: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        losses, metrics = self._world.losses(seen, steps)
        weights = {name: getattr(self.settings, f"{name}_weight") for name in ("reconstruction", "dynamics", "representation")}
        return {name: weights.get(name, 1.0) * loss for name, loss in losses.items()}, metrics

    def _controller_losses(
        self, seen: Seen, steps: Mapping[str, Any], state: Mapping[str, Tensor], noise: Noise
    ) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor]]:
        places = self._starts(seen.breaks.numel(), noise, seen.breaks.device)
        # In a context of its own: what is kept of weights that are rounded here, without gradients, is of no use to the losses.
        with self._precision():
            dream = self._behaviour.imagine(seen.states.flat().at(places), noise)
        with self._precision():
            losses, metrics, scale, imagined = self._behaviour.losses(dream, state)
            value = self._behaviour.replay_value_loss(seen, steps, places, imagined)
        return {**losses, "replay_value": self.settings.replay_value_weight * value}, metrics, scale

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
        replayed = self.settings.batch_size * _window(self.context.config)
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


def make_latents(settings: DreamerConfig) -> Latents:
    """Return the kind of stochastic state that the settings say."""
    size = SIZES[settings.size]
    if settings.stochastic == "gaussian":
        return Gaussian(size.groups)
    return Categorical(size.groups, size.classes, settings.unimix)


def _window(config: Config) -> int:
    """How many steps a window has."""
    replays = [options for options in config.buffers.values() if isinstance(options, StoreConfig)]
    return next((options.sequence for options in replays if options.sequence is not None), 1)


def _named(losses: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"train/{name}_loss": loss.detach() for name, loss in losses.items()}

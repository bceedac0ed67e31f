"""What Dreamer and PlaNet share: a recurrent world model that is learnt from windows of experience, and followed to act.

    replay ─→ windows ─→ encoder ─→ recurrence: states ─→ decoder, reward, continuation, KL      components/world_model.py

An algorithm adds what it does with the states: learn a policy in dreams, or plan in them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, Literal, NamedTuple

import gymnasium
import torch
from gymnasium import spaces
from torch import Generator, Tensor, nn

from etude.acting.policy import ActResult, Mode, PartsPolicy, State
from etude.buffers.base import ColumnSpecs
from etude.buffers.replay import ReplayBuffer
from etude.buffers.replay_config import StoreConfig
from etude.components.latents import Categorical, Gaussian, Latents
from etude.components.networks.spec import NetworkSpec, vector
from etude.components.networks.world_decoder import DETER, STOCH
from etude.components.open_loop_view import open_loop_media
from etude.components.rssm import RSSM, ModelState
from etude.components.two_hot import Squared, TwoHot
from etude.components.world_actions import WorldActions, world_actions
from etude.components.world_model import (
    LATENTS,
    PREVIOUS_ACTION,
    ModelSettings,
    OpenLoop,
    Parts,
    WorldModel,
    sensed,
    sensed_space,
    time_major,
)
from etude.compute.noise import Noise
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
from etude.environments.vector import ACTION_MASK, Observation
from etude.errors import UserError
from etude.learning.execute import Executor
from etude.learning.sources import Replayed
from etude.learning.update import Batch
from etude.workflows.base import Context, HookResult, Phase, PolicyWorkflow
from etude.workflows.metrics import Metrics

COLUMNS = (
    *("observation", "action", "reward", "terminated", "next_observation", "is_first"),
    *(PREVIOUS_ACTION, *LATENTS),
)
"""What of replayed steps is read."""
WARM_UP = Schedule(4e-8, 4e-5, 0.0, 1000.0, "updates")
UPDATES_REPAY_COMPILING = 4_000
"""Updates from which halving each of them repays two minutes of compiling."""
WINDOWS_SHOWN, STEPS_SEEN = 6, 5
"""Windows in a film of predictions, and how many steps of them the model sees before it predicts."""


class Size(NamedTuple):
    """How large a world model is."""

    deter: int
    hidden: int
    groups: int
    classes: int


SIZES = {
    "tiny": Size(128, 64, 16, 8),
    "classic": Size(200, 200, 32, 32),
    "1m": Size(512, 64, 32, 4),
    "12m": Size(2048, 256, 32, 16),
    "25m": Size(3072, 384, 32, 24),
    "50m": Size(4096, 512, 32, 32),
    "100m": Size(6144, 768, 32, 48),
    "200m": Size(8192, 1024, 32, 64),
}
"""Hidden layers everywhere are as wide as `hidden`; pictures begin with a sixteenth of that, doubled, in channels."""


@dataclass(frozen=True)
class ModelConfig(AlgorithmSettings):
    """A recurrent world model."""

    name: str = ""
    """The registered name of the algorithm."""
    size: Literal["tiny", "classic", "1m", "12m", "25m", "50m", "100m", "200m"] = "12m"
    """How large the world model is, by about how many parameters it has for pictures; tiny is for a CPU, and classic about as
    large as PlaNet and the first two Dreamers were. Larger models learn from fewer steps and cost more."""
    train_ratio: PositiveFloat = 512.0
    """Replayed steps for each one collected. Higher learns more from the same experience and takes more time."""
    batch_size: PositiveInt = 16
    """Windows per update; how long they are says buffers.replay.sequence."""
    learning_rate: PositiveSchedule = WARM_UP
    """Step size. By default it rises to 4e-5 over the first thousand updates; smaller models can take 1e-4 to 4e-4."""
    optimizer: Annotated[Any, Component("optimizer")] = Part("laprop", {})
    """laprop, adam, adamw or an import path, with its options. One for everything that is learnt."""
    max_grad_norm: PositiveFloat | None = None
    """Clip the gradients of model, actor and critic to this norm each; null leaves them alone. laprop clips the gradient of
    each tensor by what it changes."""
    learning_starts: NonNegativeInt = 1024
    """Steps of the untrained policy before anything is learnt."""
    pretrain_updates: NonNegativeInt = 0
    """Updates on these alone, before collecting goes on."""
    unimix: UnitInterval = 0.01
    """Share of every choice, the actor's and the latents', that is uniform: nothing becomes impossible."""
    stochastic: Literal["categorical", "gaussian"] = "categorical"
    """The part of the state that is drawn: groups of classes, or Gaussians."""
    latents: Literal["stored", "off"] = "stored"
    """stored: a window begins with the state that was remembered when it was collected or last learnt from; off: with zeros."""
    input_norm: Literal["each", "joint"] = "each"
    """Whether memory, latents and action are normed each by itself as they enter the recurrence, or together. By itself a
    single action is left with little but its sign at first: too little for gradients through the model, and for plans."""
    numbers: Literal["two_hot", "squared"] = "two_hot"
    """How rewards and values are predicted: as bins that fit any scale, or as numbers by their squared error."""
    free_nats: NonNegativeFloat = 1.0
    """Divergence between posterior and prior that is left alone."""
    free_nats_of: Literal["step", "batch"] = "step"
    """Whether that holds for each step by itself, or for the mean of a batch."""
    reconstruction_weight: PositiveFloat = 1.0
    """Weight of reconstructing observations. Higher remembers finer detail; numbers far below 1 count for little."""
    reward_weight: PositiveFloat = 1.0
    """Weight of predicting rewards."""
    dynamics_weight: NonNegativeFloat = 1.0
    """Weight of moving the prior towards the posterior."""
    representation_weight: NonNegativeFloat = 0.1
    """Weight of moving the posterior towards the prior."""
    exploration_noise: NonNegativeFloat = 0.0
    """While exploring: deviation of noise that is added to actions between bounds of ±1, or the share of random choices."""
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
                if column in COLUMNS:
                    yield f"buffers.{name}.leave_out: '{column}' is what {self.name} learns from"


def make_latents(settings: ModelConfig) -> Latents:
    """Return the kind of stochastic state that the settings say."""
    size = SIZES[settings.size]
    if settings.stochastic == "gaussian":
        return Gaussian(size.groups)
    return Categorical(size.groups, size.classes, settings.unimix)


def make_numbers(settings: ModelConfig) -> TwoHot | Squared:
    """Return how rewards and values are predicted."""
    return TwoHot() if settings.numbers == "two_hot" else Squared()


def window(config: Config) -> int:
    """How many steps a window has."""
    replays = [options for options in config.buffers.values() if isinstance(options, StoreConfig)]
    return next((options.sequence for options in replays if options.sequence is not None), 1)


class ModelPolicy(PartsPolicy):
    """Follows what it sees in a model's state, and acts on that.

    The state is what enters a step: the model's, and the action before. Greedy takes the likeliest latents.
    """

    def __init__(self, world: WorldModel, settings: ModelConfig, dtype: torch.dtype, **parts: nn.Module) -> None:
        super().__init__(encoder=world.encoder, rssm=world.rssm, head=world.actions, **parts)
        self._encoder, self._rssm = world.encoder, world.rssm
        self._head: WorldActions = world.actions
        self._stores_latents, self._dtype = settings.latents == "stored", dtype
        self._exploration_noise = settings.exploration_noise

    @abstractmethod
    def choose(self, state: ModelState, mode: Mode, generator: Generator) -> Tensor:
        """Return an action for each state (N, ...), on the scale that the model sees: (N, A)"""

    def initial_state(self, n: int) -> State:
        """Return the state before n episodes."""
        state = self._rssm.initial(n)
        return {DETER: state.deter, STOCH: state.stoch, PREVIOUS_ACTION: state.deter.new_zeros(n, self._head.actions)}

    @torch.no_grad()
    def act(self, observation: Observation, state: State, is_first: Tensor, *, mode: Mode, generator: Generator) -> ActResult:
        """Return the environment action; extras hold the state that entered the step, as a replay keeps it."""
        rssm, head = self._rssm, self._head
        before, previous = ModelState(state[DETER], state[STOCH]), state[PREVIOUS_ACTION]
        with computing_in(self._dtype, is_first.device):
            noise = None if mode == "greedy" else drawn(rssm.latents, len(is_first), generator)
            now, _ = rssm.step(before, previous, self._encoder(sensed(observation)), is_first, noise)
            chosen = self.choose(now, mode, generator)
        if mode == "explore" and self._exploration_noise:
            chosen = head.disturbed(chosen, self._exploration_noise, generator)
        action = head.to_environment(chosen)
        after = {DETER: now.deter, STOCH: now.stoch, PREVIOUS_ACTION: head.from_environment(action)}
        return ActResult(action, after, self._extras(before, previous))

    def state_after(
        self,
        action: Tensor,
        chosen: ActResult,
        observation: Observation,
        state: State,
        is_first: Tensor,
        *,
        mode: Mode,
        generator: Generator,
    ) -> State:
        """Let the model's next step begin with the action that was taken."""
        return {**chosen.state, PREVIOUS_ACTION: self._head.from_environment(action)}

    @property
    def capturable(self) -> bool:
        """Always."""
        return True

    def _extras(self, before: ModelState, previous: Tensor) -> dict[str, Tensor]:
        extras = {PREVIOUS_ACTION: previous}
        if self._stores_latents:
            extras |= {DETER: before.deter.to(self._dtype), STOCH: self._rssm.latents.stored(before.stoch)}
        return extras


def drawn(kind: Latents | WorldActions, count: int, generator: Generator) -> Tensor:
    """Return noise to draw latents or actions from: (count, ...)"""
    empty = torch.empty(count, kind.noise_size, device=generator.device)
    return empty.uniform_(generator=generator) if kind.noise == "uniform" else empty.normal_(generator=generator)


def compute_dtype(precision: str, device: torch.device) -> torch.dtype:
    """Return the type of matrix products, and of what a replay keeps of h."""
    halved = precision == "bfloat16" or (precision == "auto" and device.type == "cuda")
    return torch.bfloat16 if halved else torch.float32


def computing_in(dtype: torch.dtype, device: torch.device) -> AbstractContextManager[Any]:
    """Have matrix products within computed in a type; parameters and sums stay as they are."""
    return nullcontext() if dtype is torch.float32 else torch.autocast(device.type, dtype)


class ModelWorkflow(PolicyWorkflow):
    """An algorithm with a recurrent world model."""

    learns_from = ReplayBuffer
    settings: Any
    encoder: nn.Module
    decoder: nn.Module
    reward: nn.Module
    continues: nn.Module
    columns = COLUMNS
    holds_others = ("_world",)
    supports_ranks = True
    compiles_on_gpu = True
    window_steps = 64
    """Of a window, where the user does not say."""

    # ---- what the config needs to know --------------------------------------------------------------------------------

    @classmethod
    def default_networks(cls) -> dict[str, Any]:
        """As in DreamerV3: three layers, but one for the heads of the world model."""
        heads = {role: {"type": "world_mlp", "layers": 1} for role in ("reward", "continues")}
        return {"encoder": {"type": "world_encoder"}, "decoder": {"type": "world_decoder"}, **heads}

    @classmethod
    def default_buffers(cls) -> dict[str, Any]:
        """Windows of steps, with the states that the model had in them."""
        return {"replay": {"type": "replay", "sequence": cls.window_steps}}

    @classmethod
    def default_phases(cls, config: Config) -> Sequence[Mapping[str, Any]]:
        """Collect seed experience, perhaps learn from it alone, then collect and learn by the train ratio."""
        settings = config.algorithm
        # In vector steps: of an action that is repeated, several environment steps make one of a window.
        copies = config.environment.num_envs * config.experiment.processes
        seed = max(-(-settings.learning_starts // copies), window(config))
        phases: list[dict[str, Any]] = [{"name": "seed", "hooks": ["collect"], "duration_cycles": seed}]
        if settings.pretrain_updates:
            whole = config.training.total_steps + settings.pretrain_updates
            phases[0]["share"] = min(0.5, seed * copies / whole)
            learn = {"type": "offline", "hooks": ["update"], "duration_updates": settings.pretrain_updates}
            phases.append({"name": "pretrain", **learn})
        ratio = {"ratio": str(cls.updates_per_step(config))}
        return [*phases, {"name": "train", "hooks": ["collect", {"update": ratio}]}]

    @classmethod
    def updates_per_step(cls, config: Config) -> Fraction:
        """Return how many updates follow each decision: as many as replay `train_ratio` steps, exactly."""
        settings = config.algorithm
        return Fraction(str(settings.train_ratio)) / (settings.batch_size * config.experiment.processes * window(config))

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
                f"observation '{ACTION_MASK}': {cls.Config.name} imagines states, and which actions these allow nobody knows; "
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
        features, width = size.deter + latents.size, size.hidden
        return {
            "encoder": NetworkSpec(size.hidden, space, width=width),
            "decoder": NetworkSpec(space, state, width=width),
            "reward": NetworkSpec(make_numbers(settings).size, features, output_gain=0.0, width=width),
            "continues": NetworkSpec(1, features, width=width),
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
        """Bind the networks, and build the model of them."""
        super().initialize(context)
        settings, device, size = self.settings, context.device, SIZES[self.settings.size]
        self.head = world_actions(context.action_space, settings.unimix).to(device)
        generator = Generator().manual_seed(derive_seed(context.config.experiment.seed, "init", "rssm"))
        self.rssm = RSSM(
            *(make_latents(settings), self.head.actions),
            deter=size.deter,
            hidden=size.hidden,
            generator=generator,
            joint_norm=settings.input_norm == "joint",
        ).to(device)
        self.numbers = make_numbers(settings).to(device)
        self._space = sensed_space(context.observation_space)
        parts = (self.encoder, self.rssm, self.decoder, self.reward, self.continues, self.head, self.numbers, self._space)
        kept = ModelSettings(settings.free_nats, settings.free_nats_of == "batch", settings.latents == "stored", context.world)
        self._world = WorldModel(Parts(*parts), kept)

    @property
    def model_parts(self) -> list[nn.Module]:
        """What the world model is made of."""
        return [self.encoder, self.rssm, self.decoder, self.reward, self.continues]

    def _time_major(self, batch: Batch) -> dict[str, Any]:
        seen = {name: sensed(batch[name]) for name in ("observation", "next_observation")}
        return time_major({**batch, **seen})

    def _dtype(self) -> torch.dtype:
        return compute_dtype(self.settings.precision, self.context.device)

    def _precision(self) -> AbstractContextManager[Any]:
        return computing_in(self._dtype(), self.context.device)

    def _update(self, executor: Executor, phase: Phase, count: int) -> HookResult:
        buffer = self.buffer(phase)
        assert isinstance(buffer, ReplayBuffer)
        if not buffer.ready:
            return HookResult()
        source = Replayed(buffer, self.columns, self.settings.batch_size, self.context.streams["buffer"])
        self.note(executor.run(source, count, self.scheduled_before(phase)))
        replayed = self.settings.batch_size * self.context.world.size * window(self.context.config)
        for done in range(phase.updates + 1, phase.updates + count + 1):
            self.metrics.add({"train/replayed_per_step": done * replayed / max(1, phase.decisions)}, group="ratio")
        return HookResult(updates=count)

    def learn(self, batch: Batch) -> Metrics:
        """Take one step of everything on a batch of windows (B, L, ...)."""
        return self._executor.learn({key: batch[key] for key in self.columns if key in batch})

    # ---- looking into the model ---------------------------------------------------------------------------------------

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

"""The settings of Dreamer, and how large its world model is by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

from etude.buffers.replay_config import StoreConfig
from etude.components.latents import Categorical, Gaussian, Latents
from etude.components.world_model import LATENTS, PREVIOUS_ACTION
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

COLUMNS = (
    *("observation", "action", "reward", "terminated", "next_observation", "is_first"),
    *(PREVIOUS_ACTION, *LATENTS),
)
"""What of replayed steps is read."""
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
                if column in COLUMNS:
                    yield f"buffers.{name}.leave_out: '{column}' is what {self.name} learns from"


def make_latents(settings: DreamerConfig) -> Latents:
    """Return the kind of stochastic state that the settings say."""
    size = SIZES[settings.size]
    if settings.stochastic == "gaussian":
        return Gaussian(size.groups)
    return Categorical(size.groups, size.classes, settings.unimix)


def window(config: Config) -> int:
    """How many steps a window has."""
    replays = [options for options in config.buffers.values() if isinstance(options, StoreConfig)]
    return next((options.sequence for options in replays if options.sequence is not None), 1)

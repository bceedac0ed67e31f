"""The settings of Dreamer, in its three versions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from etude.config.constraints import (
    Component,
    NonNegativeFloat,
    PositiveInt,
    PositiveSchedule,
    UnitInterval,
)
from etude.config.schedules import Schedule
from etude.config.validate import Part
from etude.workflows.recurrent_model import ModelConfig


@dataclass(frozen=True)
class DreamerConfig(ModelConfig):
    """DreamerV3 (Hafner et al. 2025)."""

    name: str = "dreamer"
    """The registered name of the algorithm."""
    actor_learning_rate: PositiveSchedule | None = None
    """Step size of the actor. Default: as the others'."""
    critic_learning_rate: PositiveSchedule | None = None
    """Step size of the critic. Default: as the others'."""
    gamma: UnitInterval = 0.997
    """Discount: how much the next step counts. Closer to 1 looks further ahead."""
    td_lambda: UnitInterval = 0.95
    """How far returns reach into a dream before they lean on the critic."""
    horizon: PositiveInt = 15
    """Steps of a dream."""
    imagination_starts: PositiveInt | None = None
    """How many rows of a batch dreams begin in, spread at random. Fewer is cheaper and noisier. Default: all."""
    actor_gradient: Literal["reinforce", "dynamics", "auto"] = "reinforce"
    """How the actor learns: by what its actions turned out to be worth, or by gradients of returns through the model. auto:
    through the model for continuous actions, by their worth for discrete ones."""
    entropy_weight: NonNegativeFloat = 3e-4
    """Weight of the policy's entropy. Higher explores longer; where returns are scaled, it fits most tasks."""
    scale_returns: bool = True
    """Divide advantages by the range of returns, where it is above 1."""
    replay_value_weight: NonNegativeFloat = 0.3
    """Weight of the critic's loss on real rewards. It reaches the world model too."""
    slow_critic_rate: UnitInterval = 0.02
    """How far the slow critic moves towards the critic."""
    slow_critic_every: PositiveInt = 1
    """How many updates lie between two such moves."""
    slow_critic_weight: NonNegativeFloat = 1.0
    """Weight of staying close to the slow critic."""
    bootstrap: Literal["critic", "slow_critic"] = "critic"
    """Whose values returns lean on."""


@dataclass(frozen=True)
class DreamerV2Config(DreamerConfig):
    """DreamerV2 (Hafner et al. 2021), with its settings for continuous control; a state of classes, as in the third version."""

    name: str = "dreamer_v2"
    """The registered name of the algorithm."""
    size: Literal["tiny", "classic", "1m", "12m", "25m", "50m", "100m", "200m"] = "classic"
    """As in `dreamer`."""
    train_ratio: float = 160.0
    """As in `dreamer`."""
    learning_rate: PositiveSchedule = Schedule.constant(3e-4)
    """Step size of the world model."""
    actor_learning_rate: PositiveSchedule | None = Schedule.constant(8e-5)
    """Step size of the actor."""
    critic_learning_rate: PositiveSchedule | None = Schedule.constant(8e-5)
    """Step size of the critic."""
    optimizer: Annotated[Any, Component("optimizer")] = Part("adamw", {"eps": 1e-5, "weight_decay": 1e-6})
    """As in `dreamer`."""
    max_grad_norm: float | None = 100.0
    """As in `dreamer`."""
    learning_starts: int = 1000
    """As in `dreamer`."""
    pretrain_updates: int = 100
    """As in `dreamer`."""
    unimix: float = 0.0
    """As in `dreamer`."""
    latents: Literal["stored", "off"] = "off"
    """As in `dreamer`."""
    input_norm: Literal["each", "joint"] = "joint"
    """As in `dreamer`."""
    numbers: Literal["two_hot", "squared"] = "squared"
    """As in `dreamer`."""
    free_nats_of: Literal["step", "batch"] = "batch"
    """As in `dreamer`."""
    dynamics_weight: float = 0.8
    """As in `dreamer`: KL balancing."""
    representation_weight: float = 0.2
    """As in `dreamer`."""
    gamma: float = 0.99
    """As in `dreamer`."""
    actor_gradient: Literal["reinforce", "dynamics", "auto"] = "auto"
    """As in `dreamer`."""
    entropy_weight: float = 1e-4
    """As in `dreamer`; 1e-3 for Atari."""
    scale_returns: bool = False
    """As in `dreamer`."""
    replay_value_weight: float = 0.0
    """As in `dreamer`."""
    slow_critic_rate: float = 1.0
    """As in `dreamer`: a copy."""
    slow_critic_every: int = 100
    """As in `dreamer`."""
    slow_critic_weight: float = 0.0
    """As in `dreamer`."""
    bootstrap: Literal["critic", "slow_critic"] = "slow_critic"
    """As in `dreamer`."""


@dataclass(frozen=True)
class DreamerV1Config(DreamerV2Config):
    """Dreamer (Hafner et al. 2020): a Gaussian state, and an actor that learns by gradients through the model alone."""

    name: str = "dreamer_v1"
    """The registered name of the algorithm."""
    train_ratio: float = 500.0
    """As in `dreamer`."""
    batch_size: int = 50
    """As in `dreamer`."""
    learning_rate: PositiveSchedule = Schedule.constant(6e-4)
    """Step size of the world model."""
    optimizer: Annotated[Any, Component("optimizer")] = Part("adam", {})
    """As in `dreamer`."""
    learning_starts: int = 2500
    """As in `dreamer`."""
    pretrain_updates: int = 100
    """As in `dreamer`."""
    stochastic: Literal["categorical", "gaussian"] = "gaussian"
    """As in `dreamer`."""
    free_nats: float = 3.0
    """As in `dreamer`."""
    dynamics_weight: float = 1.0
    """As in `dreamer`. With the other weight the same, both move as one divergence would have them."""
    representation_weight: float = 1.0
    """As in `dreamer`."""
    actor_gradient: Literal["reinforce", "dynamics", "auto"] = "dynamics"
    """As in `dreamer`."""
    entropy_weight: float = 0.0
    """As in `dreamer`."""
    exploration_noise: float = 0.3
    """As in `dreamer`."""
    bootstrap: Literal["critic", "slow_critic"] = "critic"
    """As in `dreamer`."""

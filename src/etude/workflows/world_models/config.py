"""The settings of World Models."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from etude.buffers.replay_config import PrioritizedConfig, StoreConfig
from etude.config.algorithm import AlgorithmSettings
from etude.config.constraints import (
    Component,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    PositiveSchedule,
    at_least,
)
from etude.config.schedules import Schedule
from etude.config.schema import Config
from etude.config.validate import Part

LATENT = "latent"
"""The column that holds what V takes each observation for: mean and log-variance, one after the other."""


@dataclass(frozen=True)
class WorldModelsConfig(AlgorithmSettings):
    """World Models (Ha and Schmidhuber 2018)."""

    name: str = "world_models"
    """The registered name of the algorithm."""
    latent_dim: PositiveInt = 32
    """Numbers that V describes an observation by."""
    memory: Literal["learnt", "random", "off"] = "learnt"
    """M: learnt to predict; random: as it begins, which remembers something too; off: the controller sees latents alone."""
    memory_size: PositiveInt = 256
    """Units of M's memory, which the controller sees."""
    mixtures: PositiveInt = 5
    """Normals that M mixes for each latent."""
    collect_steps: PositiveInt = 10_000
    """Environment steps of random behaviour, which V and M are learnt from."""
    exploration: Literal["random_network", "brownian"] = "random_network"
    """Random behaviour. random_network: in each episode a controller with other random weights, on what V and M see untrained;
    brownian: actions that wander."""
    exploration_std: PositiveFloat | None = None
    """random_network: the weights' deviation is uniform up to this in each episode; default 1. brownian: that of a step, on a
    scale where bounds are ±1; default 0.14."""
    vae_updates: PositiveInt = 5_000
    """Gradient steps of V."""
    vae_learning_rate: PositiveSchedule = Schedule.constant(1e-4)
    """Step size of V."""
    batch_size: PositiveInt = 100
    """Observations in each of V's steps."""
    kl_tolerance: NonNegativeFloat = 0.5
    """Divergence per latent that V is not charged for. Higher lets latents say more."""
    memory_updates: PositiveInt = 4_000
    """Gradient steps of M."""
    memory_learning_rate: PositiveSchedule = Schedule.constant(1e-3)
    """Step size of M."""
    memory_batch_size: PositiveInt = 16
    """Windows in each of M's steps; how long they are says buffers.replay.sequence."""
    reward_weight: NonNegativeFloat = 1.0
    """Weight of predicting rewards."""
    done_weight: NonNegativeFloat = 1.0
    """Weight of predicting ends."""
    max_grad_norm: PositiveFloat | None = 1.0
    """Clip M's gradient to this norm; null leaves it alone."""
    optimizer: Annotated[Any, Component("optimizer")] = Part("adam", {})
    """adam, adamw, sgd or an import path, with its options: of V, and of M."""
    dream: bool = False
    """Evolve the controller in M's dreams, without the task; false: in the task itself."""
    temperature: PositiveFloat = 1.0
    """How uncertain dreams are. Above 1 the controller can't make use of M's mistakes; far above nothing can be learnt."""
    dream_steps: PositiveInt = 1_000
    """Steps of a dream at most."""
    generations: PositiveInt = 200
    """Generations that are evolved in dreams; in the task there are as many as the budget has room for."""
    population: Annotated[int, at_least(2)] = 64
    """Controllers in a generation."""
    episodes: PositiveInt = 16
    """Episodes, or dreams, that each of them is judged by. More is surer and slower."""
    sigma: PositiveFloat = 0.1
    """The deviation of the controllers' weights that evolution begins with."""

    @property
    def rewritten(self) -> tuple[str, ...]:  # type: ignore[override] # not for the user to set
        """What V takes observations for, once it is learnt."""
        return (LATENT,)

    def problems(self, config: Config) -> Iterator[str]:
        """Yield what is wrong with these settings taken together."""
        environment = config.environment
        if environment.normalize_observations != "off":
            value = environment.normalize_observations
            yield f"environment.normalize_observations={value}: {self.name} scales observations itself; set it to off"
        if environment.normalize_rewards:
            yield f"environment.normalize_rewards=true: {self.name} learns rewards of any size as they are; set it to false"
        if self.dream and self.memory != "learnt":
            yield f"algorithm.memory={self.memory}: dreams are M's, which must be learnt; set algorithm.dream to false"
        for name, replay in config.buffers.items():
            if not isinstance(replay, StoreConfig):
                continue
            if replay.sequence is None:
                yield f"buffers.{name}.sequence=null: {self.name} learns from windows; set it to 16 or more"
            if (replay.n_step or 1) > 1:
                yield f"buffers.{name}.n_step={replay.n_step}: {self.name} sums rewards itself; set it to 1"
            if isinstance(replay, PrioritizedConfig) or getattr(replay, "priority", None) is not None:
                yield f"buffers.{name}: {self.name} draws uniformly; use type replay, and no priority"
            for column in replay.leave_out:
                if column in READ:
                    yield f"buffers.{name}.leave_out: '{column}' is what {self.name} learns from"


READ = ("observation", "action", "reward", "terminated", "is_first")
"""What of a step V and M learn from."""

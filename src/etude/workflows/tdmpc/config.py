"""The settings of TD-MPC2, and how large its networks are by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

from etude.buffers.replay_config import PrioritizedConfig
from etude.config.algorithm import AlgorithmSettings
from etude.config.constraints import (
    Bounds,
    Component,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    PositiveSchedule,
    UnitInterval,
    at_least,
)
from etude.config.schedules import Schedule
from etude.config.schema import Config
from etude.config.validate import Part
from etude.workflows.off_policy import left_out_problems


def passes_on(config: Config) -> bool:
    """Whether the raw vector is the latent."""
    return getattr(config.network.get("encoder"), "type", None) == "identity"


class Size(NamedTuple):
    """Widths of a named size."""

    encoder: tuple[int, ...]
    """Units of the encoder's hidden layers."""
    hidden: int
    """Units of each of the two hidden layers of all other networks."""
    latent: int
    critics: int


SIZES = {
    "small": Size((128,), 128, 64, 2),
    "1m": Size((256,), 384, 128, 2),
    "5m": Size((256,), 512, 512, 5),
    "19m": Size((1024, 1024), 1024, 768, 5),
    "48m": Size((1792, 1792, 1792), 1792, 768, 5),
    "317m": Size((4096, 4096, 4096, 4096), 4096, 1376, 8),
}
"""Those of the paper; small is for a CPU."""


@dataclass(frozen=True)
class TDMPCConfig(AlgorithmSettings):
    """TD-MPC2."""

    name: str = "tdmpc"
    """The registered name of the algorithm."""
    size: Literal["small", "1m", "5m", "19m", "48m", "317m"] = "5m"
    """How large the networks are, by about how many weights they have; small is for a CPU. network.ROLE.hidden_dims, latent_dim
    and critics override parts of it."""
    latent_dim: PositiveInt | None = None
    """Numbers that a state is encoded as. Default: as `size` says."""
    critics: Annotated[int, at_least(2)] | None = None
    """Action-value networks; of those two drawn at random are believed, the lower one as a target. Default: as `size` says."""
    horizon: PositiveInt = 3
    """Steps that the model is unrolled for, in learning and in planning. Longer sees further and leans more on the model."""
    plan: bool = True
    """Plan at every decision; false acts by the policy network alone, which is many times faster and somewhat worse."""
    iterations: PositiveInt = 6
    """Rounds of planning: each draws around the best of the one before."""
    samples: PositiveInt = 512
    """Action sequences that are imagined in each round, those of the policy among them."""
    policy_samples: NonNegativeInt = 24
    """How many of them the policy network proposes."""
    elites: PositiveInt = 64
    """How many of the best make the next round's mean and deviation."""
    temperature: NonNegativeFloat = 0.5
    """How much more the better of these count, per unit of return; 0 is the cross-entropy method."""
    min_std: PositiveSchedule = Schedule.constant(0.05)
    """Smallest deviation of planned actions, which is the noise of exploring too. It may be a schedule."""
    max_std: PositiveFloat = 2.0
    """Deviation that planning begins with, on a scale where actions are between -1 and 1."""
    momentum: UnitInterval = 0.0
    """How much of its mean each round of planning keeps."""
    learning_rate: PositiveSchedule = Schedule.constant(3e-4)
    """Step size of Adam. Higher learns faster and breaks sooner."""
    encoder_learning_rate: PositiveSchedule | None = None
    """Step size of the encoder. Default: 0.3 times the others'."""
    batch_size: PositiveInt = 256
    """Windows of `horizon` steps per gradient step. More is steadier and slower."""
    updates_per_decision: PositiveFloat = 1.0
    """Gradient steps for each decision in one environment, once the seed phase is over."""
    learning_starts: NonNegativeInt = 1000
    """Decisions with uniformly random actions before anything is learnt: at least five episodes are good."""
    pretrain: NonNegativeInt | None = None
    """Gradient steps on these before the first plan. Default: as many as they are."""
    gamma: UnitInterval | None = None
    """Discount: how much the next step counts. Default: by the L decisions of an episode, (L/5 - 1) / (L/5) between 0.95 and
    0.995; 0.99 where no limit is known."""
    tau: Annotated[float, Bounds(low=0, high=1, low_open=True)] = 0.01
    """How far the target critics move towards the trained ones at each update."""
    rho: UnitInterval = 0.5
    """How much less each further step of a window counts in the losses."""
    consistency_coef: NonNegativeFloat = 20.0
    """Weight of predicting the next latent."""
    reward_coef: NonNegativeFloat = 0.1
    """Weight of predicting the reward."""
    value_coef: NonNegativeFloat = 0.1
    """Weight of the critics' loss."""
    termination_coef: NonNegativeFloat = 1.0
    """Weight of predicting where the task ends, if it is `episodic`."""
    entropy_coef: NonNegativeFloat = 1e-4
    """Weight of the policy network's entropy."""
    random_shift: NonNegativeInt | None = None
    """Pixels that pictures are moved by at random while learning, each by itself, so that what is learnt does not depend on
    where things are; 0: not at all. Default: 3 of 64, and in proportion."""
    episodic: bool = True
    """Learn where the task ends, and count nothing behind an end in plans. It costs next to nothing; false for tasks that only
    a time limit cuts."""
    max_grad_norm: PositiveFloat | None = 20.0
    """Clip the gradient of the model, and of the policy network, to this norm; null leaves it alone."""
    optimizer: Annotated[Any, Component("optimizer")] = Part("adam", {})
    """adam, adamw, sgd or an import path, with its options."""

    @property
    def sequence(self) -> int:  # type: ignore[override] # not for the user to set
        """Windows as long as the model is unrolled."""
        return self.horizon

    @property
    def sizes(self) -> Size:
        """What `size` says, with what overrides it."""
        named = SIZES[self.size]
        return named._replace(latent=self.latent_dim or named.latent, critics=self.critics or named.critics)

    def problems(self, config: Config) -> Iterator[str]:
        """Yield what is wrong with these settings taken together."""
        if config.environment.normalize_observations == "rolling":
            yield (
                f"environment.normalize_observations=rolling: {self.name} replays old observations, which would be scaled "
                "by other statistics than when they were seen; use static or off"
            )
        if config.environment.normalize_rewards:
            yield f"environment.normalize_rewards: {self.name} learns rewards of any size as they are; set it to false"
        if self.policy_samples >= self.samples:
            yield f"algorithm.policy_samples={self.policy_samples}: must be less than algorithm.samples={self.samples}"
        if self.elites > self.samples:
            yield f"algorithm.elites={self.elites}: must be at most algorithm.samples={self.samples}"
        if (largest := max(self.min_std.start, self.min_std.end)) > self.max_std:
            yield f"algorithm.min_std={largest:g}: must be at most algorithm.max_std={self.max_std:g}"
        simplex = getattr(config.network.get("dynamics"), "simplex", None)
        if passes_on(config) and simplex is not None:
            yield (
                f"network.dynamics.simplex={simplex}: with network.encoder.type=identity it predicts observations, which lie "
                "on no simplex; set it to null, or network.dynamics.type=mlp"
            )
        if passes_on(config) and self.latent_dim is not None:
            yield f"algorithm.latent_dim={self.latent_dim}: with network.encoder.type=identity it follows; leave it out"
        for name, replay in config.buffers.items():
            if getattr(replay, "sequence", None) not in (None, self.horizon):
                yield (
                    f"buffers.{name}.sequence={replay.sequence}: {self.name} learns from windows of "
                    f"algorithm.horizon={self.horizon} steps; leave it out"
                )
            if (getattr(replay, "n_step", None) or 1) > 1:
                yield f"buffers.{name}.n_step={replay.n_step}: {self.name} looks ahead by algorithm.horizon; set it to 1"
            if isinstance(replay, PrioritizedConfig) or getattr(replay, "priority", None) is not None:
                yield f"buffers.{name}: {self.name} draws windows uniformly; use type replay, and no priority"
        yield from left_out_problems(self.name, config)

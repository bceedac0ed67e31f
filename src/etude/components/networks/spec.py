"""What an algorithm asks of its networks: what goes in, what comes out and how they begin. Users choose the rest.

encoder = NetworkSpec(64)                               # an observation to 64 numbers
decoder = NetworkSpec(observation_space, inputs=64)     # and back
actor = NetworkSpec(make_head(action_space), inputs=64, output_gain=POLICY_GAIN)
critics = NetworkSpec(1, inputs=Features("actor"), copies=2)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
from gymnasium import spaces

from etude.components.distributions import ActionHead

POLICY_GAIN = 0.01
"""How large a policy's last weights are at first: it begins close to uniform."""


@dataclass(frozen=True)
class Features:
    """What another role's network computes before its last layer."""

    of: str
    """The role; it must come before."""


@dataclass(frozen=True)
class NetworkSpec:
    """The network of one role."""

    outputs: int | gymnasium.Space[Any] | ActionHead
    """How many numbers, a space to reconstruct, or the distribution that the numbers describe."""
    inputs: gymnasium.Space[Any] | int | Features | None = None
    """A space, a vector of so many numbers, or another role's features. None: the observation."""
    output_gain: float = 1.0
    """How large the weights of the last layer are at first."""
    group: str | None = None
    """Which group of the observation it sees, where that has groups. Default: the one called as its role."""
    hidden_dims: Sequence[int] | None = None
    """Units of its hidden layers where the settings leave them open, in networks that let them."""
    copies: int | None = None
    """How many there are of it, where it is an ensemble: (B, ...) to (copies, B, outputs)."""
    methods: Sequence[str] = ()
    """What it must be able to do beside `forward`."""
    may_remember: bool = False
    """Whether it may have memory: the algorithm carries its state while acting and learns from sequences."""
    may_be_head: bool = False
    """Whether it may be a head on another role's network, so that both losses train what they share."""
    width: int | None = None
    """How wide its hidden layers are, where it is of a kind that leaves this to the algorithm."""


def vector(size: int) -> spaces.Box:
    """Return the space of `size` numbers of any height."""
    return spaces.Box(-math.inf, math.inf, (size,))

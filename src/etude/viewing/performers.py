"""Who moves the robot that is viewed: a run's policy, or, of a task alone, nobody in particular."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

import torch

from etude.acting.policy import Policy
from etude.compute.random_streams import derive_seed
from etude.environments.vector import VectorEnvironment
from etude.orchestration.player import Player
from etude.using.play import PLAY_SEEDS

Act = Literal["stand", "random"]


class Performer(ABC):
    """Moves the one robot of an environment, a step at a time."""

    environment: VectorEnvironment

    @abstractmethod
    def begin(self, seed: int) -> None:
        """Begin an episode."""

    @abstractmethod
    def step(self) -> tuple[float, bool]:
        """Act once; return the reward, and whether the episode ended."""


class PolicyPerformer(Performer):
    """A run's policy, which another may take the place of amid an episode. Its episodes are those of `etude play`."""

    def __init__(self, player: Player, root_seed: int) -> None:
        self.environment, self._player, self._root_seed = player.environment, player, root_seed

    def begin(self, seed: int) -> None:
        """Begin the episode of a seed."""
        self._player.begin(derive_seed(self._root_seed, PLAY_SEEDS, seed))

    def step(self) -> tuple[float, bool]:
        """Act once."""
        moment = self._player.step()
        return moment.reward, moment.ended

    def replace(self, policy: Policy) -> None:
        """Let another policy go on from here."""
        self._player.replace_policy(policy)


class Puppet(Performer):
    """A robot without a policy: its motors hold the default pose, or are asked for anything."""

    def __init__(self, environment: VectorEnvironment, act: Act) -> None:
        self.environment, self._act = environment, act
        self._generator = torch.Generator()

    def begin(self, seed: int) -> None:
        """Begin the episode of a seed."""
        self._generator.manual_seed(derive_seed(seed, "action"))
        self.environment.reset([derive_seed(seed, "env", 0)])

    def step(self) -> tuple[float, bool]:
        """Act once: an action of zeros is the default pose."""
        shape = (1, *(self.environment.single_action_space.shape or ()))
        action = torch.rand(shape, generator=self._generator) * 2 - 1 if self._act == "random" else torch.zeros(shape)
        step = self.environment.step(action)
        return float(step.reward[0]), bool(step.terminated[0] or step.truncated[0])

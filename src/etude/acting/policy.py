"""Whoever chooses actions: an algorithm while it learns, and what leaves the lab, a policy, which does nothing else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import gymnasium
import numpy as np
from torch import Generator, Tensor, nn

from etude.acting.host import HostActor, HostSampler
from etude.components.distributions import ActionHead
from etude.components.networks.encoder import ACTION_MASK
from etude.components.networks.memory import has_memory, is_capturable
from etude.components.networks.mlp import HostMLP
from etude.components.networks.modes import evaluating, mode_dependent
from etude.components.normalizers import ObservationNormalizer
from etude.environments.vector import Observation

State = Any
"""What an actor carries from step to step, a recurrent state, a plan: tensors (N, ...) in dicts, lists, tuples or named tuples.
None if nothing."""
Mode = Literal["explore", "sample", "greedy"]
"""explore: as training data is gathered; sample: from the policy as it is; greedy: its most likely action."""
Way = Literal["random", "explore", "sample", "greedy"]
"""The modes, and random: how exploring begins where there is a warm-up."""
ArrayTwin = Callable[[np.ndarray, Way, Generator], tuple[np.ndarray, dict[str, np.ndarray]]]
"""Observations (N, D) to actions and extras (N, ...), in NumPy."""


class ActResult(NamedTuple):
    """An action per environment, and what belongs to it."""

    action: Tensor
    """What the environments are given. (N, ...)"""
    state: State = None
    extras: dict[str, Tensor] = {}  # noqa: RUF012 # never written to
    """More columns for the buffer, such as the log-probability."""


class Acts(ABC):
    """Whoever chooses actions. It says what it does, never how that runs: `etude.acting.actor.Actor` sees to that.

    Everything but `act` has a default. A class with an `act` of its own takes over nothing that its parents said of theirs.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        """Let what was said of a parent's `act` not hold for another one."""
        super().__init_subclass__(**options)
        if "act" in vars(cls):
            for name in ("act_randomly", "array_twin", "capturable", "state_after"):
                if name not in vars(cls):
                    setattr(cls, name, vars(Acts)[name])

    def initial_state(self, n: int) -> State:
        """Return the state at the start of n episodes."""
        return None

    @abstractmethod
    def act(self, observation: Observation, state: State, is_first: Tensor, *, mode: Mode, generator: Generator) -> ActResult:
        """Choose an action for each row of an observation (N, ...)."""

    def act_randomly(self, observation: Observation, state: State, is_first: Tensor, *, generator: Generator) -> ActResult:
        """Act during the warm-up; by default as while exploring."""
        return self.act(observation, state, is_first, mode="explore", generator=generator)

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
        """Return what is carried on where `action` (N, ...) was taken in place of what `act` chose.

        That differs where the state knows of the action. The rest is what `act` was given, the generator's numbers included.
        """
        return chosen.state

    def is_warming_up(self) -> bool:
        """Whether exploring still means `act_randomly`."""
        return False

    def array_twin(self) -> ArrayTwin | None:
        """Return what exploring does from array to array, where it carries no state; None elsewhere."""
        return None

    @property
    def capturable(self) -> bool:
        """Whether acting is a function of tensors, its state included, that asks the device for nothing."""
        return False

    def advance(self, rows: int) -> None:  # noqa: B027 # most have nothing that changes from one decision to the next
        """Before each decision of so many rows while exploring: write what changes with time, such as ε, into its tensor."""


class Policy(Acts):
    """Acts with frozen statistics, its networks in evaluation mode.

    Evaluating, playing, exporting and publishing need nothing else.
    """

    stochastic: bool = True
    """Whether sampling differs from taking the mode."""

    def one_pass(self) -> Policy:
        """Return the same policy as one network with an action head, where acting is no more than that."""
        return self

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return everything acting depends on."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Act as the saved policy did."""


class PartsPolicy(Policy):
    """A policy whose state is that of its networks and statistics, in `parts`."""

    def __init__(self, **parts: nn.Module) -> None:
        self.parts = nn.ModuleDict(parts)
        self._switched = mode_dependent(self.parts)

    def state_dict(self) -> dict[str, Any]:
        """Return weights and statistics."""
        return self.parts.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore weights and statistics."""
        self.parts.load_state_dict(state)


class ActorPolicy(PartsPolicy):
    """Normalise, one network pass, a distribution, and its sample as an environment action.

    The state is what an actor with memory remembers; None for any other.
    """

    def __init__(
        self,
        normalizer: ObservationNormalizer,
        actor: nn.Module,
        head: ActionHead,
        observation_space: gymnasium.Space[Any] | None = None,
        *,
        with_log_prob: bool = True,
    ) -> None:
        super().__init__(normalizer=normalizer, actor=actor, head=head)
        self._with_log_prob = with_log_prob
        self._normalizer, self._actor, self._head = normalizer, actor, head
        self._remembers = has_memory(actor)
        self._forward = (observation_space and HostMLP.of(actor, observation_space)) or actor
        twin = HostSampler if with_log_prob else HostActor
        self._on_host = twin.of(normalizer, actor, head, observation_space)

    def initial_state(self, n: int) -> State:
        """Return the actor's memory at the start of n episodes, if it has any."""
        return self._actor.initial_state(n) if self._remembers else None  # type: ignore[operator] # has_memory says that it can be called

    def act(self, observation: Observation, state: State, is_first: Tensor, *, mode: Mode, generator: Generator) -> ActResult:
        """Return the environment action; extras hold the raw sample and, for those who learn from it, its log-probability."""
        if self._on_host is not None:
            action, extras = self._on_host.act(observation, mode == "greedy", generator)
            return ActResult(action, state, extras)
        mask = observation.get(ACTION_MASK) if isinstance(observation, dict) else None
        with evaluating(self._switched):
            if self._remembers:
                outputs, state = self._actor(self._normalizer(observation), state, is_first)
            else:
                outputs = self._forward(self._normalizer(observation))
        distribution = self._head(outputs, mask)
        sample = distribution.mode() if mode == "greedy" else distribution.sample(generator)
        extras = {"sample": sample, "log_prob": distribution.log_prob(sample)} if self._with_log_prob else {"sample": sample}
        return ActResult(self._head.to_environment(sample), state, extras)

    def array_twin(self) -> ArrayTwin | None:
        """Where the network has a twin in NumPy, and its sample is all that is done."""
        return self._on_host.act_on_arrays if isinstance(self._on_host, HostSampler) else None

    @property
    def capturable(self) -> bool:
        """Whatever has no memory is, and memory that says so."""
        return is_capturable(self._actor)

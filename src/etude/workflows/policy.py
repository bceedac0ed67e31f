"""What leaves the lab: a policy acts, and that is all it does."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import gymnasium
from torch import Generator, Tensor, nn

from etude.components.distributions import ActionHead
from etude.components.networks.encoder import ACTION_MASK
from etude.components.networks.memory import has_memory
from etude.components.networks.mlp import HostMLP
from etude.components.networks.modes import evaluating, mode_dependent
from etude.components.normalizers import ObservationNormalizer
from etude.environments.vector import Observation
from etude.workflows.base import ActResult, Mode, State, Workflow
from etude.workflows.host_acting import HostActor


class Policy(ABC):
    """Acts with frozen statistics, its networks in evaluation mode.

    Evaluating, playing, exporting and publishing need nothing else.
    """

    exportable: bool = False
    """Whether acting is one network pass that can be written to ONNX."""
    stochastic: bool = True
    """Whether sampling differs from taking the mode."""

    def initial_state(self, n: int) -> State:
        """Return the state at the start of n episodes."""
        return None

    @abstractmethod
    def act(self, observation: Observation, state: State, is_first: Tensor, *, mode: Mode, generator: Generator) -> ActResult:
        """Choose an action for each row of an observation (N, ...)."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return everything acting depends on."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Act as the saved policy did."""


class WorkflowPolicy(Policy):
    """Any workflow's own `act`; its modules and tensors are the policy's state."""

    def __init__(self, workflow: Workflow) -> None:
        self._workflow = workflow
        self._switched = mode_dependent(*(part for part in self._parts().values() if isinstance(part, nn.Module)))

    def initial_state(self, n: int) -> State:
        """Return the workflow's initial state."""
        return self._workflow.initial_state(n)

    def act(self, observation: Observation, state: State, is_first: Tensor, *, mode: Mode, generator: Generator) -> ActResult:
        """Act as the workflow does."""
        with evaluating(self._switched):
            return self._workflow.act(observation, state, is_first, mode=mode, generator=generator)

    def state_dict(self) -> dict[str, Any]:
        """Return the workflow's modules and tensors."""
        return {name: part if isinstance(part, Tensor) else part.state_dict() for name, part in self._parts().items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the workflow's modules and tensors."""
        for name, part in self._parts().items():
            if isinstance(part, Tensor):
                part.detach().copy_(state[name])
            else:
                part.load_state_dict(state[name])

    def _parts(self) -> dict[str, Any]:
        parts = self._workflow.stateful_parts()
        return {name: part for name, part in parts.items() if isinstance(part, Tensor | nn.Module)}


class ActorPolicy(Policy):
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
        self._with_log_prob = with_log_prob
        self.parts = nn.ModuleDict({"normalizer": normalizer, "actor": actor, "head": head})
        self._normalizer, self._actor, self._head = normalizer, actor, head
        self._switched = mode_dependent(self.parts)
        self._remembers = has_memory(actor)
        self.exportable = not self._remembers
        self._forward = (observation_space and HostMLP.of(actor, observation_space)) or actor
        self._on_host = None if with_log_prob else HostActor.of(normalizer, actor, head, observation_space)

    def initial_state(self, n: int) -> State:
        """Return the actor's memory at the start of n episodes, if it has any."""
        return self._actor.initial_state(n) if self._remembers else None  # type: ignore[operator] # has_memory says that it can be called

    def act(self, observation: Observation, state: State, is_first: Tensor, *, mode: Mode, generator: Generator) -> ActResult:
        """Return the environment action; extras hold the raw sample and, for those who learn from it, its log-probability."""
        if self._on_host is not None:
            action, sample = self._on_host.act(observation, mode, generator)
            return ActResult(action, state, {"sample": sample})
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

    def state_dict(self) -> dict[str, Any]:
        """Return weights and statistics."""
        return self.parts.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore weights and statistics."""
        self.parts.load_state_dict(state)

"""The policy of an algorithm that names none of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Generator, Tensor, nn

from etude.acting.policy import ActResult, Mode, Policy, State
from etude.components.networks.modes import evaluating, mode_dependent
from etude.environments.vector import Observation

if TYPE_CHECKING:
    from etude.workflows.base import Workflow


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

    @property
    def capturable(self) -> bool:
        """Where the workflow's own is."""
        return self._workflow.capturable

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

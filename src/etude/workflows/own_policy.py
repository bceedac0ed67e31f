"""A workflow's `act` as a policy, and what any workflow's policy remembers of how it was made."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

from torch import Generator, Tensor, nn

from etude.acting.policy import ActResult, Mode, Policy, State
from etude.components.networks.modes import evaluating, mode_dependent
from etude.components.recipes import Recipe, remember
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
        """Carry on what the workflow does."""
        with evaluating(self._switched):
            seen = observation, state, is_first
            return self._workflow.state_after(action, chosen, *seen, mode=mode, generator=generator)

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

    @property
    def networks(self) -> dict[str, nn.Module]:
        """The workflow's modules, by name."""
        return {name: part for name, part in self._parts().items() if isinstance(part, nn.Module)}

    def _parts(self) -> dict[str, Any]:
        parts = self._workflow.stateful_parts()
        return {name: part for name, part in parts.items() if isinstance(part, Tensor | nn.Module)}


def remembering(make: Callable[[Any], Policy]) -> Callable[[Any], Policy]:
    """Have the policy that a workflow makes remember how it was made."""

    @wraps(make)
    def policy(self: Workflow) -> Policy:
        return remembered(make(self), self)

    return policy


def remembered(policy: Policy, workflow: Workflow) -> Policy:
    """Return a policy with the settings and spaces that it was made for."""
    if "context" not in vars(workflow):  # not initialised: of no settings and spaces yet
        return policy
    context = workflow.context
    spaces = {"observation_space": context.observation_space, "action_space": context.action_space}
    return remember(policy, Recipe("policy", context.config, spaces))

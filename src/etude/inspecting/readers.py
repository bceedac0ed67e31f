"""Readers of the families of algorithms that say more than an actor and a critic: Q-values, and models of the world."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from etude.acting.policy import Policy
from etude.components.networks.modes import evaluating, mode_dependent
from etude.components.networks.world_decoder import DETER, STOCH
from etude.components.networks.world_encoder import is_picture, parts_of
from etude.components.rssm import ModelState
from etude.components.two_hot import symexp
from etude.environments.vector import Observation, VectorEnvironment
from etude.inspecting.insights import Insight, Reader, described, on_unit_scale
from etude.orchestration.player import Array, Decision
from etude.training import assembly
from etude.using.stored_policy import OpenPolicy, StoredPolicy
from etude.workflows.base import Workflow
from etude.workflows.q_learning import QLearning
from etude.workflows.q_policy import QPolicy
from etude.workflows.recurrent_model import ModelPolicy, computing_in
from etude.workflows.tdmpc.policy import TDMPCPolicy


def make_reader(stored: OpenPolicy, policy: Policy, environment: VectorEnvironment) -> Reader:
    """Return what reads this policy's decisions, with as much of its algorithm as its checkpoint has."""
    complete = isinstance(stored, StoredPolicy) and stored.checkpoint.kind == "full"
    if complete:
        workflow = stored.workflow(environment)  # type: ignore[attr-defined] # a StoredPolicy
    else:
        spaces = environment.single_observation_space, environment.single_action_space
        workflow = assembly.build_workflow(stored.config, *spaces)
        workflow.policy().load_state_dict(policy.state_dict())
    return _kind(policy, workflow)(policy, workflow, complete=complete)


def _kind(policy: Policy, workflow: Workflow) -> type[Reader]:
    if isinstance(policy, QPolicy):
        return QReader
    if isinstance(workflow, QLearning):
        return TableReader
    if isinstance(policy, ModelPolicy):
        return ModelReader
    return TDMPCReader if isinstance(policy, TDMPCPolicy) else Reader


class QReader(Reader):
    """What each action is worth; the best one's is the state's."""

    def action_values(self, decision: Decision) -> tuple[np.ndarray | None, float | None]:
        """Return what each action is worth, and the one taken."""
        assert isinstance(self.policy, QPolicy)
        assert self.workflow is not None
        values = self.policy.values(decision.observation)[0].double() / self.workflow.settings.reward_scale
        return values.cpu().numpy(), float(values[int(decision.action[0])])


class TableReader(Reader):
    """A row of the table."""

    def action_values(self, decision: Decision) -> tuple[np.ndarray | None, float | None]:
        """Return what each action is worth, and the one taken."""
        workflow: Any = self.workflow
        values = workflow.table[decision.observation - workflow._first][0]
        return values.cpu().numpy().copy(), float(values[int(decision.action[0])])


class ModelReader(Reader):
    """A recurrent world model: what it makes of its state, and where it thinks that the action leads."""

    def __init__(self, policy: Policy, workflow: Workflow | None, *, complete: bool) -> None:
        super().__init__(policy, workflow, complete=complete)
        self._complete = complete
        if not complete:
            self.notes = (*self.notes, "no predictions: this checkpoint holds the policy alone; 'last' has the whole model")

    def _knows_values(self, complete: bool) -> bool:
        return complete and hasattr(self.workflow, "critic")

    def _absent(self, complete: bool) -> tuple[str, ...]:
        if not complete and hasattr(self.workflow, "critic"):
            return ("no values and advantages: this checkpoint holds the policy alone; 'last' has all networks",)
        return super()._absent(complete)

    def begin(self) -> None:
        """Forget the last episode; what is remembered is the policy's."""
        self.last = None

    def describe(self, decision: Decision) -> Insight:
        """Return the actor's distribution; planners have none."""
        parts: Any = self.policy.parts  # type: ignore[attr-defined] # a PartsPolicy
        if "actor" not in parts:
            return Insight()
        with self._precision():
            return described(parts["head"](parts["actor"](_now(decision).features)), parts["head"])

    def value(self, decision: Decision) -> float | None:
        """Return what the critic thinks of the model's state."""
        return self._worth(_now(decision)) if self.has_values else None

    def action_values(self, decision: Decision) -> tuple[np.ndarray | None, float | None]:
        """It values states, not actions."""
        return None, None

    def final_value(self, decision: Decision, observation: Observation) -> float | None:
        """Follow the last observation too."""
        if not self.has_values:
            return None
        never, generator = torch.zeros_like(decision.is_first), torch.Generator(decision.is_first.device).manual_seed(0)
        result = self.policy.act(observation, decision.chosen.state, never, mode="greedy", generator=generator)
        with torch.no_grad():
            return self._worth(ModelState(result.state[DETER], result.state[STOCH]))

    def predict(self, decision: Decision, found: Insight) -> Insight:
        """Dream one step of the action that was taken, by the likeliest latents."""
        if not self._complete:
            return found
        workflow: Any = self.workflow
        world = workflow._world
        with self._precision():
            led_to = world.rssm.dream(_now(decision), world.actions.from_environment(decision.action), None)
            made = world.observations(led_to)
            reward, goes_on = world.rewards(led_to.features), world.continuation(led_to.features)
        return replace(
            found,
            predicted_reward=float(reward[0]),
            predicted_continue=float(goes_on[0]),
            predicted_observation=_as_observed(made, world.space),
        )

    def _worth(self, state: ModelState) -> float:
        workflow: Any = self.workflow
        with self._precision():
            return float(workflow.numbers.mean(workflow.critic(state.features))[0])

    def _precision(self) -> Any:
        workflow: Any = self.workflow
        return computing_in(workflow._dtype(), workflow.context.device)


class TDMPCReader(Reader):
    """TD-MPC2: the policy network behind the plan, what the critics say, and what the model thinks that the action earns."""

    def describe(self, decision: Decision) -> Insight:
        """Return the policy network's distribution, which a plan may leave."""
        model = self._model()
        with evaluating(mode_dependent(*model.parts.values())):
            return described(model.policy(model.encode(decision.observation)), model.head)

    def action_values(self, decision: Decision) -> tuple[np.ndarray | None, float | None]:
        """Return the mean of the critics for the action taken."""
        model = self._model()
        with evaluating(mode_dependent(*model.parts.values())):
            return None, float(model.two_hot.mean(model.critic(self._pair(decision))).mean(0)[0])

    def predict(self, decision: Decision, found: Insight) -> Insight:
        """Return what the model thinks that the action earns."""
        model = self._model()
        with evaluating(mode_dependent(*model.parts.values())):
            reward, end = model.earned(self._pair(decision))
            goes_on = float((-end).sigmoid()[0]) if model.episodic else None
        return replace(found, predicted_reward=float(model.two_hot.mean(reward)[0]), predicted_continue=goes_on)

    def _pair(self, decision: Decision) -> Tensor:
        model = self._model()
        return torch.cat([model.encode(decision.observation), on_unit_scale(decision, model.head)], -1)

    def _model(self) -> Any:
        workflow: Any = self.workflow
        return workflow.model


def _now(decision: Decision) -> ModelState:
    """The model's state at the observation that was acted on, which is what the policy carries on."""
    return ModelState(decision.chosen.state[DETER], decision.chosen.state[STOCH])


def _as_observed(made: Observation, space: Any) -> Array:
    """Return what a decoder says as the environment would: pictures as bytes, vectors out of symlog, the likeliest choice."""
    parts = {"": made} if isinstance(made, Tensor) else made
    seen = {name: _part(parts[name][0].float(), part) for name, part in parts_of(space).items()}
    return seen.get("", seen)


def _part(value: Tensor, space: Any) -> np.ndarray:
    if is_picture(space):
        scale = 255.0 if np.dtype(space.dtype) == np.uint8 else 1.0
        return (value.clamp(0, 1) * scale).round().to("cpu").numpy().astype(space.dtype).reshape(space.shape)
    if isinstance(space, spaces.Discrete):
        return np.asarray(int(value.argmax()) + int(space.start))
    values = symexp(value).to("cpu").numpy()
    return values.reshape(space.shape) if values.size == int(np.prod(space.shape or ())) else values

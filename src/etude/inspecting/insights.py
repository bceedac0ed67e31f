"""What an algorithm says of one decision: how likely each action was, what the state is worth, what its model expects.

    policy     ─→ probabilities, or mean and deviation        always, where it has a distribution
    algorithm  ─→ value, Q-values, the model's predictions    of a checkpoint that has more than the policy

Numbers are in the task's own units: a critic that learns from scaled rewards is scaled back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from etude.acting.policy import ActorPolicy, PartsPolicy, Policy
from etude.components.critics import with_action
from etude.components.distributions import (
    BoundedHead,
    Categorical,
    Gaussian,
    GaussianHead,
    MultiCategorical,
    Point,
    SquashedGaussian,
)
from etude.components.latents import Normal, OneHot
from etude.components.networks.encoder import ACTION_MASK
from etude.components.networks.memory import has_memory
from etude.components.networks.modes import evaluating, mode_dependent
from etude.compute.trees import map_tree
from etude.environments.vector import Observation
from etude.orchestration.player import Array, Decision
from etude.workflows.base import Workflow

USUAL_GAMMA, USUAL_LAMBDA = 0.99, 0.95
"""For algorithms that have none of their own."""


@dataclass(frozen=True)
class Insight:
    """What was said of one decision; what an algorithm has no word for is None."""

    probabilities: np.ndarray | None = None
    """Of each discrete action; of several choices, one after the other."""
    mean: np.ndarray | None = None
    """Of continuous actions, as the environment is given them."""
    std: np.ndarray | None = None
    """On the same scale; of a squashed Gaussian, before it is squashed."""
    value: float | None = None
    q_values: np.ndarray | None = None
    """Of each discrete action."""
    q_taken: float | None = None
    """Of the action that was taken."""
    predicted_reward: float | None = None
    predicted_continue: float | None = None
    """How likely the model thought that the episode goes on."""
    predicted_observation: Array | None = None
    """Where the model thought that the step leads."""


@dataclass(frozen=True)
class Units:
    """What returns and advantages along an episode are computed with."""

    gamma: float
    gae_lambda: float
    notes: tuple[str, ...] = ()


class Reader:
    """Reads what a policy and its algorithm say, decision by decision, and remembers what a critic with memory does."""

    def __init__(self, policy: Policy, workflow: Workflow | None, *, complete: bool) -> None:
        """`workflow` has the policy's weights; `complete` says whether it has all others too."""
        self.policy, self.workflow = policy, workflow
        self._memory: Any = None
        self._critic: Any = None
        self.has_values = self._knows_values(complete)
        self.units = _units(workflow)
        self.notes = (*self.units.notes, *self._absent(complete))
        """One line for each thing that can't be shown, and for each assumption."""
        self.last: Insight | None = None

    def _knows_values(self, complete: bool) -> bool:
        workflow = self.workflow
        if workflow is None or not callable(getattr(workflow, "values", None)):
            return False
        self._critic = getattr(workflow, "critic", None)
        return complete or not isinstance(self.policy, PartsPolicy) or _holds(self.policy, workflow)

    def _absent(self, complete: bool) -> tuple[str, ...]:
        if self.has_values:
            return ()
        name = "this policy" if self.workflow is None else self.workflow.settings.name
        if self.workflow is not None and callable(getattr(self.workflow, "values", None)) and not complete:
            return ("no values and advantages: this checkpoint holds the policy alone; 'last' has all networks",)
        return (f"no values and advantages: {name} has no value function",)

    # ---- along an episode ---------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Forget the last episode."""
        self._memory = self._critic.initial_state(1) if self.has_values and has_memory(self._critic) else None
        self.last = None

    def memory(self) -> Any:
        """Return what a critic remembers now."""
        return map_tree(torch.clone, self._memory)

    def restore(self, memory: Any) -> None:
        """Go on with what was remembered then."""
        self._memory = map_tree(torch.clone, memory)

    @torch.no_grad()
    def read(self, decision: Decision) -> None:
        """Look at a decision, before the next one is made; `last` holds what was found."""
        found = self.describe(decision)
        q_values, q_taken = self.action_values(decision) if self.has_values else (None, None)
        found = replace(found, value=self.value(decision), q_values=q_values, q_taken=q_taken)
        self.last = self.predict(decision, found)

    @torch.no_grad()
    def final_value(self, decision: Decision, observation: Observation) -> float | None:
        """Return what the observation is worth that an episode was cut in, after its last decision."""
        if not self.has_values:
            return None
        if has_memory(self._critic):
            return self._with_memory(observation, torch.zeros_like(decision.is_first))[0]
        return self._scaled(self.workflow.values(observation))  # type: ignore[union-attr] # has_values

    # ---- what families of algorithms say otherwise --------------------------------------------------------------------

    def describe(self, decision: Decision) -> Insight:
        """Return the distribution that the action is of."""
        if not isinstance(self.policy, ActorPolicy):
            return Insight()
        parts: Any = self.policy.parts
        observation = decision.observation
        mask = observation.get(ACTION_MASK) if isinstance(observation, dict) else None
        with evaluating(mode_dependent(self.policy.parts)):
            seen = parts["normalizer"](observation)
            actor = parts["actor"]
            outputs = actor(seen, decision.state, decision.is_first)[0] if has_memory(actor) else actor(seen)
            return described(parts["head"](outputs, mask), parts["head"])

    def value(self, decision: Decision) -> float | None:
        """Return what the critic thinks of the state that was acted in."""
        if not self.has_values:
            return None
        if has_memory(self._critic):
            value, self._memory = self._with_memory(decision.observation, decision.is_first)
            return value
        return self._scaled(self.workflow.values(decision.observation))  # type: ignore[union-attr] # has_values

    def action_values(self, decision: Decision) -> tuple[np.ndarray | None, float | None]:
        """Return what each action is worth, and the one taken."""
        workflow: Any = self.workflow
        head, critic = getattr(workflow, "head", None), self._critic
        if not isinstance(critic, nn.Module) or not hasattr(workflow, "target_critic"):
            return None, None
        seen = workflow.normalizer(decision.observation)
        with evaluating(mode_dependent(critic)):
            if isinstance(head, BoundedHead):
                outputs = critic(with_action(seen, on_unit_scale(decision, head)))  # (E, 1, outputs)
                return None, float(outputs.mean(-1).amin(0)[0]) / _reward_scale(workflow)
            values = critic(seen).amin(0)[0] / _reward_scale(workflow)
        return _array(values), float(values[int(decision.action[0])])

    def predict(self, decision: Decision, found: Insight) -> Insight:
        """Return the insight with what a model of the world expects of the action; most algorithms have none."""
        return found

    # ---- units --------------------------------------------------------------------------------------------------------

    def _with_memory(self, observation: Observation, is_first: Tensor) -> tuple[float, Any]:
        workflow: Any = self.workflow
        with evaluating(mode_dependent(self._critic)):
            value, memory = self._critic(workflow.normalizer(observation), self._memory, is_first)
        return self._scaled(value.squeeze(-1)), memory

    def _scaled(self, value: Tensor) -> float:
        """Put a critic that learns from normalised rewards back into units of reward."""
        normalizer = getattr(self.workflow, "reward_normalizer", None)
        number = value.double()[0]
        if normalizer is not None:
            number = number * (normalizer.moments.var + 1e-8).sqrt()
        return float(number)


def _holds(policy: PartsPolicy, workflow: Workflow) -> bool:
    """Whether all that says what a state is worth is part of the policy."""
    judges = [part for name in ("critic", "q") if isinstance(part := getattr(workflow, name, None), nn.Module)]
    held = {id(module) for module in workflow.policy().parts.modules()}  # type: ignore[attr-defined] # as the policy's
    return bool(judges) and all(id(judge) in held for judge in judges)


def _units(workflow: Workflow | None) -> Units:
    settings, notes = getattr(workflow, "settings", None), []
    model = getattr(workflow, "model", None)
    gamma = getattr(settings, "gamma", None)
    if gamma is None and model is not None and hasattr(model, "gamma"):
        gamma = float(model.gamma)
    if gamma is None:
        gamma = USUAL_GAMMA
        notes.append(f"returns are discounted by {gamma:g}: this algorithm has no discount of its own")
    trace = next((getattr(settings, name) for name in ("gae_lambda", "td_lambda") if hasattr(settings, name)), None)
    if trace is None:
        trace = USUAL_LAMBDA
        notes.append(f"advantages are GAE with λ = {trace:g}: this algorithm has no λ of its own")
    return Units(float(gamma), float(trace), tuple(notes))


def _reward_scale(workflow: Any) -> float:
    return float(getattr(workflow.settings, "reward_scale", 1.0))


def on_unit_scale(decision: Decision, head: BoundedHead) -> Tensor:
    """Return the action that was taken on the scale where its bounds are ±1: (1, D)"""
    own = decision.chosen.extras.get("sample")
    if own is not None and decision.action is decision.chosen.action:
        return own
    reach = head.reach.clamp(min=torch.finfo(torch.float32).tiny)
    return ((decision.action - head.middle) / reach).flatten(1)


def described(distribution: Any, head: Any) -> Insight:
    """Return a distribution in numbers; continuous ones on the scale of the environment's actions."""
    if isinstance(distribution, Categorical):
        return Insight(probabilities=_array(distribution.log_probs.exp()[0]))
    if isinstance(distribution, MultiCategorical):
        return Insight(probabilities=_array(torch.cat([part.log_probs.exp()[0] for part in distribution.parts])))
    if isinstance(distribution, OneHot):
        return Insight(probabilities=_array(distribution.probs[0].flatten()))
    if isinstance(distribution, Gaussian | SquashedGaussian | Normal | Point):
        mean = _array(head.to_environment(distribution.mode())[0])
        std = None
        if isinstance(distribution, Normal):
            std = distribution.std
        elif isinstance(distribution, Gaussian | SquashedGaussian):
            std = distribution.log_std.exp()
        if std is None or not isinstance(head, GaussianHead | BoundedHead):
            return Insight(mean=mean)
        shaped = std.expand(1, -1).reshape(-1, *head.reach.shape)[0] if std.ndim == 1 else std.reshape(-1, *head.reach.shape)[0]
        return Insight(mean=mean, std=_array(shaped * head.reach))
    return Insight()


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().to("cpu").double().numpy().copy()

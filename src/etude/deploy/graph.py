"""A policy as one function of tensors, with its normaliser and the environment's units inside: what the files hold."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import Any, Literal

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from etude.acting.policy import ActorPolicy
from etude.components.action_values import allowed
from etude.components.networks.groups import GroupReader
from etude.components.networks.keyed_encoder import SINGLE
from etude.environments.spaces import TensorSpec, action_spec, first_value, leaf_spaces, observation_specs
from etude.environments.vector import ACTION_MASK, Observation
from etude.workflows.q_policy import QPolicy

ACTION = "action"
MEMORY = "memory"


class PolicyGraph(nn.Module, ABC):
    """Parts of the observation in order, of the memory and noise, if there are any → the action, and the memory after it.

    Rows are independent, and there may be any number of them.
    """

    first: Tensor

    def __init__(
        self,
        parts: nn.ModuleDict,
        network: nn.Module,
        observation_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any],
    ) -> None:
        super().__init__()
        # Running statistics are kept in double precision, which small runtimes don't have; acting casts them to single anyway.
        self.parts = copy.deepcopy(parts).float().eval().requires_grad_(False)
        self.action_space = action_space
        self.action_spec = action_spec(action_space)
        specs = observation_specs(observation_space)
        if isinstance(network, GroupReader):
            specs = {key: spec for key, spec in specs.items() if key in (network.key, ACTION_MASK)}
        self.inputs = {key or SINGLE: spec for key, spec in specs.items()}
        """What it reads of an observation, by the observation's keys, in the order of its arguments."""
        self._is_single = list(specs) == [""]
        counted = {key: first_value(part) for key, part in leaf_spaces(observation_space).items()}
        self._lowest = {key or SINGLE: torch.as_tensor(low) for key, low in counted.items() if np.any(low)}
        self.memory: dict[str, TensorSpec] = {}
        """What it remembers, by the names of the inputs; begins with zeros. Outputs have `next_` before the name."""
        self.noise: dict[str, TensorSpec] = {}
        """What chance has a part in, drawn anew for each decision: `normal` or `uniform` numbers, as the input's name says."""
        self.chunk: tuple[int, int] | None = None
        """Of a policy that decides on several actions at once: the observations it reads, and the actions it returns."""
        self.mode: Literal["sample", "greedy"] = "greedy"
        """What it does of what the policy can do."""
        self.sections = _sections(action_space)
        """How many choices each part of a discrete action has; empty for continuous actions."""
        self.register_buffer("first", torch.as_tensor(first_value(action_space)), persistent=False)

    @property
    def input_names(self) -> list[str]:
        """The names of all arguments."""
        return [*self.inputs, *self.memory, *self.noise]

    @property
    def output_names(self) -> list[str]:
        """The names of all results."""
        return [ACTION, *(f"next_{name}" for name in self.memory)]

    def examples(self, rows: int) -> tuple[Tensor, ...]:
        """Return arguments of the right shapes and types."""
        specs = self.inputs | self.memory | self.noise
        zeros = {name: torch.zeros(rows, *spec.shape, dtype=spec.dtype) for name, spec in specs.items()}
        return tuple(value + self._lowest[name] if name in self._lowest else value for name, value in zeros.items())

    def forward(self, *arguments: Tensor) -> Tensor | tuple[Tensor, ...]:
        """(N, ...) each → the action (N, ...), and what is remembered, if anything"""
        sample, memory = self.choose(*arguments)
        action = self.in_environment_units(sample)
        return (action, *memory) if self.memory else action

    def in_environment_units(self, action: Tensor) -> Tensor:
        """Return what the task itself is given: our own discrete actions count from 0, and whole numbers are rounded."""
        if isinstance(self.action_space, spaces.Box):
            return action if self.action_spec.dtype.is_floating_point else action.round().to(self.action_spec.dtype)
        return action + self.first if bool(np.any(first_value(self.action_space))) else action

    def worse_by(self, scores: Tensor, action: Tensor) -> Tensor:
        """How much lower than the best the scores (N, choices) of discrete actions (N, ...) are, per part: (N, parts)."""
        chosen = (action.long() - self.first).reshape(len(action), -1)
        gaps = []
        for index, part in enumerate(scores.split(self.sections, dim=-1)):
            choice = chosen[:, index].clamp(0, self.sections[index] - 1)
            gap = part.amax(-1) - part.gather(-1, choice[:, None]).squeeze(-1)
            gaps.append(torch.where(choice == chosen[:, index], gap, torch.inf))
        return torch.stack(gaps, -1)

    @abstractmethod
    def choose(self, *arguments: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return the action as the policy's own, and what is remembered."""

    def scores(self, *arguments: Tensor) -> Tensor | None:
        """Return the numbers that discrete actions are chosen by, (N, choices); None where there are none to be had."""
        return None

    def _observation(self, arguments: tuple[Tensor, ...]) -> Observation:
        return arguments[0] if self._is_single else dict(zip(self.inputs, arguments, strict=False))


class ActorGraph(PolicyGraph):
    """Normalise, one pass, the most likely action of the distribution."""

    def __init__(
        self, policy: ActorPolicy, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]
    ) -> None:
        super().__init__(policy.parts, policy.parts["actor"], observation_space, action_space)
        state = policy.initial_state(1)
        if state is not None:
            named = {MEMORY: state} if isinstance(state, Tensor) else {f"{MEMORY}_{key}": value for key, value in state.items()}
            self._memory_keys = None if isinstance(state, Tensor) else tuple(state)
            self.memory = {name: TensorSpec(tuple(value.shape[1:]), value.dtype) for name, value in named.items()}

    def choose(self, *arguments: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return the mode, and what is remembered."""
        outputs, memory, mask = self._outputs(arguments)
        head: Any = self.parts["head"]
        return head.to_environment(head(outputs, mask).mode()), memory

    def scores(self, *arguments: Tensor) -> Tensor:
        """Return the logits; −∞ where a mask forbids a choice."""
        outputs, _, mask = self._outputs(arguments)
        return outputs if mask is None else outputs.masked_fill(mask.reshape(outputs.shape) == 0, -torch.inf)

    def _outputs(self, arguments: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...], Tensor | None]:
        observation = self._observation(arguments)
        mask = observation.get(ACTION_MASK) if isinstance(observation, dict) else None
        seen = self.parts["normalizer"](observation)
        if not self.memory:
            return self.parts["actor"](seen), (), mask
        values = arguments[len(self.inputs) :]
        state = values[0] if self._memory_keys is None else dict(zip(self._memory_keys, values, strict=True))
        # An episode begins with a memory of zeros, so nothing needs to be forgotten inside.
        never = torch.zeros(arguments[0].shape[0], dtype=torch.bool)
        outputs, after = self.parts["actor"](seen, state, never)
        return outputs, (after,) if self._memory_keys is None else tuple(after[key] for key in self._memory_keys), mask


class ValueGraph(PolicyGraph):
    """Normalise, one pass, the action that is worth most."""

    def __init__(self, policy: QPolicy, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]) -> None:
        q: Any = policy.parts["q"]
        super().__init__(policy.parts, q.network, observation_space, action_space)

    def choose(self, *arguments: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return the best action."""
        return self.scores(*arguments).argmax(-1), ()

    def scores(self, *arguments: Tensor) -> Tensor:
        """Return what each action is worth; −∞ where a mask forbids it."""
        observation, q = self._observation(arguments), self.parts["q"]
        values: Any = q.values  # type: ignore[union-attr] # ActionValues
        return allowed(values(q(self.parts["normalizer"](observation))), observation)


def _sections(space: gymnasium.Space[Any]) -> list[int]:
    if isinstance(space, spaces.Discrete):
        return [int(space.n)]
    if isinstance(space, spaces.MultiDiscrete):
        return space.nvec.flatten().tolist()
    return [2] * int(np.prod(space.shape)) if isinstance(space, spaces.MultiBinary) else []

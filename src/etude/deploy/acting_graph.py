"""Policies whose acting is more than a network and a head, as one function: what they remember and draw goes in."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Literal

import gymnasium
import torch
from torch import Generator, Tensor, nn

from etude.acting.policy import ActorPolicy, ActResult, PartsPolicy, Policy, State
from etude.components.networks.groups import ACTOR, GroupReader
from etude.components.world_model import sensed_space
from etude.compute.trees import leaves, map_tree
from etude.deploy.drawn_noise import Draw, Giving, find_draws, widths
from etude.deploy.graph import MEMORY, ActorGraph, PolicyGraph, ValueGraph
from etude.environments.spaces import TensorSpec
from etude.errors import UserError
from etude.workflows.diffusion_policy import ChunkPolicy
from etude.workflows.own_policy import WorkflowPolicy
from etude.workflows.q_policy import QPolicy
from etude.workflows.recurrent_model import ModelPolicy

BEGUN = f"{MEMORY}_begun"
"""1 after the first step of an episode: what a policy begins with need not be zeros, but what a file is given are zeros."""


class ActingGraph(PolicyGraph):
    """Any policy's `act`: world models, plans, tables, an algorithm of one's own."""

    def __init__(
        self,
        policy: Policy,
        observation_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any],
        mode: Literal["sample", "greedy"],
    ) -> None:
        own = copy.deepcopy(policy)
        super().__init__(nn.ModuleDict(), _reader(own, observation_space), observation_space, action_space)
        self.parts = _modules(own).float().eval().requires_grad_(False)
        self._policy, self.mode = own, mode
        self._state = own.initial_state(1)
        if self._state is not None:
            self.memory = {name: TensorSpec(tuple(part.shape[1:]), part.dtype) for name, part in _named(self._state, MEMORY)}
            self.memory[BEGUN] = TensorSpec((1,), torch.float32)
        self._draws: list[Draw] = []
        self._draws = find_draws(self._try)
        self.noise = {kind: TensorSpec((width,), torch.float32) for kind, width in widths(self._draws).items()}

    @property
    def draws(self) -> list[Draw]:
        """What a decision draws, in order."""
        return self._draws

    def choose(self, *arguments: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return what the policy does, and what it remembers."""
        memory = arguments[len(self.inputs) : len(self.inputs) + len(self.memory)]
        noise = dict(zip(self.noise, arguments[len(self.inputs) + len(self.memory) :], strict=True))
        with Giving(self._draws, noise):
            action, state, _ = self._act(arguments, memory)
        after = (*leaves(state), torch.ones_like(memory[-1])) if self.memory else ()
        return action, after

    def _act(self, arguments: tuple[Tensor, ...], memory: tuple[Tensor, ...]) -> ActResult:
        observation = self._observation(arguments)
        if not self.memory:
            is_first, state = torch.zeros(arguments[0].shape[0], dtype=torch.bool), None
        else:
            each = iter(memory)
            is_first, state = memory[-1][:, 0] < 0.5, map_tree(lambda _: next(each), self._state)
        return self._policy.act(observation, state, is_first, mode=self.mode, generator=Generator())

    @torch.no_grad()
    def _try(self, rows: int) -> ActResult:
        examples = self.examples(rows)
        return self._act(examples, examples[len(self.inputs) :])


class ChunkGraph(PolicyGraph):
    """The newest observations (N, T, ...), the oldest first, and noise → the actions to come (N, A, ...)."""

    def __init__(
        self, policy: ChunkPolicy, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]
    ) -> None:
        own = copy.deepcopy(policy)
        super().__init__(nn.ModuleDict(), own.parts["encoder"], observation_space, action_space)
        self.parts = own.parts.float().eval().requires_grad_(False)
        self._policy = own
        seen, self.chunk = own.observation_steps, (own.observation_steps, own.action_steps)
        self.inputs = {name: TensorSpec((seen, *spec.shape), spec.dtype) for name, spec in self.inputs.items()}
        self._shape = own.noise_shape
        self.noise = {"normal": TensorSpec((self._shape.numel(),), torch.float32)}
        self.mode = "sample"

    def choose(self, *arguments: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return a chunk."""
        noise = arguments[-1].reshape(-1, *self._shape).movedim(1, 0)  # (draws, N, horizon, A)
        chunk = self._policy.made(self._observation(arguments[:-1]), noise[0], noise[1:])
        head: Any = self.parts["head"]
        return head.to_environment(chunk.flatten(0, 1)).unflatten(0, chunk.shape[:2]), ()


def graph_of(
    policy: Policy,
    observation_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
    algorithm: str,
    mode: Literal["sample", "greedy"] = "greedy",
) -> PolicyGraph:
    """Return what can be written of a policy; `mode` is how one acts whose acting is more than a network with a head."""
    policy = policy.one_pass()
    if isinstance(policy, ActorPolicy):
        return ActorGraph(policy, observation_space, action_space)
    if isinstance(policy, QPolicy):
        return ValueGraph(policy, observation_space, action_space)
    if isinstance(policy, ChunkPolicy):
        return ChunkGraph(policy, observation_space, action_space)
    if not any(isinstance(value, Tensor) for value in _flat(policy.state_dict())):
        raise UserError(f"a policy of {algorithm} can't be exported: there is nothing in it that was learnt")
    return ActingGraph(policy, observation_space, action_space, mode)


def _flat(tree: Any) -> Iterator[Any]:
    for value in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list | tuple) else [tree]:
        yield from _flat(value) if isinstance(value, dict | list | tuple) else [value]


def _modules(policy: Policy) -> nn.ModuleDict:
    if isinstance(policy, PartsPolicy):
        return policy.parts
    return nn.ModuleDict(policy.networks if isinstance(policy, WorkflowPolicy) else {})


def _reader(policy: Policy, observation_space: gymnasium.Space[Any]) -> nn.Module:
    """The part that says which group of observations is read, if one is."""
    if isinstance(policy, ModelPolicy) and sensed_space(observation_space) is not observation_space:
        return GroupReader(nn.Identity(), ACTOR)
    return next((part for part in _modules(policy).values() if isinstance(part, GroupReader)), nn.Identity())


def _named(state: State, name: str) -> Iterator[tuple[str, Tensor]]:
    if isinstance(state, Tensor):
        yield name, state
    elif state is not None:
        named = state.items() if isinstance(state, dict) else enumerate(state)
        for key, part in named:
            yield from _named(part, f"{name}_{key}")

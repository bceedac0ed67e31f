"""How World Models acts: V sees, M remembers, C acts.

observation ─→ V ─→ z ─┬─→ C: W [z, h] + b ─→ action
                   h ──┘            │
                   └──── M ◄── z, action: what is remembered at the next step
"""

from __future__ import annotations

from typing import Any, Literal

import gymnasium
import torch
from gymnasium import spaces
from torch import Generator, Tensor, nn

from etude.acting.policy import ActorPolicy, ActResult, Acts, Mode, PartsPolicy, Policy, State
from etude.components.distributions import DeterministicHead, make_head
from etude.components.mdn_rnn import HIDDEN, MDNRNN
from etude.components.networks.memory import forget
from etude.components.networks.vae import VAE
from etude.components.normalizers import ObservationNormalizer
from etude.components.world_actions import ChosenActions, WorldActions
from etude.compute.trees import map_tree
from etude.environments.vector import Observation

REMEMBERED, EXPLORER = "remembered", "explorer"
"""What acting carries while it learns: M's state, and that of random behaviour."""
USUAL_STD = {"random_network": 1.0, "brownian": 0.14}


class Controller(nn.Module):
    """C: one linear layer, whose weights are one vector; many such vectors are applied at once."""

    weights: Tensor

    def __init__(self, features: int, head: WorldActions) -> None:
        super().__init__()
        self.features, self.outputs = features, head.actions
        self._chooses = isinstance(head, ChosenActions)
        self.size = self.outputs * (features + 1)
        self.register_buffer("weights", torch.zeros(self.size))

    def forward(self, features: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return actions as M reads them: (*batch, F) and the weights of each, (*batch, P) or its own → (*batch, A)"""
        outputs = self.linear(features, self.weights if weights is None else weights)
        if not self._chooses:
            return outputs.tanh()
        return nn.functional.one_hot(outputs.argmax(-1), self.outputs).to(outputs.dtype)

    def linear(self, features: Tensor, weights: Tensor) -> Tensor:
        """Return what actions are made of: (*batch, F), (*batch, P) → (*batch, A)"""
        matrix = weights.unflatten(-1, (self.outputs, self.features + 1))
        return (matrix[..., :-1] @ features.unsqueeze(-1)).squeeze(-1) + matrix[..., -1]


class WorldModelsPolicy(PartsPolicy):
    """Acts with what V and M make of what is seen. The state is M's.

    greedy: by V's means; sample and explore: by latents that are drawn.
    """

    def __init__(
        self,
        vae: VAE,
        memory: MDNRNN | None,
        controller: Controller,
        head: WorldActions,
        of_task: tuple[gymnasium.Space[Any], gymnasium.Space[Any]],
    ) -> None:
        """`of_task` are the spaces of observations and actions."""
        super().__init__(vae=vae, controller=controller, **({} if memory is None else {"memory": memory}))
        self._vae, self._memory, self._controller, self._head, self._spaces = vae, memory, controller, head, of_task

    def initial_state(self, n: int) -> State:
        """Return what is remembered before n episodes."""
        return None if self._memory is None else self._memory.initial(n)

    @property
    def capturable(self) -> bool:
        """Everything here is a function of tensors."""
        return True

    def act(self, observation: Observation, state: State, is_first: Tensor, *, mode: Mode, generator: Generator) -> ActResult:
        """Return the environment action."""
        return self.act_by(None, observation, state, is_first, mode=mode, generator=generator)

    @torch.no_grad()
    def act_by(
        self,
        weights: Tensor | None,
        observation: Observation,
        state: State,
        is_first: Tensor,
        *,
        mode: Mode,
        generator: Generator,
    ) -> ActResult:
        """Act with the weights of a controller for each row, (N, P); None: with its own."""
        latent, state = self.look(observation, state, is_first, mode=mode, generator=generator)
        action = self.to_environment(self._controller(self.features(latent, state), weights))
        return ActResult(action, self.remember(state, latent, action))

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
        """Let M remember the action that was taken."""
        latent, state = self.look(observation, state, is_first, mode=mode, generator=generator)
        return self.remember(state, latent, action)

    def look(
        self, observation: Observation, state: State, is_first: Tensor, *, mode: Mode, generator: Generator
    ) -> tuple[Tensor, State]:
        """Return latents (N, Z), and the state with what began anew forgotten."""
        posterior = self._vae.observe(observation)
        latent = posterior.mean
        if mode != "greedy":
            latent = posterior.draw(torch.randn(latent.shape, device=generator.device, generator=generator))
        return latent, map_tree(lambda part: forget(part, is_first), state)

    def to_environment(self, action: Tensor) -> Tensor:
        """Return what the environment is given for actions as M reads them."""
        return self._head.to_environment(action)

    def features(self, latent: Tensor, state: State) -> Tensor:
        """Return what the controller sees: (*batch, Z) and M's state → (*batch, F)"""
        return latent if state is None else torch.cat([latent, state[HIDDEN]], -1)

    def remember(self, state: State, latent: Tensor, action: Tensor) -> State:
        """Return M's state after a step, with the action (N, ...) that the environment was given."""
        return None if self._memory is None else self._memory.step(state, latent, self._head.from_environment(action))

    def one_pass(self) -> Policy:
        """Return the same policy as one network, where it has no memory."""
        if self._memory is not None:
            return self
        observation_space, action_space = self._spaces
        head = make_head(action_space) if isinstance(action_space, spaces.Discrete) else DeterministicHead(action_space)  # type: ignore[arg-type] # a Box
        return ActorPolicy(ObservationNormalizer(observation_space, "off"), _Reflex(self._vae, self._controller), head)


class Candidates(Acts):
    """Acts in each copy of the environment by the controller that is judged there, (N, P)."""

    def __init__(self, policy: WorldModelsPolicy, dealt: Tensor) -> None:
        self._policy, self._dealt = policy, dealt

    def act(self, observation: Observation, state: State, is_first: Tensor, *, mode: Mode, generator: Generator) -> ActResult:
        """Act as the candidates do; what random behaviour carries stays as it is."""
        act = self._policy.act_by
        action, remembered, _ = act(self._dealt, observation, state[REMEMBERED], is_first, mode=mode, generator=generator)
        return ActResult(action, {REMEMBERED: remembered, EXPLORER: state[EXPLORER]})

    @property
    def capturable(self) -> bool:
        """Everything here is a function of tensors."""
        return True


class RandomBehaviour:
    """What V and M learn from: a controller with other random weights in each episode, or actions that wander."""

    def __init__(
        self,
        policy: WorldModelsPolicy,
        controller: Controller,
        kind: Literal["random_network", "brownian"],
        std: float | None,
    ) -> None:
        self._policy, self._wanders, self._std = policy, kind == "brownian", std or USUAL_STD[kind]
        self.size = controller.outputs if self._wanders else controller.size
        """How many numbers it carries from step to step."""

    def __call__(
        self, observation: Observation, remembered: State, carried: Tensor, is_first: Tensor, generator: Generator
    ) -> tuple[ActResult, Tensor]:
        """Act, with M's state and what is carried (N, size), and return what is carried on."""
        begins, on = is_first[:, None], {"device": generator.device, "generator": generator}
        normal = torch.randn(carried.shape, **on)
        if self._wanders:
            carried = torch.where(begins, 2 * torch.rand(carried.shape, **on) - 1, carried + self._std * normal).clamp(-1, 1)
            return ActResult(self._policy.to_environment(carried), remembered), carried
        carried = torch.where(begins, self._std * torch.rand(begins.shape, **on) * normal, carried)
        act = self._policy.act_by
        return act(carried, observation, remembered, is_first, mode="explore", generator=generator), carried


class _Reflex(nn.Module):
    """V's means and C's layer: all that acts where nothing is remembered."""

    def __init__(self, vae: VAE, controller: Controller) -> None:
        super().__init__()
        self.vae, self.controller = vae, controller

    def forward(self, observation: Observation) -> Tensor:
        """(*batch, ...) → (*batch, A)"""
        return self.controller.linear(self.vae(observation), self.controller.weights)

"""One policy in one environment, a decision at a time: for whoever wants to look at each of them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from etude.acting.actor import Actor
from etude.acting.policy import ActResult, State
from etude.compute.random_streams import derive_seed
from etude.compute.trees import map_tree
from etude.environments.rendering import Camera
from etude.environments.vector import Observation, VectorEnvironment

Array = np.ndarray | dict[str, np.ndarray]


@dataclass(frozen=True)
class Moment:
    """One step of an episode; its arrays are the reader's own."""

    observation: Array
    action: np.ndarray
    reward: float
    next_observation: Array
    """Where the step led, also where it ended the episode."""
    terminated: bool
    truncated: bool
    extras: dict[str, np.ndarray]
    """What the policy says about its action, such as log_prob or value."""

    @property
    def ended(self) -> bool:
        """Whether this was the episode's last step."""
        return self.terminated or self.truncated


class Decision(NamedTuple):
    """What an action was chosen from, on the policy's device, for whoever looks into the policy. Valid until the next step."""

    observation: Observation
    """(1, ...)"""
    state: State
    """What the policy carried into the step."""
    is_first: Tensor
    chosen: ActResult
    """What the policy would do, and what it carries on after what was done."""
    action: Tensor
    """What was done: the policy's own choice, unless another was asked for. (1, ...)"""


@dataclass(frozen=True)
class Place:
    """Where an episode stands between two steps, with the random numbers that come next. A player can return to it."""

    environment: dict[str, Any]
    generator: Tensor
    observation: Observation
    state: State
    is_first: bool
    picture: np.ndarray | None


class Player:
    """Plays episodes in an environment of one copy. An episode depends on its seed alone, not on those before it."""

    def __init__(
        self,
        policy: Any,
        environment: VectorEnvironment,
        *,
        mode: Literal["sample", "greedy"],
        device: torch.device | str = "cpu",
        camera: Camera | None = None,
        captured: bool = False,
    ) -> None:
        """`captured` has a policy on a GPU act as CUDA graphs, where it can."""
        if environment.num_envs != 1:
            raise ValueError(f"a player needs an environment of one copy, this one has {environment.num_envs}")
        self.policy, self.environment, self.mode = policy, environment, mode
        self.picture: np.ndarray | None = None
        """What the camera saw last."""
        self.camera, self._device = camera, torch.device(device)
        self.on_decision: Callable[[Decision], None] | None = None
        """Called with each decision, before it is carried out."""
        self._acts: Literal["sample", "greedy"] = mode
        self._captured = captured
        self._actor = Actor(policy, mode, torch.Generator(self._device), captured=captured)
        self._observation: Observation = torch.empty(0)
        self._state: Any = None
        self._is_first = torch.ones(1, dtype=torch.bool, device=self._device)

    def begin(self, seed: int) -> None:
        """Begin a new episode: the first one of an evaluation with the same seed and one copy."""
        self._actor.generator.manual_seed(derive_seed(seed, "action"))
        self._observation, _ = self.environment.reset([derive_seed(seed, "env", 0)])
        self._state = self._actor.initial_state(1)
        self._is_first.fill_(True)
        if self.camera is not None:
            self.picture = self.camera.take()

    @torch.no_grad()
    def step(self, instead: Tensor | None = None) -> Moment:
        """Act once; `instead` (1, ...) is done in place of what the policy chooses, with the same random numbers after it."""
        seen = map_tree(lambda tensor: tensor.to(self._device), self._observation)
        before = _array(self._observation)
        decision = self._decide(seen, None if instead is None else instead.to(self._device))
        action, (_, self._state, extras) = decision.action, decision.chosen
        if self.on_decision is not None:
            self.on_decision(decision)
        step = self.environment.step(action.to(self.environment.device))
        terminated, truncated = bool(step.terminated[0]), bool(step.truncated[0])
        ended = terminated or truncated
        self._observation = step.observation
        self._is_first.fill_(ended)
        if self.camera is not None:
            # Where an environment shows no end, the last picture stays.
            after = self.camera.take_after_step(ended=ended)
            self.picture = self.picture if after is None else after
        return Moment(
            observation=before,
            action=_copy(action),
            reward=float(step.reward[0]),
            next_observation=_array(step.final_observation),
            terminated=terminated,
            truncated=truncated,
            extras={name: _copy(value) for name, value in (extras or {}).items()},
        )

    def _decide(self, seen: Observation, instead: Tensor | None) -> Decision:
        state, generator = self._state, self._actor.generator
        if self.on_decision is not None or instead is not None:
            state = map_tree(torch.clone, state)  # acting as CUDA graphs writes over it
        numbers = None if instead is None else generator.get_state()
        chosen = self._actor(seen, self._state, self._is_first)
        if instead is None or numbers is None:
            return Decision(seen, state, self._is_first.clone(), chosen, chosen.action)
        following = generator.get_state()
        generator.set_state(numbers)
        after = self.policy.state_after(instead, chosen, seen, state, self._is_first, mode=self.mode, generator=generator)
        generator.set_state(following)
        return Decision(seen, state, self._is_first.clone(), chosen._replace(state=after), instead)

    def place(self) -> Place | None:
        """Return where the episode stands; None where the environment's state can't be known."""
        state = self.environment.state_dict()
        if not state:
            return None
        return Place(
            environment=copy.deepcopy(state),
            generator=self._actor.generator.get_state(),
            observation=map_tree(torch.clone, self._observation),
            state=map_tree(torch.clone, self._state),
            is_first=bool(self._is_first[0]),
            picture=self.picture,
        )

    def return_to(self, place: Place, *, keep_state: bool = False) -> None:
        """Go on from a place; with what the policy carries now where the place is another player's (`keep_state`)."""
        self.environment.load_state_dict(copy.deepcopy(place.environment))
        self._actor.generator.set_state(place.generator)
        self._observation = map_tree(torch.clone, place.observation)
        if not keep_state:
            self._state = map_tree(torch.clone, place.state)
        self._is_first.fill_(place.is_first)
        self.picture = place.picture

    def replace_policy(self, policy: Any) -> None:
        """Go on with another policy, which has seen nothing of the episode so far."""
        self.policy = policy
        self._actor = Actor(policy, self._acts, self._actor.generator, captured=self._captured)
        self._state = self._actor.initial_state(1)
        self._is_first.fill_(True)

    def begin_watching(self, seed: int) -> None:
        """Begin an episode in which another acts for a while: `watch` is called for each step of it."""
        self._actor.generator.manual_seed(derive_seed(seed, "action"))
        self._state = self._actor.initial_state(1)
        self._is_first.fill_(True)

    @torch.no_grad()
    def watch(self, observation: Observation, action: Tensor) -> None:
        """See what another has seen and done (1, ...), and carry it on; the environment is left alone."""
        seen = map_tree(lambda tensor: tensor.to(self._device), observation)
        decision = self._decide(seen, action.to(self._device))
        self._state = decision.chosen.state
        self._is_first.fill_(False)
        if self.on_decision is not None:
            self.on_decision(decision)

    def close(self) -> None:
        """Close the environment."""
        self.environment.close()


def _array(observation: Observation) -> Array:
    if isinstance(observation, dict):
        return {name: _copy(value) for name, value in observation.items()}
    return _copy(observation)


def _copy(tensor: torch.Tensor) -> np.ndarray:
    return tensor[0].detach().to("cpu").numpy().copy()

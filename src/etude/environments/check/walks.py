"""Random walks of vector environments, looked at step by step and compared to the bit."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from etude.environments.check.data import differing, parts
from etude.environments.check.probe import random_action
from etude.environments.check.report import SEED
from etude.environments.spaces import leaf_spaces, observation_specs
from etude.environments.vector import Observation, Step, VectorEnvironment

COMPARED = 30
"""Vector steps that are compared bit by bit."""


class Moment(NamedTuple):
    """A vector step on the host, in its own memory."""

    observation: dict[str, np.ndarray]
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    final_observation: dict[str, np.ndarray]

    @property
    def ended(self) -> np.ndarray:
        """Whose episode this was the last step of. (N,)"""
        return self.terminated | self.truncated


def seeds_of(environment: VectorEnvironment) -> list[int]:
    """Return the seeds of every walk from the beginning."""
    return [SEED + i for i in range(environment.num_envs)]


def walk(environment: VectorEnvironment, steps: int, observation: Observation) -> Iterator[Step]:
    """Act at random, the same way each time, from a first observation on."""
    space = copy.deepcopy(environment.single_action_space)
    space.seed(SEED)
    for _ in range(steps):
        action = random_action(space, observation, environment.num_envs)
        step = environment.step(action.to(environment.device))
        environment.check()
        yield step
        observation = step.observation


def walked(environment: VectorEnvironment, steps: int) -> Observation:
    """Walk from the beginning and return where that led."""
    observation, _ = environment.reset(seeds_of(environment))
    for step in walk(environment, steps, observation):
        observation = step.observation
    return as_observation(_host_parts(observation))


def recorded(environment: VectorEnvironment) -> list[Moment]:
    """Return the moments of a walk from the beginning, the first observation among them."""
    observation, _ = environment.reset(seeds_of(environment))
    seen, none = _host_parts(observation), np.zeros(environment.num_envs, np.bool_)
    start = Moment(seen, none.astype(np.float32), none, none, seen)
    return [start, *(on_host(step) for step in walk(environment, COMPARED, observation))]


def on_host(step: Step) -> Moment:
    """Copy a step to the host."""
    reward, terminated, truncated = (_array(value) for value in (step.reward, step.terminated, step.truncated))
    return Moment(_host_parts(step.observation), reward, terminated, truncated, _host_parts(step.final_observation))


def _host_parts(observation: Observation) -> dict[str, np.ndarray]:
    return {name: _array(part) for name, part in parts(observation).items()}


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy().copy()


def as_observation(arrays: Mapping[str, np.ndarray]) -> Observation:
    """Return the parts of an observation as an environment would give them."""
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    return tensors.get("", tensors)


def without_first(moment: Moment) -> Moment:
    """Return what a moment says of all copies but the first."""
    seen, final = ({name: part[1:] for name, part in each.items()} for each in (moment.observation, moment.final_observation))
    return Moment(seen, moment.reward[1:], moment.terminated[1:], moment.truncated[1:], final)


def moment_difference(one: Moment, two: Moment) -> str | None:
    """Return in what two moments differ, or None."""
    what = differing(one.observation, two.observation) or (differing(one.reward, two.reward) and "the reward")
    if what is None and not (np.array_equal(one.terminated, two.terminated) and np.array_equal(one.truncated, two.truncated)):
        what = "how the episode ends"
    return what or (differing(one.final_observation, two.final_observation) and "where the last step led")


def observation_complaints(
    observation: Observation, environment: VectorEnvironment, what: str = "observation"
) -> Iterator[str]:
    """Say how an observation is not what the spaces promise."""
    specs, bounds = observation_specs(environment.single_observation_space), leaf_spaces(environment.single_observation_space)
    given = parts(observation)
    if given.keys() != specs.keys():
        yield f"{what}: has the parts {sorted(given)}, the space has {sorted(specs)}"
        return
    for name, spec in specs.items():
        value, named, wanted = given[name], f"{what} '{name}'" if name else what, (environment.num_envs, *spec.shape)
        if not isinstance(value, Tensor):
            yield f"{named} is a {type(value).__name__}: return a tensor"
        elif (tuple(value.shape), value.dtype) != (wanted, spec.dtype):
            yield f"{named} is {tuple(value.shape)} of {value.dtype}, the space says {wanted} of {spec.dtype}"
        elif value.device != environment.device:
            yield f"{named} is on {value.device}, the environment on {environment.device}"
        elif value.is_floating_point() and not bool(value.isfinite().all()):
            yield f"{named} has NaN or infinite entries"
        elif isinstance(box := bounds[name], spaces.Box):
            array = _array(value)
            if bool(((array < box.low) | (array > box.high)).any()):
                yield f"{named} lies outside of its bounds: widen the space, or clip"


def step_complaints(step: Step, environment: VectorEnvironment) -> Iterator[str]:
    """Say how a step is not what the contract promises."""
    yield from observation_complaints(step.observation, environment)
    if step.final_observation is not step.observation:
        yield from observation_complaints(step.final_observation, environment, "final_observation")
    for name, value in (("reward", step.reward), ("terminated", step.terminated), ("truncated", step.truncated)):
        wanted = "float32" if name == "reward" else "bool"
        if not _is_row(value, environment) or value.dtype != getattr(torch, wanted):
            yield f"{name} must be a tensor ({environment.num_envs},) of {wanted}"
    if _is_row(step.reward, environment) and not bool(step.reward.isfinite().all()):
        yield "the reward is NaN or infinite"


def _is_row(value: Any, environment: VectorEnvironment) -> bool:
    return isinstance(value, Tensor) and tuple(value.shape) == (environment.num_envs,)


def autoreset_complaints(moment: Moment) -> Iterator[str]:
    """Say how ends and beginnings contradict each other."""
    if (moment.terminated & moment.truncated).any():
        yield "a copy is terminated and truncated at once: say one, truncated only for a cut by a limit"
    goes_on = ~moment.ended
    here = {name: value[goes_on] for name, value in moment.observation.items()}
    if differing(here, {name: value[goes_on] for name, value in moment.final_observation.items()}) is not None:
        yield "final_observation differs from observation in a copy that did not end"


def never_shows_where_it_ended(moments: Sequence[Moment]) -> bool:
    """Whether all last observations are first ones, in a task whose observations change at all."""
    if all(differing(one.observation, two.observation) is None for one, two in pairwise(moments)):
        return False
    return all(
        differing(
            {name: value[moment.ended] for name, value in moment.observation.items()},
            {name: value[moment.ended] for name, value in moment.final_observation.items()},
        )
        is None
        for moment in moments
        if moment.ended.any()
    )


def tree_difference(one: Any, two: Any, path: str = "") -> str | None:
    """Return where two states differ, such as `memory.age`, or None."""
    if isinstance(one, Mapping) and isinstance(two, Mapping) and one.keys() == two.keys():
        found = (tree_difference(one[key], two[key], f"{path}.{key}" if path else str(key)) for key in one)
        return next((where for where in found if where is not None), None)
    if isinstance(one, list | tuple) and isinstance(two, list | tuple) and len(one) == len(two):
        found = (tree_difference(a, b, f"{path}[{i}]") for i, (a, b) in enumerate(zip(one, two, strict=True)))
        return next((where for where in found if where is not None), None)
    if isinstance(one, Tensor) and isinstance(two, Tensor):
        return None if differing(_array(one), _array(two)) is None and one.dtype == two.dtype else path
    if isinstance(one, np.ndarray) and isinstance(two, np.ndarray):
        return None if differing(one, two) is None and one.dtype == two.dtype else path
    return None if type(one) is type(two) and one == two else path or "all"

"""Whether a file does what the policy does: both are asked for actions, for the same observations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from etude.acting.policy import Policy
from etude.deploy.graph import ACTION, PolicyGraph
from etude.environments.spaces import finite_range, leaf_spaces, observation_specs
from etude.environments.vector import ACTION_MASK, Observation

OBSERVATIONS = 100
TOLERANCE = 1e-5
STEPS_WITH_MEMORY = 3
_WIDEST = 1e6
"""Ranges beyond this stand for no bounds: CartPole's velocities reach to 3.4e38."""

Runner = Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]
"""An exported file: inputs by name (N, ...) → outputs by name (N, ...)."""


def largest_difference(policy: Policy, graph: PolicyGraph, observation_space: gymnasium.Space[Any], run: Runner) -> float:
    """Return how far a file's actions are from the policy's own, on many rows at once and on a single one.

    Continuous: the largest |a − b| / max(1, |a|) of any entry. Discrete: by how much the policy's own score of the file's
    choice is below the best, so that two choices that are worth the same may be exchanged.
    """
    differences = [
        _difference(policy, graph, observation_space, run, rows, step_seed)
        for rows, step_seed in ((OBSERVATIONS, 0), (1, STEPS_WITH_MEMORY))
    ]
    return float(np.max(differences))  # NaN if any is


@torch.no_grad()
def _difference(
    policy: Policy, graph: PolicyGraph, space: gymnasium.Space[Any], run: Runner, rows: int, first_seed: int
) -> float:
    generator = torch.Generator()
    state = policy.initial_state(rows)
    memory = dict(zip(graph.memory, graph.examples(rows)[len(graph.inputs) :], strict=True))
    found = []
    for step in range(STEPS_WITH_MEMORY if graph.memory else 1):
        parts = sample_observations(space, graph, rows, np.random.default_rng(first_seed + step))
        observation: Observation = parts[""] if list(parts) == [""] else parts
        is_first = torch.full((rows,), step == 0)
        own, state, _ = policy.act(observation, state, is_first, mode="greedy", generator=generator)
        read = dict(zip(graph.inputs, (parts[key] for key in _keys(graph, parts)), strict=True)) | memory
        outputs = run({name: value.numpy() for name, value in read.items()})
        action = torch.from_numpy(np.ascontiguousarray(outputs[ACTION]))
        expected = graph.in_environment_units(own)
        if graph.sections:
            scores = graph.scores(*read.values())
            # The policy's own choice is held to the same scores: they are those of what was written, not of the policy.
            found += [graph.worse_by(scores, chosen).max() for chosen in (action, expected)]
        else:
            expected = expected.double()
            found.append(((action.double() - expected).abs() / expected.abs().clamp(min=1)).max())
        memory = {name: torch.from_numpy(np.ascontiguousarray(outputs[f"next_{name}"])) for name in graph.memory}
    return float(torch.stack([value.double() for value in found]).max())


def _keys(graph: PolicyGraph, parts: Mapping[str, Tensor]) -> list[str]:
    return [""] if list(parts) == [""] else list(graph.inputs)


def sample_observations(
    space: gymnasium.Space[Any], graph: PolicyGraph, rows: int, random: np.random.Generator
) -> dict[str, Tensor]:
    """Draw every part of an observation (N, ...): within its bounds where it has some, else from a normal distribution."""
    specs = observation_specs(space)
    drawn = {}
    for key, part in leaf_spaces(space).items():
        values = _mask(part, graph.sections, rows, random) if key == ACTION_MASK else _draw(part, rows, random)
        drawn[key] = torch.as_tensor(values).reshape(rows, *specs[key].shape).to(specs[key].dtype)
    return drawn


def _draw(space: gymnasium.Space[Any], rows: int, random: np.random.Generator) -> np.ndarray:
    if isinstance(space, spaces.Discrete):
        return random.integers(space.start, space.start + space.n, rows)
    if isinstance(space, spaces.MultiDiscrete):
        return random.integers(space.start, space.start + space.nvec, (rows, *space.shape))
    if isinstance(space, spaces.MultiBinary):
        return random.integers(0, 2, (rows, *space.shape))
    assert isinstance(space, spaces.Box)
    low, high = (np.asarray(bound, np.float64) for bound in (space.low, space.high))
    with np.errstate(over="ignore"):
        bounded = finite_range(space) & (high - low < _WIDEST)
    low, high = np.where(bounded, low, -1.0), np.where(bounded, high, 1.0)
    uniform, normal = random.uniform(low, high, (rows, *space.shape)), random.normal(size=(rows, *space.shape))
    values = np.where(bounded, uniform, normal)
    return values if np.issubdtype(np.dtype(space.dtype), np.floating) else np.rint(values)


def _mask(space: gymnasium.Space[Any], sections: list[int], rows: int, random: np.random.Generator) -> np.ndarray:
    """Forbid half of the choices, never the first of any part."""
    mask = random.integers(0, 2, (rows, sum(sections)))
    mask[:, np.cumsum([0, *sections[:-1]])] = 1
    return mask

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
from etude.deploy.acting_graph import ActingGraph, ChunkGraph
from etude.deploy.drawn_noise import Noting, laid_out
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
    if isinstance(graph, ChunkGraph):
        return _difference_of_chunks(policy, graph, space, run, rows, first_seed)
    generator = torch.Generator().manual_seed(first_seed)
    state = policy.initial_state(rows)
    memory = {name: torch.zeros(rows, *spec.shape, dtype=spec.dtype) for name, spec in graph.memory.items()}
    found = []
    for step in range(STEPS_WITH_MEMORY if graph.memory else 1):
        parts = sample_observations(space, graph, rows, np.random.default_rng(first_seed + step))
        is_first = torch.full((rows,), step == 0)
        with Noting() as noting:
            own, state, _ = policy.act(_observation(parts), state, is_first, mode=graph.mode, generator=generator)
        noise = laid_out(graph.draws, noting.drawn, rows) if isinstance(graph, ActingGraph) else {}
        read = dict(zip(graph.inputs, (parts[key] for key in _keys(graph, parts)), strict=True)) | memory | noise
        outputs = run({name: value.numpy() for name, value in read.items()})
        found += _apart(graph, tuple(read.values()), own, torch.from_numpy(np.ascontiguousarray(outputs[ACTION])))
        memory = {name: torch.from_numpy(np.ascontiguousarray(outputs[f"next_{name}"])) for name in graph.memory}
    return float(torch.stack([value.double() for value in found]).max())


def _apart(graph: PolicyGraph, read: tuple[Tensor, ...], own: Tensor, action: Tensor) -> list[Tensor]:
    """How far an action is from the policy's own, each of all rows."""
    expected = graph.in_environment_units(own)
    if not graph.sections:
        expected = expected.double()
        return [((action.double() - expected).abs() / expected.abs().clamp(min=1)).max()]
    scores = graph.scores(*read)
    if scores is None:
        return [(action.long() != expected.long()).float().mean()]
    # The policy's own choice is held to the same scores: they are those of what was written, not of the policy.
    return [graph.worse_by(scores, chosen).max() for chosen in (action, expected)]


def _difference_of_chunks(
    policy: Policy, graph: ChunkGraph, space: gymnasium.Space[Any], run: Runner, rows: int, first_seed: int
) -> float:
    """Two chunks, each beside the actions that the policy takes one by one."""
    assert graph.chunk is not None
    seen_steps, actions = graph.chunk
    generator, state = torch.Generator().manual_seed(first_seed), policy.initial_state(rows)
    seen: list[dict[str, Tensor]] = []
    chunk, found = torch.empty(0), []
    for step in range(2 * actions):
        parts = sample_observations(space, graph, rows, np.random.default_rng(first_seed + step))
        seen = [*(seen or [parts] * seen_steps), parts][-seen_steps:]
        is_first = torch.full((rows,), step == 0)
        with Noting() as noting:
            own, state, _ = policy.act(_observation(parts), state, is_first, mode=graph.mode, generator=generator)
        if step % actions == 0:
            ((_, noise),) = noting.drawn  # (draws, N, horizon, A)
            read = [torch.stack([each[key] for each in seen], 1) for key in _keys(graph, parts)]
            given = dict(zip(graph.inputs, read, strict=True)) | {"normal": noise.movedim(1, 0).flatten(1)}
            outputs = run({name: value.contiguous().numpy() for name, value in given.items()})
            chunk = torch.from_numpy(np.ascontiguousarray(outputs[ACTION]))
        found += _apart(graph, (), own, chunk[:, step % actions])
    return float(torch.stack(found).max())


def _observation(parts: dict[str, Tensor]) -> Observation:
    return parts[""] if list(parts) == [""] else parts


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

"""A rollout: so many steps of an environment by an actor, into stores and statistics. One function, two forms.

seen ─→ actor ─→ action ─→ environment ─→ step ─→ row into each store, reward into the statistics
  └──────────────────── what to act on next ◄──────┘
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from etude.acting.actor import Actor
from etude.acting.episodes import EpisodeStatistics
from etude.acting.policy import ArrayTwin, State
from etude.acting.transfer import Transfer
from etude.compute.row import Row
from etude.compute.trees import map_tree
from etude.environments.vector import RAW_REWARD, ArrayStep, Observation, VectorEnvironment


class Into(NamedTuple):
    """Where the steps of a rollout go."""

    stores: Sequence[Callable[[Mapping[str, Any]], None]]
    """Each copies one vector step in, by column: tensors (N, ...), or arrays where all take them."""
    episodes: EpisodeStatistics
    report: Callable[[dict[str, Tensor]], None]
    """Takes note of what an environment says of a step (`Step.info`)."""
    takes_arrays: bool = False
    counting: Callable[[], Tensor] | None = None
    """Whose ends of episodes count after a step, (N,), asked once it is stored; None: everybody's. With tensors alone."""


@dataclass
class Standing:
    """Where every episode stands, between two steps."""

    observation: Observation
    is_first: Tensor
    state: State = None
    """What the actor carries into its next step."""
    crossed: tuple[Observation, Tensor] | None = None
    """Observation and `is_first` on the actor's device, where they have crossed with the step before."""


def rollout(
    environment: VectorEnvironment, actor: Actor, into: Into, standing: Standing, steps: int, transfer: Transfer
) -> None:
    """Take `steps` vector steps, and leave `standing` where they led. However they are cut into calls, they are the same."""
    step_arrays = environment.step_arrays if into.takes_arrays else None
    twin = None if step_arrays is None else actor.array_twin()
    while steps > 0:
        count = min(steps, actor.until_change() or steps)
        if step_arrays is not None and twin is not None:
            _with_arrays(step_arrays, actor, twin, into, standing, count)
        else:
            _with_tensors(environment, actor, into, standing, count, transfer)
        steps -= count


@torch.no_grad()
def _with_tensors(
    environment: VectorEnvironment, actor: Actor, into: Into, standing: Standing, steps: int, transfer: Transfer
) -> None:
    observation, is_first, state = standing.observation, standing.is_first, standing.state
    here, on_host = transfer.to_actor, transfer.is_packed
    seen, first = standing.crossed or (map_tree(here, observation), here(is_first))
    for _ in range(steps):
        action, state, extras = actor(seen, state, first)
        step = environment.step(transfer.to_environment(action))
        begins, is_first = bool(is_first.any()) if on_host else None, step.terminated | step.truncated
        moved = transfer.step(step, is_first)
        row = Row(
            observation=seen,
            is_first=first,
            action=action,
            reward=moved["reward"],
            terminated=moved["terminated"],
            truncated=moved["truncated"],
            next_observation=transfer.led_to(step, moved["observation"]),
            **extras,
        )
        row.begins = begins
        for store in into.stores:
            store(row)
        ended = is_first if into.counting is None else is_first & into.counting().to(is_first.device)
        into.episodes.add(step.reward, ended, step.info.get(RAW_REWARD))
        if step.info:
            into.report(step.info)
        observation, seen, first = step.observation, moved["observation"], moved["ended"]
    standing.observation, standing.is_first, standing.state = observation, is_first, state
    standing.crossed = (seen, first) if transfer.is_packed else None


def _with_arrays(
    step_arrays: Callable[[np.ndarray], ArrayStep], actor: Actor, twin: ArrayTwin, into: Into, standing: Standing, steps: int
) -> None:
    """The same in NumPy from end to end: half of what a step of one quick task takes with tensors."""
    assert isinstance(standing.observation, Tensor)
    seen, first = standing.observation.numpy(), standing.is_first.numpy()
    advance, way, generator, rows = actor.who.advance, actor.way, actor.generator, len(first)
    for _ in range(steps):
        advance(rows)
        action, extras = twin(seen, way, generator)
        step = step_arrays(action)
        ended = step.terminated | step.truncated
        row = {
            "observation": seen,
            "is_first": first,
            "action": action,
            "reward": step.reward,
            "terminated": step.terminated,
            "truncated": step.truncated,
            "next_observation": step.final_observation,
            **extras,
        }
        for store in into.stores:
            store(row)
        into.episodes.add_arrays(step.reward, ended)
        seen, first = step.observation, ended
    standing.observation, standing.is_first = torch.from_numpy(seen), torch.from_numpy(first)

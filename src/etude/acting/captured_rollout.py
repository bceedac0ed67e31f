"""Rollouts captured whole: acting, stepping and storing of many vector steps as one CUDA graph.

    standing ─→ [ actor ─→ environment ─→ row of the buffer ] × steps ─→ statistics of episodes, standing

Where the environment lives on the actor's device, nothing in a rollout is the host's business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor

from etude.acting.actor import Actor
from etude.acting.compiled_step import CompiledStep
from etude.acting.episodes import EpisodeStatistics
from etude.acting.policy import Acts, Way
from etude.acting.rollout import Standing
from etude.compute.captured import capture, to_be_captured
from etude.compute.devices import is_same
from etude.compute.trees import at, copy_, leaves, map_tree
from etude.environments.vector import VectorEnvironment


class Rows(Protocol):
    """A buffer that holds one rollout in columns (T, N, ...), and can be written to without counting."""

    columns: dict[str, Any]
    cursor: int
    device: torch.device

    def write(self, place: int, row: Mapping[str, Any]) -> None:
        """Copy one vector step to a place."""
        ...


class CapturedRollout:
    """Takes steps into a rollout, a graph for each place in it where they begin and number of them.

    The graphs read and write the memory of the environment, the buffer and the statistics. Where episodes stand is kept in a
    place of its own between two calls, which a call overwrites.
    """

    def __init__(self, environment: VectorEnvironment, actor: Actor, buffer: Rows, episodes: EpisodeStatistics) -> None:
        self.environment, self.actor, self.buffer, self.episodes = environment, actor, buffer, episodes
        self._own: Standing | None = None
        self._graphs: dict[tuple[Way, int, int], Any] = {}
        self._compiled: dict[Way, CompiledStep | None] = {}

    @staticmethod
    def fits(environment: VectorEnvironment, actor: Actor, buffer: Rows) -> bool:
        """Whether all that takes part is a function of tensors on one device, and nothing changes with time on the host."""
        return (
            not torch.are_deterministic_algorithms_enabled()  # which refuse sums over steps on CUDA, whatever their order
            and actor.captured
            and environment.capturable
            and is_same(environment.device, buffer.device, actor.generator.device)
            and getattr(actor.who.advance, "__func__", None) is Acts.advance
        )

    def take(self, standing: Standing, steps: int) -> None:
        """Take so many vector steps, once the buffer has its columns, and leave `standing` where they led."""
        assert self.actor.until_change() is None
        if self._own is None:
            held = (standing.observation, standing.is_first, standing.state)
            self._own = Standing(*map_tree(torch.clone, held))
        elif standing.observation is not self._own.observation:  # a resume, or new episodes
            copy_(
                (self._own.observation, self._own.is_first, self._own.state),
                (standing.observation, standing.is_first, standing.state),
            )
        key = (self.actor.way, self.buffer.cursor, steps)
        if key not in self._graphs:
            self._warm_up(self._own, *key)
            self._graphs[key], _ = capture(partial(self._steps, self._own, *key), self._generators)
        self._graphs[key].replay()
        self.buffer.cursor += steps
        standing.observation, standing.is_first, standing.state = self._own.observation, self._own.is_first, self._own.state

    @property
    def _generators(self) -> Sequence[torch.Generator]:
        return [self.actor.generator, *self.environment.generators]

    def _warm_up(self, own: Standing, way: Way, first_place: int, steps: int) -> None:
        """Take the steps as they are, and compile one where that is wished; then put back all that was not the buffer's."""
        touched = [*self.environment.touched, *self.episodes.touched, *leaves((own.observation, own.is_first, own.state))]
        before = [(tensor, tensor.clone()) for tensor in touched]
        drawn = [(generator, generator.get_state()) for generator in self._generators]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream), to_be_captured(), torch.no_grad():
            if self.actor.compiles and own.state is None and way not in self._compiled:
                row = at(self.buffer.columns, first_place)
                self._compiled[way] = CompiledStep.of(self.environment, self.actor, way, own.observation, own.is_first, row)
            self._steps(own, way, first_place, steps)
            for tensor, value in before:
                tensor.copy_(value)
        torch.cuda.current_stream().wait_stream(stream)
        for generator, state in drawn:
            generator.set_state(state)

    @torch.no_grad()
    def _steps(self, own: Standing, way: Way, first_place: int, steps: int) -> tuple[Tensor, ...]:
        seen, first, state = own.observation, own.is_first, own.state
        code = self._compiled.get(way)
        for place in range(first_place, first_place + steps):
            if code is not None:
                seen, first = code(seen, first, at(self.buffer.columns, place))
                continue
            action, state, extras = self.actor.act(way, seen, state, first)
            step = self.environment.step(action)
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
            self.buffer.write(place, row)
            seen, first = step.observation, step.terminated | step.truncated
        held = {
            name: self.buffer.columns[name][first_place : first_place + steps] for name in ("reward", "terminated", "truncated")
        }
        self.episodes.add_steps(held["reward"], held["terminated"] | held["truncated"])
        copy_((own.observation, own.is_first, own.state), (seen, first, state))
        return ()

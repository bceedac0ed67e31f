"""One vector step as compiled code: acting, stepping and storing in a few kernels, where one by one they are about seventy.

    draw what they ask for ─→ [ actor ─→ environment ─→ row of the buffer ] ─→ what to act on next

The code reads no generator: what both ask for is noted once, and drawn in the same order before each step.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Generator, Tensor

from etude.acting.actor import Actor
from etude.acting.policy import Way
from etude.compute.accelerate import compile_apart
from etude.compute.draws import Drawn, Noting, Request
from etude.compute.trees import copy_, leaves
from etude.environments.vector import Observation, VectorEnvironment


class CompiledStep:
    """Takes one step in one way of acting, for actors that carry nothing from step to step."""

    def __init__(self, environment: VectorEnvironment, actor: Actor, way: Way) -> None:
        assert environment.step_with is not None
        assert way != "random"
        self._environment, self._way = environment, way
        # Bound to what `who` may be a proxy of, which a compiler can't see through.
        self._act: Any = actor.who.act
        self._generators: Sequence[Generator] = (actor.generator, *environment.generators)
        self._requests: list[list[Request]] = []
        self._code = compile_apart(self._step, environment.device, small=False)

    @staticmethod
    def of(environment: VectorEnvironment, actor: Actor, way: Way, seen: Observation, first: Tensor, row: Any) -> Any:
        """Return compiled code for steps like this one, which is taken twice; None where it can't be had.

        A task or an actor that asks a generator itself can't be compiled: theirs is called as it is.
        """
        if way == "random" or environment.step_with is None or len(environment.generators) != 1:
            return None
        found = CompiledStep(environment, actor, way)
        try:
            found._note(seen, first, row)
        except TypeError:  # what torch says of a generator that is none
            return None
        from torch._dynamo.exc import TorchDynamoException  # takes a second, and only those who compile wait for it

        try:
            found(seen, first, row)
        except (TorchDynamoException, RuntimeError) as error:  # code of somebody else's, which runs as it is
            said = str(error).strip().partition("\n")[0]
            warnings.warn(f"steps of this environment are not compiled: {type(error).__name__}: {said}", stacklevel=2)
            return None
        found._act = found._environment = None  # compiled: the code has what it needs of them
        return found

    def __call__(self, seen: Observation, first: Tensor, row: Mapping[str, Any]) -> tuple[Observation, Tensor]:
        """Act on what is seen, write the step into a row of the buffer's memory, and return what comes next."""
        numbers = [
            [request.draw(generator) for request in asked]
            for asked, generator in zip(self._requests, self._generators, strict=True)
        ]
        *parts, ended = self._code(seen, first, dict(row), numbers)
        return _like(seen, parts), ended

    def _note(self, seen: Observation, first: Tensor, row: Mapping[str, Any]) -> None:
        noting = [Noting(generator) for generator in self._generators]
        self._take(seen, first, row, *noting)
        self._requests = [each.asked for each in noting]

    def _step(
        self, seen: Observation, first: Tensor, row: Mapping[str, Any], numbers: Sequence[Sequence[Tensor]]
    ) -> tuple[Tensor, ...]:
        acting, moving = [Drawn(each, first.device) for each in numbers]
        return self._take(seen, first, row, acting, moving)

    @torch.no_grad()
    def _take(self, seen: Observation, first: Tensor, row: Mapping[str, Any], acting: Any, moving: Any) -> tuple[Tensor, ...]:
        chosen = self._act(seen, None, first, mode=self._way, generator=acting)
        assert self._environment.step_with is not None
        step = self._environment.step_with(chosen.action, moving)
        ended = step.terminated | step.truncated
        told = {
            "observation": seen,
            "is_first": first,
            "action": chosen.action,
            "reward": step.reward,
            "terminated": step.terminated,
            "truncated": step.truncated,
            "next_observation": step.final_observation,
            **chosen.extras,
        }
        for name, value in told.items():
            copy_(row[name], value)
        return (*leaves(step.observation), ended)


def _like(seen: Observation, parts: Sequence[Tensor]) -> Observation:
    return dict(zip(seen, parts, strict=True)) if isinstance(seen, dict) else parts[0]

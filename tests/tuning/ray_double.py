"""Ray without a cluster: actors are objects of this process, answers come when the test lets them."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


class RayError(Exception):
    pass


class RayTaskError(RayError):
    pass


class RayActorError(RayError):
    pass


class ActorUnavailableError(RayActorError):
    pass


class Promise:
    """What a call of an actor will come to: known at once, or never while its actor waits for room."""

    def __init__(self, actor: Actor, name: str, arguments: tuple[Any, ...]) -> None:
        self._actor, self._name, self._arguments = actor, name, arguments
        self._answer: list[Any] = []

    @property
    def ready(self) -> bool:
        return self._actor.error is not None or not self._actor.waits

    def get(self) -> Any:
        if self._actor.error is not None:
            raise self._actor.error
        if not self._answer:
            try:
                self._answer = [getattr(self._actor.held, self._name)(*self._arguments)]
            except Exception as error:
                raise RayTaskError(f"ray::{self._name}()\n{type(error).__name__}: {error}") from error
        return self._answer[0]


class Actor:
    """An actor, placed or waiting, alive or dead by `error`."""

    def __init__(self, held: Any, options: dict[str, Any], *, waits: bool) -> None:
        self.held, self.options, self.waits = held, options, waits
        self.error: Exception | None = None
        self.is_killed = False

    def __getattr__(self, name: str) -> Any:
        def remote(*arguments: Any) -> Promise:
            promise = Promise(self, name, arguments)
            if name == "stop":
                promise.get()
            return promise

        return SimpleNamespace(remote=remote)


class Ray(ModuleType):
    """The part of Ray's interface that is used."""

    def __init__(self, nodes: list[dict[str, float]]) -> None:
        super().__init__("ray")
        self.resources, self.actors, self.room = nodes, [], 10**9
        self.exceptions = SimpleNamespace(
            RayTaskError=RayTaskError, RayActorError=RayActorError, ActorUnavailableError=ActorUnavailableError
        )
        self.is_up = False

    def is_initialized(self) -> bool:
        return self.is_up

    def init(self, **options: Any) -> None:
        if options.get("address") == "nowhere:1":
            raise ConnectionError("no cluster there\nand much more")
        self.is_up = True

    def shutdown(self) -> None:
        self.is_up = False

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": node} for node in self.resources] + [{"Alive": False, "Resources": {"CPU": 64.0}}]

    def remote(self, kind: Any) -> Any:
        def make(**options: Any) -> Any:
            def begin() -> Actor:
                placed = sum(not actor.waits for actor in self.actors)
                self.actors.append(Actor(kind(), options, waits=placed >= self.room))
                return self.actors[-1]

            return SimpleNamespace(remote=begin)

        return SimpleNamespace(options=make)

    def wait(self, promises: list[Promise], timeout: float) -> tuple[list[Promise], list[Promise]]:
        return [each for each in promises if each.ready], [each for each in promises if not each.ready]

    def get(self, promise: Promise) -> Any:
        return promise.get()

    def kill(self, actor: Actor) -> None:
        actor.is_killed = True

    def get_gpu_ids(self) -> list[int]:
        return [3]


class Trainable:
    """As Ray Tune's: it sets itself up."""

    def __init__(self, config: dict[str, Any], trial_id: str) -> None:
        self.trial_id = trial_id
        self.setup(config)

    def setup(self, config: dict[str, Any]) -> None:
        raise NotImplementedError


def install(patch: pytest.MonkeyPatch, nodes: list[dict[str, float]]) -> Ray:
    """Let `import ray` find the double."""
    ray, tune = Ray(nodes), ModuleType("ray.tune")
    tune.Trainable = Trainable  # type: ignore[attr-defined] # a module is made of what is put into it
    patch.setitem(sys.modules, "ray", ray)
    patch.setitem(sys.modules, "ray.tune", tune)
    return ray

"""Builds the wrappers of a config: around the whole vector where they can be, inside each copy where they must."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium

from etude.config.registry import wrappers as registry
from etude.config.validate import Part
from etude.environments.check.complaints import first_line
from etude.environments.vector import VectorEnvironment
from etude.environments.wrappers.batched import TransformedVector, relabelled
from etude.environments.wrappers.single import SingleTransform
from etude.environments.wrappers.transform import Transform
from etude.errors import EtudeError, UserError


@dataclass(frozen=True)
class _Wrapper:
    """One entry of `environment.wrappers`."""

    place: int
    chosen: Any
    cls: type

    @property
    def name(self) -> str:
        return self.chosen.type if isinstance(self.chosen, Part) else self.chosen.id

    @property
    def is_transform(self) -> bool:
        return issubclass(self.cls, Transform)

    def make(self, *env: gymnasium.Env[Any, Any]) -> Any:
        try:
            if isinstance(self.chosen, Part):
                return self.cls(*env, **self.chosen.options)
            return self.cls(*env, self.chosen)
        except EtudeError as problem:
            raise self.named(problem) from problem
        except (TypeError, ValueError, KeyError, AssertionError, AttributeError, gymnasium.error.Error) as problem:
            # Of our own wrappers it would be a fault, to be shown whole; of others it is most likely the options.
            if not isinstance(self.chosen, Part):
                raise
            said = f"{type(problem).__name__}: {first_line(problem)}"
            raise UserError(f"{self} does not work here with {self.chosen.options or 'no options'}: {said}") from problem

    def make_transform(self) -> Transform:
        transform = self.make()
        transform.place = self.place
        return transform

    def named(self, problem: EtudeError) -> EtudeError:
        """The same complaint, with the place it comes from."""
        return type(problem)(f"{self}: {problem}") if isinstance(problem, UserError) else problem

    def __str__(self) -> str:
        return f"environment.wrappers[{self.place}] ({self.name})"


class Wrappers:
    """The wrappers of one environment, in order: `inside` each copy, then `around` all of them."""

    def __init__(self, chosen: Sequence[Any], *, training: bool) -> None:
        all_of_them = [_Wrapper(place, one, _class_of(one, place)) for place, one in enumerate(chosen)]
        wanted = [one for one in all_of_them if training or not getattr(one.chosen, "training_only", False)]
        cut = len(wanted)
        while cut and wanted[cut - 1].is_transform:
            cut -= 1
        self._inside, self._around = wanted[:cut], wanted[cut:]

    @property
    def inside(self) -> list[str]:
        """The names of those that need copies of Gymnasium's kind."""
        return [one.name for one in self._inside]

    @property
    def needs_pictures(self) -> bool:
        """Whether copies must be able to draw themselves into memory."""
        return any(getattr(one.cls, "needs_pictures", False) for one in self._inside)

    def wrap_copy(self, env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
        """Put the inner wrappers around one copy."""
        for one in self._inside:
            if not one.is_transform:
                env = one.make(env)
                continue
            try:
                env = SingleTransform(env, one.make_transform())
            except UserError as problem:
                raise one.named(problem) from problem
        return env

    def wrap_vector(self, vector: VectorEnvironment) -> VectorEnvironment:
        """Put the outer wrappers around a vector; where there are none it is returned as it is."""
        if vector.compute_reward is not None and self._inside:
            # The task's own function knows nothing of what changes rewards inside its copies.
            changing = [one.make_transform() for one in self._inside if one.is_transform]
            vector.compute_reward = relabelled(vector.compute_reward, changing)
        if not self._around:
            return vector
        transforms: list[Transform] = []
        spaces = vector.single_observation_space, vector.single_action_space
        for one in self._around:
            transform = one.make_transform()
            try:
                transform.bind(*spaces, vector.num_envs, vector.device)
            except UserError as problem:
                vector.close()
                raise one.named(problem) from problem
            spaces = transform.observation_space, transform.action_space
            transforms.append(transform)
        return TransformedVector(vector, transforms)


def _class_of(chosen: Any, place: int) -> type:
    name = chosen.type if isinstance(chosen, Part) else getattr(chosen, "id", None)
    if not isinstance(name, str) or not (isinstance(chosen, Part) or dataclasses.is_dataclass(chosen)):
        raise TypeError(f"environment.wrappers[{place}]: a validated wrapper is expected, not {chosen!r}")
    cls = registry.resolve(name)
    if not isinstance(cls, type) or not issubclass(cls, Transform | gymnasium.Wrapper):
        raise UserError(f"environment.wrappers[{place}]: '{name}' is neither a Transform nor a gymnasium.Wrapper")
    return cls

"""An algorithm under test: its runs on the probes, built as any other run is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from etude.config.compose import Composition, compose
from etude.config.registry import algorithms
from etude.environments.make import make_environment
from etude.environments.vector import VectorEnvironment
from etude.errors import UserError
from etude.orchestration.orchestrator import Orchestrator
from etude.testing.probes import PROBES
from etude.training import assembly
from etude.workflows.base import Workflow

FORMS = (("box", "discrete"), ("box", "box"), ("discrete", "discrete"))
"""Observations and actions of a probe, the form preferred first."""
GAMMA = 0.9
PLAIN = (
    "experiment.device=cpu",
    "experiment.compile=off",
    "evaluation.every_steps=0",
    "checkpoint.every_steps=0",
    "environment.normalize_observations=off",
    "environment.normalize_rewards=false",
)


class FailedError(Exception):
    """An algorithm does not do what it promises."""


class SkippedError(Exception):
    """A check that says nothing about this algorithm."""


@dataclass(frozen=True)
class Subject:
    """An algorithm with the settings it is checked under."""

    algorithm: str
    words: tuple[str, ...] = ()
    """Settings for all checks, such as a short rollout."""
    steps: int = 20_000
    """How many environment steps it may take to learn a probe."""
    seed: int = 1

    @cached_property
    def workflow_class(self) -> type[Workflow]:
        """The algorithm's class."""
        return algorithms.resolve(self.algorithm)

    @cached_property
    def gamma(self) -> float:
        """The discount that values are checked for."""
        found = self.compose("TimeLimit").config.algorithm.gamma
        if not isinstance(found, float):
            raise SkippedError("it has no setting algorithm.gamma to compute the right value with")
        return found

    @cached_property
    def form(self) -> tuple[str, str] | None:
        """The form of the probes that its spaces fit, if any does."""
        for observations, actions in FORMS:
            probe: Any = PROBES["TimeLimit"](observations=observations, actions=actions)  # type: ignore[call-arg] # a Probe
            if self._accepts(probe):
                return observations, actions
        return None

    def has(self, setting: str) -> bool:
        """Whether it has a setting of its own by this name."""
        return setting in {field.name for field in fields(self.workflow_class.Config)}

    def takes(self, name: str) -> bool:
        """Whether its spaces fit a probe."""
        return self._accepts(PROBES[name]()) if name == "Masked" else self.form is not None

    def compose(self, name: str, *words: str) -> Composition:
        """Return the config of a run on a probe; what is in `words` counts most."""
        settings = [*PLAIN, f"experiment.seed={self.seed}", f"training.total_steps={self.steps}"]
        if self.has("gamma"):
            settings.append(f"algorithm.gamma={GAMMA}")
        if name != "Masked":
            if self.form is None:
                raise SkippedError("its spaces fit no form of this probe")
            observations, actions = self.form
            settings.append(f"environment.kwargs={{observations: {observations}, actions: {actions}}}")
        spec = f"etude.testing.probes:probe/{name}-v0:{self.algorithm}"
        return compose(spec, words=[*settings, *self.words, *words])

    def build(self, name: str, *words: str) -> Orchestrator:
        """Return a run on a probe, ready to go."""
        orchestrator = assembly.build(assembly.resolve(self.compose(name, *words).config))
        assert orchestrator.collector is not None
        orchestrator.collector.start(orchestrator.workflow.initial_state)
        return orchestrator

    def environment(self, name: str, num_envs: int) -> VectorEnvironment:
        """Return copies of a probe to act in."""
        return make_environment(self.compose(name).config.environment, num_envs=num_envs)

    def observation(self, name: str) -> Tensor:
        """Return every state of a probe, in order, as the algorithm sees it."""
        states = getattr(PROBES[name], "states")  # noqa: B009 # a Probe's own
        assert self.form is not None
        return torch.eye(states) if self.form[0] == "box" else torch.arange(states)

    def train_until(self, run: Orchestrator, is_done: Callable[[], bool]) -> bool:
        """Train until `is_done` holds at three rows in a row, or the budget is spent; returns whether it did.

        Once could be luck, or a value passing by on its way to a wrong one.
        """
        held = 0
        for _ in run.rows():
            held = held + 1 if is_done() else 0
            if held == 3:
                return True
            if run.counters.updates == 0 and run.counters.env_steps > self.steps // 2:
                break
        if run.counters.updates == 0:
            raise SkippedError(f"it took no update in {run.counters.env_steps:,} environment steps, so it learns nothing")
        return False

    def _accepts(self, probe: Any) -> bool:
        try:
            self.workflow_class.check_spaces(probe.observation_space, probe.action_space)
        except UserError:
            return False
        return True

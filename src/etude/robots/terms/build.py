"""A task's terms by what its config says of them: each is tried once on a state, so that what is wrong is said at the start."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Generator, Tensor

from etude.config.robots import RobotConfig
from etude.errors import UserError
from etude.robots.models.description import matches
from etude.robots.observing import ObservationGroup
from etude.robots.state import State
from etude.robots.terms.bodies import patterns_of
from etude.robots.terms.randomizations import find_randomization
from etude.robots.terms.rewards import REWARDS
from etude.robots.terms.table import check_values, options_of
from etude.robots.terms.terminations import TERMINATIONS

_HERE = "environment.robot"


class Terms:
    """Builds what a task observes, what it pays for and what ends its episodes."""

    def __init__(self, task: RobotConfig, state: State, dt: float) -> None:
        """`dt` is the time of a step, s."""
        self._task, self._state, self._dt = task, state, dt

    def groups(self, drawn: Mapping[str, Any], generator: Generator, *, training: bool) -> dict[str, ObservationGroup]:
        """Return what each network sees; `drawn` are the randomisations, and what is not among them can't be shown."""
        if not self._task.observations:
            raise UserError(f"{_HERE}.observations: a task needs at least one group, such as actor")
        groups = {}
        for name, terms in self._task.observations.items():
            chosen = {term: options for term, options in terms.items() if options is not False and term != "history"}
            _require_drawn(name, chosen, drawn)
            settings = {"training": training, "history": terms.get("history", 1)}
            groups[name] = ObservationGroup(name, chosen, self._state, generator, **settings)
        return groups

    def rewards(self) -> dict[str, tuple[Callable[[State], Tensor], float]]:
        """Return each term with its weight per step, without those that weigh nothing."""
        rewards = {}
        for name, entry in self._task.rewards.items():
            REWARDS.find(name, f"{_HERE}.rewards")
            options = dict(entry) if isinstance(entry, dict) else {"weight": entry}
            weight = options.pop("weight", 1.0)
            if weight is None or weight == 0:
                continue
            if not isinstance(weight, int | float) or isinstance(weight, bool) or not math.isfinite(weight):
                raise UserError(f"{_HERE}.rewards.{name}={weight}: must be a number, or a mapping with a weight")
            scale = self._dt if self._task.scale_rewards_by_dt else 1.0
            options = self._resolved(options, f"rewards.{name}")
            term = REWARDS.bind(name, options, f"{_HERE}.rewards", feet=len(self._state.scene.feet))
            check_values(term(self._state), (self._state.count,), f"{_HERE}.rewards.{name}")
            rewards[name] = (term, float(weight) * scale)
        return rewards

    def terminations(self) -> dict[str, Callable[[State], Tensor]]:
        """Return what ends an episode."""
        terminations = {
            name: TERMINATIONS.bind(name, self._resolved(options, f"terminations.{name}"), f"{_HERE}.terminations")
            for name, options in self._task.terminations.items()
            if options is not None
        }
        for name, term in terminations.items():
            check_values(term(self._state), (self._state.count,), f"{_HERE}.terminations.{name}", dtype=torch.bool)
        return terminations

    def _resolved(self, options: Any, where: str) -> dict[str, Any]:
        """Put the names of bodies in the place of the patterns that a user gave."""
        resolved, scene = options_of(options, f"{_HERE}.{where}"), self._state.scene
        if "bodies" in resolved:
            names, path = scene.contact_bodies, f"{_HERE}.{where}.bodies"
            found = dict.fromkeys(name for pattern in patterns_of(resolved) for name in matches(pattern, names, path))
            resolved["bodies"] = tuple(found)
        if where in ("rewards.collisions", "terminations.contact") and not resolved.get("bodies"):
            raise UserError(f"{_HERE}.{where}: needs bodies, such as {{bodies: [{scene.description.base or '.*'}]}}")
        return resolved


def _require_drawn(group: str, terms: Mapping[str, Any], drawn: Mapping[str, Any]) -> None:
    """Refuse to show what is never drawn."""
    if "randomized" in terms:
        where = f"{_HERE}.observations.{group}.randomized"
        name = options_of(terms["randomized"], where).get("name", "floor_friction")
        if find_randomization(name, f"{where}.name={name}") and drawn.get(name) is None:
            raise UserError(f"{where}.name={name}: the task draws no {name} ({_HERE}.randomization)")

"""What checks of an environment found, said as they find it."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium
import numpy as np
import torch
from gymnasium import spaces

from etude.environments.check.probe import in_words
from etude.environments.failures import place_of
from etude.environments.spaces import action_spec, finite_range, observation_specs
from etude.errors import EtudeError, UserError

SEED = 7


@dataclass(frozen=True)
class Remark:
    """What one check found."""

    level: Literal["fine", "notice", "wrong"]
    check: str
    says: str
    way_out: str = ""


class StoppedError(Exception):
    """Nothing further can be checked."""


class Report(ABC):
    """Goes through one environment; what it found is in `remarks`."""

    def __init__(self, on_remark: Callable[[Remark], None] | None = None) -> None:
        self.remarks: list[Remark] = []
        self._on_remark = on_remark

    def run(self) -> list[Remark]:
        """Check everything that can be checked."""
        with suppress(StoppedError):
            self._check()
        return self.remarks

    @abstractmethod
    def _check(self) -> None: ...

    def _called(self, check: str, function: Callable[[], Any]) -> Any:
        try:
            return function()
        except (StoppedError, UserError):
            raise
        except Exception as problem:
            raise self._raised(check, problem) from problem

    def _raised(self, check: str, problem: BaseException) -> StoppedError:
        said = str(problem).strip().partition("\n")[0]
        if "must inherit from" in said or "Gym is incompatible" in said:
            way_out = "etude.environments.adapters has OldGymAdapter and DmEnvAdapter for others"
            self._wrong(check, "it is no gymnasium.Env", way_out)
        elif isinstance(problem, EtudeError):  # which has its own words
            self._wrong(check, said)
        else:
            self._wrong(check, f"raised {type(problem).__name__}: {said}", f"look at {place_of(problem)}")
        return StoppedError()

    def _check_both_spaces(self, observations: gymnasium.Space[Any], actions: gymnasium.Space[Any]) -> None:
        problems = []
        for check, space in ((observation_specs, observations), (action_spec, actions)):
            try:
                check(space)
            except UserError as problem:
                problems.append(str(problem))
        if problems:
            way_out = "declare another space, or add a wrapper that does (gymnasium.ObservationWrapper, ActionWrapper)"
            self._stop("spaces", "; ".join(problems), way_out)
        if isinstance(actions, spaces.Box) and not finite_range(actions).all():
            self._notice(
                "spaces", f"actions without bounds: {in_words(actions)}", "give the Box a low and a high; sac and td3 need them"
            )
        else:
            self._fine("spaces", f"observations {in_words(observations)}; actions {in_words(actions)}")

    def _report_data(self, check: str, problems: list[str], fine: str) -> None:
        for problem in problems[:5]:
            self._wrong(check, *problem.rsplit(": ", 1)) if ": " in problem else self._wrong(check, problem)
        if len(problems) > 5:
            self._wrong(check, f"and {len(problems) - 5} more of this kind")
        if not problems:
            self._fine(check, fine)

    def _fine(self, check: str, says: str, way_out: str = "") -> None:
        self._remark(Remark("fine", check, says, way_out))

    def _notice(self, check: str, says: str, way_out: str) -> None:
        self._remark(Remark("notice", check, says, way_out))

    def _wrong(self, check: str, says: str, way_out: str = "") -> None:
        self._remark(Remark("wrong", check, says, way_out))

    def _remark(self, remark: Remark) -> None:
        self.remarks.append(remark)
        if self._on_remark is not None:
            self._on_remark(remark)

    def _stop(self, check: str, says: str, way_out: str) -> Any:
        self._wrong(check, says, way_out)
        raise StoppedError


def global_generators() -> dict[str, Any]:
    """Return the states of the generators that everyone shares, by the names of their modules."""
    return {
        "numpy.random": repr(np.random.get_state(legacy=False)),  # noqa: NPY002 # the very one that must not be used
        "random": random.getstate(),
        "torch": bytes(torch.get_rng_state().numpy().tobytes()),
    }

"""Checks that any algorithm can be put through: time limits, indexing, exactness. Each has an answer known by hand.

from etude.testing import check_workflow

report = check_workflow("my_file.MyAlgorithm", words=["algorithm.rollout_steps=16"])
print(report)
report.raise_if_failed()
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from etude.errors import UserError, did_you_mean
from etude.testing import exactness_checks, learning_checks
from etude.testing.subject import FailedError, SkippedError, Subject

CHECKS: Mapping[str, Callable[[Subject], str]] = {
    check.__name__: check
    for check in (
        learning_checks.time_limit,
        learning_checks.termination,
        learning_checks.next_observation,
        learning_checks.action_now,
        learning_checks.action_later,
        exactness_checks.endings,
        exactness_checks.hidden_state,
        exactness_checks.action_mask,
        exactness_checks.chunk_law,
        exactness_checks.same_seed,
        exactness_checks.resume,
        exactness_checks.policy,
    )
}


@dataclass(frozen=True)
class Outcome:
    """How one check went."""

    check: str
    status: Literal["passed", "failed", "skipped"]
    detail: str
    promise: str
    """What the check is about, in one sentence."""


@dataclass(frozen=True)
class Report:
    """How all of them went."""

    algorithm: str
    outcomes: tuple[Outcome, ...]

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return not self.failures

    @property
    def failures(self) -> list[Outcome]:
        """The checks that failed."""
        return [outcome for outcome in self.outcomes if outcome.status == "failed"]

    def __getitem__(self, check: str) -> Outcome:
        return next(outcome for outcome in self.outcomes if outcome.check == check)

    def raise_if_failed(self) -> None:
        """Raise AssertionError with a line for each failure, for use in a test."""
        lines = [f"{outcome.check}: {outcome.promise}\n    {outcome.detail}" for outcome in self.failures]
        if lines:
            raise AssertionError("\n".join([f"{self.algorithm} fails {len(lines)} of {len(self.outcomes)} checks", *lines]))

    def __str__(self) -> str:
        counts = {status: sum(o.status == status for o in self.outcomes) for status in ("passed", "failed", "skipped")}
        head = f"{self.algorithm}: " + ", ".join(f"{count} {status}" for status, count in counts.items() if count)
        width = max((len(outcome.check) for outcome in self.outcomes), default=0)
        return "\n".join([head, *(f"  {o.status:7}  {o.check:{width}}  {o.detail}" for o in self.outcomes)])


def check_workflow(
    algorithm: str, words: Sequence[str] = (), *, only: Sequence[str] = (), steps: int = 20_000, seed: int = 1
) -> Report:
    """Put an algorithm, by its name or import path, through every check (or those named in `only`) and report.

    `words` are settings as on the command line, such as a short rollout or a higher learning rate: the tasks are tiny, and
    `steps` environment steps must suffice to learn each. An exception from the algorithm itself is passed on.
    """
    for name in only:
        if name not in CHECKS:
            raise UserError(f"there is no check '{name}'{did_you_mean(name, CHECKS)} (there are: {', '.join(CHECKS)})")
    subject = Subject(algorithm, tuple(words), steps, seed)
    return Report(algorithm, tuple(_outcome(name, subject) for name in only or CHECKS))


def _outcome(name: str, subject: Subject) -> Outcome:
    promise = (CHECKS[name].__doc__ or "").strip()
    try:
        return Outcome(name, "passed", CHECKS[name](subject), promise)
    except FailedError as failure:
        return Outcome(name, "failed", str(failure), promise)
    except SkippedError as reason:
        return Outcome(name, "skipped", str(reason), promise)
    except Exception as error:
        error.add_note(f"during the check '{name}' of '{subject.algorithm}': {promise}")
        raise

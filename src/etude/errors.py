"""Errors that are the user's to fix: one clear line each, no traceback."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class EtudeError(Exception):
    """Something failed and the message says what to do about it (exit code 1)."""

    exit_code = 1


class UserError(EtudeError):
    """The request itself was wrong: a typo, an impossible value, a missing file (exit code 2)."""

    exit_code = 2


class MissingPackageError(EtudeError):
    """Something optional is not installed; the message has the line that installs it (exit code 2)."""

    exit_code = 2


class ConfigError(UserError):
    """One or more config values are wrong; each problem is one line."""

    def __init__(self, *problems: str) -> None:
        self.problems = problems
        shown = [_shortened(problem) for problem in problems[:5]]
        if len(problems) > len(shown):
            shown.append(f"... and {len(problems) - len(shown)} more")
        super().__init__("\n".join(shown))


def _shortened(problem: str) -> str:
    """A line whose key or value may be thousands of characters of somebody's file."""
    return problem if len(problem) <= 500 else f"{problem[:300]} ... {problem[-150:]}"


class EnvironmentFailureError(EtudeError):
    """An environment broke amid a step; the run is as it was last saved."""

    def __init__(self, message: str, *, details: str = "") -> None:
        super().__init__(message)
        self.details = details
        """The traceback, for run.log: the message says what a user needs."""


class NonFiniteError(EtudeError):
    """The weights are NaN or infinite: nothing learned from here on means anything."""


class NonFiniteFoundError(EtudeError):
    """A debug run met a NaN or an infinity; unlike weights that are broken, nothing skips it or goes back."""


class CheckpointError(EtudeError):
    """A checkpoint is damaged, foreign, too new or missing."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?`` when something known is close to `word`, else an empty string."""
    by_lower = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return f"; did you mean '{by_lower[close[0]]}'?" if close else ""

"""What is said of an environment whose code raises, or returns what can't be a step."""

from __future__ import annotations

import os
import sysconfig
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from etude.errors import EnvironmentFailureError, EtudeError

_OURS = Path(__file__).parents[1]
_INSTALLED = tuple({Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")})

NOT_THEIRS = (EtudeError, KeyboardInterrupt, GeneratorExit, torch.OutOfMemoryError)
"""What passes through an environment's code and is no failure of it, or has its own words."""


class BadValueError(ValueError):
    """An environment returned something that no step can be made of."""


def failure(error: BaseException, *, copy: int | None, doing: str, method: Any = None) -> EnvironmentFailureError:
    """Return the one line about what a copy raised: in which call, what, and where in the user's own code.

    The traceback goes along as its details. `method` is what was called, for a value that raised nothing by itself.
    """
    who = "the environment" if copy is None else f"copy {copy} of the environment"
    said = " ".join(str(error).split())
    if isinstance(error, BadValueError):
        what, where = f"returned from {doing} {said}", _definition(method)
    else:
        raised = f"{type(error).__name__}: {said}" if said else type(error).__name__
        what, where = f"raised in {doing}: {raised}", _users_place(error) or _definition(method) or place_of(error)
    return EnvironmentFailureError(
        f"{who} {what}{f' ({where})' if where else ''}", details="".join(traceback.format_exception(error)).rstrip()
    )


def broken_module(name: str, error: BaseException) -> EnvironmentFailureError:
    """Return the one line about a module that could not be imported for an environment's sake."""
    said = " ".join(f"{type(error).__name__}: {error}".split())
    details = "".join(traceback.format_exception(error)).rstrip()
    return EnvironmentFailureError(f"{name}: its module can't be imported: {said} ({place_of(error)})", details=details)


def place_of(error: BaseException) -> str:
    """Return file and line where an exception came from: the user's own innermost line, or the innermost one of all."""
    return _users_place(error) or _place(traceback.extract_tb(error.__traceback__))


def _users_place(error: BaseException) -> str:
    if isinstance(error, SyntaxError) and error.filename is not None:
        return f"{_shown(error.filename)}:{error.lineno}"
    return _place([frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame.filename)])


def _place(frames: Sequence[traceback.FrameSummary]) -> str:
    return f"{_shown(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""


def refuse_none(**values: Any) -> None:
    """Raise BadValueError for the first that is None, which NumPy would take without a word: as NaN, or as false."""
    for name, value in values.items():
        if value is None:
            raise BadValueError(f"None as {name}")


def check_observation(value: Any, shape: tuple[int, ...], name: str = "") -> None:
    """Raise BadValueError for an observation that NumPy would stretch to its space's shape without a word."""
    called = f"observation '{name}'" if name else "an observation"
    if value is None:
        raise BadValueError(f"None as {called}, where its space has the shape {shape}")
    found = np.shape(value)
    if np.prod(found, dtype=int) != np.prod(shape, dtype=int):
        raise BadValueError(f"{called} of shape {found}, where its space has the shape {shape}")


def _definition(method: Any) -> str:
    code = getattr(getattr(method, "__func__", method), "__code__", None)
    return f"{_shown(code.co_filename)}:{code.co_firstlineno}" if code is not None else ""


def _is_users(file: str) -> bool:
    if file.startswith("<"):
        return False
    path = Path(file).resolve()
    return not any(path.is_relative_to(folder) for folder in (*_INSTALLED, _OURS))


def _shown(file: str) -> str:
    here = os.path.relpath(file) if os.path.isabs(file) else file
    return file if here.startswith("..") else here

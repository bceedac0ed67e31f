"""MiniGrid and BabyAI."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium

from etude.errors import MissingPackageError

if TYPE_CHECKING:
    from etude.config.schema import EnvironmentConfig


def register() -> None:
    """Importing the package registers its tasks."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a worker process has the registry of its parent already
        importlib.import_module("minigrid")
    # It prints a line for each level it draws and rejects, amid our own output.
    levels: Any = importlib.import_module("minigrid.envs.babyai.core.roomgrid_level")
    levels.print = _be_quiet


def adapter(config: EnvironmentConfig) -> tuple[dict[str, Any], Callable[[gymnasium.Env[Any, Any]], gymnasium.Env[Any, Any]]]:
    """Return the arguments of the world itself, and what shows it to a policy: missions are text, which no network reads."""
    from etude.environments.minigrid.observations import Observed, Settings

    _check_patterns(config.id)
    settings, others = Settings.taken_from(config.kwargs)
    return others, lambda env: Observed(env, settings)


def _check_patterns(name: str) -> None:
    if not name.startswith("MiniGrid-WFC-"):
        return
    patterns: Path = importlib.import_module("minigrid.envs.wfc.config").PATTERN_PATH
    if not patterns.is_dir():
        raise MissingPackageError(f"{name} needs pictures that the installed minigrid lacks: install it from its repository")


def _be_quiet(*_: Any, **__: Any) -> None:
    pass

"""ViZDoom: the package's own ids (VizdoomBasic-v1), and any scenario by name (VizDoom-Basic-v0).

A scenario is a .cfg file, found by `environment.kwargs.config_path`, else in the folder VIZDOOM_SCENARIOS_DIR, else in the
package.
"""

from __future__ import annotations

import importlib
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium

from etude.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from etude.config.schema import EnvironmentConfig

FOLDER = "VIZDOOM_SCENARIOS_DIR"
_PREFIX, _SUFFIX = "VizDoom-", "-v0"
_HERE = "etude.environments.families.vizdoom"


def register() -> None:
    """Make the package's ids known, and those of the scenarios that are found."""
    for scenario in _scenarios():
        register_id(_PREFIX + "".join(word.capitalize() for word in scenario.split("_")) + _SUFFIX)


def register_id(name: str) -> None:
    """Make one id known; whether a scenario's file exists shows when it is made, for arguments may name it."""
    importlib.import_module("vizdoom.gymnasium_wrapper")
    if name.startswith(_PREFIX) and name.endswith(_SUFFIX) and name not in gymnasium.registry:
        scenario = _snake(name.removeprefix(_PREFIX).removesuffix(_SUFFIX))
        gymnasium.register(name, f"{_HERE}:make_scenario", kwargs={"scenario": scenario})


def adapter(config: EnvironmentConfig) -> tuple[dict[str, Any], Callable[[Any], Any]]:
    """Return the arguments, with a place for the settings that the game writes: it would leave them where one works."""
    folder = Path(tempfile.gettempdir()) / f"etude-vizdoom-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return {"doom_config_path": str(folder / "vizdoom.ini"), **config.kwargs}, lambda env: env


def make_scenario(scenario: str, config_path: str | None = None, **options: Any) -> gymnasium.Env[Any, Any]:
    """Return a scenario; one button at a time unless `max_buttons_pressed` says otherwise."""
    wrapper: Any = importlib.import_module("vizdoom.gymnasium_wrapper.base_gymnasium_env")
    return wrapper.VizdoomEnv(config_file=str(find_scenario(scenario, config_path)), **{"max_buttons_pressed": 1, **options})


def find_scenario(scenario: str, config_path: str | None = None) -> Path:
    """Return the file of a scenario; raises UserError with everywhere it was looked for."""
    if config_path is not None:
        path = Path(config_path).expanduser()
        if path.is_file():
            return path
        raise UserError(f"environment.kwargs.config_path={config_path}: there is no such file")
    for folder in _folders():
        if (path := folder / f"{scenario}.cfg").is_file():
            return path
    own = os.environ.get(FOLDER)
    near = did_you_mean(scenario, _scenarios())
    raise UserError(
        f"no ViZDoom scenario '{scenario}.cfg'{near} (looked for it in the package vizdoom: {_package_folder()}; "
        f"in the folder {FOLDER}: {own or 'not set'}; and in environment.kwargs.config_path: not set)"
    )


def _folders() -> list[Path]:
    """Where scenarios lie, the user's own folder first."""
    own = os.environ.get(FOLDER)
    return [*([Path(own).expanduser()] if own else []), _package_folder()]


def _package_folder() -> Path:
    package: Any = importlib.import_module("vizdoom")
    return Path(getattr(package, "scenarios_path", None) or Path(package.__file__).parent / "scenarios")


def _scenarios() -> list[str]:
    return sorted({path.stem for folder in _folders() if folder.is_dir() for path in folder.glob("*.cfg")})


def _snake(name: str) -> str:
    """DeadlyCorridor is deadly_corridor; what is written with underscores stays."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()

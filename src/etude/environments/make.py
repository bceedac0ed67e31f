"""The one factory for environments."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium import error

from etude.config.schema import EnvironmentConfig
from etude.environments.gymnasium import GymnasiumVector
from etude.environments.vector import VectorEnvironment
from etude.errors import EtudeError, UserError, did_you_mean


def make_environment(
    config: EnvironmentConfig, *, num_envs: int | None = None, render_mode: str | None = None
) -> VectorEnvironment:
    """Build the environment a config describes, or one like it with another width or a way to look at it."""

    def make() -> gymnasium.Env[Any, Any]:
        return _make_one(config, render_mode)

    return GymnasiumVector(make, num_envs or config.num_envs)


def _make_one(config: EnvironmentConfig, render_mode: str | None) -> gymnasium.Env[Any, Any]:
    _check_version(config.id)
    options = dict(config.kwargs)
    if config.max_episode_steps is not None:
        options["max_episode_steps"] = config.max_episode_steps
    if render_mode is not None:
        options["render_mode"] = render_mode
    try:
        return gymnasium.make(config.id, disable_env_checker=True, **options)
    except error.DependencyNotInstalled as problem:
        raise EtudeError(f"{config.id} needs a package that is not installed: {_first_line(problem)}") from None
    except (error.UnregisteredEnv, error.DeprecatedEnv) as problem:
        near = did_you_mean(config.id, gymnasium.registry) or "; `etude envs SEARCH` lists what there is"
        if isinstance(problem, error.DeprecatedEnv):
            near = f": {_first_line(problem)}"
        raise UserError(f"unknown environment '{config.id}'{near}") from None
    except ModuleNotFoundError as problem:
        raise UserError(f"environment '{config.id}': there is no module '{problem.name}' here") from None
    except TypeError as problem:
        if "unexpected keyword argument" not in str(problem):
            raise
        raise UserError(f"environment.kwargs: {config.id} {str(problem).split(')', 1)[-1].strip()}") from None
    except error.Error as problem:
        raise UserError(f"environment '{config.id}': {_first_line(problem)}") from None


def _check_version(name: str) -> None:
    """An id without a version would mean another task after an upgrade."""
    versions = sorted(known for known in gymnasium.registry if known.rpartition("-v")[0] == name)
    if versions and name not in gymnasium.registry:
        raise UserError(f"environment '{name}': which version? write {versions[-1]}")


def _first_line(problem: BaseException) -> str:
    return str(problem).strip().splitlines()[0] if str(problem).strip() else type(problem).__name__

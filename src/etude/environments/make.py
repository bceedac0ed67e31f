"""The one factory for environments."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
from typing import Any

import gymnasium
import torch
from gymnasium import error
from gymnasium.envs.registration import load_env_creator
from gymnasium.wrappers import HumanRendering

from etude.config.registry import ROBOTS, load_object
from etude.config.schema import EnvironmentConfig
from etude.environments.catalog import did_you_mean_id
from etude.environments.check.complaints import complaint, first_line
from etude.environments.episode_limit import episode_limit
from etude.environments.failures import NOT_THEIRS, broken_module
from etude.environments.families import family_of
from etude.environments.gymnasium import GymnasiumVector
from etude.environments.mujoco_warnings import tell_mujoco_warnings
from etude.environments.tensors.registered import ARCADE, TASKS, make_tensors
from etude.environments.vector import VectorEnvironment
from etude.environments.wrappers.build import Wrappers
from etude.errors import MissingPackageError, UserError


def make_environment(
    config: EnvironmentConfig,
    *,
    num_envs: int | None = None,
    render_mode: str | None = None,
    training: bool = False,
    device: torch.device | None = None,
    capture: bool = False,
    compiles: bool = False,
) -> VectorEnvironment:
    """Build the environment a config describes, or one like it with another width or a way to look at it.

    Wrappers that are for training only are left out where it is not for `training`. `device` is the learner's: environments
    that can simulate there do, `capture` lets them capture their steps, and `compiles` compile them before.
    """
    count = num_envs or config.num_envs
    try:
        made = _make_vector(config, count, render_mode, training=training, device=device, capture=capture, compiles=compiles)
    except MemoryError:
        raise UserError(f"environment.num_envs={count}: this many copies don't fit into memory; lower it") from None
    made.base.max_episode_steps = episode_limit(config)
    tell_mujoco_warnings()  # of its steps, where a model was compiled in silence
    return made


def _make_vector(
    config: EnvironmentConfig,
    count: int,
    render_mode: str | None,
    *,
    training: bool,
    device: torch.device | None,
    capture: bool,
    compiles: bool,
) -> VectorEnvironment:
    wrappers = Wrappers(config.wrappers, training=training)
    if config.robot is not None:
        options = {"training": training, "device": device, "capture": capture, "compiles": compiles}
        return wrappers.wrap_vector(_make_robots(config, count, wrappers, **options))
    if config.backend == "envpool" and not render_mode:
        return wrappers.wrap_vector(_make_pool(config, count, wrappers))  # needs no package but its own
    family = family_of(config.id)
    family.register(config.id)
    by_copy = render_mode or config.workers or config.backend == "gymnasium" or wrappers.inside
    if config.backend in ("auto", "torch"):
        import_module_of(config.id)
        tensors = None if by_copy else make_tensors(config, count, device)
        if tensors is not None:
            return wrappers.wrap_vector(tensors)
        if config.backend == "torch" and not render_mode:
            raise UserError(_why_not_on_tensors(config, wrappers))
    native = None if by_copy else family.make_vector(config, count)
    if native is not None:
        return wrappers.wrap_vector(native)
    if config.backend == "native" and wrappers.inside:
        raise UserError(
            f"environment.backend=native: the wrapper {wrappers.inside[-1]} and what stands before it work inside copies of "
            "Gymnasium's kind; use auto or gymnasium"
        )
    if config.backend == "native":
        raise UserError(f"environment.backend=native: {config.id} has none (or not with these settings); use auto or gymnasium")

    def make() -> gymnasium.Env[Any, Any]:
        if not wrappers.needs_pictures:
            return wrappers.wrap_copy(make_copy(config, render_mode))
        from etude.environments.rendering import prepare_drawing

        prepare_drawing(config.id)
        # One render mode must do for the learner and for people: a window then shows the same pictures.
        copy = wrappers.wrap_copy(make_copy(config, "rgb_array"))
        return HumanRendering(copy) if render_mode == "human" else copy

    # A second copy in this process would fail, and so would the first beside one that evaluates.
    workers = count if family.one_per_process and not render_mode else config.workers
    if workers:
        from etude.environments.workers.vector import WorkerVector

        vector = WorkerVector(make, count, workers=workers, timeout_s=config.worker_timeout_s)
    else:
        vector = GymnasiumVector(make, count)
    return wrappers.wrap_vector(vector)


def _why_not_on_tensors(config: EnvironmentConfig, wrappers: Wrappers) -> str:
    if wrappers.inside or config.workers:
        what = f"the wrapper {wrappers.inside[-1]}" if wrappers.inside else f"environment.workers={config.workers}"
        return f"environment.backend=torch: {what} needs copies of Gymnasium's kind; use auto or gymnasium"
    known = ", ".join(sorted({*TASKS, *ARCADE}))
    return (
        f"environment.backend=torch: {config.id} is not written for tensors ({known} are; one of your own by "
        "etude.environments.tensors.register_task); use auto"
    )


def _make_robots(config: EnvironmentConfig, count: int, wrappers: Wrappers, **options: Any) -> VectorEnvironment:
    if importlib.util.find_spec("mujoco") is None:
        raise MissingPackageError(f"{config.id} needs mujoco: pip install 'etude[mujoco]'")
    for what, given in (("workers", config.workers), ("kwargs", config.kwargs)):
        if given:
            raise UserError(f"environment.{what}={given}: not for robots, whose simulator has threads and a config of its own")
    if wrappers.inside:
        raise UserError(f"environment.wrappers: {wrappers.inside[-1]} works inside copies of Gymnasium's kind, not on robots")
    return load_object(ROBOTS)(config, count, **options)


def _make_pool(config: EnvironmentConfig, count: int, wrappers: Wrappers) -> VectorEnvironment:
    from etude.environments.families.envpool import make_pool

    if wrappers.inside or config.workers:
        what = f"the wrapper {wrappers.inside[-1]}" if wrappers.inside else f"environment.workers={config.workers}"
        raise UserError(f"environment.backend=envpool: {what} needs copies of Gymnasium's kind; use auto or gymnasium")
    return make_pool(config, count)


def make_copy(config: EnvironmentConfig, render_mode: str | None = None) -> gymnasium.Env[Any, Any]:
    """Return one copy of Gymnasium's kind, as its family shows it, without the wrappers of the config."""
    import_module_of(config.id)
    _check_version(config.id)
    family = family_of(config.id)
    family.register(config.id)  # again, for a worker process
    own = family.make_one(config, render_mode)
    if own is not None:
        return own
    kwargs, adapt = family.adapter(config)
    options = {"disable_env_checker": True, **kwargs}
    if config.max_episode_steps is not None:
        options["max_episode_steps"] = config.max_episode_steps
    if render_mode is not None:
        options["render_mode"] = render_mode
    try:
        _load_class(config.id)
        return adapt(gymnasium.make(family.spec(config), **options))
    except error.DependencyNotInstalled as problem:
        raise MissingPackageError(f"{config.id} needs a package that is not installed: {first_line(problem)}") from None
    except (error.UnregisteredEnv, error.DeprecatedEnv) as problem:
        raise _unknown(config.id, problem) from None
    except ModuleNotFoundError as problem:
        name = problem.name or first_line(problem)
        raise MissingPackageError(f"{config.id} needs a package that is not installed: pip install {name}") from None
    except (error.Error, ImportError) as problem:
        raise UserError(f"environment '{config.id}': {first_line(problem)}") from None
    except (TypeError, ValueError, KeyError, AssertionError) as problem:
        # With arguments it is most likely one of them; without any it is a fault of the environment.
        if not config.kwargs:
            raise
        raise UserError(f"environment.kwargs={config.kwargs}: {config.id} {complaint(problem)}") from problem


def require_known(config: EnvironmentConfig) -> None:
    """Refuse an id that nothing here has registered, without building a copy."""
    if config.robot is not None or config.backend == "envpool":
        return  # whose ids Gymnasium doesn't know
    import_module_of(config.id)
    _check_version(config.id)
    family_of(config.id).register(config.id)
    try:
        gymnasium.spec(config.id.rpartition(":")[2])
    except (error.UnregisteredEnv, error.DeprecatedEnv) as problem:
        raise _unknown(config.id, problem) from None
    except error.Error as problem:
        raise UserError(f"environment '{config.id}': {first_line(problem)}") from None


def _unknown(name: str, problem: Exception) -> UserError:
    gone = isinstance(problem, error.DeprecatedEnv)
    return UserError(f"unknown environment '{name}'{f': {first_line(problem)}' if gone else did_you_mean_id(name)}")


def _load_class(name: str) -> None:
    """Import what `gymnasium.make` would: if that brings MuJoCo, its warnings about a model are to be heard, not filed."""
    spec = gymnasium.registry.get(name.rpartition(":")[2])
    if spec is not None and isinstance(spec.entry_point, str):
        load_env_creator(spec.entry_point)
    tell_mujoco_warnings()


def import_module_of(name: str) -> None:
    """Import what stands before the colon of `module:Name-v0`, which registers the environment."""
    module, colon, _ = name.partition(":")
    if not colon:
        return
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as problem:
        # Only the module that the user named is the user's slip; one missing further down is a fault of that module.
        if problem.name is None or not f"{module}.".startswith(f"{problem.name}."):
            raise broken_module(name, problem) from problem
        raise UserError(f"environment '{name}': there is no module '{problem.name}' here") from None
    except NOT_THEIRS:
        raise
    except (Exception, SystemExit) as problem:
        raise broken_module(name, problem) from problem


def _check_version(name: str) -> None:
    """An id without a version would mean another task after an upgrade."""
    plain = name.rpartition(":")[2]
    if plain in gymnasium.registry:
        return
    versions = [known for known in gymnasium.registry if re.fullmatch(re.escape(plain) + r"-v\d+", known)]
    if versions:
        newest = max(versions, key=lambda known: int(known.rpartition("-v")[2]))
        raise UserError(f"environment '{name}': which version? write {name.removesuffix(plain)}{newest}")

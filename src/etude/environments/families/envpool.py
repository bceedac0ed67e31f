"""EnvPool as a backend: its C++ copies of other families' tasks, by the same ids (`environment.backend=envpool`)."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from etude.compute.processors import available_cpus
from etude.errors import MissingPackageError, UserError, did_you_mean

if TYPE_CHECKING:
    from etude.config.schema import EnvironmentConfig
    from etude.environments.vector import VectorEnvironment

_INSTALL = "pip install 'etude[envpool]'"


def make_pool(config: EnvironmentConfig, num_envs: int) -> VectorEnvironment:
    """Return EnvPool's copies of a task; raises where it has none of this id, or not with these arguments."""
    try:
        envpool: Any = importlib.import_module("envpool")
    except ModuleNotFoundError:
        raise MissingPackageError(f"environment.backend=envpool: EnvPool is not installed: {_INSTALL}") from None
    from etude.environments.envpool_vector import EnvpoolVector

    name = config.id.removeprefix("ALE/")  # Pong-v5 is what EnvPool calls ALE/Pong-v5
    known = envpool.list_all_envs()
    if name not in known:
        raise UserError(f"environment.backend=envpool: EnvPool has no {config.id}{did_you_mean(name, known)}; use auto")
    options = dict(config.kwargs)
    if config.max_episode_steps is not None:
        options["max_episode_steps"] = config.max_episode_steps
    cores = available_cpus()

    def make(seeds: Sequence[int]) -> Any:
        # Its generators take 32 bits; one seed a copy.
        small = [seed % 2**31 for seed in seeds]
        return envpool.make(
            name, env_type="gymnasium", num_envs=num_envs, num_threads=min(num_envs, cores), seed=small, **options
        )

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # how Gymnasium's boxes round its bounds
            spec = envpool.make_spec(name, **options)
            return EnvpoolVector(make, num_envs, spec.gymnasium_observation_space, spec.gymnasium_action_space, spec)
    except (TypeError, ValueError) as problem:
        said = str(problem).partition("\n")[0].removeprefix("Config.__new__() ")
        raise UserError(f"environment.kwargs={config.kwargs}: {config.id} in EnvPool {said}") from problem

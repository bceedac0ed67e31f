"""Samplers by name, for notebooks: steps and whole paths of a policy in an environment, by the collector that trains.

    sampler = get({"class_name": "SimpleSampler", "config": {"max_path_length": 200}}, "CartPole-v1", policy)
    sampler.sample_path()["return"]
    sampler.last_paths(3)

A training's own last paths are kept by training.keep_paths.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from etude.acting.actor import Actor
from etude.acting.policy import Mode
from etude.buffers.base import Batch, Buffer
from etude.buffers.columns import map_columns
from etude.buffers.rollout import RolloutBuffer
from etude.compute.random_streams import RandomStreams
from etude.config.constraints import NonNegativeInt, PositiveInt
from etude.config.registry import samplers
from etude.config.schema import EnvironmentConfig
from etude.config.validate import Validator
from etude.environments.make import make_environment
from etude.environments.vector import VectorEnvironment
from etude.errors import UserError
from etude.workflows.collector import Collector


@dataclass(frozen=True)
class SimpleSamplerConfig:
    """How long paths are, how many are kept, and what a batch is."""

    class_name: str = "SimpleSampler"
    """The registered name of the sampler."""
    max_path_length: PositiveInt | None = None
    """Cut paths after this many steps, by a truncation. Default: the environment's own limit."""
    store_last_n_paths: PositiveInt = 10
    """How many whole paths are kept."""
    min_pool_size: NonNegativeInt = 1
    """Transitions that the pool must hold before it gives batches."""
    batch_size: PositiveInt = 256
    """Transitions of a batch."""


class SimpleSampler:
    """Steps an environment with a policy. The same seed samples the same steps as a training that begins with it."""

    Config: ClassVar[type] = SimpleSamplerConfig

    def __init__(
        self,
        config: SimpleSamplerConfig,
        environment: VectorEnvironment,
        policy: Any,
        *,
        pool: Buffer | None = None,
        seed: int = 0,
        mode: Mode = "sample",
        device: torch.device | str = "cpu",
    ) -> None:
        """`device` is where the policy lives."""
        self.config, self.environment, self.pool = config, environment, pool
        self._device = torch.device(device)
        self._streams = RandomStreams(seed, self._device)
        self._collector = Collector(
            environment, self._streams, self._device, keep_paths=config.store_last_n_paths, key="store_last_n_paths"
        )
        self._actor = Actor(policy, mode, self._streams["action"])
        self._collector.start(self._actor.initial_state)

    def sample(self, steps: int = 1) -> dict[str, Any]:
        """Take `steps` steps in every copy and return them by column, (T, N, ...); the pool gets them too."""
        if steps < 1:
            raise UserError(f"sample({steps}): must be at least 1")
        rows = RolloutBuffer(steps, device=self._device)
        self._collector.collect(self._actor, rows, steps)
        if self.pool is not None:
            for step in range(steps):
                self.pool.add(map_columns(rows.columns, lambda column, at=step: column[at]))
        return rows.columns

    def sample_path(self) -> dict[str, Any]:
        """Step until an episode ends, and return all of it, steps before this call included."""
        watched = min(self.config.store_last_n_paths, self.environment.num_envs)
        ended = False
        while not ended:
            step = self.sample()
            ended = bool((step["terminated"] | step["truncated"])[:, :watched].any())
        return self.last_paths(1)[0]

    def rollouts(self, count: int) -> list[dict[str, Any]]:
        """Return the next `count` paths."""
        return [self.sample_path() for _ in range(count)]

    def last_paths(self, count: int | None = None) -> list[dict[str, Any]]:
        """Return the last whole paths, the newest last."""
        return self._collector.last_paths(count)

    @property
    def batch_ready(self) -> bool:
        """Whether the pool holds enough for a batch."""
        return self.pool is not None and self.pool.size >= self.config.min_pool_size

    def random_batch(self, size: int | None = None) -> Batch:
        """Draw transitions from the pool."""
        if self.pool is None:
            raise UserError("random_batch: this sampler has no pool; make it with one, such as pool=ReplayBuffer(10_000, 1)")
        if not self.batch_ready:
            raise UserError(
                f"random_batch: the pool holds {self.pool.size} transitions, min_pool_size={self.config.min_pool_size}"
            )
        return self.pool.sample(size or self.config.batch_size, self._streams["buffer"])

    def close(self) -> None:
        """Close the environment."""
        self.environment.close()


def get(
    description: str | Mapping[str, Any],
    environment: str | EnvironmentConfig | VectorEnvironment,
    policy: Any,
    *,
    pool: Buffer | None = None,
    num_envs: int = 1,
    seed: int = 0,
    mode: Mode = "sample",
    device: torch.device | str = "cpu",
) -> Any:
    """Return the sampler that a name or `{class_name, config}` describes, over an environment and a policy.

    An environment given by its id or its settings is made, with `num_envs` copies and paths of the length that is asked for.
    """
    given = {"class_name": description} if isinstance(description, str) else dict(description)
    name, options = given.pop("class_name", None), given.pop("config", None) or {}
    if given or not isinstance(name, str) or not isinstance(options, Mapping):
        raise UserError(f"a sampler is {{class_name: NAME, config: {{...}}}} (known: {', '.join(samplers.names())})")
    cls = samplers.resolve(name)
    config = Validator().build(cls.Config, {"class_name": name, **options})
    made = _environment(environment, getattr(config, "max_path_length", None), num_envs)
    return cls(config, made, policy, pool=pool, seed=seed, mode=mode, device=device)


def _environment(given: str | EnvironmentConfig | VectorEnvironment, longest: int | None, num_envs: int) -> VectorEnvironment:
    if isinstance(given, VectorEnvironment):
        limit = given.base.max_episode_steps
        if longest is not None and (limit is None or limit > longest):
            says = "has no time limit" if limit is None else f"cuts episodes after {limit:,} steps"
            raise UserError(f"max_path_length={longest}: this environment {says}; give its id or its settings instead")
        return given
    config = EnvironmentConfig(id=given) if isinstance(given, str) else given
    if longest is not None:
        config = replace(config, max_episode_steps=longest)
    return make_environment(config, num_envs=num_envs)

"""Runs small enough to compute by hand: configs made of the dataclasses themselves, and an environment made of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import torch
from torch import Tensor

from etude.buffers.rollout import RolloutConfig
from etude.components.networks.mlp import MLPConfig
from etude.config.schema import Config, EnvironmentConfig, EvaluationConfig, ExperimentConfig, TrainingConfig
from etude.environments.vector import Observation, Step, VectorEnvironment
from etude.orchestration.orchestrator import Orchestrator
from etude.training import assembly
from etude.workflows.base import Phase
from etude.workflows.ppo import PPO, PPOConfig
from etude.workflows.random_policy import RandomConfig

PHASE = Phase("train")


def ppo_config(
    name: str = "CartPole-v1",
    *,
    num_envs: int = 4,
    hidden: Sequence[int] = (8,),
    env: Any = None,
    seed: int = 1,
    **options: Any,
) -> Config:
    settings = {"rollout_steps": 16, "batch_size": 16, "epochs": 2, **options}
    network = MLPConfig(hidden_dims=tuple(hidden))
    return assembly.resolve(
        Config(
            experiment=ExperimentConfig(seed=seed, device="cpu"),
            environment=EnvironmentConfig(id=name, num_envs=num_envs, **(env or {})),
            algorithm=PPOConfig(**settings),
            network={"actor": network, "critic": network},
            buffers={"rollout": RolloutConfig()},
            training=TrainingConfig(total_steps=1_000),
            evaluation=EvaluationConfig(every_steps=0),
        )
    )


def random_config(name: str, *, num_envs: int = 4, steps: int = 16) -> Config:
    return assembly.resolve(
        Config(
            experiment=ExperimentConfig(device="cpu"),
            environment=EnvironmentConfig(id=name, num_envs=num_envs),
            algorithm=RandomConfig(),
            buffers={"rollout": RolloutConfig(steps=steps)},
            evaluation=EvaluationConfig(every_steps=0),
        )
    )


def start(config: Config, environment: VectorEnvironment | None = None) -> Orchestrator:
    orchestrator = assembly.build(config, environment=environment)
    assert orchestrator.collector is not None
    orchestrator.collector.start(orchestrator.workflow.initial_state)
    return orchestrator


def ppo_of(orchestrator: Orchestrator) -> PPO:
    assert isinstance(orchestrator.workflow, PPO)
    return orchestrator.workflow


def learner(config: Config, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]) -> PPO:
    """A PPO without an environment: it can act and learn from batches it is given."""
    workflow = assembly.build_workflow(config, observation_space, action_space)
    assert isinstance(workflow, PPO)
    return workflow


def state_of(orchestrator: Orchestrator) -> dict[str, Any]:
    """The whole run but the clock."""
    parts = orchestrator.state_dict()
    parts["shared"].pop("elapsed_s")
    return parts


def copied(tree: Any) -> Any:
    if isinstance(tree, dict):
        return type(tree)((key, copied(value)) for key, value in tree.items())
    if isinstance(tree, list | tuple):
        return type(tree)(copied(value) for value in tree)
    return tree.clone() if isinstance(tree, Tensor) else tree


class Counting(VectorEnvironment):
    """Reward 1 a step; shows its age, if asked; every episode lasts `length` steps, to a termination or a time limit."""

    single_action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, num_envs: int, length: int, *, terminates: bool, shows_age: bool) -> None:
        self.num_envs, self.device = num_envs, torch.device("cpu")
        self.length, self.terminates, self.shows_age = length, terminates, shows_age
        self.single_observation_space = gymnasium.spaces.Box(0, 1, (length + 1,))
        self.age = torch.zeros(num_envs, dtype=torch.int64)

    def reset(self, seeds: Sequence[int]) -> tuple[Observation, dict[str, Tensor]]:
        self.age = torch.tensor([i % self.length for i in range(self.num_envs)])
        return self._observe(), {}

    def step(self, action: Tensor) -> Step:
        self.age = self.age + 1
        final, ended = self._observe(), self.age == self.length
        self.age = self.age * ~ended
        terminated = ended if self.terminates else torch.zeros_like(ended)
        return Step(self._observe(), torch.ones(self.num_envs), terminated, ended & ~terminated, final, {})

    def _observe(self) -> Tensor:
        age = self.age if self.shows_age else torch.zeros_like(self.age)
        return torch.nn.functional.one_hot(age, self.length + 1).float()

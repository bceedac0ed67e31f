"""Runs of DQN small enough to follow by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import torch
from gymnasium import spaces
from torch import Tensor

from etude.config.compose import compose
from etude.config.schema import Config
from etude.orchestration.orchestrator import Orchestrator
from etude.training import assembly
from etude.workflows.dqn import DQN

TINY = (
    *("network.q.hidden_dims=[16]", "algorithm.batch_size=16", "algorithm.learning_starts=40", "algorithm.train_every=4"),
    *("algorithm.gradient_steps=2", "algorithm.target_every=3", "algorithm.dueling_units=8", "algorithm.quantiles=5"),
    *("algorithm.tau=1", "algorithm.reward_scale=1", "algorithm.learning_rate=1e-3"),
    *("environment.num_envs=2", "training.total_steps=400", "evaluation.every_steps=0", "buffers.replay.capacity=100"),
    "experiment.device=cpu",
)
DISTRIBUTIONS = {
    "none": (),
    "categorical": ("algorithm.distribution=categorical", "algorithm.v_min=0", "algorithm.v_max=20", "algorithm.atoms=11"),
    "quantile": ("algorithm.distribution=quantile",),
}
ACTIONS = 4
MASKED = spaces.Dict({"seen": spaces.Box(-1, 1, (3,)), "kind": spaces.Discrete(2), "action_mask": spaces.MultiBinary(ACTIONS)})


def config(*words: str, spec: str | None = "CartPole-v1:dqn") -> Config:
    return assembly.resolve(compose(spec, words=(*TINY, *words)).config)


def build(*words: str, spec: str | None = "CartPole-v1:dqn") -> Orchestrator:
    orchestrator = assembly.build(config(*words, spec=spec))
    assert orchestrator.collector is not None
    orchestrator.collector.start(orchestrator.workflow.initial_state)
    return orchestrator


def dqn_of(orchestrator: Orchestrator) -> DQN:
    assert isinstance(orchestrator.workflow, DQN)
    return orchestrator.workflow


def learner(*words: str, space: gymnasium.Space[Any] = MASKED) -> DQN:
    """A DQN without an environment: it can act and learn from batches it is given."""
    workflow = assembly.build_workflow(config(*words), space, spaces.Discrete(ACTIONS))
    assert isinstance(workflow, DQN)
    return workflow


def errors_of(workflow: DQN, rows: Mapping[str, Any]) -> Tensor:
    """How wrong it is about each row, which is said where rows have weights."""
    return workflow.loss({**rows, "weight": torch.ones(len(rows["reward"]))}).per_row["priority"]


def stir(workflow: DQN) -> None:
    """Make the target network another than the trained one, and both far from 0."""
    generator = torch.Generator().manual_seed(9)
    with torch.no_grad():
        for parameter in (*workflow.q.parameters(), *workflow.target_q.parameters()):
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))


def masked_observation(count: int, seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(count, ACTIONS, generator=generator) < 0.5
    mask[torch.arange(count), torch.randint(ACTIONS, (count,), generator=generator)] = True
    return {
        "seen": torch.randn(count, 3, generator=generator),
        "kind": torch.randint(2, (count,), generator=generator),
        "action_mask": mask.to(torch.int8),
    }


def masked_rows(count: int = 16) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(5)
    return {
        "observation": masked_observation(count, 1),
        "next_observation": masked_observation(count, 2),
        "action": torch.randint(ACTIONS, (count,), generator=generator),
        "reward": torch.randn(count, generator=generator),
        "discount": 0.9 * (torch.rand(count, generator=generator) < 0.7),
    }

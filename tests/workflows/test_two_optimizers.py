"""A workflow with several optimisers: the critic steps, the actor is frozen, and both survive a save."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces
from torch import Generator, Tensor

from etude.components.distributions import make_head
from etude.config.registry import algorithms
from etude.config.validate import Part
from etude.environments.vector import Observation
from etude.learning.optimizers import build_optimizer, clipped_step
from etude.orchestration.orchestrator import Orchestrator
from etude.training import assembly
from etude.workflows.base import ActResult, Context, Mode, NetworkSpec, Phase, State, Workflow
from etude.workflows.metrics import Metrics
from tests.runs_compared import assert_same_state
from tests.workflows.tiny_runs import copied, ppo_config, start, state_of

PHASE = Phase("train")


class CriticOnly(Workflow):
    """Learns a value by regression; its actor has an optimiser too, which is stepped only when thawed."""

    @classmethod
    def roles(cls, config: Any, observation_space: Any, action_space: Any) -> dict[str, NetworkSpec]:
        return {"actor": NetworkSpec(make_head(action_space)), "critic": NetworkSpec(1)}

    def initialize(self, context: Context) -> None:
        super().initialize(context)
        self.thawed = False
        part = Part("adamw", {"weight_decay": 0.1})
        self.actor_optimizer = build_optimizer(part, {"actor": (self.actor.parameters(), torch.tensor(1e-2))})
        self.critic_optimizer = build_optimizer(part, {"critic": (self.critic.parameters(), torch.tensor(1e-2))})

    def act(self, observation: Observation, state: State, is_first: Tensor, *, mode: Mode, generator: Generator) -> ActResult:
        return ActResult(make_head(spaces.Discrete(2))(self.actor(observation)).sample(generator), state)

    def learn(self, batch: Any) -> Metrics:
        loss = (self.critic(batch["observation"]).squeeze(-1) - batch["reward"]).square().mean()
        both = loss + self.actor(batch["observation"]).square().mean()  # gradients reach the actor too
        for optimizer in (self.actor_optimizer, self.critic_optimizer):
            optimizer.zero_grad(set_to_none=False)
        both.backward()
        norm = clipped_step(self.critic_optimizer, 0.5)
        if self.thawed:
            clipped_step(self.actor_optimizer, 0.5)
        return {"loss": loss, "grad_norm": norm}


def build(monkeypatch: Any) -> Orchestrator:
    monkeypatch.setattr(algorithms, "resolve", lambda name, **options: CriticOnly)  # the smallest way into the real assembly
    return start(ppo_config())


def learn(run: Orchestrator, rollouts: int) -> None:
    for _ in range(rollouts):
        run.workflow.collect(PHASE, 16)
        assert run.workflow.update(PHASE, 1).updates == 1


def test_the_critic_steps_and_the_actor_is_frozen(monkeypatch: Any) -> None:
    run = build(monkeypatch)
    workflow: Any = run.workflow
    actor, critic = copied(dict(workflow.actor.state_dict())), copied(dict(workflow.critic.state_dict()))
    learn(run, 3)
    assert_same_state(dict(workflow.actor.state_dict()), actor)
    assert not workflow.actor_optimizer.state
    assert all(not torch.equal(value, critic[name]) for name, value in workflow.critic.state_dict().items())
    workflow.thawed = True
    learn(run, 1)
    assert not torch.equal(workflow.actor.layers[0].weight, actor["layers.0.weight"])


def test_both_optimisers_go_on_where_they_were(monkeypatch: Any) -> None:
    run = build(monkeypatch)
    learn(run, 2)
    run.workflow.thawed = True  # type: ignore[attr-defined] # of this double
    learn(run, 1)
    saved = copied(run.state_dict())
    fresh = build(monkeypatch)
    fresh.load_state_dict(saved)
    for one in (run, fresh):
        one.workflow.thawed = True  # type: ignore[attr-defined] # of this double
        one.streams.load_state_dict(saved["rank/0"]["streams"])
        learn(one, 2)
    assert_same_state(state_of(fresh), state_of(run))
    assert set(saved["shared"]["workflow"]) >= {"actor_optimizer", "critic_optimizer", "actor", "critic"}


def test_the_assembly_is_the_real_one(monkeypatch: Any) -> None:
    assert type(build(monkeypatch).workflow) is CriticOnly
    monkeypatch.undo()
    assert assembly._workflow_class(ppo_config()).__name__ == "PPO"

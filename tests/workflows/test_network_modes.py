"""Dropout and batch norm: active where it is learnt from, in evaluation mode wherever an action or a value is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn

from etude.buffers.base import Batch
from etude.components.critics import Follow, target_of
from etude.components.networks.modes import evaluating, mode_dependent
from etude.config.compose import compose
from etude.environments.make import make_environment
from etude.environments.vector import Observation
from etude.errors import UserError
from etude.orchestration.evaluator import evaluate_episodes
from etude.workflows.base import ActResult, Context, Mode, NetworkSpec, State, Workflow
from etude.workflows.metrics import Metrics
from tests.runs_compared import assert_same_run, resume, stopped_after, train
from tests.workflows.tiny_replay_runs import start
from tests.workflows.tiny_runs import copied

HERE = "tests.workflows.test_network_modes"


class Regularised(nn.Module):
    """Layers with dropout and batch norm, that notes in which mode it was asked."""

    def __init__(self, observation_space: Any, output_size: int, drop: float = 0.5, hidden_dims: Any = ()) -> None:
        super().__init__()
        parts = getattr(observation_space, "spaces", {"": observation_space})
        size = sum(part.shape[0] for part in parts.values())
        self.layers = nn.Sequential(
            nn.Linear(size, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(drop), nn.Linear(16, output_size)
        )
        self.asked: list[tuple[bool, bool]] = []

    def forward(self, observation: Any) -> Tensor:
        self.asked.append((torch.is_grad_enabled(), self.training and self.layers[3].training))
        seen = torch.cat([*observation.values()], -1) if isinstance(observation, dict) else observation
        return self.layers(seen)


class Own(Workflow):
    """Two methods, as in the tutorial: one regression on the reward."""

    network: Any

    @classmethod
    def default_networks(cls) -> dict[str, Any]:
        return {"network": {"type": f"{HERE}.Regularised"}}

    @classmethod
    def roles(cls, config: Any, observation_space: Any, action_space: Any) -> dict[str, NetworkSpec]:
        return {"network": NetworkSpec(int(action_space.n))}

    def initialize(self, context: Context) -> None:
        super().initialize(context)
        self.optimizer = torch.optim.Adam(self.network.parameters())

    def act(self, observation: Observation, state: State, is_first: Tensor, *, mode: Mode, generator: Generator) -> ActResult:
        with torch.no_grad():
            return ActResult(self.network(observation).argmax(-1))

    def learn(self, batch: Batch) -> Metrics:
        loss = self.network(batch["observation"].flatten(0, 1)).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return {"loss": loss.detach()}


REPLAY = ("algorithm.learning_starts=16", "algorithm.batch_size=8", "algorithm.train_every=4", "algorithm.gradient_steps=1")
CASES = {
    "CartPole-v1:ppo": (("actor", "critic"), ("algorithm.rollout_steps=16", "algorithm.batch_size=16", "algorithm.epochs=2")),
    "CartPole-v1:a2c": (("actor", "critic"), ("algorithm.rollout_steps=8",)),
    "CartPole-v1:reinforce": (("actor",), ("algorithm.rollout_steps=32",)),
    "CartPole-v1:dqn": (("q",), (*REPLAY, "algorithm.epsilon=0.1")),
    "CartPole-v1:sac": (("actor", "critic"), REPLAY),
    "Pendulum-v1:sac": (("actor", "critic"), REPLAY),
    "Pendulum-v1:td3": (("actor", "critic"), REPLAY),
    "Pendulum-v1:tqc": (("actor", "critic"), REPLAY),
    "Pendulum-v1:sql": (("sampler", "critic"), REPLAY),
    f"CartPole-v1:{HERE}.Own": (("network",), ("algorithm.rollout_steps=8",)),
}


def words_of(spec: str, *more: str) -> tuple[str, ...]:
    roles, words = CASES[spec]
    networks = [f"network.{role}={{type: {HERE}.Regularised}}" for role in roles]
    common = ("environment.num_envs=2", "training.total_steps=96", "evaluation.every_steps=0", "experiment.compile=off")
    return (*common, *words, *networks, *more)


def own_networks(workflow: Any) -> list[Regularised]:
    parts = {id(part): part for value in vars(workflow).values() if isinstance(value, nn.Module) for part in value.modules()}
    return [part for part in parts.values() if isinstance(part, Regularised)]


@pytest.mark.parametrize("spec", CASES)
def test_acting_is_in_evaluation_mode_and_learning_in_training_mode(spec: str) -> None:
    # Defect 30: dropout was active in every action and every evaluation, and batch norm learnt from them.
    orchestrator = start(spec, words_of(spec))
    orchestrator.run()
    found = own_networks(orchestrator.workflow)
    learning = {asked for network in found for asked in network.asked if asked[0]}
    # SQL asks its critic for a gradient by actions, which teaches the critic nothing.
    assert learning - ({(True, False)} if spec.endswith(":sql") else set()) == {(True, True)}
    for network in found:
        network.asked.clear()
    state = {name: value.clone() for network in found for name, value in network.state_dict().items()}
    environment = orchestrator.collector.environment  # type: ignore[union-attr]
    policy = orchestrator.workflow.policy()
    observation, _ = environment.reset([1, 2])
    first = torch.ones(2, dtype=torch.bool)
    with torch.no_grad():
        actions = [policy.act(observation, None, first, mode="greedy", generator=Generator()).action for _ in range(20)]
    assert all(torch.equal(action, actions[0]) for action in actions), "no dropout"
    orchestrator.workflow.collect(orchestrator.scheduler.view(), 3)
    asked = {mode for network in found for mode in network.asked}
    assert asked == {(False, False)}
    assert all(torch.equal(value, state[name]) for network in found[-1:] for name, value in network.state_dict().items())
    assert all(module.training for network in found for module in network.modules() if network.training), "and learns on"


def test_values_before_learning_are_those_of_evaluation() -> None:
    spec = "CartPole-v1:ppo"
    orchestrator = start(spec, words_of(spec, "network.critic.drop=0.9"))
    workflow: Any = orchestrator.workflow
    workflow.collect(orchestrator.scheduler.view(), 16)
    columns = orchestrator.buffers["rollout"].columns
    one, other = (workflow._prepare(columns)["values"] for _ in range(2))
    assert torch.equal(one, other)
    asked = workflow.values(columns["observation"].flatten(0, 1))
    assert torch.equal(asked, workflow.values(columns["observation"].flatten(0, 1)))


@pytest.mark.parametrize("spec", ["CartPole-v1:ppo", "Pendulum-v1:td3", f"CartPole-v1:{HERE}.Own"])
def test_a_stopped_run_is_the_run_that_was_not(spec: str, tmp_path: Path) -> None:
    words = words_of(spec, "evaluation.every_steps=32", "evaluation.episodes=1")
    whole = train(spec, tmp_path / "whole", *words)
    with stopped_after(2):
        parted = train(spec, tmp_path / "parted", *words)
    resume(parted)
    assert_same_run(whole, parted)


def test_evaluating_changes_nothing() -> None:
    spec = "Pendulum-v1:sac"
    orchestrator = start(spec, words_of(spec))
    orchestrator.run()
    (network,) = [part for part in orchestrator.workflow.actor.modules() if isinstance(part, Regularised)]  # type: ignore[attr-defined]
    before = {name: value.clone() for name, value in network.state_dict().items()}
    draws = torch.get_rng_state()
    config = compose(spec, words=words_of(spec)).config.environment
    environment = make_environment(config, num_envs=2)
    evaluate_episodes(orchestrator.workflow.policy(), environment, 2, mode="sample", seed=1)
    assert torch.equal(torch.get_rng_state(), draws)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_targets_have_the_statistics_of_what_they_follow() -> None:
    # Defect 30: a target's batch norm kept the statistics that it began with.
    trained = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    target = target_of(trained)
    follow = Follow([trained], [target], 0.25)
    weight = target[0].weight.clone()  # type: ignore[union-attr,operator]
    with torch.no_grad():
        trained(torch.randn(64, 3) + 5)
        trained[0].weight.add_(1)  # type: ignore[union-attr,operator]
    follow()
    torch.testing.assert_close(target[0].weight, weight + 0.25)  # type: ignore[union-attr]
    assert torch.equal(target[1].running_mean, trained[1].running_mean)  # type: ignore[union-attr]
    assert target[1].num_batches_tracked == trained[1].num_batches_tracked == 1  # type: ignore[union-attr]
    assert {tensor.data_ptr() for tensor in follow.tensors} == {value.data_ptr() for value in target.state_dict().values()}
    before = target[1].running_mean.clone()  # type: ignore[union-attr,operator]
    target(torch.randn(64, 3))
    assert torch.equal(target[1].running_mean, before), "it takes none of its own"  # type: ignore[union-attr]


def test_a_skipped_step_leaves_statistics_as_they_are() -> None:
    spec = "CartPole-v1:a2c"
    orchestrator = start(spec, words_of(spec, "training.on_nan=skip"))
    workflow: Any = orchestrator.workflow
    workflow.collect(orchestrator.scheduler.view(), 8)
    orchestrator.buffers["rollout"].columns["reward"][0] = torch.nan
    before = {name: value.clone() for name, value in workflow.actor.state_dict().items()}
    workflow.update(orchestrator.scheduler.view(), 1)
    assert all(torch.equal(value, before[name]) for name, value in workflow.actor.state_dict().items())


@pytest.mark.parametrize(
    "spec", ["CartPole-v1:dqn", *(pytest.param(f"Pendulum-v1:{name}", marks=pytest.mark.slow) for name in ("td3", "sql"))]
)
def test_a_compiled_update_takes_the_statistics_that_an_eager_one_takes(spec: str) -> None:
    roles = CASES[spec][0]
    # Batch norm takes away the bias before it, whose gradient is nothing but rounding: an Adam that does not make much of that.
    words = words_of(spec, "algorithm.optimizer={type: adam, eps: 1e-2}", *(f"network.{role}.drop=0" for role in roles))
    states = []
    for compiling, mode in (("off", "eager"), ("on", "compiled")):
        torch.manual_seed(0)  # what networks of one's own begin with
        orchestrator = start(spec, (*words, f"experiment.compile={compiling}"))
        before = {role: copied(getattr(orchestrator.workflow, role).state_dict()) for role in roles}
        while orchestrator.counters.updates < 3:
            orchestrator._run_cycle()
        assert orchestrator.workflow._executor.mode == mode
        states.append(orchestrator.workflow.state_dict())
    for role in (*roles, *(f"target_{role}" for role in roles if f"target_{role}" in states[0])):
        for name, value in states[0][role].items():
            torch.testing.assert_close(states[1][role][name], value, rtol=1e-4, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}")
            assert role not in before or not torch.equal(value, before[role][name]) or "bias" in name


def test_what_takes_statistics_is_learnt_in_whole_batches() -> None:
    spec = "CartPole-v1:ppo"
    with pytest.raises(UserError, match=r"algorithm.accumulate: .*batch norm.* set it to 1"):
        start(spec, words_of(spec, "algorithm.accumulate=2"))


def test_only_what_cares_is_switched() -> None:
    frozen = nn.Dropout().eval()
    network = nn.Sequential(
        nn.Linear(2, 2), nn.LayerNorm(2), nn.LSTM(2, 2), nn.Dropout(), frozen, nn.LSTM(2, 2, 2, dropout=0.1)
    )
    found = mode_dependent(network)
    assert found == [network[3], frozen, network[5]]
    with evaluating(found):
        assert not any(module.training for module in found)
        assert network[0].training
    assert [module.training for module in found] == [True, False, True]

"""What A2C promises beyond what every algorithm does: its loss by hand, its horizon, its optimiser and its rates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from etude.components.returns import discounted_returns
from etude.config.compose import compose
from etude.learning.execute import make_executor
from etude.learning.sources import Source
from etude.orchestration.orchestrator import Orchestrator
from etude.telemetry.jsonl import read_rows
from etude.training import assembly
from etude.workflows.a2c import A2C
from etude.workflows.base import Phase
from tests.runs_compared import train

PHASE = Phase("train")
SMALL = ("environment.num_envs=4", "algorithm.rollout_steps=6", "experiment.device=cpu", "evaluation.every_steps=0")


def build(*words: str, spec: str = "CartPole-v1:a2c") -> tuple[Orchestrator, A2C]:
    run = assembly.build(assembly.resolve(compose(spec, words=[*SMALL, *words]).config))
    assert run.collector is not None
    run.collector.start(run.workflow.initial_state)
    assert isinstance(run.workflow, A2C)
    return run, run.workflow


def test_one_step_follows_the_gradient_of_the_three_terms() -> None:
    words = ("algorithm.optimizer=sgd", "algorithm.learning_rate=1", "algorithm.max_grad_norm=null")
    _, workflow = build(*words, "algorithm.value_coef=0.25", "algorithm.entropy_coef=0.1")
    generator = torch.Generator().manual_seed(0)
    batch = {name: torch.randn(5, generator=generator) for name in ("advantages", "returns")}
    batch |= {"observation": torch.randn(5, 4, generator=generator), "sample": torch.tensor([0, 1, 1, 0, 1])}
    log_probs = workflow.actor(batch["observation"]).log_softmax(-1)
    chosen = log_probs.gather(1, batch["sample"].unsqueeze(1)).squeeze(1)
    entropy = -(log_probs.exp() * log_probs).sum(-1)
    errors = (workflow.critic(batch["observation"]).squeeze(-1) - batch["returns"]).square()
    loss = (-chosen * batch["advantages"] + 0.25 * errors - 0.1 * entropy).mean()
    parameters = [*workflow.actor.parameters(), *workflow.critic.parameters()]
    expected = [p.detach() - g for p, g in zip(parameters, torch.autograd.grad(loss, parameters), strict=True)]
    metrics = workflow.learn(batch)
    assert float(metrics["train/loss"]) == pytest.approx(float(loss.detach()), rel=1e-6)
    for parameter, value in zip(parameters, expected, strict=True):
        torch.testing.assert_close(parameter.detach(), value, rtol=1e-5, atol=1e-6)


class Noted:
    """Stands where updates would be taken, and keeps what it is given."""

    def run(self, source: Source, count: int) -> dict[str, Any]:
        self.batch, self.indices = source.columns, source.draw(count)
        return {}


def test_by_default_each_step_looks_to_the_end_of_its_rollout() -> None:
    run, workflow = build("algorithm.gamma=0.9")
    workflow._executor = noted = Noted()  # type: ignore[assignment]
    workflow.collect(PHASE, 6)
    columns = {key: value.clone() for key, value in run.buffers["rollout"].columns.items()}
    workflow.update(PHASE, 1)
    next_values = workflow.values(columns["next_observation"].flatten(0, 1)).view(6, 4)
    ended = columns["terminated"] | columns["truncated"]
    returns = discounted_returns(columns["reward"], next_values, columns["terminated"], ended, 0.9)
    torch.testing.assert_close(noted.batch["returns"].view(4, 6).T, returns, rtol=1e-5, atol=1e-5)
    assert noted.indices.tolist() == [list(range(24))], "one step on everything"


def test_rmsprop_is_the_default_and_any_other_optimiser_will_do() -> None:
    for word, kind in (
        ("algorithm.gamma=0.9", "RMSprop"),
        ("algorithm.optimizer=adam", "Adam"),
        ("algorithm.optimizer=sgd", "SGD"),
    ):
        run, workflow = build(word)
        before = [p.detach().clone() for p in workflow.actor.parameters()]
        run.workflow.collect(PHASE, 6)
        assert run.workflow.update(PHASE, 1).updates == 1
        assert type(workflow.optimizer).__name__ == kind
        assert any(not torch.equal(old, new) for old, new in zip(before, workflow.actor.parameters(), strict=True))


def test_an_optimiser_whose_rate_the_host_writes_is_not_captured() -> None:
    for name, mode in (("rmsprop", "eager"), ("adam", "captured")):
        _, workflow = build(f"algorithm.optimizer={name}")
        executor = make_executor(workflow.losses(), {"actor": workflow.actor, "critic": workflow.critic}, mode="captured")
        assert executor.mode == mode, "a schedule would have no effect inside a graph"


@pytest.mark.parametrize("optimizer", ["rmsprop", "adam"])
def test_actor_and_critic_follow_their_own_schedules(optimizer: str, tmp_path: Path) -> None:
    words = ("training.total_steps=1600", "algorithm.learning_rate=lin_1e-2", "algorithm.critic_learning_rate=5e-3")
    run = train("CartPole-v1:a2c", tmp_path, *words, f"algorithm.optimizer={optimizer}", "evaluation.every_steps=0")
    logged = read_rows(run.metrics_path)
    assert logged[0]["hp/learning_rate"] > logged[-1]["hp/learning_rate"]
    assert all(row["hp/critic_learning_rate"] == pytest.approx(5e-3) for row in logged)
    state: Any = run.checkpoints().newest_whole().load()["shared"]
    rates = {group["name"]: group.get("rate", group["lr"]) for group in state["workflow"]["optimizer"]["groups"]}
    assert float(rates["actor"]) == pytest.approx(logged[-1]["hp/learning_rate"])
    assert float(rates["critic"]) == pytest.approx(5e-3)


@pytest.mark.parametrize(("word", "scaled"), [("rollout", True), ("true", True), ("off", False)])
def test_advantages_are_scaled_on_request(word: str, scaled: bool) -> None:
    _, workflow = build(f"algorithm.normalize_advantages={word}")
    workflow._executor = noted = Noted()  # type: ignore[assignment]
    workflow.collect(PHASE, 6)
    workflow.update(PHASE, 1)
    assert (abs(float(noted.batch["advantages"].std()) - 1) < 1e-3) == scaled


def test_continuous_actions_and_normalisers() -> None:
    words = ("environment.normalize_observations=rolling", "environment.normalize_rewards=true")
    run, workflow = build(*words, spec="Pendulum-v1:a2c")
    for _ in range(3):
        run.workflow.collect(PHASE, 6)
        run.workflow.update(PHASE, 1)
    assert workflow.reward_normalizer is not None
    assert int(workflow.normalizer.parts[0].count) == 3 * 6 * 4
    metrics = run.workflow.metrics.drain()
    assert metrics["train/action_std"] > 0
    assert all(value == value for value in metrics.values())

"""What REINFORCE promises: returns and weights by hand, whole episodes only, and a policy that learns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from etude.config.compose import compose
from etude.environments.vector import VectorEnvironment
from etude.errors import ConfigError
from etude.orchestration.orchestrator import Orchestrator
from etude.telemetry.jsonl import read_rows
from etude.training import assembly
from etude.workflows.base import Phase
from etude.workflows.reinforce import Reinforce
from tests.runs_compared import train
from tests.workflows.tiny_runs import Counting

PHASE = Phase("train")
SMALL = ("environment.num_envs=4", "algorithm.rollout_steps=6", "experiment.device=cpu", "evaluation.every_steps=0")


def build(*words: str, environment: VectorEnvironment | None = None) -> tuple[Orchestrator, Reinforce]:
    config = assembly.resolve(compose("CartPole-v1:reinforce", words=[*SMALL, *words]).config)
    run = assembly.build(config, environment=environment)
    assert run.collector is not None
    run.collector.start(run.workflow.initial_state)
    assert isinstance(run.workflow, Reinforce)
    return run, run.workflow


def columns(rewards: list[float], ends: list[int], *, truncated: bool = False) -> dict[str, Any]:
    """One environment's rollout as the buffer holds it."""
    ended = torch.zeros(len(rewards), 1, dtype=torch.bool)
    ended[ends] = True
    first = torch.cat([torch.ones(1, 1, dtype=torch.bool), ended[:-1]])
    no = torch.zeros_like(ended)
    return {
        "observation": torch.arange(len(rewards)).float().view(-1, 1, 1).expand(-1, 1, 4).clone(),
        "sample": torch.zeros(len(rewards), 1, dtype=torch.int64),
        "reward": torch.tensor(rewards, dtype=torch.float32).unsqueeze(1),
        "terminated": no if truncated else ended,
        "truncated": ended if truncated else no,
        "is_first": first,
    }


@pytest.mark.parametrize("truncated", [False, True])
@pytest.mark.parametrize(("mode", "expected"), [("mc:rtg", [3, 2, 1]), ("mc:episode", [3, 3, 3])])
def test_returns_by_hand_and_steps_of_an_unfinished_episode_wait(mode: str, expected: list[float], truncated: bool) -> None:
    """Where a time limit cuts, the episode counts with the rewards it had: there is no critic to say what would follow."""
    _, workflow = build(f"algorithm.returns={mode}", "algorithm.gamma=1")
    batch = workflow._prepare(columns([1, 1, 1, 5, 5], [2], truncated=truncated))
    assert batch["returns"].tolist() == expected
    assert batch["observation"][:, 0].tolist() == [0, 1, 2]
    following = workflow._prepare({**columns([5, 1], [0], truncated=truncated), "is_first": torch.tensor([[False], [True]])})
    assert following["returns"].tolist() == ([15, 10, 5] if mode == "mc:rtg" else [15, 15, 15])
    assert following["observation"][:, 0].tolist() == [3, 4, 0]


def test_a_discount_counts_from_each_step() -> None:
    _, workflow = build("algorithm.gamma=0.5")
    assert workflow._prepare(columns([1, 1, 1], [2]))["returns"].tolist() == [1.75, 1.5, 1.0]


def test_an_episode_that_a_resume_could_not_continue_is_dropped() -> None:
    _, workflow = build("algorithm.gamma=1")
    workflow._prepare(columns([1, 1], []))  # waits, and never ends:
    batch = workflow._prepare({**columns([7, 7], [1]), "is_first": torch.tensor([[True], [False]])})
    assert batch["returns"].tolist() == [14, 7]


def test_the_weight_is_the_return_less_the_running_baseline() -> None:
    _, workflow = build("algorithm.baseline_decay=0.5")
    first, second = torch.tensor([1.0, 3.0]), torch.tensor([10.0, 6.0])
    assert workflow._weights(first).tolist() == [-1.0, 1.0], "the first batch is its own baseline"
    assert workflow._weights(second).tolist() == [8.0, 4.0], "2 is the mean of what came before"
    assert float(workflow.baseline) == pytest.approx(0.5 * 2 + 0.5 * 8)


def test_returns_as_they_are() -> None:
    _, workflow = build("algorithm.policy_targets=returns")
    for returns in (torch.tensor([1.0, 3.0]), torch.tensor([10.0, 6.0])):
        assert torch.equal(workflow._weights(returns), returns)


@pytest.mark.parametrize("word", ["algorithm.policy_targets=values", "algorithm.returns=gae"])
def test_another_target_or_return_is_an_error_that_names_the_key(word: str) -> None:
    with pytest.raises(ConfigError, match=word.split("=")[0]):
        build(word)


def test_the_gradient_is_that_of_weighted_log_probabilities() -> None:
    _, workflow = build("algorithm.optimizer=sgd", "algorithm.learning_rate=1")
    batch = {"observation": torch.randn(5, 4), "sample": torch.tensor([0, 1, 1, 0, 1]), "weights": torch.randn(5)}
    before = [p.detach().clone() for p in workflow.actor.parameters()]
    log_probs = workflow.actor(batch["observation"]).log_softmax(-1).gather(1, batch["sample"].unsqueeze(1)).squeeze(1)
    expected = torch.autograd.grad((log_probs * batch["weights"]).mean(), list(workflow.actor.parameters()))
    workflow.learn(batch)
    for parameter, old, gradient in zip(workflow.actor.parameters(), before, expected, strict=True):
        torch.testing.assert_close(parameter.detach(), old + gradient, rtol=1e-5, atol=1e-6)


def test_a_rollout_without_an_end_takes_no_step_and_loses_nothing() -> None:
    run, workflow = build(environment=Counting(4, 20, terminates=True, shows_age=False))
    run.workflow.collect(PHASE, 6)
    assert run.workflow.update(PHASE, 1).is_empty
    seen = 0
    for _ in range(10):
        run.workflow.collect(PHASE, 6)
        done = run.workflow.update(PHASE, 1)
        seen += done.updates
    waits = int(workflow.waiting.state_dict()["held"].sum())
    assert seen > 0
    # 4 environments that began 0 to 3 steps old took 66 steps each and ended three episodes each.
    assert waits == sum((age + 66) % 20 for age in range(4))


def test_the_learning_rate_follows_its_schedule_into_optimiser_and_log(tmp_path: Path) -> None:
    words = ("training.total_steps=2048", "algorithm.rollout_steps=64", "algorithm.learning_rate=lin_1e-2")
    logged = read_rows(train("CartPole-v1:reinforce", tmp_path, *words, "evaluation.every_steps=0").metrics_path)
    rates = [row["hp/learning_rate"] for row in logged]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] > rates[-1] >= 0
    assert {"train/loss", "train/policy_loss", "train/entropy", "train/return_mean", "train/baseline"} <= set(logged[-1])

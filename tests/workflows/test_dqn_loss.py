"""The loss of DQN, computed by hand for each of its options."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from etude.workflows.dqn import DQN
from tests.workflows.dqn_runs import (
    DISTRIBUTIONS,
    build,
    dqn_of,
    errors_of,
    learner,
    masked_rows,
    stir,
)


def best(workflow: DQN, rows: dict[str, Any], judge: torch.nn.Module) -> list[int]:
    """The best allowed next action of each row, in a loop."""
    values = workflow.q.values(judge(rows["next_observation"]))
    masks = rows["next_observation"]["action_mask"]
    return [max((v, a) for a, v in enumerate(row) if m[a])[1] for row, m in zip(values.tolist(), masks.tolist(), strict=True)]


def huber(error: Tensor) -> Tensor:
    return torch.where(error.abs() <= 1, 0.5 * error**2, error.abs() - 0.5)


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("dueling", [True, False])
@torch.no_grad()
def test_targets_are_by_the_book(double: bool, dueling: bool) -> None:
    workflow = learner(f"algorithm.double={double}", f"algorithm.dueling={dueling}", "algorithm.reward_scale=3")
    stir(workflow)
    rows, each = masked_rows(), torch.arange(16)
    by_q, by_target = (best(workflow, rows, judge) for judge in (workflow.q, workflow.target_q))
    assert by_q != by_target  # or the test could not tell them apart
    following = workflow.target_q(rows["next_observation"])[each, by_q if double else by_target, 0]
    value = workflow.q(rows["observation"])[each, rows["action"], 0]
    error = 3 * rows["reward"] + rows["discount"] * following - value
    loss, metrics, *_ = workflow.loss(rows)
    torch.testing.assert_close(loss, huber(error).mean())
    torch.testing.assert_close(errors_of(workflow, rows), error.abs())
    torch.testing.assert_close(metrics["train/q_mean"], value.mean())
    torch.testing.assert_close(metrics["train/q_target_mean"], (error + value).mean())


@pytest.mark.parametrize("kind", DISTRIBUTIONS)
@torch.no_grad()
def test_distributions_are_those_of_the_actions(kind: str) -> None:
    workflow = learner(*DISTRIBUTIONS[kind])
    stir(workflow)
    rows, each = masked_rows(), torch.arange(16)
    following = workflow.target_q(rows["next_observation"])[each, best(workflow, rows, workflow.q)]
    taken = workflow.q(rows["observation"])[each, rows["action"]]
    losses, errors = workflow.q.distribution.errors(taken, following, rows["reward"], rows["discount"])
    out = workflow.loss(rows)
    torch.testing.assert_close(out.loss, losses.mean())
    assert not out.per_row, "nobody asks without weights"
    torch.testing.assert_close(errors_of(workflow, rows), errors)


@pytest.mark.parametrize("kind", DISTRIBUTIONS)
@torch.no_grad()
def test_importance_weights_multiply_each_rows_loss(kind: str) -> None:
    workflow, rows = learner(*DISTRIBUTIONS[kind]), masked_rows()
    stir(workflow)
    alone = torch.stack([workflow.loss({**rows, "weight": 16.0 * (torch.arange(16) == i)}).loss for i in range(16)])
    weight = torch.rand(16, generator=torch.Generator().manual_seed(0))
    out = workflow.loss({**rows, "weight": weight})
    torch.testing.assert_close(out.loss, (alone * weight).mean())
    torch.testing.assert_close(out.per_row["priority"], errors_of(workflow, rows))  # how wrong a row is depends on no weight


@pytest.mark.parametrize("kind", DISTRIBUTIONS)
def test_an_end_where_nothing_is_allowed_is_no_trouble(kind: str) -> None:
    workflow, rows = learner(*DISTRIBUTIONS[kind]), masked_rows()
    rows["next_observation"]["action_mask"].zero_()
    rows["discount"] = torch.zeros(16)
    loss = workflow.loss(rows).loss
    loss.backward()
    assert torch.isfinite(loss)
    gradients = [p.grad for p in workflow.q.parameters()]
    assert all(g is not None and torch.isfinite(g).all() for g in gradients)


def test_a_time_limit_is_bootstrapped_and_an_end_is_not() -> None:
    orchestrator = build("environment.max_episode_steps=12", "algorithm.learning_starts=100", "algorithm.double=false")
    workflow, buffer = dqn_of(orchestrator), orchestrator.buffers["replay"]
    while not buffer.ready:
        orchestrator._run_cycle()
    stir(workflow)
    batch = buffer.sample(400, orchestrator.streams["buffer"])
    with torch.no_grad():
        following = workflow.target_q(batch["next_observation"]).squeeze(-1).amax(-1)
        value = workflow.q(batch["observation"]).squeeze(-1).gather(1, batch["action"][:, None])[:, 0]
        errors = errors_of(workflow, batch)
    cut, ended = batch["truncated"] & ~batch["terminated"], batch["terminated"]
    assert cut.any()
    assert ended.any()
    torch.testing.assert_close(errors[cut], (1 + 0.99 * following - value).abs()[cut])
    torch.testing.assert_close(errors[ended], (1 - value).abs()[ended])


def test_several_rewards_are_summed_before_the_target_counts() -> None:
    orchestrator = build("algorithm.n_step=3", "algorithm.learning_starts=100", "algorithm.double=false")
    workflow, buffer = dqn_of(orchestrator), orchestrator.buffers["replay"]
    while not buffer.ready:
        orchestrator._run_cycle()
    stir(workflow)
    batch = buffer.sample(400, orchestrator.streams["buffer"])
    with torch.no_grad():
        following = workflow.target_q(batch["next_observation"]).squeeze(-1).amax(-1)
        value = workflow.q(batch["observation"]).squeeze(-1).gather(1, batch["action"][:, None])[:, 0]
        errors = errors_of(workflow, batch)
    whole = (batch["discount"] - 0.99**3).abs() < 1e-6
    assert whole.any()
    right = (1 + 0.99 + 0.99**2 + 0.99**3 * following - value).abs()
    torch.testing.assert_close(errors[whole], right[whole])

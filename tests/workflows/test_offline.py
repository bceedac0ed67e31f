"""Learning from datasets: without an environment, exactly resumed, and then with one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from gymnasium import spaces
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal

from etude.components.critics import with_action
from etude.components.mixture_head import MixtureHead
from etude.compute.trees import at
from etude.errors import ConfigError, UserError
from etude.orchestration.orchestrator import Orchestrator
from tests.datasets.episodes import write_lines
from tests.runs_compared import assert_resumes_again_and_again, train
from tests.workflows.tiny_replay_runs import assert_compiled_equals_eager, start

TINY = ("algorithm.batch_size=8", "algorithm.updates=24", "network.actor.hidden_dims=[8]", "experiment.compile=off")
OFF = ("evaluation.every_steps=0", "evaluation.every_updates=0")
SMALL_CRITIC = (
    "network.critic.hidden_dims=[8]",
    "buffers.replay.capacity=200",
    "algorithm.learning_starts=20",
    "environment.num_envs=2",
)
FINETUNED = ("algorithm.finetune_steps=60", "training.total_steps=60", *SMALL_CRITIC)
ACTORS = {"iql": ("network.value.hidden_dims=[8]",), "td3_bc": ()}


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where demonstrations of a line are."""
    monkeypatch.setenv("ETUDE_DATASETS", str(tmp_path / "data"))
    write_lines(tmp_path / "data")
    return tmp_path


def built(algorithm: str, dataset: str, *words: str) -> Orchestrator:
    return start(f"Nowhere-v0:{algorithm}", (f"buffers.data.dataset={dataset}", *TINY, *OFF, *words))


@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        ("carts", ()),
        ("pendulum", ("algorithm.head=mixture", "algorithm.normalize=false", "algorithm.learning_rate=lin_1e-3")),
        ("carts", ("network.actor.type=gru", "algorithm.sequence=4")),
    ],
)
def test_cloning_needs_no_environment_and_resumes_exactly(root: Path, dataset: str, words: tuple[str, ...]) -> None:
    own = TINY if not any("gru" in word for word in words) else [word for word in TINY if "hidden_dims" not in word]
    run = assert_resumes_again_and_again(
        "Nowhere-v0:bc", root / "runs", f"buffers.data.dataset={dataset}", *own, *OFF, "environment.num_envs=2", *words, most=4
    )
    assert run.summary["counters"] == {"decisions": 0, "env_steps": 0, "updates": 24, "episodes": 0, "cycles": 24}


@pytest.mark.parametrize("algorithm", ["iql", "td3_bc"])
def test_offline_then_online_is_one_run_that_resumes_exactly(root: Path, algorithm: str) -> None:
    words = ("buffers.data.dataset=pendulum", *TINY, *FINETUNED, *ACTORS[algorithm], "evaluation.every_steps=0")
    run = assert_resumes_again_and_again(f"Pendulum-v1:{algorithm}", root / "runs", *words, OFF[1], most=8)
    counters = run.summary["counters"]
    assert counters["env_steps"] == 60
    assert 24 < counters["updates"] <= 24 + 30


@pytest.mark.parametrize(
    ("algorithm", "words", "most"),
    [
        ("bc", ("algorithm.head=gaussian",), 0.4),
        ("bc", ("algorithm.head=deterministic",), 0.2),
        ("bc", ("algorithm.head=mixture", "algorithm.mixtures=2"), 0.5),
        ("iql", (*ACTORS["iql"], *SMALL_CRITIC), 0.5),
        ("td3_bc", (*SMALL_CRITIC, "algorithm.alpha=0.1"), 0.4),
    ],
)
def test_what_was_done_is_learnt(algorithm: str, words: tuple[str, ...], most: float) -> None:
    more = ("algorithm.updates=150", "algorithm.learning_rate=0.01", "algorithm.batch_size=32")
    orchestrator = built(algorithm, "pendulum", *words, *more)
    orchestrator.run()
    workflow: Any = orchestrator.workflow
    seen = torch.tensor([[0.8, 0.0, 0.0], [-0.6, 0.2, 0.5]])
    first = torch.ones(2, dtype=torch.bool)
    action = workflow.policy().act(seen, None, first, mode="greedy", generator=torch.Generator()).action
    assert (action.flatten() - torch.tensor([1.2, -0.9])).abs().max() < most


def test_the_scale_is_the_data_s_and_travels_with_the_policy(root: Path) -> None:
    run = train("Nowhere-v0:bc", root / "runs", "buffers.data.dataset=pendulum", *TINY, *OFF)
    orchestrator = built("bc", "pendulum")
    workflow: Any = orchestrator.workflow
    seen = workflow.context.buffers["data"].columns["observation"]
    rows = workflow.context.buffers["data"].columns["row"]
    part = workflow.normalizer.parts[0]
    assert torch.allclose(part.mean.float(), seen[rows].mean(0), atol=1e-6)
    assert torch.allclose(part.var.float(), seen[rows].var(0, correction=0), atol=1e-6)
    stored: Any = run.checkpoints().find("last").load(["policy"])["policy"]
    assert torch.equal(stored["normalizer.parts.0.mean"], part.mean)


def test_a_mixture_is_a_mixture() -> None:
    head = MixtureHead(spaces.Box(-1.0, 1.0, (2,)), 3)
    outputs, action = torch.randn(5, head.size), torch.rand(5, 2) * 2 - 1
    ours = head(outputs)
    theirs = MixtureSameFamily(Categorical(logits=outputs[:, :3]), Independent(Normal(ours.mean, ours.log_std.exp()), 1))
    assert torch.allclose(ours.log_prob(action), theirs.log_prob(action), atol=1e-5)
    apart = torch.zeros(1, head.size)
    apart[0, :2] = torch.tensor([9.0, 9.1])  # two ways, as likely as each other; the third is not
    apart[0, 3:7] = torch.tensor([2.0, 2.0, -2.0, -2.0])
    apart[0, 9:] = -9.0
    assert torch.allclose(head(apart).mode(), torch.tensor([[-2.0, -2.0]]).tanh())
    drawn = head(apart.expand(200, -1)).sample(torch.Generator().manual_seed(0))
    assert 0.3 < (drawn[:, 0] > 0).float().mean() < 0.7
    assert drawn.abs().min() > 0.8


def test_iql_takes_values_by_expectiles() -> None:
    workflow: Any = built("iql", "pendulum", *ACTORS["iql"], *SMALL_CRITIC, "algorithm.expectile=0.9").workflow
    batch = workflow.gathered(workflow.context.buffers["data"], workflow.context.buffers["data"].columns, torch.arange(10))
    loss, _ = workflow.value_loss(batch)
    seen = workflow.normalizer(batch["observation"])
    worth = workflow.target_critic(with_action(seen, batch["sample"])).squeeze(-1).amin(0)
    ahead = worth - workflow.value(seen).squeeze(-1)
    wanted = torch.where(ahead > 0, 0.9, 0.1) * ahead.square()
    assert torch.allclose(loss, wanted.mean())
    returns = workflow.context.buffers["data"].dataset.manifest.returns
    assert float(workflow.reward_scale) == pytest.approx(1000 / (max(returns) - min(returns)))


def test_fine_tuning_mixes_data_and_replay() -> None:
    words = ("buffers.data.dataset=pendulum", *TINY, *FINETUNED, *OFF, "algorithm.offline_share=0.25")
    orchestrator = start("Pendulum-v1:td3_bc", words)
    orchestrator.stopwatch.start(orchestrator.scheduler.reading())
    while orchestrator.counters.env_steps < 40:
        orchestrator._run_cycle()
    workflow: Any = orchestrator.workflow
    assert workflow.is_online == 1
    source = workflow.source(orchestrator.buffers["replay"])
    batch = source.gather(source.columns, at(source.draw(1), 0))
    of_data = orchestrator.buffers["data"].columns["reward"]
    assert len(batch["reward"]) == 8
    assert all((reward == of_data).any() for reward in batch["reward"][:2])  # those of the task are all below 0
    assert (batch["reward"][2:] < 0).all()


def test_wrong_requests_are_one_line() -> None:
    with pytest.raises(ConfigError, match="takes the scale from its dataset"):
        built("bc", "pendulum", "environment.normalize_observations=rolling")
    with pytest.raises(ConfigError, match=r"finetune_steps=60: is more than training.total_steps=10"):
        built("iql", "pendulum", "algorithm.finetune_steps=60", "training.total_steps=10")
    with pytest.raises(UserError, match="did you mean 'carts'"):
        built("bc", "cart")
    with pytest.raises(UserError, match="bc takes discrete actions"):
        built("iql", "carts")
    words = ("network.actor.type=gru", "algorithm.sequence=500", "algorithm.updates=4", "buffers.data.dataset=carts", *OFF)
    long = start("Nowhere-v0:bc", words)
    long.stopwatch.start(long.scheduler.reading())
    with pytest.raises(UserError, match="is longer than the dataset's 120 steps"):
        long._run_cycle()
    with pytest.raises(UserError, match=r"observes Box.*and CartPole-v1"):
        start("CartPole-v1:bc", ("buffers.data.dataset=pendulum", "algorithm.updates=10"))


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["bc", "iql", "td3_bc"])
def test_compiled_learns_what_eager_does(algorithm: str) -> None:
    critics = () if algorithm == "bc" else SMALL_CRITIC
    words = ("buffers.data.dataset=pendulum", *TINY[:3], *OFF, *ACTORS.get(algorithm, ()), *critics)
    roles = ("actor",) if algorithm == "bc" else ("actor", "critic")
    assert_compiled_equals_eager(f"Nowhere-v0:{algorithm}", words, roles)

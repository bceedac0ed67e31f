"""Samplers act with the weights of one rollout before while the learner learns; a run with them is a run like others."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from etude.config.compose import compose
from etude.errors import ConfigError, EtudeError
from etude.orchestration.orchestrator import Orchestrator
from etude.telemetry.jsonl import read_rows
from etude.training import assembly
from etude.training.remarks import remarks
from etude.workflows.sampling import link
from etude.workflows.sampling.collector import RemoteCollector
from tests.forked import fork_instead
from tests.runs_compared import assert_resumes, assert_same_run, train

COMMON = ("experiment.device=cpu", "experiment.compile=off", "environment.num_envs=4", "environment.samplers=2",
          "evaluation.every_steps=0", "logging.every_steps=32")  # fmt: skip
PPO = (*COMMON, "algorithm.rollout_steps=8", "algorithm.batch_size=0.5", "algorithm.epochs=2", "training.total_steps=256",
       "checkpoint.every_steps=64", "environment.normalize_observations=rolling")  # fmt: skip
REPLAY = (*COMMON, "algorithm.learning_starts=24", "algorithm.batch_size=16", "training.total_steps=120",
          "algorithm.train_every=2", "algorithm.gradient_steps=1", "buffers.replay.capacity=100",
          "checkpoint.every_steps=40")  # fmt: skip


@pytest.fixture(autouse=True)
def samplers_are_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    fork_instead(link, monkeypatch)


def build(spec: str, *words: str) -> Orchestrator:
    return assembly.build(assembly.resolve(compose(spec, words=words).config))


@pytest.fixture
def ppo(samplers_are_forks: None) -> Iterator[Orchestrator]:
    orchestrator = build("CartPole-v1:ppo", *PPO)
    orchestrator.begin()
    yield orchestrator
    orchestrator.close()


def samplers_of(orchestrator: Orchestrator) -> RemoteCollector:
    assert isinstance(orchestrator.collector, RemoteCollector)
    return orchestrator.collector


def cycle(orchestrator: Orchestrator) -> dict[str, Any]:
    """Collect and learn once; returns the rollout that was learnt from."""
    workflow, phase = orchestrator.workflow, orchestrator.scheduler.view()
    workflow.collect(phase, 8)
    buffer = orchestrator.buffers["rollout"]
    rollout = {name: column.clone() for name, column in buffer.columns.items()}
    workflow.update(phase, 1)
    return rollout


def test_a_rollout_is_acted_by_the_weights_of_one_rollout_before(ppo: Orchestrator) -> None:
    workflow: Any = ppo.workflow
    parts = (workflow.actor, workflow.normalizer)

    def weights() -> list[dict[str, torch.Tensor]]:
        return [{name: value.clone() for name, value in part.state_dict().items()} for part in parts]

    def put(states: list[dict[str, torch.Tensor]]) -> None:
        for part, state in zip(parts, states, strict=True):
            part.load_state_dict(state)

    before = []
    for number in range(4):
        before.append(weights())
        rollout = cycle(ppo)
        after = weights()
        put(before[max(0, number - 1)])
        with torch.no_grad():
            outputs = workflow.actor(workflow.normalizer(rollout["observation"].flatten(0, 1)))
            acted = workflow.head(outputs).log_prob(rollout["sample"].flatten(0, 1)).view(8, 4)
        put(after)
        torch.testing.assert_close(rollout["log_prob"], acted, rtol=1e-5, atol=1e-6)
    assert samplers_of(ppo).read()["collect/policy_lag"] == 3 / 4, "0 of the first, 1 of the others"


def test_however_collecting_is_cut_the_rollout_is_the_same(ppo: Orchestrator) -> None:
    other = build("CartPole-v1:ppo", *PPO)
    other.begin()
    try:
        for _ in range(2):
            phase = other.scheduler.view()
            for count in (3, 1, 4):
                other.workflow.collect(phase, count)
            cut = {name: column.clone() for name, column in other.buffers["rollout"].columns.items()}
            other.workflow.update(phase, 1)
            whole = cycle(ppo)
            assert all(torch.equal(cut[name], whole[name]) for name in whole)
    finally:
        other.close()


@pytest.mark.parametrize(
    ("spec", "words", "after"),
    [("CartPole-v1:ppo", PPO, 3), ("CartPole-v1:dqn", (*REPLAY, "algorithm.epsilon=lin_0.9"), 8)],
    ids=["ppo", "dqn"],
)
def test_resume_equals_uninterrupted(spec: str, words: tuple[str, ...], after: int, tmp_path: Path) -> None:
    assert_resumes(spec, tmp_path, *words, after=after)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "words", "after"),
    [
        ("CartPole-v1:a2c", (*COMMON, "algorithm.rollout_steps=5", "training.total_steps=200", "checkpoint.every_steps=40"), 4),
        ("CartPole-v1:reinforce", (*COMMON, "algorithm.rollout_steps=8", "training.total_steps=256"), 3),
        ("CartPole-v1:ppo", (*PPO, "algorithm.batch_size=16", "network.actor.type=gru", "network.critic.type=gru"), 3),
        ("Pendulum-v1:sac", REPLAY, 9),
        ("Pendulum-v1:td3", REPLAY, 9),
        ("Pendulum-v1:tqc", REPLAY, 9),
    ],
    ids=["a2c", "reinforce", "ppo-memory", "sac", "td3", "tqc"],
)
def test_other_algorithms_resume_too(spec: str, words: tuple[str, ...], after: int, tmp_path: Path) -> None:
    assert_resumes(spec, tmp_path, *words, after=after)


def test_a_sampler_that_is_killed_is_started_again_and_the_run_goes_on(ppo: Orchestrator) -> None:
    collector = samplers_of(ppo)
    cycle(ppo)
    pids = [sampler.pid for sampler in collector.samplers]
    assert pids[1] is not None
    os.kill(pids[1], signal.SIGKILL)
    first = cycle(ppo)  # perhaps of before its end
    rollout = cycle(ppo)
    (notice,) = collector.notices
    assert "sampler 1 was killed by SIGKILL; it was started again, with new episodes" in notice
    assert collector.samplers[0].pid == pids[0]
    begun = torch.cat([first["is_first"], rollout["is_first"]])[:, 2:]
    assert begun.any(0).all(), "both of its copies begin anew"
    assert collector.read()["collect/sampler_restarts"] == 1


def test_a_sampler_that_dies_again_and_again_ends_the_run(ppo: Orchestrator, monkeypatch: pytest.MonkeyPatch) -> None:
    collector = samplers_of(ppo)
    cycle(ppo)
    killed: list[int] = []
    original = RemoteCollector._build

    def build_and_kill(self: RemoteCollector, number: int, sampler: Any) -> None:
        original(self, number, sampler)
        os.kill(sampler.pid, signal.SIGKILL)
        killed.append(sampler.pid)

    monkeypatch.setattr(RemoteCollector, "_build", build_and_kill)
    pid = collector.samplers[0].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    again = "sampler 0 was killed by SIGKILL, 4 times in a row: it is not started again"
    with pytest.raises(EtudeError, match=again):
        _ = [cycle(ppo) for _ in range(3)]  # what was in flight may have come before
    assert len(killed) == 3


def test_samplers_end_with_their_run(ppo: Orchestrator) -> None:
    pids = [sampler.pid for sampler in samplers_of(ppo).samplers]
    cycle(ppo)
    ppo.close()
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)


def test_free_running_samplers_are_at_most_two_rollouts_behind_and_say_so(tmp_path: Path) -> None:
    run = train("CartPole-v1:ppo", tmp_path, *PPO, "environment.free_running=true")
    lags = [row["collect/policy_lag"] for row in read_rows(run.metrics_path) if "collect/policy_lag" in row]
    assert lags
    assert all(0 <= lag <= 2 for lag in lags)
    assert any("not exact" in line for line in run.log_path.read_text().splitlines())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("environment.samplers=3",), "environment.samplers=3: environment.num_envs=4 must be a multiple of it"),
        (("environment.workers=2",), "samplers step their copies themselves; leave out environment.workers=2"),
        (("algorithm.name=random",), "environment.samplers=2: random decides itself how its episodes go; set it to 0"),
    ],
)  # fmt: skip
def test_what_does_not_go_with_samplers_is_said_in_one_line(words: tuple[str, ...], said: str) -> None:
    algorithm = next((word.partition("=")[2] for word in words if word.startswith("algorithm.name")), "a2c")
    settings = [word for word in (*COMMON, *words) if not word.startswith("algorithm.name")]
    with pytest.raises(ConfigError, match=said):
        assembly.resolve(compose(f"CartPole-v1:{algorithm}", words=settings).config)


def test_free_running_without_samplers_is_said_to_do_nothing() -> None:
    config = compose("CartPole-v1:ppo", words=["environment.free_running=true"]).config
    assert any(note.startswith("environment.free_running is ignored") for note in remarks(config, config))


def test_the_same_seed_twice_gives_the_same_run(tmp_path: Path) -> None:
    assert_same_run(train("CartPole-v1:ppo", tmp_path / "1", *PPO), train("CartPole-v1:ppo", tmp_path / "2", *PPO))

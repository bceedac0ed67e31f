"""Every algorithm's run reproduces when it is run again; with a replay buffer, also from a random checkpoint of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from etude.cli import run as command
from etude.config.registry import algorithms
from etude.verification import rerun
from tests.datasets.episodes import write_lines
from tests.forked import fork_instead
from tests.runs_compared import resume, stopped_after, train

STEPS = ("training.total_steps=384", "evaluation.episodes=1", "evaluation.every_steps=192", "checkpoint.every_steps=96")
ROLLOUTS = ("environment.num_envs=4", "algorithm.rollout_steps=16")
TINY = "{type: mlp, hidden_dims: [8]}"
ACTOR_CRITIC = (f"network.actor={TINY}", f"network.critic={TINY}")
REPLAY = (
    *("environment.num_envs=1", "algorithm.learning_starts=64", "algorithm.batch_size=16"),
    *("algorithm.train_every=4", "algorithm.gradient_steps=1"),
)
CASES = {
    "ppo": ("CartPole-v1:ppo", *ROLLOUTS, "algorithm.batch_size=32", "algorithm.epochs=2"),
    "ppo_student": ("CartPole-v1:ppo_student", *ROLLOUTS, "algorithm.batch_size=32", "algorithm.epochs=2"),
    "ppo_amp": ("quadruped-motion:ppo_amp", "environment.num_envs=4", "algorithm.rollout_steps=16", "algorithm.epochs=2"),
    "a2c": ("CartPole-v1:a2c", *ROLLOUTS),
    "reinforce": ("CartPole-v1:reinforce", *ROLLOUTS),
    "q_learning": ("FrozenLake-v1:q_learning",),
    "cma_es": ("CartPole-v1:cma_es", "environment.num_envs=4", "algorithm.population=6", "environment.max_episode_steps=10"),
    "dqn": (
        "CartPole-v1:dqn",
        *REPLAY,
        "algorithm.n_step=3",
        "buffers.replay={type: prioritized, capacity: 200}",
        f"network.q={TINY}",
    ),
    "sac": ("Pendulum-v1:sac", *REPLAY, *ACTOR_CRITIC),
    "td3": ("Pendulum-v1:td3", *REPLAY, *ACTOR_CRITIC),
    "tqc": ("Pendulum-v1:tqc", *REPLAY, *ACTOR_CRITIC),
    "flash_sac": (
        *("Pendulum-v1:flash_sac", *REPLAY, "network.actor={width: 8, blocks: 1}", "network.critic={width: 8, blocks: 1}"),
        "algorithm.atoms=11",
    ),
    "sql": ("MultiGoal-v0:sql", *REPLAY, f"network.critic={TINY}"),
    "tdmpc": (
        *("Pendulum-v1:tdmpc", "environment.num_envs=1", "algorithm.learning_starts=64", "algorithm.batch_size=16"),
        *("algorithm.samples=16", "algorithm.policy_samples=4", "algorithm.elites=4", "algorithm.updates_per_decision=0.25"),
    ),
    "dreamer": (
        *("CartPole-v1:dreamer", "environment.num_envs=1", "algorithm.learning_starts=64", "algorithm.batch_size=4"),
        *("buffers.replay.sequence=8", "algorithm.train_ratio=4", "algorithm.horizon=3", "algorithm.imagination_starts=8"),
    ),
    **{
        name: (
            *(f"Pendulum-v1:{name}", "environment.num_envs=1", "algorithm.learning_starts=64", "algorithm.batch_size=4"),
            *("algorithm.size=tiny", "buffers.replay.sequence=8", "algorithm.train_ratio=4", "algorithm.pretrain_updates=2"),
            *("algorithm.horizon=3", *more),
        )
        for name, more in {
            "dreamer_v1": ("algorithm.imagination_starts=8",),
            "dreamer_v2": ("algorithm.imagination_starts=8",),
            "planet": ("algorithm.samples=8", "algorithm.elites=4", "algorithm.iterations=2"),
        }.items()
    },
    "world_models": (
        *("CartPole-v1:world_models", "environment.num_envs=1", "algorithm.latent_dim=4", "algorithm.memory_size=8"),
        *("algorithm.collect_steps=128", "algorithm.vae_updates=8", "algorithm.memory_updates=8", "algorithm.batch_size=16"),
        *("algorithm.population=4", "algorithm.episodes=1", "algorithm.dream=false", "buffers.replay.sequence=8"),
    ),
    "random": ("CartPole-v1:random", "environment.num_envs=4"),
}


UPDATES = ("evaluation.every_steps=0", "evaluation.every_updates=0", "buffers.data.dataset=pendulum", "algorithm.updates=24")
SMALL = (*UPDATES, "algorithm.batch_size=8", "network.actor.hidden_dims=[8]")
TUNED = ("environment.num_envs=2", "training.total_steps=60", "algorithm.finetune_steps=60", "algorithm.learning_starts=20")
FROM_DATA = {
    "bc": (*SMALL, "algorithm.head=mixture"),
    "iql": (*SMALL, *TUNED),
    "td3_bc": (*SMALL, *TUNED),
    "diffusion_policy": (*UPDATES, "network.denoiser.widths=[8]", "algorithm.horizon=4", "algorithm.action_steps=2"),
}
QUICK = ("a2c", "sac")
"""In every suite; PPO has tests of its own."""


def test_every_algorithm_is_here() -> None:
    assert set(CASES) | set(FROM_DATA) == set(algorithms.builtin_names())


@pytest.mark.parametrize("case", [case if case in QUICK else pytest.param(case, marks=pytest.mark.slow) for case in CASES])
def test_a_run_that_was_stopped_and_resumed_reproduces(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    fork_instead(rerun, monkeypatch)
    spec, *words = CASES[case]
    with stopped_after(2):
        run = train(spec, tmp_path / "runs", *STEPS, *words)
    resume(run)
    capsys.readouterr()
    how = ["--resume-at", "random"] if REPLAY[0] in words else []
    assert command(["verify", str(run.path), "--json", *how]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["outcome"] == "reproduced"
    assert report["checks"][0]["env_steps"] == 384
    assert report["checks"][0]["tensors"] > 0


@pytest.mark.parametrize("case", [pytest.param(case, marks=pytest.mark.slow) for case in FROM_DATA])
def test_a_run_that_learns_from_data_reproduces(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ETUDE_DATASETS", str(tmp_path / "data"))
    write_lines(tmp_path / "data")
    fork_instead(rerun, monkeypatch)
    with stopped_after(5):
        run = train(f"Pendulum-v1:{case}", tmp_path / "runs", *FROM_DATA[case])
    resume(run)
    capsys.readouterr()
    assert command(["verify", str(run.path), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["outcome"] == "reproduced"
    assert report["checks"][0]["tensors"] > 0

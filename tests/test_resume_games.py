"""Exact resume amid episodes of games: Atari from its emulator's state, Box2D by living through the episode again."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from etude.runs.run import Run
from etude.training import session
from tests.runs_compared import assert_same_run, resume, rows, stopped_after, train

SHORT = ("environment.num_envs=2", "evaluation.every_steps=0", "environment.max_episode_steps=30")
PPO = (*SHORT, "algorithm.rollout_steps=8", "algorithm.batch_size=0.5", "algorithm.epochs=1", "training.total_steps=64",
       "logging.every_steps=16")  # fmt: skip
SAC = (*SHORT, "algorithm.learning_starts=16", "algorithm.batch_size=8", "algorithm.train_every=8", "logging.every_steps=16",
       "algorithm.gradient_steps=1", "buffers.replay.capacity=200", "training.total_steps=80")  # fmt: skip
SMALL_CNN = "{type: cnn, channels: [4], kernels: [8], strides: [8], hidden_dims: [16]}"
SEES = (f"network.actor={SMALL_CNN}", f"network.critic={SMALL_CNN}")
CASES = {
    "Pong": ("ALE/Pong-v5:ppo", *PPO, *SEES, "environment.exact=true"),
    "Breakout-objects": ("ALE/Breakout-v5:ppo_objects", *PPO, "environment.kwargs.life_loss=true"),
    "CarRacing": ("CarRacing-v3:ppo", *PPO, *SEES, "training.total_steps=48"),
    "BipedalWalker": ("BipedalWalker-v3:sac", *SAC),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_resume_equals_uninterrupted(case: tuple[str, ...], tmp_path: Path) -> None:
    spec, *words = case
    whole = train(spec, tmp_path / "whole", *words)
    with stopped_after(2):
        run = train(spec, tmp_path / "cut", *words)
    assert run.status == "interrupted"
    assert resume(run).status == "finished"
    assert_same_run(whole, run)
    if spec.startswith("CarRacing"):  # lists of actions, and not the worlds that they led to
        assert 0 < bytes_beside_weights(run) < 100_000


def bytes_beside_weights(run: Run) -> int:
    """The size of what a checkpoint has of environments, observations and random streams."""
    folder = run.checkpoints().newest_whole().path / "rank"
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def test_the_fast_class_gives_the_run_that_the_exact_one_gives(tmp_path: Path) -> None:
    fast, exact = (train("ALE/Pong-v5:ppo", tmp_path, *PPO, *SEES, f"environment.exact={word}") for word in ("false", "true"))
    assert rows(fast) == rows(exact)


def test_a_resume_that_begins_new_games_says_so(tmp_path: Path) -> None:
    with stopped_after(2):
        run = train("ALE/Pong-v5:ppo", tmp_path, *PPO, *SEES)
    said = io.StringIO()
    assert session.resume(run, words=(), quiet=False, stream=said).status == "finished"
    assert "new episodes" in said.getvalue()

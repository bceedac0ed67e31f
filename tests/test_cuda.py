"""The same promises on a GPU; skipped where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from etude.training import stored_config
from tests.runs_compared import assert_same_state, resume, state, stopped_after, train

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
WORDS = ("experiment.device=cuda", "training.total_steps=4096", "algorithm.epochs=4", "evaluation.episodes=2")


def test_auto_picks_the_gpu_and_the_run_records_it(tmp_path: Path) -> None:
    run = train("CartPole-v1:ppo", tmp_path, "training.total_steps=512", "evaluation.every_steps=0")
    assert stored_config.load_config(run).experiment.device == "cuda"


@pytest.mark.parametrize("spec", ["CartPole-v1:ppo", "Pendulum-v1:ppo"])
def test_state_on_the_gpu_round_trips_bitwise(spec: str, tmp_path: Path) -> None:
    from etude.training import assembly, stored_config

    words = ("algorithm.rollout_steps=64", "algorithm.batch_size=64", "environment.normalize_observations=rolling")
    with stopped_after(5):
        run = train(spec, tmp_path, *WORDS, *words)
    saved = run.checkpoints().newest_whole().load()
    loaded = assembly.build(stored_config.load_config(run))
    loaded.load_state_dict(saved)  # type: ignore[arg-type]
    again = loaded.state_dict()
    assert again["shared"]["workflow"]["actor"]["layers.0.weight"].is_cuda
    saved.pop("policy")
    saved["shared"].pop("elapsed_s"), again["shared"].pop("elapsed_s")  # type: ignore[union-attr]
    assert_same_state(_to_cpu(again), saved)


def test_a_stopped_run_on_the_gpu_equals_one_that_was_not(tmp_path: Path) -> None:
    whole = train("CartPole-v1:ppo", tmp_path / "whole", *WORDS, "experiment.deterministic=true")
    with stopped_after(7):
        run = train("CartPole-v1:ppo", tmp_path / "cut", *WORDS, "experiment.deterministic=true")
    assert resume(run).status == "finished"
    assert_same_state(state(run), state(whole))


@pytest.mark.parametrize("compiling", ["capture", "on"])
@pytest.mark.parametrize("spec", ["CartPole-v1:ppo", "Pendulum-v1:ppo", "BrickWall-v0:ppo"])
def test_whole_rollouts_on_the_gpu_go_on_to_the_same_bits(spec: str, compiling: str, tmp_path: Path) -> None:
    words = ("environment.backend=torch", "environment.num_envs=64", "algorithm.rollout_steps=16", "algorithm.batch_size=256")
    words = (*WORDS, *words, "training.total_steps=16384", f"experiment.compile={compiling}")
    whole = train(spec, tmp_path / "whole", *words)
    with stopped_after(7):
        run = train(spec, tmp_path / "cut", *words)
    assert resume(run).status == "finished"
    assert_same_state(state(run), state(whole))


def _to_cpu(tree: object) -> object:
    if isinstance(tree, torch.Tensor):
        return tree.cpu()
    if isinstance(tree, dict):
        return {key: _to_cpu(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(_to_cpu(value) for value in tree)
    return tree

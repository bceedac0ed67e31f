"""Presets of what learns from data train, on a few steps of a task of theirs."""

from __future__ import annotations

from pathlib import Path

import pytest

from etude.cli import run as command
from etude.config.compose import compose
from etude.config.environment_presets import environment_presets, family_presets, variants
from tests.runs_compared import train
from tests.test_presets_train import FROM_DATA

OF_FAMILY = {"mujoco": "Hopper-v5"}
SPECS = [f"{task}:{name}" for task, preset in environment_presets().items() for name in variants(preset) if name in FROM_DATA]
SPECS += [
    pytest.param(f"{OF_FAMILY[family]}:{name}", marks=() if name in ("diffusion_policy", "iql") else pytest.mark.slow)
    for family, preset in family_presets().items()
    for name in variants(preset)
    if name in FROM_DATA
]


@pytest.mark.parametrize("spec", SPECS)
def test_a_preset_learns_from_data(spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = spec.partition(":")[0]
    monkeypatch.setenv("ETUDE_DATASETS", str(tmp_path / "data"))
    if task == "TwoWays-v0":
        assert command(["dataset", "convert", f"script:{task}", "data"]) == 0
    else:
        random = train(
            f"{task}:random", tmp_path, "training.total_steps=16", "evaluation.every_steps=0", "environment.num_envs=1"
        )
        assert command(["dataset", "record", str(random.path), "--episodes", "2", "--name", "data"]) == 0
    words = ("buffers.data.dataset=data", "evaluation.every_steps=0", "evaluation.every_updates=0", "experiment.compile=off")
    run = train(spec, tmp_path, *words, "algorithm.updates=2", "algorithm.batch_size=4")
    assert run.summary["counters"]["updates"] == 2


def test_fine_tuning_takes_an_update_a_step() -> None:
    for name in ("iql", "td3_bc"):
        assert compose(f"HalfCheetah-v5:{name}", words=["buffers.data.dataset=data"]).config.environment.num_envs == 1

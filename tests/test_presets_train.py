"""Every shipped preset and experiment trains: two short rollouts each."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from etude.config.compose import compose
from etude.config.environment_presets import environment_presets, family_presets, variants
from etude.config.registry import algorithms
from etude.workflows.off_policy import OffPolicy
from tests.config.test_family_presets import UNTUNED as WITHOUT_PRESETS
from tests.runs_compared import train

# Their first block trains in every suite; the others do so in an environment of the same kind, and here among the slow tests.
ALIKE = ("ALE/Breakout-v5", "Ant-v5", "Hopper-v5", "Humanoid-v5", "Swimmer-v5", "Walker2d-v5", "dmc/cartpole-swingup",
         "dmc/walker-stand", "quadruped-rough", "quadruped-climb", "quadruped-goto",
         "quadruped-pose", "quadruped-jump")  # fmt: skip
OF_PACKAGES = ("anymal-flat", "g1-flat", "go1-flat", "go2-flat")
"""Robots whose models are in packages that tests do not ask for."""


FROM_DATA = ("bc", "diffusion_policy", "iql", "td3_bc")
"""What needs a dataset first, and trains in tests/workflows/test_presets_from_data.py."""


def marks(name: str, position: int) -> Any:
    return pytest.mark.optional if name in OF_PACKAGES else pytest.mark.slow if name in ALIKE and position > 0 else ()


SPECS = [
    pytest.param(f"{name}:{variant}", marks=marks(name, position))
    for name, preset in environment_presets().items()
    for position, variant in enumerate(variants(preset))
    if variant not in FROM_DATA
]
EVERY_KIND = ("CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "HalfCheetah-v5", "MiniGrid-DoorKey-5x5-v0", "quadruped-flat")
BASELINES = [
    pytest.param(f"{name}:random", marks=() if name in EVERY_KIND else marks(name, 1) or pytest.mark.slow)
    for name in environment_presets()
]
# A family's settings train in its environments: the first block of each, and the others where minutes are allowed.
UNTUNED = {family: name for family, name in WITHOUT_PRESETS.items() if family not in ("retro", "vizdoom")}
OF_ANOTHER_KIND = {"box2d:dqn": "LunarLander-v3", "classic:sac": "Pendulum-v1", "classic:tqc": "Pendulum-v1"}
OF_ANOTHER_KIND |= {"classic:td3": "Pendulum-v1", "classic:sql": "Pendulum-v1", "classic:flash_sac": "Pendulum-v1"}
FAMILY_SPECS = [
    pytest.param(
        f"{OF_ANOTHER_KIND.get(f'{family}:{variant}', UNTUNED[family])}:{variant}",
        marks=() if position == 0 else pytest.mark.slow,
    )
    for family, preset in family_presets().items()
    if family in UNTUNED
    for position, variant in enumerate(variants(preset))
    if variant not in ("reinforce", *FROM_DATA)  # reinforce learns at the end of an episode, and these are long
]
SHORT = ("algorithm.rollout_steps=16", "algorithm.batch_size=0.5", "algorithm.epochs=1")
SHORT_OFF_POLICY = (
    *("algorithm.learning_starts=8", "algorithm.batch_size=8", "algorithm.train_every=8", "algorithm.gradient_steps=1"),
    "buffers.replay.capacity=10_000",  # memory is taken at once, and a million pictures are much of it
)
SHORT_PLANNING = (
    *("algorithm.size=small", "algorithm.learning_starts=96", "algorithm.pretrain=2", "algorithm.updates_per_decision=0.0625"),
    *("algorithm.batch_size=8", "algorithm.iterations=1", "buffers.replay.capacity=10_000"),
)
SHORT_DREAMER = (
    *("algorithm.size=tiny", "algorithm.learning_starts=64", "algorithm.batch_size=4", "algorithm.train_ratio=2"),
    *("buffers.replay.sequence=8", "buffers.replay.capacity=10_000", "algorithm.horizon=3"),
)
SHORT_OLD_DREAMER = (*SHORT_DREAMER, "algorithm.pretrain_updates=0")
SHORT_PLANET = (*SHORT_OLD_DREAMER, "algorithm.samples=8", "algorithm.elites=4", "algorithm.iterations=1")
SHORT_WORLD_MODELS = (
    *("algorithm.collect_steps=96", "algorithm.vae_updates=1", "algorithm.memory_updates=1", "algorithm.generations=2"),
    *("algorithm.population=2", "algorithm.episodes=1", "algorithm.batch_size=8", "algorithm.dream_steps=5"),
    *("environment.max_episode_steps=4", "buffers.replay.sequence=8"),
)
SHORT_EVOLUTION = ("algorithm.population=4", "algorithm.episodes=1", "environment.max_episode_steps=7")


@pytest.mark.parametrize("spec", [*SPECS, *FAMILY_SPECS])
def test_a_tuned_variant_trains(spec: str, tmp_path: Path) -> None:
    config = compose(spec).config
    settings, repeat = config.algorithm, math.prod(getattr(wrapper, "skip", 1) for wrapper in config.environment.wrappers)
    steps = f"training.total_steps={128 * repeat}"
    # One checkpoint, at the end: a table of every state and action, as Taxi's, takes a second to save.
    words = ("environment.num_envs=4", steps, "evaluation.every_steps=0", "evaluation.episodes=1", "checkpoint.every_steps=0")
    learns_from_replay = issubclass(algorithms.resolve(settings.name), OffPolicy)
    short = SHORT_OFF_POLICY if learns_from_replay else SHORT if spec.endswith(("ppo", "ppo_objects", "ppo_gpu")) else ()
    of_name = {
        "tdmpc": SHORT_PLANNING,
        "dreamer": SHORT_DREAMER,
        "world_models": SHORT_WORLD_MODELS,
        "cma_es": SHORT_EVOLUTION,
        "dreamer_v1": SHORT_OLD_DREAMER,
        "dreamer_v2": SHORT_OLD_DREAMER,
        "planet": SHORT_PLANET,
    }
    short = of_name.get(settings.name, short)
    rollout = ("algorithm.rollout_steps=16",) if settings.rollout_steps is not None else ()
    run = train(spec, tmp_path, *words, *(short or rollout))
    updates = run.summary["counters"]["updates"]
    assert updates == 4 if short else updates > 0


@pytest.mark.parametrize("spec", BASELINES)
def test_the_random_baseline_runs_everywhere(spec: str, tmp_path: Path) -> None:
    run = train(spec, tmp_path, "environment.num_envs=2", "training.total_steps=200", "evaluation.every_steps=0")
    assert run.summary["counters"] | {"episodes": 0} == {
        "decisions": 200, "env_steps": 200, "updates": 0, "episodes": 0, "cycles": 100,
    }  # fmt: skip

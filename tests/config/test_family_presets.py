"""Between an algorithm's defaults and an environment's own preset lies its family's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from etude.config import compose as composition
from etude.config.compose import compose
from etude.config.environment_presets import (
    Preset,
    environment_presets,
    family_name,
    family_presets,
    variants,
)
from etude.config.validate import to_plain
from etude.environments.families import FAMILIES
from tests.config.conftest import Complaints, Write

FAMILY_PRESETS = family_presets()
# An environment of each family that has no preset of its own.
UNTUNED = {
    "atari": "ALE/SpaceInvaders-v5",
    "box2d": "LunarLanderContinuous-v3",
    "classic": "CartPole-v0",
    "dmc": "dmc/cheetah-run",
    "minigrid": "MiniGrid-Unlock-v0",
    "mujoco": "Reacher-v5",
    "retro": "Retro/Airstriker-Genesis-v0",
    "toy": "FrozenLake8x8-v1",
    "vizdoom": "VizDoom-Basic-v0",
}
SPECS = [(family, variant) for family, preset in FAMILY_PRESETS.items() for variant in variants(preset)]
TUNED = yaml.safe_load(Path(__file__).with_name("tuned_settings.yaml").read_text(encoding="utf-8"))
"""What each shipped preset came to before there were presets of families: every setting that is not the algorithm's default."""


# Defect 40: an environment without a preset of its own got the algorithm's bare defaults.
@pytest.mark.parametrize(("family", "variant"), SPECS)
def test_an_environment_without_a_preset_has_its_familys(family: str, variant: str) -> None:
    made = compose(f"{UNTUNED[family]}:{variant}")
    assert variant.startswith(made.config.algorithm.name)
    assert made.origin("environment.num_envs") == f"family preset {family}:{variant}"
    assert made.config.training.total_steps >= 100_000
    if made.config.algorithm.name in ("sac", "td3", "tqc", "flash_sac", "sql", "dqn", "q_learning"):
        assert made.config.environment.num_envs == 1


def test_every_family_preset_belongs_to_a_family_and_is_tried_here() -> None:
    assert set(FAMILY_PRESETS) == set(UNTUNED) <= {family.name for family in FAMILIES}
    assert {name: family_name(environment) for name, environment in UNTUNED.items()} == {name: name for name in UNTUNED}
    assert not set(UNTUNED.values()) & set(environment_presets())


@pytest.mark.parametrize("family", ["atari", "vizdoom", "retro"])
def test_pictures_go_through_convolutions(family: str) -> None:
    for variant in variants(FAMILY_PRESETS[family]):
        config = compose(f"{UNTUNED[family]}:{variant}").config
        if config.algorithm.name == "dreamer":
            assert config.network["encoder"].type == "world_encoder"  # by convolutions where there are pictures
            continue
        types = {network.type for network in config.network.values()}
        assert types == ({"cnn", "head"} if config.algorithm.name == "ppo" else {"cnn"})


def test_an_environments_own_preset_lies_over_its_familys(write: Write) -> None:
    made = compose(
        "MiniGrid-DoorKey-5x5-v0:ppo", words=["algorithm.gamma=0.5"], file=write("my.yaml", "training: {early_stop: eval}")
    )
    assert {
        key: made.origin(key)
        for key in (
            "logging.terminal", "algorithm.target_kl", "environment.num_envs", "environment.kwargs.observation",
            "environment.spec.return_threshold", "algorithm.epochs", "training.early_stop", "algorithm.gamma", "environment.id",
        )
    } == {
        "logging.terminal": "default",
        "algorithm.target_kl": "default of ppo",
        "environment.num_envs": "family preset minigrid:ppo",
        "environment.kwargs.observation": "environment preset MiniGrid-DoorKey-5x5-v0",
        "environment.spec.return_threshold": "environment preset MiniGrid-DoorKey-5x5-v0",
        "algorithm.epochs": "environment preset MiniGrid-DoorKey-5x5-v0:ppo",
        "training.early_stop": "file my.yaml",
        "algorithm.gamma": "command line",
        "environment.id": "command line",
    }  # fmt: skip


def test_an_algorithm_that_only_the_family_has_settings_for_takes_them_with_the_environments_facts() -> None:
    config = compose("HalfCheetah-v5:sql").config
    assert (config.environment.num_envs, config.algorithm.learning_starts) == (1, 10_000)
    assert config.environment.spec.return_threshold == 4800


def test_an_algorithm_that_nobody_has_settings_for_takes_what_all_of_the_family_have() -> None:
    config = compose("MiniGrid-Unlock-v0:random").config
    assert config.environment.kwargs == {"observation": "flat"}
    assert config.algorithm.name == "random"


def test_a_variant_of_a_family_has_a_name_of_its_own(complaints: Complaints) -> None:
    config = compose("ALE/Boxing-v5:ppo_gpu").config
    assert (config.algorithm.name, config.environment.num_envs) == ("ppo", 64)
    (line,) = complaints("ALE/Boxing-v5:ppo_gpuu")
    assert line.startswith("ALE/Boxing-v5:ppo_gpuu: no such algorithm or variant; did you mean 'ppo_gpu'?")


def test_an_earlier_runs_config_is_taken_as_it_is() -> None:
    earlier = to_plain(compose("ALE/Boxing-v5:ppo", words=["environment.num_envs=4", "network.critic.type=cnn"]).config)
    assert to_plain(compose(base=earlier).config) == earlier
    assert compose(base=earlier).origin("environment.num_envs") == "earlier run"


@pytest.mark.parametrize("spec", TUNED)
def test_a_tuned_preset_is_what_it_was(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings of a family must not change what was tuned: what a preset needs otherwise, it says itself."""
    config = compose(spec).config
    for name in ("preset_of", "family_preset_of"):
        monkeypatch.setattr(composition, name, lambda _: Preset("", {}, {}))
    bare = compose(f"{config.environment.id}:{config.algorithm.name}").config
    defaults = dict(_settings(to_plain(bare)))
    assert {key: value for key, value in _settings(to_plain(config)) if defaults.get(key, ()) != value} == TUNED[spec]


def test_every_tuned_preset_of_a_family_with_a_preset_is_compared() -> None:
    names = {name: preset for name, preset in environment_presets().items() if family_name(name) in FAMILY_PRESETS}
    assert set(TUNED) >= {f"{name}:{variant}" for name, preset in names.items() for variant in variants(preset)}


def _settings(data: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting of a config but its names and what it tells people."""
    for key, value in data.items():
        inside = f"{path}{key}"
        if inside in ("experiment", "environment.spec", "environment.id", "version"):
            continue
        if isinstance(value, Mapping) and value:
            yield from _settings(value, f"{inside}.")
        else:
            yield inside, value

"""Wrappers in a config: checked, ordered, stored, and documented."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import etude
from etude.config.compose import compose
from etude.config.registry import wrappers as registry
from etude.config.schema import EnvironmentConfig
from etude.config.validate import Part, Validator, to_plain
from etude.environments.gymnasium import GymnasiumVector
from etude.environments.make import make_environment
from etude.environments.native.classic import CartPole
from etude.environments.wrappers.batched import TransformedVector
from etude.environments.wrappers.stacking import Stack
from etude.errors import ConfigError, UserError
from tests.environments.wrappers.tasks import around
from tools.reference.wrappers import refresh

PAGE = Path(__file__).parents[3] / "docs" / "wrappers.md"


def build(*wrappers: Any, **settings: Any) -> EnvironmentConfig:
    data = {"id": "CartPole-v1", "num_envs": 2, "wrappers": list(wrappers), **settings}
    return Validator().build(EnvironmentConfig, data, "environment")


def test_the_tables_in_the_documentation_are_fresh() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert refresh(text) == text, "refresh it: python -m tools.reference.wrappers docs/wrappers.md"


def test_a_word_on_the_command_line_lists_wrappers_in_order() -> None:
    config = compose("CartPole-v1:ppo", words=["environment.wrappers=[{id: noise, std: 0.5}, stack]"]).config
    noise, stack = config.environment.wrappers
    assert (noise.id, noise.std, stack.id, stack.count) == ("noise", 0.5, "stack", 4)


def test_what_is_stored_reads_back_equal_with_every_option() -> None:
    config = build("stack", {"id": "gymnasium.wrappers.RescaleAction", "min_action": -1, "max_action": 1})
    plain = to_plain(config)["wrappers"]
    assert plain == [
        {"id": "stack", "key": None, "count": 4, "start": "repeat"},
        {"id": "gymnasium.wrappers.RescaleAction", "min_action": -1, "max_action": 1},
    ]
    assert build(*plain) == config
    assert isinstance(config.wrappers[1], Part)


def test_slips_are_named_all_at_once_with_the_way_out() -> None:
    with pytest.raises(ConfigError) as caught:
        build(
            "stak",
            {"id": "stack", "cuont": 3},
            {"id": "resize", "size": 0},
            {"id": "gymnasium.wrappers.ClipReward", "max_rewrd": 1},
            4,
        )
    first, second, third, fourth, fifth = caught.value.problems
    assert first.startswith("environment.wrappers[0]: unknown wrapper 'stak'; did you mean 'stack'? (known: action_clip, ")
    assert second == "environment.wrappers[1].cuont: unknown key; did you mean 'count'?"
    assert third == "environment.wrappers[2].size=0: must be at least 1"
    assert (
        "environment.wrappers[3].max_rewrd: unknown option of 'gymnasium.wrappers.ClipReward'; did you mean 'max_reward'?"
        in fourth
    )
    assert fifth == "environment.wrappers[4]=4: must be a name or a mapping with 'id'"
    with pytest.raises(ConfigError, match=r"wrappers\[0\]\.actions: is required"):
        build("action_remap")
    with pytest.raises(ConfigError, match="env: is set from elsewhere"):
        build({"id": "gymnasium.wrappers.ClipReward", "env": 1})


def test_an_import_path_in_a_strangers_config_is_not_followed() -> None:
    data = {"id": "CartPole-v1", "wrappers": [{"id": "os.getcwd"}]}
    with pytest.raises(ConfigError, match="--trust"):
        Validator(allow_imports=False).build(EnvironmentConfig, data, "environment")


def test_what_is_no_wrapper_is_refused_and_options_it_does_not_like_are_named() -> None:
    with pytest.raises(
        UserError, match=r"wrappers\[0\]: 'collections.OrderedDict' is neither a Transform nor a gymnasium.Wrapper"
    ):
        make_environment(build("collections.OrderedDict"))
    with pytest.raises(
        UserError, match=r"\(gymnasium.wrappers.RescaleAction\) does not work here with \{.*\}: TypeError: .* requires a Box"
    ):
        make_environment(build({"id": "gymnasium.wrappers.RescaleAction", "min_action": -1, "max_action": 1}))


def test_names_from_elsewhere_mean_ours() -> None:
    for theirs, ours in (("DiscreteEncoder", "discrete_encoder"), ("PongV5_RewardShaper", "pong_shaping")):
        assert registry.resolve(theirs) is registry.resolve(ours)
        assert theirs not in registry.names()


def test_without_wrappers_there_is_nothing_in_between() -> None:
    assert type(make_environment(build())) is CartPole


def test_transforms_leave_native_environments_native_and_others_do_not() -> None:
    wrapped = make_environment(build("stack", "reward_clip"), training=True)
    assert isinstance(wrapped, TransformedVector)
    assert isinstance(wrapped.base, CartPole)
    inside = make_environment(build("stack", {"id": "time_limit", "steps": 9}, "history"), training=True)
    assert isinstance(inside, TransformedVector)
    assert isinstance(inside.base, GymnasiumVector)
    assert len(inside.transforms) == 1
    with pytest.raises(UserError, match="backend=native: the wrapper time_limit and what stands before it work inside copies"):
        make_environment(build("stack", {"id": "time_limit", "steps": 9}, backend="native"))


def test_native_and_gymnasium_copies_give_the_same_through_wrappers() -> None:
    wrappers = ({"id": "noise", "std": 0.1}, {"id": "action_lag", "steps": 2}, "stack")
    one, other = (make_environment(build(*wrappers, backend=backend), training=True) for backend in ("native", "gymnasium"))
    assert torch.equal(one.reset([1, 2])[0], other.reset([1, 2])[0])  # type: ignore[arg-type] # both are tensors
    for number in range(60):
        action = torch.tensor([number % 2, number % 3 == 0]).long()
        step, same = one.step(action), other.step(action)
        assert torch.equal(step.observation, same.observation)  # type: ignore[arg-type] # both are tensors
        assert torch.equal(step.final_observation, same.final_observation)  # type: ignore[arg-type] # both are tensors


def test_evaluation_leaves_out_what_is_for_training() -> None:
    config = build({"id": "reward_scale", "factor": 3}, {"id": "noise", "training_only": False}, "stack")
    training, measured = make_environment(config, training=True), make_environment(config)
    assert isinstance(training, TransformedVector)
    assert isinstance(measured, TransformedVector)
    assert [len(environment.transforms) for environment in (training, measured)] == [3, 2]
    assert training.single_observation_space == measured.single_observation_space
    for environment, reward in ((training, 3.0), (measured, 1.0)):
        environment.reset([1, 2])
        assert environment.step(torch.tensor([0, 1])).reward.tolist() == [reward] * 2


def test_a_time_limit_may_be_for_training_alone() -> None:
    for training_only, ends in ((True, False), (False, True)):
        config = build({"id": "time_limit", "steps": 1, "training_only": training_only})
        for training, cut in ((True, True), (False, ends)):
            environment = make_environment(config, training=training)
            environment.reset([1, 2])
            assert environment.step(torch.zeros(2, dtype=torch.long)).truncated.tolist() == [cut, cut]


def test_two_noises_of_a_kind_draw_different_numbers() -> None:
    once, twice = around("sensors", {"id": "noise", "std": 0.1}), around("sensors", *[{"id": "noise", "std": 0.1}] * 2)
    plain = around("sensors")
    first, second, bare = (environment.reset([1, 2, 3])[0] for environment in (once, twice, plain))
    assert isinstance(first, torch.Tensor)
    inside = (bare.abs() < 0.5) & (first.abs() < 0.5)  # type: ignore[union-attr] # of numbers
    assert not torch.isclose((second - first)[inside], (first - bare)[inside]).any()  # type: ignore[operator] # of numbers


def test_normalising_wrappers_mean_the_algorithms_own_normalisation() -> None:
    config = build("stack", {"id": "normalize_observations", "mode": "static"}, "normalize_rewards")
    assert (config.normalize_observations, config.normalize_rewards, len(config.wrappers)) == ("static", True, 1)
    assert build(*to_plain(config)["wrappers"], normalize_observations="static", normalize_rewards=True) == config
    with pytest.raises(ConfigError, match=r"normalize_observations=static and the wrapper .* mode=rolling can't both be meant"):
        build("normalize_observations", normalize_observations="static")
    with pytest.raises(ConfigError, match="normalize_observations must come last"):
        build("normalize_observations", "stack")


def test_from_python() -> None:
    environment = etude.make_environment(
        "CartPole-v1", num_envs=2, wrappers=[{"id": "stack", "count": 3}, {"id": "reward_clip"}]
    )
    assert isinstance(environment, TransformedVector)
    assert isinstance(environment.transforms[0], Stack)
    assert etude.make_environment("CartPole-v1", wrappers=[{"id": "reward_clip"}], training=False).base is not None
    with pytest.raises(ConfigError, match="unknown wrapper"):
        etude.make_environment("CartPole-v1", wrappers=[{"id": "stacks"}])

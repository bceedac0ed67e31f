"""NET-13: value functions by name are one critic, two or many, and the lowest of them is believed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from etude.components.value_functions import get
from etude.config.compose import compose
from etude.errors import ConfigError, UserError

OBSERVATIONS, ACTIONS = spaces.Box(-1, 1, (3,), np.float32), spaces.Box(-2, 2, (2,), np.float32)
SMALL = {"hidden_dims": [8, 8]}


@pytest.mark.parametrize(
    ("name", "config", "count"),
    [
        ("feedforward_Q_function", SMALL, 1),
        ("double_feedforward_Q_function", {"hidden_layer_sizes": [8, 8], "activation": "tanh"}, 2),
        ("ensemble_feedforward_Q_function", {**SMALL, "N": 7}, 7),
    ],
)
def test_so_many_critics_read_observation_and_action(name: str, config: dict[str, Any], count: int) -> None:
    critics = get({"class_name": name, "config": config}, OBSERVATIONS, ACTIONS)
    observation, action = torch.randn(5, 3, requires_grad=True), torch.randn(5, 2, requires_grad=True)
    values = critics(observation, action)
    assert values.shape == (count, 5)
    assert torch.equal(critics.lowest(observation, action), values.min(0).values)
    values.sum().backward()
    assert (observation.grad != 0).any()  # type: ignore[union-attr]
    assert (action.grad != 0).any()  # type: ignore[union-attr]
    assert len({round(float(value), 6) for value in values[:, 0].detach()}) == count, "each begins with weights of its own"


def test_a_v_function_reads_the_observation_alone() -> None:
    critic = get("feedforward_V_function", spaces.Dict({"a": OBSERVATIONS, "b": ACTIONS}))
    assert critic({"a": torch.randn(4, 3), "b": torch.randn(4, 2)}).shape == (1, 4)


def test_first_weights_depend_on_the_seed_alone() -> None:
    one, same, other = (get("double_feedforward_Q_function", OBSERVATIONS, ACTIONS, seed=seed) for seed in (1, 1, 2))
    rows = torch.randn(4, 3), torch.randn(4, 2)
    assert torch.equal(one(*rows), same(*rows))
    assert not torch.equal(one(*rows), other(*rows))


def test_what_is_wrong_is_one_line() -> None:
    with pytest.raises(UserError, match=r"unknown value_function 'duble.*did you mean 'double_feedforward_Q_function'"):
        get("duble_feedforward_Q_function", OBSERVATIONS, ACTIONS)
    with pytest.raises(ConfigError, match="hiden_dims: unknown key; did you mean 'hidden_dims'"):
        get({"class_name": "feedforward_Q_function", "config": {"hiden_dims": [8]}}, OBSERVATIONS, ACTIONS)
    with pytest.raises(UserError, match="needs a Box of actions"):
        get("feedforward_Q_function", OBSERVATIONS, spaces.Discrete(3))
    with pytest.raises(UserError, match=r"a value function is \{class_name: NAME"):
        get({"type": "feedforward_Q_function"}, OBSERVATIONS, ACTIONS)


@pytest.mark.parametrize(
    ("spec", "name", "config", "count"),
    [
        ("Pendulum-v1:sac", "double_feedforward_Q_function", "{hidden_layer_sizes: [32, 32]}", 2),
        ("Pendulum-v1:td3", "feedforward_Q_function", "{hidden_layer_sizes: [32, 32]}", 1),
        ("Pendulum-v1:sql", "ensemble_feedforward_Q_function", "{hidden_dims: [32, 32], N: 4}", 4),
        ("Pendulum-v1:ppo", "feedforward_V_function", "{hidden_dims: [32, 32]}", None),
    ],
)
def test_the_same_dictionary_describes_the_critics_of_a_training(spec: str, name: str, config: str, count: int | None) -> None:
    composed = compose(spec, words=(f"network.critic={{class_name: {name}, config: {config}}}",)).config
    assert composed.network["critic"].type == "mlp"
    assert composed.network["critic"].hidden_dims == (32, 32)
    assert getattr(composed.algorithm, "critics", None) == count

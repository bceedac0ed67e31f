"""References from one setting to another."""

from __future__ import annotations

import pytest

from etude.config.compose import compose
from etude.config.interpolation import resolve
from etude.config.validate import to_plain
from tests.config.conftest import Complaints, Write


def test_a_setting_may_refer_to_another_to_a_sum_and_to_names_of_its_own(write: Write) -> None:
    text = """
        _dims:
          observation: 4
          latent: "${add:${_dims.observation}, 10}"
        environment:
          id: CartPole-v1
          num_envs: ${_dims.observation}
        algorithm:
          name: ppo
          gae_lambda: ${algorithm.gamma}
          batch_size: 128
        network:
          actor: {hidden_dims: ["${_dims.latent}", "${add:1,2}"]}
          critic: {hidden_dims: "${network.actor.hidden_dims}"}
    """
    config = compose(file=write("i.yaml", text)).config
    assert config.environment.num_envs == 4
    assert config.algorithm.gae_lambda == config.algorithm.gamma == 0.98  # the preset's: all layers are one tree
    assert config.network["actor"].hidden_dims == config.network["critic"].hidden_dims == (14, 3)
    assert "_dims" not in to_plain(config)


def test_names_may_be_references_too(write: Write) -> None:
    text = "_task: CartPole-v1\n_method: ppo\nenvironment: {id: '${_task}'}\nalgorithm: {name: '${_method}'}"
    assert compose(file=write("n.yaml", text)).config.environment.id == "CartPole-v1"


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("algorithm.gamma=${nowhere}", "algorithm.gamma: refers to 'nowhere', which is not there"),
        ("algorithm.gamma=${algorithm.nowhere}", "algorithm.gamma: refers to 'algorithm.nowhere', which is not there"),
        ("algorithm.gamma=${algorithm.gamma}", "algorithm.gamma: refers to itself, directly or through others"),
        ("network.actor.hidden_dims=[8,'${nowhere}']", "network.actor.hidden_dims[1]: refers to 'nowhere', which is not there"),
        ("algorithm.gamma=${unknown_resolver:1}", "algorithm.gamma: Unsupported interpolation type unknown_resolver"),
        ("algorithm.gamma='${add:1,x}'", "algorithm.gamma: TypeError raised while resolving interpolation"),
    ],
)
def test_a_reference_that_leads_nowhere_is_named_by_its_key(complaints: Complaints, word: str, message: str) -> None:
    (line,) = complaints("CartPole-v1:ppo", words=[word])
    assert line.startswith(message)


def test_a_circle_is_named_by_every_key_in_it_with_its_line(complaints: Complaints, write: Write) -> None:
    file = write("c.yaml", "algorithm:\n  gamma: ${algorithm.gae_lambda}\n  gae_lambda: ${algorithm.gamma}")
    assert sorted(complaints("CartPole-v1:ppo", file=file)) == [
        "c.yaml:2: algorithm.gamma: refers to itself, directly or through others",
        "c.yaml:3: algorithm.gae_lambda: refers to itself, directly or through others",
    ]


def test_broken_braces_are_one_line(complaints: Complaints, write: Write) -> None:
    (line,) = complaints("CartPole-v1:ppo", file=write("b.yaml", "algorithm:\n  gamma: ${algorithm"))
    assert line.startswith("b.yaml: algorithm.gamma: ")


def test_a_stored_value_is_never_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger's config can't read the environment of whoever loads it."""
    monkeypatch.setenv("ETUDE_TEST_SECRET", "secret")
    base = to_plain(compose("CartPole-v1:ppo").config)
    base["experiment"]["name"] = "${oc.env:ETUDE_TEST_SECRET}"
    assert compose(base=base).config.experiment.name == "${oc.env:ETUDE_TEST_SECRET}"


def test_data_without_references_is_left_as_it_is() -> None:
    data = {"a": [1, {"b": None}], "c": "x $ {y}"}
    assert resolve(data) == data

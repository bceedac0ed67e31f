"""One word for a config."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from etude.config.compose import compose
from etude.config.hashing import config_hash
from etude.config.validate import to_plain

NAMES = {"experiment.name", "experiment.project", "experiment.group", "experiment.tags"}


def _leaves(node: Any, path: str = "") -> Iterator[str]:
    for key, value in node.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{path}{key}.")
        else:
            yield f"{path}{key}"


PLAIN = to_plain(compose("CartPole-v1:ppo").config)


def _changed(path: str) -> dict[str, Any]:
    data = copy.deepcopy(PLAIN)
    *parents, last = path.split(".")
    node = data
    for part in parents:
        node = node[part]
    node[last] = "another value"
    return data


@pytest.mark.parametrize("path", sorted(_leaves(PLAIN)))
def test_any_value_changes_the_hash_and_names_do_not(path: str) -> None:
    assert (config_hash(_changed(path)) == config_hash(PLAIN)) == (path in NAMES)


def test_the_order_of_keys_does_not_matter() -> None:
    def backwards(node: Any) -> Any:
        return {key: backwards(node[key]) for key in reversed(node)} if isinstance(node, dict) else node

    assert config_hash(backwards(PLAIN)) == config_hash(PLAIN)
    words = ["algorithm.gamma=0.5", "experiment.seed=3"]
    assert config_hash(compose("CartPole-v1:ppo", words=words).config) == config_hash(
        compose("CartPole-v1:ppo", words=words[::-1]).config
    )


def test_the_seed_can_stay_out() -> None:
    first, second = (compose("CartPole-v1:ppo", words=[f"experiment.seed={seed}"]).config for seed in (1, 2))
    assert config_hash(first) != config_hash(second)
    assert config_hash(first, with_seed=False) == config_hash(second, with_seed=False)


def test_a_config_and_its_printed_form_have_one_hash_and_hashing_changes_neither() -> None:
    config = compose("CartPole-v1:ppo").config
    before = copy.deepcopy(PLAIN)
    assert config_hash(config) == config_hash(PLAIN)
    assert before == PLAIN


def test_ways_of_writing_the_same_settings_have_one_hash() -> None:
    ways = [["algorithm.gamma=1"], ["algorithm.gamma=1.0"], ["gamma=1"]]
    assert len({config_hash(compose("CartPole-v1:ppo", words=words).config) for words in ways}) == 1

"""The words of a command line."""

from __future__ import annotations

from typing import Any

import pytest

from etude.config.compose import compose
from etude.config.overrides import Choice, parse
from etude.errors import ConfigError
from tests.config.conftest import Complaints


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("a.b=1", 1),
        ("a.b=1e6", 1e6),
        ("a.b=1_000", 1000),
        ("a.b=true", True),
        ("a.b=null", None),
        ("a.b=lin_1e-3", "lin_1e-3"),
        ("a.b=[1,[2,x]]", [1, [2, "x"]]),
        ("a.b={x: 1, y: [2]}", {"x": 1, "y": [2]}),
        ("a.b='quoted, with comma'", "quoted, with comma"),
        ("a.b='it\\'s'", "it's"),
        ("a.b='1'", "1"),
        ("a.b=two words", "two words"),
        ("a.b=${c.d}", "${c.d}"),
        ("a.b=", ""),
        ("+a.b=1", 1),
        ("++a.b=1", 1),
    ],
)
def test_values_are_typed_as_hydra_types_them(word: str, value: Any) -> None:
    assert parse([word]).values == {"a": {"b": value}}


def test_the_last_word_wins_and_mappings_grow() -> None:
    assert parse(["a.b=1", "a.b=2", "a.c.d=3", "a.c.e=4"]).values == {"a": {"b": 2, "c": {"d": 3, "e": 4}}}


def test_groups_are_choices() -> None:
    choices = parse(["+experiment=x", "experiment=y", "network@network.actor=z"]).choices
    assert choices == (
        Choice("+experiment=x", "experiment", "x"),
        Choice("experiment=y", "experiment", "y"),
        Choice("network@network.actor=z", "network", "z", "network.actor"),
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["gamma"], "gamma: can't be read; write it as key=value"),
        (["CartPole-v1:ppo"], "CartPole-v1:ppo: can't be read; write it as key=value; what is trained, ENV:ALGO, comes"),
        (["--gamma=1"], "--gamma=1: can't be read; quote values"),
        (["a.b=[1"], r"a.b=\[1: can't be read; quote values with special characters"),
        (["a.b=1,2"], r"a.b=1,2: several values in one run; a list is written a.b=\[1,2\]"),
        (["a.b=range(1,3)"], "several values in one run"),
        (["~a.b"], "settings can't be removed; set a.b=null"),
        (["a.b=1", "a.b.c=2"], "a.b.c=2: 'b' is a plain value in another word"),
        (["colour@a.b=c"], r"colour@a.b=c: no group 'colour' \(groups: experiment, "),
        (["some/group=c"], "some/group=c: no group 'some/group'"),
        (["=1"], "=1: can't be read"),
        ([""], "can't be read"),
        (["a.b=extend_list(1)"], "a.b=extend_list"),
    ],
)
def test_a_word_that_can_not_be_read_says_how_to_write_it(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(words)


@pytest.mark.parametrize("plus", ["", "+", "++"])
def test_a_plus_can_not_smuggle_a_key_in(complaints: Complaints, plus: str) -> None:
    for key in ("algorithm.typo", "algorithm.optimizer.typo", "network.actor.typo", "typo", "logging.wandb.typo"):
        (line,) = complaints("CartPole-v1:ppo", words=[f"{plus}{key}=1"])
        assert line.startswith(f"{key}: unknown ")


def test_what_was_asked_is_recorded() -> None:
    composition = compose("CartPole-v1:ppo", words=["experiment.seed=123"])
    assert composition.config.experiment.seed == 123
    assert composition.asked["experiment"] == {"seed": 123}


# Defect 34: several devices, one for each process, are one text.
def test_several_devices_are_one_setting() -> None:
    assert parse(["experiment.device=cuda:0,cuda:1"]).values == {"experiment": {"device": "cuda:0,cuda:1"}}

"""Expressions are arithmetic over keys, and nothing else."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from etude.errors import UserError
from etude.tuning.expressions import Expression

KEYS = {"algorithm.batch_size": 64, "environment.num_envs": 8, "network.actor.hidden_dims": [32, 16], "_width": 128}


def value(text: str) -> Any:
    return Expression(text).evaluate(KEYS.__getitem__, Random(0))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2 * algorithm.batch_size", 128),
        ("algorithm.batch_size // environment.num_envs - 1", 7),
        ("max(8, min(algorithm.batch_size, 32))", 32),
        ("[_width, _width // 2]", [128, 64]),
        ("network.actor.hidden_dims[0] ** 2", 1024),
        ("'relu' if _width > 64 else 'tanh'", "relu"),
        ("1 < environment.num_envs <= 8 and not false_ if False else True", True),
        ("-round(2.6)", -3),
    ],
)
def test_arithmetic_over_keys(text: str, expected: object) -> None:
    assert Expression(text).evaluate({**KEYS, "false_": False}.__getitem__, Random(0)) == expected


def test_names_are_the_keys_it_refers_to() -> None:
    assert Expression("max(algorithm.batch_size, 2 * algorithm.batch_size, _width)").names == ("algorithm.batch_size", "_width")


@pytest.mark.parametrize("text", ["uniform(0, 1)", "loguniform(1e-4, 1e-2)", "randint(1, 1000000)", "normal(0, 1)"])
def test_draws_follow_from_the_generator(text: str) -> None:
    assert value(text) == value(text)
    assert Expression(text).evaluate(KEYS.__getitem__, Random(1)) != value(text)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "open('/etc/passwd')",
        "().__class__",
        "(lambda: 1)()",
        "[x for x in [1]]",
        "{'a': 1}",
        "f'{1}'",
        "print(1)",
        "max(1, key=abs)",
        "algorithm.batch_size.bit_length()",
        "1 if",
        "x" * 501,
    ],
)
def test_anything_else_is_refused_before_it_runs(text: str) -> None:
    with pytest.raises(UserError):
        Expression(text)


@pytest.mark.parametrize("text", ["9 ** 9 ** 9", "'a' * 1000000000", "1 / 0", "10 ** 400", "[1] * 5", "exp(1000)", "_width[0]"])
def test_what_grows_without_bound_or_means_nothing_is_one_error(text: str) -> None:
    with pytest.raises(UserError, match="'"):
        value(text)


def test_an_unknown_function_names_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean 'uniform'"):
        Expression("unifrom(0, 1)")

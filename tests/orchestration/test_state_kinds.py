"""A state whose hashes fit and whose counts are something else is refused when it is loaded, not amid training."""

from __future__ import annotations

import random

import pytest

from etude.compute.random_streams import RandomStreams
from etude.orchestration.state_kinds import check_kinds

OWN = {"counters": {"env_steps": 5, "updates": 0}, "done": False, "elapsed_s": 0.5}


def test_a_state_of_the_same_kinds_passes_and_may_have_more_or_less() -> None:
    check_kinds({"counters": {"env_steps": 7, "new": "x"}, "done": True, "elapsed_s": 3}, OWN, "shared")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"counters": {"updates": "x"}}, "shared.counters.updates: str instead of a number"),
        ({"counters": {"updates": None}}, "shared.counters.updates: nothing instead of a number"),
        ({"counters": {"updates": True}}, "shared.counters.updates: true or false instead of a number"),
        ({"counters": {"updates": -5}}, "shared.counters.updates: -5 is not a count"),
        ({"elapsed_s": float("nan")}, "shared.elapsed_s: nan is not a count"),
        ({"counters": []}, "shared.counters: list instead of a mapping"),
        ({"done": 1}, "shared.done: a number instead of true or false"),
    ],
)
def test_another_kind_is_named(change: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        check_kinds(change, OWN, "shared")


def test_numbers_that_python_s_generator_can_t_have_are_a_value_error() -> None:
    before = random.getstate()
    streams = RandomStreams(1, "cpu")
    state = streams.state_dict()
    state["global"]["python"][1][185] = -5
    with pytest.raises(ValueError, match="Python's generator"):
        streams.load_state_dict(state)
    random.setstate(before)

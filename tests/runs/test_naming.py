from __future__ import annotations

from datetime import datetime

import pytest

from etude.errors import UserError
from etude.runs.naming import expand_name

FACTS = {"environment": "CartPole-v1", "algorithm": "ppo", "seed": 3, "group": None}


def test_fields_are_replaced_by_what_the_run_is() -> None:
    assert expand_name("{algorithm}-wide-{seed}", FACTS) == "ppo-wide-3"
    assert expand_name("plain", FACTS) == "plain"
    assert expand_name("x{group}y", FACTS) == "xy"
    assert expand_name("{date}", FACTS) == f"{datetime.now():%Y%m%d}"
    assert expand_name("{a b} { seed }", FACTS) == "{a b} { seed }"


def test_what_a_field_brings_is_not_expanded_again() -> None:
    assert expand_name("{environment}", {"environment": "{seed}", "seed": 1}) == "{seed}"


@pytest.mark.parametrize("template", ["{algoritm}", "{}", "{__class__}"])
def test_an_unknown_field_is_the_user_s_error(template: str) -> None:
    with pytest.raises(UserError, match=r"no field '.*'; known: algorithm, date, environment, group, seed"):
        expand_name(template, FACTS)

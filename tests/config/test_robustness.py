"""Whatever a file or a word says, the answer is a config or a sentence."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etude.config.compose import Composition, compose
from etude.config.validate import to_plain
from etude.errors import UserError

PLAIN = to_plain(compose("CartPole-v1:ppo").config)
WORDS = [
    "class_name",
    "_target_",
    "config",
    "domain",
    "task",
    "buffer",
    "workflow",
    "components",
    "lr",
    "clip_range_schedule",
    "policy_lr_schedule_end",
    "defaults",
    "_base",
    "ppo",
    "version",
    "spec",
    "description",
    "type",
    "repeat",
    "phases",
    "ratio",
]


def _keys(node: Any) -> list[str]:
    return [key for name, value in node.items() for key in (name, *(_keys(value) if isinstance(value, dict) else ()))]


keys = st.sampled_from(sorted({*_keys(PLAIN), *WORDS}))
texts = st.sampled_from(["ppo", "mlp", "", "${a}", "???", "lin_1"])
scalars = st.none() | st.booleans() | st.integers(-2, 300) | st.floats(-1, 2) | texts
values = st.recursive(scalars, lambda part: st.lists(part, max_size=3) | st.dictionaries(keys, part, max_size=3), max_leaves=8)
documents = st.dictionaries(keys, values | st.dictionaries(keys, values, max_size=4), max_size=5)
no_scope_check = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def _try(*args: Any, **options: Any) -> None:
    """Anything but a config or a UserError fails the test."""
    with suppress(UserError):
        assert isinstance(compose(*args, **options), Composition)


@no_scope_check
@given(documents, st.sampled_from([None, "CartPole-v1:ppo", "CartPole-v1:random"]))
def test_no_file_can_crash_the_composer(tmp_path: Path, document: dict[str, Any], spec: str | None) -> None:
    file = tmp_path / "any.json"
    file.write_text(json.dumps(document))
    _try(spec, file=file)


@no_scope_check
@given(documents)
def test_no_stored_config_can_crash_the_composer(document: dict[str, Any]) -> None:
    _try(base={**PLAIN, **document})


@pytest.mark.parametrize(
    "words",
    [["algorithm=5", "algorithm=ppo"], ["environment=5", "environment=x"], ["algorithm.name=[1]"], ["environment.id={a: 1}"]],
)
def test_no_words_can_crash_the_composer(words: list[str]) -> None:
    _try("CartPole-v1:ppo", words=words)
    _try(words=words)

"""YAML and JSON of strangers: sound text is read, everything else is one line, soon."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from etude.files.documents import DEEPEST, DocumentError, parse_json, parse_yaml, read_json, read_yaml


def bomb() -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    return "\n".join(lines)


def test_sound_yaml_is_read() -> None:
    assert parse_yaml("a: &x {b: [1, 2.5, null, true]}\nc: *x\nd: 0x10") == {
        "a": {"b": [1, 2.5, None, True]},
        "c": {"b": [1, 2.5, None, True]},
        "d": 16,
    }


def test_a_date_is_text() -> None:
    assert parse_yaml("a: 2024-99-99\nb: 2024-01-01") == {"a": "2024-99-99", "b": "2024-01-01"}


HOSTILE_YAML = [
    ("[" * 100_000, "nested more than"),
    ("- " * 100_000 + "a", "nested more than"),
    ("{a: " * 100_000, "nested more than"),
    (bomb(), "more than 20,000 values"),
    ("a: &a [*a]", "refers to itself"),
    ("a: *nowhere", "nowhere"),
    ("a: " + "9" * 400, "a whole number of 400 digits"),
    ("a: " + "9" * 5_000, "a whole number of 5,000 digits"),
    ("a: 0x" + "f" * 400, "a whole number of 402 digits"),
    ("a: [", "line 2"),  # the end of the text,
    ("a: !!python/object:os.system x", "python/object"),
    (b"a: \xff\xfe\x80", "byte"),
    ("a: \x00", "control characters"),
    ("? [1, {a: b}]\n: c", "unhashable"),
]
HOSTILE_JSON = [
    ("[" * 100_000, "nested too deeply"),
    ("[" * (DEEPEST + 1) + "]" * (DEEPEST + 1), "nested more than"),
    ('{"a": ' + "9" * 400 + "}", "a whole number of 400 digits"),
    ('{"a": ' + "9" * 5_000 + "}", "a whole number of 5,000 digits"),
    ("{", "not JSON"),
    (b"\xff\xff", "not JSON"),
    ("", "not JSON"),
]
HOSTILE = [*((parse_yaml, *case) for case in HOSTILE_YAML), *((parse_json, *case) for case in HOSTILE_JSON)]


@pytest.mark.parametrize(("parse", "text", "said"), HOSTILE, ids=lambda value: repr(value)[:24])
def test_a_hostile_document_is_one_line(parse: Callable[[Any], object], text: str | bytes, said: str) -> None:
    with pytest.raises(DocumentError, match=said) as caught:
        parse(text)
    assert "\n" not in str(caught.value)


def test_states_of_generators_are_longer_numbers() -> None:
    assert parse_json(f'{{"state": {2**128 - 1}}}', digits=40) == {"state": 2**128 - 1}


def test_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("a: 1")
    (tmp_path / "a.json").write_text('{"a": 1}')
    assert read_yaml(tmp_path / "a.yaml") == read_json(tmp_path / "a.json") == {"a": 1}

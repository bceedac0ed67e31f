"""Files that can't be read are one clear line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from etude.config.compose import compose
from etude.config.source_file import read_file
from tests.config.conftest import Complaints, Write

SPEC = "CartPole-v1:ppo"


def _line(complaints: Complaints, file: Path) -> str:
    (line,) = complaints(SPEC, file=file)
    return line


def test_a_missing_file(complaints: Complaints, write: Write) -> None:
    write("mine.yaml", "a: 1")
    assert _line(complaints, Path("mien.yaml")) == "mien.yaml: there is no such file; did you mean 'mine.yaml'?"
    assert _line(complaints, Path("no/such/folder.yaml")) == "no/such/folder.yaml: there is no such file"


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n"])
def test_an_empty_file(complaints: Complaints, write: Write, text: str) -> None:
    assert _line(complaints, write("e.yaml", text)) == "e.yaml: is empty"
    assert _line(complaints, write("e.json", "")) == "e.json: is empty"


def test_a_file_that_is_a_list_or_a_single_value(complaints: Complaints, write: Write) -> None:
    assert _line(complaints, write("l.yaml", "# c\n- 1\n- 2")) == "l.yaml:2: must be a mapping of sections, not a list"
    assert _line(complaints, write("v.yaml", "hello")) == "v.yaml:1: must be a mapping of sections, not a single value"
    assert _line(complaints, write("l.json", "[1]")) == "l.json:1: must be a mapping of sections, not a list"


def test_a_binary_file(complaints: Complaints, write: Write) -> None:
    file = write("b.yaml", "")
    file.write_bytes(bytes(range(256)))
    assert _line(complaints, file) == "b.yaml: is not a text file in UTF-8"
    file.write_bytes(b"\x00\x01\x02")
    assert _line(complaints, file) == "b.yaml: is not a text file"


def test_a_folder(complaints: Complaints, write: Write) -> None:
    write("folder/x.yaml", "a: 1")
    assert _line(complaints, Path("folder")) == "folder: is a folder; name a file in it"


def test_a_file_without_read_permission(complaints: Complaints, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write("secret.yaml", "a: 1")

    def refuse(*_: object, **__: object) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("etude.config.source_file.read_own_bytes", refuse)  # root may read anything, so chmod would not do
    assert _line(complaints, file) == "secret.yaml: you have no permission to read it"


def test_a_file_of_another_kind(complaints: Complaints, write: Write) -> None:
    assert _line(complaints, write("config.toml", "a = 1")) == "config.toml: a config file ends in .yaml, .yml, .json"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("algorithm:\n  gamma: 0.9\n gae: 1", "s.yaml:3: "),
        ("algorithm: {gamma: 0.9", "s.yaml:1: "),
        ("a: b: c", "s.yaml:1: mapping values are not allowed here"),
        ("algorithm:\n\tgamma: 1", "s.yaml:2: found character '\\t' that cannot start any token"),
        ("a: *nowhere", "s.yaml:1: the alias *nowhere refers to itself or to nothing"),
        ("a: 1\n---\nb: 2", "s.yaml:2: "),
        ("algorithm:\n  gamma: 1\n  gamma: 2", "s.yaml:3: algorithm.gamma: is here twice"),
        ("a: &a\n  b: *a", "s.yaml:2: the alias *a refers to itself or to nothing"),
    ],
)
def test_a_syntax_error_is_shown_at_its_line(complaints: Complaints, write: Write, text: str, message: str) -> None:
    assert _line(complaints, write("s.yaml", text)).startswith(message)


def test_a_syntax_error_in_json_is_shown_at_its_line(complaints: Complaints, write: Write) -> None:
    assert _line(complaints, write("s.json", '{\n "a": 1,\n}')).startswith("s.json:")
    assert ": a: is here twice" in _line(complaints, write("t.json", '{"a": 1, "a": 2}'))


@pytest.mark.parametrize(
    "name", ["with space.yaml", "a=b,c.yaml", "my.v2.yaml", "ünï.yaml", "it's.yaml", "short.yml", "UPPER.YAML"]
)
def test_any_file_name_will_do(write: Write, name: str) -> None:
    assert compose(SPEC, file=write(name, "algorithm: {gamma: 0.5}")).config.algorithm.gamma == 0.5


def test_a_byte_order_mark_is_no_part_of_the_first_key(write: Write) -> None:
    file = write("bom.yaml", "")
    file.write_bytes("\ufeffalgorithm: {gamma: 0.5}".encode())
    assert compose(SPEC, file=file).config.algorithm.gamma == 0.5


def test_yaml_and_json_files_with_the_same_settings_are_the_same(write: Write) -> None:
    data = {"environment": {"id": "CartPole-v1"}, "algorithm": {"name": "ppo", "gamma": 0.5, "learning_rate": 1e-4}}
    assert compose(file=write("c.json", json.dumps(data))).config == compose(file=write("c.yaml", json.dumps(data))).config


def test_numbers_and_dates_read_as_people_write_them(write: Write) -> None:
    text = "algorithm: {learning_rate: 1e-3}\ntraining: {total_steps: 1_000_000}\nexperiment: {group: 2026-01-01}"
    config = compose(SPEC, file=write("n.yaml", text)).config
    assert config.algorithm.learning_rate.start == 1e-3
    assert config.training.total_steps == 1_000_000
    assert config.experiment.group == "2026-01-01"


def test_lines_of_merged_keys_are_where_they_are_written(write: Write) -> None:
    source = read_file(write("m.yaml", "base: &base\n  x: 1\n  y: 2\nuse:\n  <<: *base\n  y: 3\nlist:\n- {z: 1}"))
    assert (source.lines["use.x"], source.lines["use.y"], source.lines["list[0].z"]) == (2, 6, 8)

"""A release has one version, and its notes name it."""

from __future__ import annotations

from cyclopts import CycloptsError

from etude.cli import app
from tools import release


def test_every_file_has_the_same_version() -> None:
    assert set(release.versions().values()) == {release.versions()["pyproject.toml"]}


def test_the_ten_minutes_are_commands() -> None:
    for words in release.TEN_MINUTES:
        try:
            app.parse_args(words.split(), exit_on_error=False, print_error=False)
        except CycloptsError as error:
            raise AssertionError(words) from error

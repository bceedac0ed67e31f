"""Older configs are brought up to date; newer ones are refused."""

from __future__ import annotations

from typing import Any

import pytest

from etude.config import migrate
from etude.config.compose import check, compose
from etude.config.schema import SCHEMA_VERSION
from etude.config.validate import to_plain
from etude.errors import ConfigError
from tests.config.conftest import Complaints, Write


def test_a_newer_version_is_refused_at_its_line(complaints: Complaints, write: Write) -> None:
    (line,) = complaints("CartPole-v1:ppo", file=write("n.yaml", "# c\nversion: 99"))
    assert line == f"n.yaml:2: version=99: written by a newer Etude (this one reads up to {SCHEMA_VERSION}); upgrade it"


@pytest.mark.parametrize("version", [0, -1, "1", 1.5, True, None, [1]])
def test_a_version_that_is_none_is_refused(version: Any) -> None:
    with pytest.raises(ConfigError, match=rf"must be a whole number from 1 to {SCHEMA_VERSION}"):
        migrate.migrate({"version": version})


def test_the_current_version_is_left_alone() -> None:
    data = {"version": SCHEMA_VERSION, "algorithm": {"name": "ppo"}}
    assert migrate.migrate(data) == data
    assert migrate.migrate({}) == {}


@pytest.fixture
def next_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """A schema that renamed `experiment.label` to `experiment.name` in its next version."""

    def rename(data: dict[str, Any]) -> dict[str, Any]:
        experiment = dict(data.get("experiment", {}))
        if "label" in experiment:
            experiment["name"] = experiment.pop("label")
        return {**data, "experiment": experiment}

    monkeypatch.setattr(migrate, "SCHEMA_VERSION", SCHEMA_VERSION + 1)
    monkeypatch.setitem(migrate.MIGRATIONS, SCHEMA_VERSION, rename)


@pytest.mark.usefixtures("next_version")
def test_an_older_file_and_an_older_run_are_migrated(write: Write) -> None:
    old = {"version": SCHEMA_VERSION, "experiment": {"label": "old"}}
    assert migrate.migrate(old) == {"version": SCHEMA_VERSION + 1, "experiment": {"name": "old"}}
    file = write("old.yaml", f"version: {SCHEMA_VERSION}\nexperiment: {{label: old}}")
    assert compose("CartPole-v1:ppo", file=file).config.experiment.name == "old"
    stored = to_plain(compose("CartPole-v1:ppo").config)
    stored["experiment"]["label"] = stored["experiment"].pop("name")
    assert check({**stored, "version": SCHEMA_VERSION}).experiment.name == "CartPole-v1-ppo"


def test_version_1_called_the_greedy_way_to_act_mode() -> None:
    old = {"version": 1, "evaluation": {"mode": "mode"}, "checkpoint": {"monitor": "eval/mode_return_mean", "keep": 2}}
    assert migrate.migrate(old) == {
        "version": SCHEMA_VERSION,
        "evaluation": {"mode": "greedy"},
        "checkpoint": {"monitor": "eval/greedy_return_mean", "keep": 2},
    }
    assert migrate.migrate({"version": 1, "evaluation": {"mode": "both"}})["evaluation"] == {"mode": "both"}

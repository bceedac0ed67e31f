"""A run's settings as they are stored: read with suspicion, brought up to date, and compared."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from etude.config.compose import check
from etude.config.migrate import flat, migration_changes
from etude.config.schema import Config
from etude.config.validate import to_plain
from etude.runs import trust
from etude.runs.record_migration import record_changes
from etude.runs.run import Run
from etude.runs.settings_files import read_settings


def load_config(run: Run, *, trusted: bool = False) -> Config:
    """Return a run's resolved config. Import paths in it are honoured only for runs of this user on this machine."""
    config = as_recorded(check(read_settings(run), allow_imports=trusted or trust.is_own(run.path)), run)
    use_robot_of(run, config)
    return config


def use_robot_of(run: Run, config: Config) -> list[str]:
    """Let a robot's task use the files that are stored with the run; returns a line where the originals have changed."""
    if config.environment.robot is None:
        return []
    from etude.robots.models.stored_files import use_stored_robot  # which most runs have no need of

    said = use_stored_robot(config.environment.robot, run.path / "provenance")
    return [] if said is None else [said]


def as_recorded(config: Config, run: Run) -> Config:
    """The config with the group and the tags of ``run.json``: they may be changed at any time, and lists go by them."""
    record = run.record
    group, tags = record.get("group"), record.get("tags")
    said: dict[str, Any] = {"group": group} if group is None or isinstance(group, str) else {}
    if isinstance(tags, list) and all(isinstance(tag, str) for tag in tags):
        said["tags"] = tuple(tags)
    return replace(config, experiment=replace(config.experiment, **said))


def migration_notes(run: Run) -> list[str]:
    """What bringing an older run's files up to date changes, a line each."""
    changes = [*record_changes(run.stored_record, run.record), *migration_changes(read_settings(run))]
    return ["this run was made by an earlier Etude; brought up to date:", *changes] if changes else []


def config_changes(before: Config, after: Config) -> list[str]:
    """Return one line `key: old → new` for each setting that differs."""
    old, new = flat(to_plain(before)), flat(to_plain(after))
    return [f"{key}: {old.get(key)} → {new.get(key)}" for key in sorted({*old, *new}) if old.get(key) != new.get(key)]

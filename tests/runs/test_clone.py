"""A copied run is whole, of its owner alone, and follows no link."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from etude.errors import EtudeError, UserError
from etude.runs import trust
from etude.runs.clone import clone_run, export_run, exported_run
from etude.runs.run import Run
from tests.runs_compared import rows, state, train


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    words = ("training.total_steps=512", "algorithm.epochs=1", "evaluation.episodes=1", "evaluation.every_steps=256")
    return train("CartPole-v1:ppo", tmp_path_factory.mktemp("runs"), *words, "checkpoint.keep=5")


@pytest.fixture
def source(trained: Run, tmp_path: Path) -> Run:
    shutil.copytree(trained.path, tmp_path / "runs" / trained.id, symlinks=True)
    run = Run.open(tmp_path / "runs" / trained.id)
    # Every test has a key of its own.
    (run.path / "provenance" / "origin.json").unlink()
    trust.sign(run.path)
    return run


def test_a_copy_stands_where_the_original_stood_and_is_its_owners(source: Run, tmp_path: Path) -> None:
    copy = clone_run(source, tmp_path / "runs", group="g")
    assert copy.status == "interrupted"
    assert copy.record["group"] == "g"
    assert copy.record["cloned_from"] == {"run": source.id, "checkpoint": source.checkpoints().newest_whole().name}
    assert rows(copy) == rows(source)
    assert state(copy).keys() == state(source).keys()
    assert copy.checkpoints().find("best").name == source.checkpoints().find("best").name
    assert trust.is_own(source.path)
    assert trust.is_own(copy.path)
    assert Run.resolve("@last", tmp_path / "runs").id == copy.id


def test_an_earlier_checkpoint_can_be_copied_and_its_best_is_of_that_time(source: Run, tmp_path: Path) -> None:
    first = next(saved for saved in source.checkpoints().list() if saved.kind == "full")
    copy = clone_run(source, tmp_path / "runs", group=None, checkpoint=str(first.sequence))
    found = copy.checkpoints().list()
    assert [saved.name for saved in found if saved.kind == "full"] == [first.name]
    assert all(saved.sequence <= first.sequence for saved in found)


def test_what_is_exported_can_be_copied_from_and_keeps_its_owner(source: Run, tmp_path: Path) -> None:
    export_run(source, tmp_path / "out")
    moved = (tmp_path / "out").rename(tmp_path / "elsewhere")
    saved = exported_run(moved)
    assert saved.id == source.id
    copy = clone_run(saved, tmp_path / "runs", group="g")
    assert rows(copy) == rows(source)
    assert trust.is_own(copy.path)
    with pytest.raises(EtudeError, match="can't be copied"):
        export_run(source, moved)


def _edit_settings(run: Run) -> None:
    run.resolved_path.write_text(run.resolved_path.read_text() + "\n# edited\n")


def _edit_code(run: Run) -> None:
    (run.path / "provenance" / "changes.patch").write_text("another")


@pytest.mark.parametrize("edit", [_edit_settings, _edit_code])
def test_a_copy_of_what_somebody_changed_is_nobodys(edit: Callable[[Run], None], source: Run, tmp_path: Path) -> None:
    edit(source)
    copy = clone_run(source, tmp_path / "runs", group=None)
    assert not trust.is_own(copy.path)
    assert not trust.is_own_code(copy.path)


@pytest.mark.parametrize("name", ["metrics.jsonl", "provenance/environment.json", "config.yaml"])
def test_no_link_is_followed_and_nothing_is_left_behind(name: str, source: Run, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("{}")
    (source.path / name).unlink(missing_ok=True)
    os.symlink(secret, source.path / name)
    before = sorted(path.name for path in (tmp_path / "runs").iterdir())
    with pytest.raises(EtudeError, match="link"):
        clone_run(source, tmp_path / "runs", group=None)
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == before
    with pytest.raises(EtudeError, match="link"):
        export_run(source, tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())


def test_a_run_that_somebody_trains_is_not_copied(source: Run, tmp_path: Path) -> None:
    with source.lock(), pytest.raises(UserError, match="in use"):
        clone_run(source, tmp_path / "runs", group=None)

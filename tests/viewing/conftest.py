"""A robot that stands, to be looked at, and a run of one that has hardly learnt anything."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from etude.runs.run import Run
from etude.viewing.show import Show
from etude.viewing.subjects import show_run, show_task
from tests.robots.conftest import SMALL
from tests.runs_compared import train


@pytest.fixture
def show_of() -> Iterator[Callable[..., Show]]:
    """Shows of tasks, closed at the end."""
    shows: list[Show] = []

    def make(task: str = "quadruped-flat", *, act: str = "stand", **settings: object) -> Show:
        shows.append(show_task(task, {"environment": {"robot": settings}} if settings else {}, act=act))  # type: ignore[arg-type]
        return shows[-1]

    yield make
    for show in shows:
        show.live.close()


@pytest.fixture(scope="session")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train("quadruped-flat:ppo", tmp_path_factory.mktemp("viewed"), *SMALL)


@pytest.fixture
def trained(trained_once: Run, tmp_path: Path) -> Run:
    """A run that may be changed."""
    shutil.copytree(trained_once.path, tmp_path / trained_once.id, symlinks=True)
    return Run.open(tmp_path / trained_once.id)


@pytest.fixture
def run_show(trained: Run) -> Iterator[tuple[Show, list[str]]]:
    """A show of the run, which follows it, and what it tells."""
    told: list[str] = []
    show = show_run(trained, follows=True, tell=told.append)
    yield show, told
    show.live.close()

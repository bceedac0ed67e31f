"""A folder of runs and the app that shows it."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.applications import Starlette

from etude.ui.app import make_app
from tests.ui.asgi_client import Client
from tests.ui.run_folders import make_runs

TOKEN = "a-token-of-the-tests-and-nobody-elses"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def runs(root: Path) -> list[str]:
    """Six runs: five seeds of one setup and one of another; the newest first."""
    return make_runs(root, 6, rows=30)


@pytest.fixture
def app(root: Path, runs: list[str]) -> Starlette:
    return make_app(root, token=TOKEN)


@pytest.fixture
def client(app: Starlette) -> Client:
    return Client(app, TOKEN)


@pytest.fixture
def stranger(app: Starlette) -> Client:
    """Whoever has no token."""
    return Client(app)

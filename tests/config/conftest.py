from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from etude.config.compose import compose
from etude.errors import UserError

Write = Callable[[str, str], Path]
Complaints = Callable[..., list[str]]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write a file into a folder that is also the current one."""
    monkeypatch.chdir(tmp_path)

    def write_file(name: str, text: str) -> Path:
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text).lstrip("\n"), encoding="utf-8")
        return path

    return write_file


@pytest.fixture
def complaints() -> Complaints:
    """Compose something wrong and return the lines the user sees."""

    def compose_wrong(*args: Any, **options: Any) -> list[str]:
        with pytest.raises(UserError) as raised:
            compose(*args, **options)
        return str(raised.value).splitlines()

    return compose_wrong

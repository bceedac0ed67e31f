"""The files of a page, in a folder of a reader's own."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.docs.pages import blocks


@contextmanager
def own_files(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Write the files of a page, to be imported and read from there; returns them by name."""
    files = {block.title: block.text for block in blocks(page) if block.title}
    for name, text in files.items():
        (folder / name).write_text(text)
    monkeypatch.syspath_prepend(str(folder))
    importlib.invalidate_caches()
    yield files
    for name in files:
        sys.modules.pop(Path(name).stem, None)

"""Atari games of the Arcade Learning Environment."""

from __future__ import annotations

import importlib


def register() -> None:
    """Importing the package registers its games."""
    importlib.import_module("ale_py")

"""MiniGrid and BabyAI."""

from __future__ import annotations

import importlib


def register() -> None:
    """Importing the package registers its tasks."""
    importlib.import_module("minigrid")

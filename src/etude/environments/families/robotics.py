"""Gymnasium-Robotics: arms, hands and mazes, most of them with goals."""

from __future__ import annotations

import importlib
import logging


def register() -> None:
    """Importing the package registers its tasks; what it says about old versions of others is no news."""
    logger = logging.getLogger("gymnasium_robotics")
    before, logger.disabled = logger.disabled, True
    try:
        importlib.import_module("gymnasium_robotics")
    finally:
        logger.disabled = before

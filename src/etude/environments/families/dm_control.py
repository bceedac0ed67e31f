"""DeepMind Control."""

from __future__ import annotations


def register() -> None:
    """Make every task of the suite known to Gymnasium."""

"""Etude's arcade-like tasks, which are torch tensors."""

from __future__ import annotations


def register() -> None:
    """Make them known to Gymnasium."""
    from etude.environments.tensors.registered import register_arcade

    register_arcade()

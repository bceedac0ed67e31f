"""Options that several wrappers have."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class WrapperConfig:
    """A wrapper without options."""

    id: str = ""
    """The registered name of the wrapper."""


@dataclass(frozen=True)
class PartConfig(WrapperConfig):
    """A wrapper of one part of an observation."""

    key: str | None = None
    """Which part of a Dict observation is meant. Default: the only one that it could be."""


@dataclass(frozen=True)
class RewardConfig(WrapperConfig):
    """A wrapper that changes rewards."""

    training_only: bool = True
    """Evaluate and play without it, so that what is measured is the task's own return."""

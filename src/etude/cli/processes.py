"""`--processes`, and torchrun: whether this command is one of several processes, or has to start them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from etude.errors import UserError

if TYPE_CHECKING:
    from etude.config.schema import Config

KEY = "experiment.processes"


def _size() -> int | None:
    """How many processes torchrun, or our own parent, has started; None where nobody has. Torch is not loaded for it."""
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        return None
    from etude.compute.joining import place

    here = place()
    return None if here is None else here.size


def is_follower() -> bool:
    """Whether another process has the terminal."""
    return _size() is not None and os.environ["RANK"] != "0"


def found_processes(words: Sequence[str]) -> list[str]:
    """Return the setting for as many processes as there are, where the words don't say how many."""
    size = _size()
    said = any(word.partition("=")[0].lstrip("+") == KEY for word in words)
    return [] if size is None or size == 1 or said else [f"{KEY}={size}"]


def one_at_a_time(what: str) -> None:
    """Refuse what starts processes of its own among processes that train together."""
    if (_size() or 1) > 1:
        raise UserError(f"{what}: torchrun trains one run; use `etude train {what} --processes N` instead")


def is_to_be_launched(config: Config) -> bool:
    """Whether this process has to start those that train."""
    return config.experiment.processes > 1 and _size() is None


def launch(config: Config) -> int:
    """Run this very command in as many processes as train together."""
    from etude.cli.stored_code import arguments
    from etude.training.ranks import Ranks

    return Ranks(arguments.get(()), config.experiment.processes).train()


def require_as_many(config: Config, asked: int | None, run: Path) -> None:
    """Refuse to go on with another number of processes than so far."""
    begun, given = config.experiment.processes, asked or _size() or config.experiment.processes
    if given != begun:
        from etude.runs.places import command

        new = f"etude train --from-run {run} --init-from {run} --processes {given}"
        raise UserError(
            f"this run is trained by {begun} processes, and can't go on with {given}: each has environments and experience of "
            f"its own; `{command('resume', run)}` goes on with {begun}, `{new}` begins a new one with its networks"
        )

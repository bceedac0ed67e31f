"""How many steps a replay has room for: its capacity, a number of bytes, free memory and the free disk; the least decides."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import torch

from etude.buffers.base import ColumnSpecs, bytes_of_parts, bytes_of_space, bytes_per_transition, in_bytes
from etude.buffers.columns import leaves
from etude.buffers.frame_file import is_frame
from etude.buffers.free_memory import free_memory
from etude.buffers.store import OBSERVATIONS, room_for_ends
from etude.errors import UserError

SHARE_OF_WHAT_IS_FREE = 0.8
"""What a buffer that must shrink leaves to the rest: networks, batches, other processes."""
PLACES = 8
"""Bytes of a transition that say where its observations lie."""


@dataclass(frozen=True)
class Sizes:
    """Bytes of one transition."""

    memory: int
    """Of its observation, in memory."""
    disk: int
    """Of its observation, in a file."""
    columns: int
    """Of all the rest that is written once."""
    rewritten: int = 0
    """Of what learning rewrites."""

    @classmethod
    def of_row(cls, row: Mapping[str, Any], rewritten: Collection[str], *, on_disk: bool) -> Sizes:
        """Return those of a first step (N, ...)."""
        fresh = {name: value for name, value in row.items() if name not in (*OBSERVATIONS, *rewritten)}
        again = {name: value for name, value in row.items() if name in rewritten}
        parts = [part[0].nbytes for part in leaves({name: row[name] for name in row if name == "observation"})]
        return cls._of(parts, bytes_per_transition(fresh) + PLACES, bytes_per_transition(again), on_disk)

    @classmethod
    def of_spaces(
        cls,
        observation: gymnasium.Space[Any],
        action: gymnasium.Space[Any],
        added: ColumnSpecs,
        rewritten: Collection[str],
        *,
        stacked: int,
        more: int,
        on_disk: bool,
    ) -> Sizes:
        """Return those to be expected of a task, of whose stacks one frame is kept, with `more` bytes that views keep."""
        extra = {name: math.prod(shape) * dtype.itemsize for name, (shape, dtype) in added.items()}
        again = sum(size for name, size in extra.items() if name in rewritten)
        # The action, the reward, three flags and two places; what an algorithm adds and does not declare is small.
        columns = bytes_of_space(action) + 4 + 3 + PLACES + more + sum(extra.values()) - again
        return cls._of([size // stacked for size in bytes_of_parts(observation)], columns, again, on_disk)

    @classmethod
    def _of(cls, parts: Sequence[int], columns: int, rewritten: int, on_disk: bool) -> Sizes:
        disk = sum(size for size in parts if on_disk and is_frame(size))
        return cls(sum(parts) - disk, disk, columns, rewritten)


class Room:
    """Fits a replay's steps into what there is."""

    def __init__(
        self,
        name: str,
        device: torch.device,
        *,
        strict: bool,
        max_bytes: int | None,
        keeps_ends: bool,
        priorities: Callable[[int], int],
    ) -> None:
        self.name, self.device, self.strict, self.max_bytes = name, device, strict, max_bytes
        self.keeps_ends, self._priorities = keeps_ends, priorities
        self.expected: dict[str, int] = {}
        """Bytes of memory, by what they are for."""
        self.on_disk = 0
        """Bytes of the file."""

    def needed(self, rows: int, num_envs: int, sizes: Sizes) -> tuple[dict[str, int], int]:
        """Return the bytes of memory that so many rows take, by what they are for, and those of the file."""
        count, each = rows * num_envs, sizes.memory + sizes.disk
        ends = num_envs * room_for_ends(rows, num_envs, each) if self.keeps_ends and each else 0
        marks = 8 * ends if ends < count else 0
        memory = {
            "of steps": (count + num_envs) * sizes.memory + count * sizes.columns,
            "for ends of episodes": ends * sizes.memory + marks,
            "of priorities": self._priorities(count),
            "of columns that learning rewrites": count * sizes.rewritten,
        }
        return memory, (count + num_envs + ends) * sizes.disk

    def allowed(self, rows: int, num_envs: int, sizes: Sizes) -> int:
        """Return how many of `rows` take no more than `max_bytes`."""
        most = self.max_bytes
        if most is None or self._bytes(rows, num_envs, sizes) <= most:
            return rows
        return self._most(rows, lambda some: self._bytes(some, num_envs, sizes) <= most)

    def fit(self, rows: int, num_envs: int, sizes: Sizes, folder: Path | None) -> tuple[int, str | None]:
        """Return how many of `rows` there is room for: as `max_bytes` says, and as memory and disk allow; and what to say."""
        asked, taken, note = rows * num_envs, self._bytes(rows, num_envs, sizes), None
        rows = self.allowed(rows, num_envs, sizes)
        if rows * num_envs < asked:
            note = (
                f"buffer '{self.name}': {asked:,} transitions take {in_bytes(taken)}, more than "
                f"max_bytes={in_bytes(self.max_bytes or 0)}; it holds {rows * num_envs:,}"
            )
        for free, place, part in self._free(folder, sizes):
            needed = part(*self.needed(rows, num_envs, sizes))
            if needed <= free:
                continue
            held = rows * num_envs
            told = f"{held:,} transitions of {needed // held:,} bytes do not fit into the {in_bytes(free)} free{place}"
            if self.strict:
                raise UserError(
                    f"buffers.{self.name}.capacity={asked}: {told}; lower it, or set buffers.{self.name}.on_low_memory=shrink"
                )
            share = free * SHARE_OF_WHAT_IS_FREE
            rows = self._most(rows, lambda some, share=share, part=part: part(*self.needed(some, num_envs, sizes)) <= share)
            note = f"buffer '{self.name}': {told}; it holds {rows * num_envs:,}"
        self.expected, self.on_disk = self.needed(rows, num_envs, sizes)
        return rows, note

    def _bytes(self, rows: int, num_envs: int, sizes: Sizes) -> int:
        memory, disk = self.needed(rows, num_envs, sizes)
        return sum(memory.values()) + disk

    def _free(self, folder: Path | None, sizes: Sizes) -> Iterable[tuple[int, str, Callable[[dict[str, int], int], int]]]:
        """Yield what is free, where that is, and what of the bytes needed must fit there."""
        memory = free_memory(self.device)
        if memory is not None:
            place = "" if self.device.type == "cpu" else f" on {self.device}"
            yield memory, place, lambda memory, disk: sum(memory.values())
        if folder is not None and sizes.disk and (disk := free_disk(folder)) is not None:
            yield disk, f" on the disk of {folder}", lambda memory, disk: disk

    @staticmethod
    def _most(rows: int, fits: Callable[[int], bool]) -> int:
        low, high = 1, rows  # the first fits, or nothing does
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low

    def said(self, folder: Path | None) -> str:
        """Return how much memory it will take and for what, and how much of the disk; nothing before that is known."""
        if not self.expected:
            return ""
        parts = [f"{in_bytes(count)} {what}" for what, count in self.expected.items() if count]
        said = f", about {in_bytes(sum(self.expected.values()))} on {self.device} ({', '.join(parts)})"
        if folder is None:
            return said
        if not self.on_disk:
            return f"{said}; observations are too small for a file and stay in memory"
        return f"{said}, and {in_bytes(self.on_disk)} of frames on the disk of {folder} (as much again in checkpoints)"


def free_disk(folder: Path) -> int | None:
    """Return how many bytes can still be written on a folder's disk; of one that isn't there yet, on the nearest above it."""
    for place in (folder, *folder.absolute().parents):
        try:
            return shutil.disk_usage(place).free
        except OSError:
            continue
    return None

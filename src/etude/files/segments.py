"""Rows that never change once they are written, such as a replay's transitions, as a leaf of a saved state.

A state that holds millions of rows can't be written anew at every save. It lists segments instead: each becomes a file of
its own, written once, which every later checkpoint refers to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class StoredSegment:
    """A segment's file."""

    path: str
    """Where it lies in the folder of checkpoints."""
    sha256: str
    size: int


class Segment:
    """Rows `first` to `first + count`, in memory, in a file, or both.

    `stored` says in which file they may be already. Whoever saves looks there first, and only if it is gone asks `load` for
    the rows, writes them and tells `on_stored`.
    """

    def __init__(
        self,
        owner: str,
        first: int,
        count: int,
        load: Callable[[], Mapping[str, Tensor]],
        *,
        stored: StoredSegment | None = None,
        on_stored: Callable[[StoredSegment], None] | None = None,
    ) -> None:
        self.owner, self.first, self.count = owner, first, count
        self.load, self.stored, self._on_stored = load, stored, on_stored

    def mark_stored(self, stored: StoredSegment) -> None:
        """Remember the file, so that it is never written again."""
        self.stored = stored
        if self._on_stored is not None:
            self._on_stored(stored)

    def __repr__(self) -> str:
        content = "in memory" if self.stored is None else self.stored.sha256
        return f"Segment({self.owner!r}, {self.first}, {self.count}, {content})"

    def __eq__(self, other: object) -> bool:
        """Whether the rows are the same; for rows on disk that takes no look into the files."""
        if not isinstance(other, Segment) or self.stored is None or other.stored is None:
            return self is other
        return repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash((self.owner, self.first, self.count))

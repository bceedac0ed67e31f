"""Says what happened to samplers, with the next row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from etude.orchestration.callbacks import Callback, Progress


class SamplerNotices(Callback):
    """Passes on what a collector noticed of its samplers."""

    def __init__(self, collector: Any, say: Callable[[str], None]) -> None:
        """A collector without samplers has nothing to say."""
        self._notices: list[str] = getattr(collector, "notices", [])
        self._say = say

    def on_row(self, progress: Progress, row: Mapping[str, float]) -> None:
        """Say what has happened since the last row."""
        while self._notices:
            self._say(self._notices.pop(0))

"""One vector step on its way into a buffer."""

from __future__ import annotations

from typing import Any


class Row(dict[str, Any]):
    """A vector step by column (N, ...), and what the host knows of it without asking the device."""

    begins: bool | None = None
    """Whether it is the first step of an episode anywhere; None: only the device knows."""

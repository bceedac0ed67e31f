"""Whether this machine has a screen; asked before anything heavy is imported."""

from __future__ import annotations

import os
import sys


def has_display() -> bool:
    """Whether a window could be opened."""
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))

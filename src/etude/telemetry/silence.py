"""What environment variables keep quiet, each under two names of ours and those of an earlier system."""

from __future__ import annotations

import os

SESSION_LOGS = ("ETUDE_DISABLE_SESSION_LOGS", "ETUDE_NO_RUN_LOG", "VIBES_DISABLE_SESSION_LOGS")
"""No run.log."""
CHECKPOINT_PRINTS = ("ETUDE_QUIET", "ETUDE_DISABLE_CHECKPOINT_LOGS", "VIBES_QUIET", "VIBES_DISABLE_CHECKPOINT_LOGS")
"""No lines about checkpoints that are read."""


def is_silenced(names: tuple[str, ...]) -> bool:
    """Whether one of the variables is set, to anything but 0, false or nothing."""
    return any(os.environ.get(name, "").strip().lower() not in ("", "0", "false", "no") for name in names)

"""What MuJoCo warns of, on stderr: by itself it leaves a MUJOCO_LOG.TXT in whatever folder the program was started in."""

from __future__ import annotations

import re
import sys
from typing import Any

_said: set[str] = set()


def tell_mujoco_warnings() -> None:
    """From now on this process prints MuJoCo's warnings, each kind once; nothing where MuJoCo is not loaded."""
    mujoco: Any = sys.modules.get("mujoco")
    if mujoco is not None and hasattr(mujoco, "set_mju_user_warning") and mujoco.get_mju_user_warning() is None:
        mujoco.set_mju_user_warning(_tell)


def _tell(text: str) -> None:
    if "is deprecated" in text:  # how a model's file is written is nothing to whoever trains with it
        return
    kind = re.sub(r"[\d.]+(e[+-]?\d+)?", "#", text)  # the same at another time or of another joint
    if kind not in _said:
        _said.add(kind)
        print(f"MuJoCo: {' '.join(text.split())}", file=sys.stderr)

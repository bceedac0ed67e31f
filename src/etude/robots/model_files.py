"""Reading a robot's MJCF or URDF file as it lies there, also where its pictures are missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mujoco  # type: ignore[import-untyped] # compiled, without stubs

from etude.errors import UserError

_mujoco: Any = mujoco


def read_model(path: Path) -> Any:
    """Return the file's MjSpec."""
    try:
        return _mujoco.MjSpec.from_file(str(path))
    except (ValueError, FileNotFoundError) as error:
        raise UserError(f"{path.name}: MuJoCo can't read this robot: {' '.join(str(error).split())}") from error

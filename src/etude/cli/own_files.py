"""YAML files that a user names beside a verb: events to drive by, scripts of trials."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def read_own_yaml(path: Path, what: str) -> Any:
    """Return what a file says; `what` the user called it is named in errors."""
    from etude.errors import UserError
    from etude.files.documents import DocumentError, parse_yaml
    from etude.files.regular import read_own_bytes

    try:
        return parse_yaml(read_own_bytes(path))
    except OSError as error:
        raise UserError(f"{what}: can't be read: {error.strerror or error}") from None
    except DocumentError as error:
        raise UserError(f"{what}: can't be read: {error}") from None

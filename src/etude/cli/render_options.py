"""`--render-options`: how pictures are taken, as JSON."""

from __future__ import annotations

import json
from typing import Any


def read_render_options(text: str | None) -> dict[str, Any]:
    """Return the options; nothing stands for none."""
    from etude.errors import UserError

    try:
        options = json.loads(text or "{}")
    except ValueError as error:
        raise UserError(f"--render-options {text}: is not JSON: {error}") from None
    if not isinstance(options, dict):
        raise UserError(f"--render-options {text}: must be a JSON object, such as '{{\"width\": 640}}'")
    return options

"""`--render-options`: how pictures are taken, as JSON."""

from __future__ import annotations

from typing import Any


def read_render_options(text: str | None) -> dict[str, Any]:
    """Return the options; nothing stands for none."""
    from etude.errors import UserError
    from etude.files.documents import DocumentError, parse_json

    try:
        options = parse_json(text or "{}")
    except DocumentError as error:
        raise UserError(f"--render-options {(text or '')[:200]}: {error}") from None
    if not isinstance(options, dict):
        raise UserError(f"--render-options {text}: must be a JSON object, such as '{{\"width\": 640}}'")
    return options

"""Which bodies the terms of a task name."""

from __future__ import annotations

from typing import Any

from etude.errors import UserError


def bodies_of(section: dict[str, Any]) -> list[str]:
    """The bodies whose contacts the terms of a section read."""
    return [pattern for entry in section.values() if isinstance(entry, dict) for pattern in patterns_of(entry)]


def patterns_of(options: dict[str, Any]) -> list[str]:
    """One name, or a list of them."""
    bodies = options.get("bodies", [])
    listed = [bodies] if isinstance(bodies, str) else bodies
    if not isinstance(listed, list | tuple) or not all(isinstance(name, str) for name in listed):
        raise UserError(f"bodies={bodies}: must be the name of a body, or a list of names")
    return list(listed)

"""`etude algorithms`: which algorithms there are."""

from __future__ import annotations

from etude.cli.output import emit_json, say
from etude.cli.parameters import AsJson


def algorithms(*, as_json: AsJson = False) -> int:
    """List algorithms, your own registered ones included."""
    from etude.config.registry import algorithms as registry

    described = registry.describe()
    if as_json:
        emit_json(described)
        return 0
    for name, line in described.items():
        say(f"{name:<10} {line}")
    return 0

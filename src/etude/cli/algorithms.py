"""`etude algorithms`: which algorithms there are."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from etude.cli.output import emit_json, say


def algorithms(*, as_json: Annotated[bool, Parameter(name="--json")] = False) -> int:
    """List algorithms, your own registered ones included.

    Parameters
    ----------
    as_json
        Print JSON.
    """
    from etude.config.registry import algorithms as registry

    described = registry.describe()
    if as_json:
        emit_json(described)
        return 0
    for name, line in described.items():
        say(f"{name:<10} {line}")
    return 0

"""`etude algorithms`: which algorithms there are."""

from __future__ import annotations

import json
from typing import Annotated

from cyclopts import Parameter


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
        print(json.dumps(described))
        return 0
    for name, line in described.items():
        print(f"{name:<10} {line}")
    return 0

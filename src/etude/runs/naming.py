"""Names of runs with fields in braces, ``{environment}-{algorithm}-wide``, and as parts of file names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime

from etude.errors import UserError, did_you_mean

_FIELD = re.compile(r"\{(\w*)\}")


def safe_name(name: str, longest: int = 60) -> str:
    """Return a name as a part of a file's name: letters, digits, dots, dashes and underscores."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name)[:longest].strip("-.") or "run"


def expand_name(template: str, facts: Mapping[str, object]) -> str:
    """Return the name with every ``{field}`` replaced by the run's own; `date` is today's, UserError for an unknown one."""
    known = {"date": f"{datetime.now():%Y%m%d}", **facts}

    def value(match: re.Match[str]) -> str:
        field = match[1]
        if field not in known:
            hint = did_you_mean(field, known)
            raise UserError(f"experiment.name={template}: no field '{field}'; known: {', '.join(sorted(known))}{hint}")
        return "" if known[field] is None else str(known[field])

    name = _FIELD.sub(value, template)
    if name.startswith("@"):
        raise UserError(f"experiment.name={template}: what begins with @ stands for a run already, such as @last and @best")
    return name

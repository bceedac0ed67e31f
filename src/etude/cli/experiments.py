"""`etude experiments`: whole experiments by name."""

from __future__ import annotations

from typing import Any

from etude.cli.output import emit_json, say
from etude.cli.parameters import AsJson


def experiments(*, as_json: AsJson = False) -> int:
    """List experiments, Etude's own and those of ./configs/experiment: `etude train NAME` trains one."""
    from etude.config.groups import preset_names

    rows = [_described(name) for name in preset_names("experiment")]
    if as_json:
        emit_json(rows)
        return 0
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        said = row.get("problem") or f"{row['environment']}:{row['algorithm']}, {row['total_steps']:,} steps"
        say(f"{row['name']:<{width}}  {said}  {row['file'] or ''}".rstrip())
    return 0


def _described(name: str) -> dict[str, Any]:
    from etude.config.compose import outline
    from etude.config.groups import own_preset
    from etude.errors import EtudeError

    own = own_preset("experiment", name)
    row: dict[str, Any] = {"name": name, "file": None if own is None else str(own)}
    try:
        about = outline(name)
    except EtudeError as error:  # one that is wrong hides no other
        return {**row, "problem": str(error).splitlines()[0]}
    return {**row, "environment": about.environment, "algorithm": about.algorithm, "total_steps": about.total_steps}

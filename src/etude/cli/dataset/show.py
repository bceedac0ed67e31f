"""`etude dataset show`: one dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from etude.cli.dataset.root import DatasetName, DatasetsFolder, datasets_root
from etude.cli.output import emit_json, say, write_file
from etude.cli.parameters import AsJson

_MOST = 6
"""Entries of a vector that are shown."""


def show(name: DatasetName, /, *, picture: Path | None = None, datasets: DatasetsFolder = None, as_json: AsJson = False) -> int:
    """Show where a dataset came from, its spaces and statistics. Every file is held to its hash on the way.

    Parameters
    ----------
    picture
        Draw returns, lengths, rewards and actions, and frames where it has any, into this PNG (extra plots).
    """
    from etude.config.validate import to_plain
    from etude.datasets import statistics
    from etude.datasets.dataset import Dataset
    from etude.files.atomic import standard_json

    dataset = Dataset.open(name, datasets_root(datasets))
    told = statistics.statistics(dataset)
    if picture is not None:
        write_file(picture, statistics.picture(dataset), "--picture")
    manifest = dataset.manifest
    origin = {key: value for key, value in to_plain(manifest.origin).items() if value not in (None, "")}
    if as_json:
        spaces = {"observation_space": manifest.observation_space, "action_space": manifest.action_space}
        emit_json(standard_json({"name": name, "origin": origin, "description": manifest.description, **spaces, **told}))
        return 0
    say(f"{name} · {manifest.task or 'no environment named'}")
    if manifest.description:
        say(f"  {manifest.description}")
    say("  from " + ", ".join(f"{key} {value}" for key, value in origin.items()))
    say(f"  {told['episodes']:,} episodes, {told['steps']:,} steps, {told['bytes']:,} bytes, {told['terminated']:,} terminated")
    for label in ("return", "length"):
        spread = told[label]
        say(f"  {label:<12} {spread['mean']:.2f} ± {spread['std']:.2f}  [{spread['min']:.2f}, {spread['max']:.2f}]")
    for column, values in told["columns"].items():
        counted = f"  counts {values['counts']}" if "counts" in values else ""
        say(f"  {column:<12} mean {_short(values['mean'])}  std {_short(values['std'])}{counted}")
        say(f"  {'':<12} min {_short(values['min'])}  max {_short(values['max'])}")
    return 0


def _short(values: Any) -> str:
    numbers = values if isinstance(values, list) else [values]
    shown = ", ".join(f"{number:.3g}" for number in numbers[:_MOST])
    return f"[{shown}{', …' if len(numbers) > _MOST else ''}]"

"""`etude dataset list`: what has been recorded."""

from __future__ import annotations

from etude.cli.dataset.root import DatasetsFolder, datasets_root
from etude.cli.output import drawing, emit_json, note, say, styled
from etude.cli.parameters import AsJson


def list_datasets(*, datasets: DatasetsFolder = None, as_json: AsJson = False) -> int:
    """List datasets by name: episodes, steps, bytes, returns and where they came from."""
    from etude.buffers.base import in_bytes
    from etude.datasets.manifest import DatasetError, read_manifest, spread
    from etude.datasets.places import folder_of, names

    root = datasets_root(datasets)
    rows, damaged = [], []
    for name in names(root):
        try:
            manifest = read_manifest(folder_of(name, root))
        except DatasetError as error:
            damaged.append(str(error))
            continue
        rows.append(
            {
                "name": name,
                "environment": manifest.task,
                "episodes": manifest.episodes,
                "steps": manifest.steps,
                "bytes": manifest.nbytes,
                "return": spread(manifest.returns),
                "origin": {"kind": manifest.origin.kind, "source": manifest.origin.source},
            }
        )
    for line in damaged:
        note(line)
    if as_json:
        emit_json(rows)
        return 0
    if not rows:
        say(f"no datasets in {root}; `etude dataset record RUN` records one")
        return 0
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE, pad_edge=False)
    numbers = ("episodes", "steps", "size", "return")
    for title in ("name", "environment", *numbers, "from"):
        table.add_column(title, justify="right" if title in numbers else "left", no_wrap=title != "from", overflow="fold")
    for row in rows:
        earned = f"{row['return']['mean']:.1f} ± {row['return']['std']:.1f}" if row["return"] else "–"
        cells = (
            row["name"],
            row["environment"],
            f"{row['episodes']:,}",
            f"{row['steps']:,}",
            in_bytes(row["bytes"]),
            earned,
            f"{row['origin']['kind']} {row['origin']['source']}",
        )
        table.add_row(*(styled(cell) for cell in cells))
    drawing().print(table)
    return 0

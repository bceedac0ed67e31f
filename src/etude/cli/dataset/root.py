"""Where datasets live, for the commands about them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

DatasetsFolder = Annotated[Path | None, Parameter(help="Where datasets live. Default: $ETUDE_DATASETS, or ./datasets.")]
DatasetName = Annotated[str, Parameter(name="NAME", help="A dataset's name, such as hopper/expert.")]


def datasets_root(given: Path | None) -> Path:
    """Return --datasets, or $ETUDE_DATASETS, or ./datasets."""
    from etude.datasets.places import default_root

    return given or default_root()

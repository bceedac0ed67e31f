"""Tensors of one moment that went wrong, for a person to look at: safetensors files, and a report of what they hold.

    debug/nan-0000024576/
      report.json            what was wrong first, where and when; of every tensor its shape, range, NaN and infinities
      batch.safetensors      what was learnt from
      inputs.safetensors     what the module was given
      weights.safetensors    every parameter
      gradients.safetensors  their gradients

The report is written last: a folder without one is half a dump. Reading it needs no torch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etude.errors import EtudeError
from etude.files.atomic import write_bytes_atomic, write_json_atomic
from etude.files.documents import DocumentError, read_json
from etude.files.printable import one_line
from etude.files.regular import own_folder

if TYPE_CHECKING:
    from torch import Tensor

FOLDER, REPORT = "debug", "report.json"
VERSION = 1
LARGEST_REPORT = 2**24
LARGEST_FILE = 2**30
"""Of a group of tensors that takes more, the report alone tells."""
MOST_DUMPS = 1000
_NAME = re.compile(r"nan-\d{1,20}(-\d{1,4})?")


def write_dump(run_directory: Path, step: int, report: Mapping[str, Any], groups: Mapping[str, Mapping[str, Tensor]]) -> Path:
    """Write a dump of a step into a run, and return its folder; `groups` are tensors by file and name."""
    from safetensors.torch import save

    place = own_folder(run_directory / FOLDER)
    names = (f"nan-{step:010d}{'' if number == 1 else f'-{number}'}" for number in range(1, MOST_DUMPS))
    folder = own_folder(next(place / name for name in names if not (place / name).exists()))
    said: dict[str, dict[str, Any]] = {}
    for group, tensors in groups.items():
        said[group] = {name: facts(tensor) for name, tensor in tensors.items()}
        if tensors and sum(tensor.numel() * tensor.element_size() for tensor in tensors.values()) <= LARGEST_FILE:
            # Copies: parameters may share memory, which the format refuses.
            whole = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
            write_bytes_atomic(folder / f"{group}.safetensors", save(whole))
    write_json_atomic(folder / REPORT, {"version": VERSION, **report, "tensors": said})
    return folder


def facts(tensor: Tensor) -> dict[str, Any]:
    """Return what a person asks of a tensor first: its shape, and the range of what is finite in it."""
    import torch

    found: dict[str, Any] = {"shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch.")}
    values = tensor.detach().flatten().to("cpu")
    if values.is_floating_point():
        values = values.float()
        finite = values[torch.isfinite(values)]
        found |= {"nan": int(torch.isnan(values).sum()), "infinite": int(torch.isinf(values).sum())}
    else:
        finite = values.double() if not values.is_complex() else values.new_empty(0)
    if finite.numel():
        found |= {"min": finite.min().item(), "max": finite.max().item(), "mean": finite.double().mean().item()}
    return found


def find_dumps(run_directory: Path) -> list[Path]:
    """Return the whole dumps of a run, oldest first."""
    place = run_directory / FOLDER
    if place.is_symlink() or not place.is_dir():
        return []
    found = [path for path in place.iterdir() if _NAME.fullmatch(path.name) and not path.is_symlink()]
    return sorted(path for path in found if (path / REPORT).is_file())[:MOST_DUMPS]


def read_report(folder: Path) -> dict[str, Any]:
    """Return what a dump's report says: a mapping, which may be a stranger's; damage is one line."""
    try:
        report = read_json(folder / REPORT, LARGEST_REPORT)
    except DocumentError as error:
        raise EtudeError(error.of(folder / REPORT)) from None
    if not isinstance(report, dict) or report.get("version") != VERSION:
        version = one_line(str(report.get("version") if isinstance(report, dict) else None), 20)
        raise EtudeError(f"{folder / REPORT}: not a report of version {VERSION} (it says {version})")
    return report

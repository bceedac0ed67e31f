"""Policies and checkpoints that W&B keeps, brought back as runs: `wandb:ENTITY/PROJECT/NAME:VERSION`.

What comes back may be anybody's: names leave no folder, links are refused, and import paths in its config are a stranger's.
"""

from __future__ import annotations

import importlib
import os
import re
import secrets
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from etude.errors import EtudeError, UserError
from etude.runs.run import Run

PREFIX = "wandb:"
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}")
_KINDS = ("policy", "checkpoint")


def download(source: str, root: Path) -> Path:
    """Bring an artifact of a run into the folder of runs and return the run's directory; one that is there is not touched."""
    if find_spec("wandb") is None:
        raise UserError(f"{PREFIX}{source} needs W&B's package: pip install 'etude[wandb]'")
    wandb = importlib.import_module("wandb")
    root.mkdir(parents=True, exist_ok=True)
    staging = root / f".{secrets.token_hex(6)}.tmp"
    try:
        artifact = _asked(wandb, source)
        run_id = artifact.metadata.get("run")
        if artifact.type not in _KINDS or not isinstance(run_id, str) or not _RUN_ID.fullmatch(run_id):
            raise UserError(f"{PREFIX}{source}: is no policy or checkpoint that Etude has kept there (type {artifact.type})")
        # Its own folder for each version: what a run had at one time is not what it had at another.
        target = root / f"{run_id}-{artifact.type}-{re.sub(r'[^A-Za-z0-9]+', '-', str(artifact.version))}"
        if not target.exists():
            _fetch(wandb, artifact, staging, source)
            _check(staging, source)
            os.replace(staging, target)
        _ = Run.open(target).record
        return target
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _asked(wandb: Any, source: str) -> Any:
    try:
        return wandb.Api().artifact(source)
    except (wandb.errors.Error, OSError, ValueError) as error:
        raise _unreachable(source, error) from error


def _fetch(wandb: Any, artifact: Any, target: Path, source: str) -> None:
    try:
        artifact.download(root=str(target))
    except (wandb.errors.Error, OSError, ValueError) as error:
        raise _unreachable(source, error) from error


def _unreachable(source: str, error: Exception) -> EtudeError:
    said = " ".join(str(error).split()) or type(error).__name__
    return EtudeError(f"{PREFIX}{source}: W&B can't be asked: {said} (is this machine online, and `wandb login` done?)")


def _check(folder: Path, source: str) -> None:
    """Refuse what is no plain file or folder."""
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(place, name)
            if path.is_symlink() or not (path.is_file() or path.is_dir()):
                raise EtudeError(f"{PREFIX}{source}: {name} is neither a file nor a folder; nothing was kept")
    if not (folder / "run.json").is_file():
        raise EtudeError(f"{PREFIX}{source}: holds no run (no run.json); nothing was kept")

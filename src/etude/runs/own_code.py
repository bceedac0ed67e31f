"""The user's own modules that a run uses, by hash: so that a later sitting can say that they have changed.

What git knows of them is stored beside (`etude.runs.source_state`); this works outside a repository too, and names the files
that matter instead of all that differ.
"""

from __future__ import annotations

import importlib.util
import os
import site
import sys
import sysconfig
from functools import cache
from pathlib import Path

from etude.files.digest import file_digest
from etude.files.documents import DocumentError, read_json

FILE = "modules.json"
SITTINGS = "sittings"
"""Where the provenance of a later sitting goes whose code was another one's: a folder each, numbered from 2."""
_MOST_NAMED = 3


def own_modules() -> dict[str, str]:
    """Return the hash of each imported module's file, by name: those that are no part of Python, Etude or a package."""
    found = {}
    for name, module in sorted(sys.modules.items()):
        # Not getattr: some modules import others when asked for an attribute.
        file = vars(module).get("__file__") if hasattr(module, "__dict__") else None
        if name != "__main__" and isinstance(file, str) and file.endswith(".py") and not _is_installed(file):
            digest = _digest(file)
            if digest is not None:
                found[name] = digest
    return found


def changed_modules(provenance: Path) -> list[str]:
    """Return which of the modules that were noted in a ``provenance`` folder are others now, or gone."""
    try:
        noted = read_json(provenance / FILE)
    except (OSError, DocumentError):
        return []  # of an earlier version
    if not isinstance(noted, dict):
        return []
    return [name for name, digest in noted.items() if _digest(_place(name)) != digest]


def describe(changed: list[str], run_id: str) -> str:
    """Say which modules have changed since a run was made, and how to have the earlier ones."""
    more = f" and {len(changed) - _MOST_NAMED} more" if len(changed) > _MOST_NAMED else ""
    return (
        f"your code has changed since: {', '.join(changed[:_MOST_NAMED])}{more}; `etude runs checkout {run_id}` restores what "
        "git knows of it, and --stored-code uses that"
    )


def newest_provenance(run_directory: Path) -> tuple[Path, int]:
    """Return the provenance folder of the last sitting that noted its code, and the number of that sitting's code."""
    numbers = [int(path.name) for path in (run_directory / SITTINGS).glob("*") if path.name.isdigit()]
    newest = max(numbers, default=1)
    return (run_directory if newest == 1 else run_directory / SITTINGS / str(newest)) / "provenance", newest


@cache
def _installed_folders() -> tuple[Path, ...]:
    paths = sysconfig.get_paths()
    folders = [paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")]
    etude = Path(__file__).parents[1]
    return tuple(Path(folder).resolve() for folder in [*folders, *site.getsitepackages(), site.getusersitepackages(), etude])


@cache
def _is_installed(file: str) -> bool:
    return _holds_installed(os.path.dirname(file))


@cache
def _holds_installed(folder: str) -> bool:
    """Whether modules of a folder are installed ones; two thousand modules are in few folders."""
    real = Path(folder).resolve()
    return any(real.is_relative_to(folder) for folder in _installed_folders())


def _place(module: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError, AttributeError):
        return None
    return None if spec is None or spec.origin is None else Path(spec.origin)


def _digest(file: str | Path | None) -> str | None:
    try:
        return None if file is None else file_digest(file).hex()
    except OSError:
        return None

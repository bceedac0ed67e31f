"""The user's own files that a task on another machine needs: code and settings, never runs, environments or secrets."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from etude.errors import UserError

MOST_FILES = 20_000
MOST_BYTES = 200 * 1024 * 1024
# Outside a git repository nobody says what belongs to the project: what Etude reads, and nothing else.
_READ = (".py", ".yaml", ".yml", ".json", ".toml", ".xml", ".txt", ".cfg")


def own_files(folder: Path, *, but: Path) -> list[str]:
    """Return what to copy, as sorted paths below `folder`: what git knows or doesn't ignore, else code and settings.

    `but` is the folder of runs. Files whose names begin with .env are left out: they hold secrets.
    """
    found = _by_git(folder)
    names = _by_kind(folder) if found is None else found
    kept = sorted(name for name in names if not Path(name).name.startswith(".env") and not (folder / name).is_relative_to(but))
    total = sum((folder / name).lstat().st_size for name in kept)
    if len(kept) > MOST_FILES or total > MOST_BYTES:
        raise UserError(
            f"{folder}: {len(kept):,} files of {total / 2**20:,.0f} MiB would be copied; launch from a smaller folder, "
            "name in .gitignore what is not needed, or add --no-code"
        )
    return kept


def _by_git(folder: Path) -> list[str] | None:
    words = ["git", "-C", str(folder), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except OSError:
        return None
    if done.returncode:
        return None
    names = {os.fsdecode(name) for name in done.stdout.split(b"\0") if name}
    return [name for name in names if (folder / name).is_symlink() or (folder / name).is_file()]


def _by_kind(folder: Path) -> Iterator[str]:
    for place, folders, files in os.walk(folder):
        # An environment, however it is called, holds gigabytes that are installed, not copied.
        folders[:] = [
            name
            for name in folders
            if name[0] != "." and name != "__pycache__" and not Path(place, name, "pyvenv.cfg").exists()
        ]
        for name in files:
            if name[0] != "." and name.endswith(_READ):
                yield os.path.relpath(os.path.join(place, name), folder)

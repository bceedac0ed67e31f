"""Opens files of a run, and nothing outside it: every folder on the way is entered as a folder, never through a link.

`etude.files.regular` refuses a link in a file's own place. Here the way to it is a stranger's too: `videos` may be a link to
the user's home, and be exchanged for one between a look and the opening.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A FIFO in a file's place must not be waited for.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def is_plain_name(name: str) -> bool:
    """Whether a text names an entry of a folder, and neither a way out of it nor something hidden."""
    return bool(name) and name.isprintable() and not set(name) & set("/\\") and not name.startswith(".") and len(name) <= 255


def open_below(run_directory: Path, *parts: str) -> int:
    """Open a regular file below a run's folder and return its descriptor; OSError where it is none, or a link is on the way."""
    if not parts or not all(map(is_plain_name, parts)):
        raise FileNotFoundError(errno.ENOENT, "no such file", str(run_directory))
    folder = os.open(run_directory, _FOLDER)
    try:
        for part in parts[:-1]:
            inner = os.open(part, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = inner
        # From the folder that was entered, whoever exchanges it for another meanwhile.
        file = os.open(parts[-1], _FILE, dir_fd=folder)
    finally:
        os.close(folder)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise FileNotFoundError(errno.ENOENT, "not a regular file", parts[-1])
    return file


def files_below(run_directory: Path, *folders: str, most: int = 500) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the regular files directly in a folder of a run, by name; nothing where it is missing or a link."""
    try:
        folder = run_directory.joinpath(*folders)
        if any(path.is_symlink() for path in (folder, *folder.parents) if run_directory in path.parents):
            return
        with os.scandir(folder) as found:
            names = sorted((item.name for item in found if is_plain_name(item.name)), reverse=True)[:most]
    except OSError:
        return
    for name in names:
        try:
            status = os.lstat(folder / name)
        except OSError:
            continue
        if stat.S_ISREG(status.st_mode):
            yield name, status

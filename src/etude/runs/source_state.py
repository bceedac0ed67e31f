"""The exact code of a run: the commit, a patch of what differs from it, and copies of untracked files."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

from etude.runs.git_command import GitError, run_git

_TIMEOUT_S = 20
MAX_FILE = 2**20
MAX_TOTAL = 20 * 2**20
MAX_FILES = 5000
MAX_PATCH = 100 * 2**20
_MOST_LISTED = 200
# Run directories are shared and published; a key that someone forgot to ignore must not travel with them.
_SECRETS = (".env", ".env.*", "*.pem", "*.key", "id_rsa*", "id_ed25519*", ".netrc", "credentials*", "secrets.*")
# Whatever the user's own git config says, the patch has to apply with a plain `git apply`.
_DIFF = (
    *("-c", "core.quotePath=true", "diff", "--binary", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames"),
    *("--no-relative", "--src-prefix=a/", "--dst-prefix=b/", "--submodule=short", "--ignore-submodules=dirty", "HEAD"),
)


def capture_source(folder: Path, *, cwd: Path, ignore: Sequence[Path]) -> dict[str, object] | None:
    """Save the working tree's difference from its commit into `folder`; returns what to note, None outside git."""
    try:
        top = Path(_git(cwd, "rev-parse", "--show-toplevel").rstrip("\n"))
    except GitError as error:
        # Outside a repository is the ordinary case; anything else deserves its line.
        return None if "not a git repository" in str(error) else {"error": str(error)}
    # Relative, so that it says nothing about the machine: where in the repository the run's modules and files were found.
    folder_inside = Path(os.path.relpath(cwd.resolve(), top.resolve())).as_posix()
    note: dict[str, object] = {"commit": None, "branch": None, "folder": folder_inside, "dirty": None, "patch": None}
    problems: list[str] = []
    try:
        note["branch"] = _git(top, "symbolic-ref", "--short", "-q", "HEAD").strip()
    except GitError:
        note["branch"] = None  # a detached HEAD
    try:
        note["commit"] = _git(top, "rev-parse", "--verify", "-q", "HEAD").strip()
        note["patch"] = _write_patch(top, folder / "changes.patch")
    except (GitError, OSError) as error:
        problems.append(str(error) or "the repository has no commit yet")
    copied: list[str] = []
    left_out: list[dict[str, str]] = []
    try:
        names = _git(top, "ls-files", "--others", "--exclude-standard", "-z").split("\0")
        ignored = [os.path.relpath(path.resolve(), top.resolve()) for path in ignore]
        names = [name for name in names if name and not _is_under(name, ignored)]
        copied, left_out = _copy_untracked(top, names, folder / "untracked")
    except (GitError, OSError) as error:
        problems.append(f"untracked files: {error}")
    changed = note["patch"] is not None or bool(copied or left_out)
    note["dirty"] = changed or (None if problems else False)
    note["untracked"] = len(copied)
    note["left_out"] = left_out[:_MOST_LISTED]
    note["left_out_count"] = len(left_out)
    note["problems"] = problems
    return note


def _git(cwd: Path, *arguments: str, output: int | None = None) -> str:
    return os.fsdecode(run_git(cwd, *arguments, timeout_s=_TIMEOUT_S, output=output))


def _write_patch(top: Path, path: Path) -> str | None:
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with open(temporary, "wb") as file:
            _git(top, *_DIFF, output=file.fileno())
            os.fsync(file.fileno())
        size = temporary.stat().st_size
        if size > MAX_PATCH:
            raise GitError(f"the changes are {size} bytes, more than the {MAX_PATCH} that are kept")
        if size == 0:
            return None
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return path.name


def _copy_untracked(top: Path, names: list[str], target: Path) -> tuple[list[str], list[dict[str, str]]]:
    copied: list[str] = []
    left_out: list[dict[str, str]] = []
    total = 0
    for name in names:
        reason = _reason_against(top / name, MAX_TOTAL - total)
        if reason is None and len(copied) >= MAX_FILES:
            reason = f"more than {MAX_FILES} untracked files"
        if reason is None:
            try:
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                total += (target / name).write_bytes((top / name).read_bytes())
                if os.access(top / name, os.X_OK):
                    (target / name).chmod((target / name).stat().st_mode | 0o111)
            except OSError as error:
                reason = str(error.strerror)
        if reason is None:
            copied.append(name)
        else:
            left_out.append({"path": name.encode(errors="backslashreplace").decode(), "reason": reason})
    return copied, left_out


def _reason_against(path: Path, room: int) -> str | None:
    try:
        status = path.lstat()
    except OSError as error:
        return str(error.strerror)
    if not stat.S_ISREG(status.st_mode):
        return "not a plain file (a link, or a repository of its own)"
    if any(fnmatch(path.name.lower(), pattern) for pattern in _SECRETS):
        return "named like a secret"
    if status.st_size > MAX_FILE:
        return f"{status.st_size} bytes, more than {MAX_FILE}"
    if status.st_size > room:
        return f"untracked files together are more than {MAX_TOTAL} bytes"
    return None


def _is_under(name: str, folders: Sequence[str]) -> bool:
    return any(name == folder or name.startswith(folder + "/") for folder in folders)

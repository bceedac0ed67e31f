"""The exact code of a run in its own git worktree; the user's files, index and branch are never touched."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from etude.errors import EtudeError, UserError
from etude.files.atomic import write_json_atomic, write_text_atomic
from etude.runs.git_command import GitError, run_git
from etude.runs.stored_code import StoredCode, copy_untracked

FOLDER = ".worktrees"
"""Where worktrees lie beside the runs they belong to, unless a place is given."""
_TIMEOUT_S = 600
_MARK = "etude.json"
# No hook runs, nothing is left out of the tree, and nobody's daemon is started.
_SAFELY = (
    *("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "core.sparseCheckout=false"),
    *("-c", "advice.detachedHead=false", "-c", "submodule.recurse=false"),
)


@dataclass(frozen=True)
class Restored:
    """A worktree that holds a run's code, and what could not be put back."""

    path: Path
    repository: Path
    commit: str
    notes: tuple[str, ...]
    existed: bool = False


def default_place(run_directory: Path) -> Path:
    """Return where a run's worktree goes: hidden beside the run."""
    return run_directory.resolve().parent / FOLDER / run_directory.resolve().name


def find_repository(code: StoredCode, *, cwd: Path, given: Path | None = None) -> Path:
    """Return the repository that has the run's commit: the one given, or the one around `cwd`."""
    if code.commit is None:
        raise UserError(f"run {code.run_id} has no commit to go back to: {'; '.join(code.losses) or 'none was stored'}")
    where = cwd if given is None else given
    if not where.is_dir():
        raise UserError(f"--repo {where}: there is no such folder")
    try:
        top = repository_around(where)
    except GitError as error:
        what = f"--repo {given}" if given is not None else "this folder"
        reason = "is not in a git repository" if "not a git repository" in str(error) else f"git: {error}"
        raise UserError(
            f"run {code.run_id} was made from commit {code.commit[:12]}, and {what} {reason}; "
            "go to that repository, or name it with --repo"
        ) from None
    try:
        _git(top, "cat-file", "-e", f"{code.commit}^{{commit}}")
    except GitError:
        raise UserError(_missing_commit(code.commit, top, run_id=code.run_id)) from None
    return top


def repository_around(folder: Path) -> Path:
    """Return the top of the repository that `folder` lies in, or a bare repository itself; GitError outside one."""
    try:
        return Path(os.fsdecode(_git(folder, "rev-parse", "--show-toplevel")).rstrip("\n"))
    except GitError as error:
        if "work tree" not in str(error):
            raise
        return Path(os.fsdecode(_git(folder, "rev-parse", "--absolute-git-dir")).rstrip("\n"))


def restore(code: StoredCode, repository: Path, target: Path) -> Restored:
    """Make the worktree `target` with commit, patch and untracked files of a run; on failure nothing of it is left."""
    assert code.commit is not None
    target = target.absolute()
    if os.path.lexists(target) and (target.is_symlink() or not target.is_dir() or any(target.iterdir())):
        mark = _read_mark(target, repository)
        if mark is None or mark.get("run") != code.run_id:
            raise UserError(f"{target}: is there already and is not run {code.run_id}'s code; name another place with --to")
        changed = "" if mark.get("state") == _state(target) else "; files in it were changed since"
        return Restored(target, repository, code.commit, (f"it was there already{changed}", *code.losses), existed=True)
    _make_parent(target)
    try:
        # --force: a worktree that was deleted by hand is still registered and may be made again.
        _git(repository, "worktree", "add", "--quiet", "--force", "--detach", str(target), code.commit)
    except GitError as error:
        shutil.rmtree(target, ignore_errors=True)
        raise EtudeError(f"git worktree add {target}: {error}") from None
    try:
        notes = [*_fill(code, target), *code.losses]
        folder = _registration(target, repository)
        assert folder is not None
        write_json_atomic(folder / _MARK, {"version": 1, "run": code.run_id, "state": _state(target)})
    except BaseException:
        _drop(target, repository)
        raise
    return Restored(target, repository, code.commit, tuple(notes))


def remove(target: Path, repository: Path, *, force: bool = False) -> None:
    """Remove a worktree that `restore` made; one whose files were changed since only if `force`."""
    target = target.absolute()
    mark = _read_mark(target, repository)
    if mark is None:
        raise UserError(f"{target}: is not a worktree that etude made of {repository}; it is left alone")
    if not force and mark.get("state") != _state(target):
        raise UserError(f"{target}: files in it were changed since it was made; --force removes it all the same")
    _drop(target, repository)
    if target.parent.name == FOLDER and {path.name for path in target.parent.iterdir()} <= {".gitignore"}:
        shutil.rmtree(target.parent, ignore_errors=True)


def _fill(code: StoredCode, target: Path) -> list[str]:
    if code.patch is not None:
        try:
            # Git itself refuses paths that leave the tree, pass through a link or enter .git.
            _git(target, "apply", "--whitespace=nowarn", str(code.patch.resolve()))
        except GitError as error:
            said = "; ".join(str(error).splitlines()[:3])
            commit = (code.commit or "")[:12]
            raise EtudeError(f"{code.patch}: does not apply to commit {commit}: {said}") from None
    if code.untracked is not None:
        copy_untracked(code.untracked, target)
    if (target / ".gitmodules").exists():
        listed = os.fsdecode(_git(target, "ls-files", "--stage", "-z")).split("\0")
        modules = [line.partition("\t")[2] for line in listed if line.startswith("160000 ")]
        if modules:
            return [f"submodules are not restored: {', '.join(modules[:5])}; run `git submodule update --init` there"]
    return []


def _make_parent(target: Path) -> None:
    try:
        if target.parent.name == FOLDER and target.parent.is_symlink():
            raise UserError(f"{target.parent}: is a link; name another place with --to")
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.parent.name == FOLDER and not (target.parent / ".gitignore").exists():
            # Runs often lie in the repository itself: its `git status` shall not change by this.
            write_text_atomic(target.parent / ".gitignore", "*\n")
    except OSError as error:
        raise UserError(f"{target}: {error.strerror or error}; name another place with --to") from None


def _drop(target: Path, repository: Path) -> None:
    try:
        _git(repository, "worktree", "remove", "--force", str(target))
    except GitError as error:
        shutil.rmtree(target, ignore_errors=True)
        if os.path.lexists(target):
            raise EtudeError(f"{target}: can't be removed: {error}") from None


def _registration(target: Path, repository: Path) -> Path | None:
    """Return git's own folder for this worktree; it also holds our mark, so that the tree is nothing but the run's code.

    Asked from the repository's side. A folder that says of itself whose worktree it is may be a stranger's, and git,
    run inside it, would obey a stranger's config.
    """
    common = _git(repository, "rev-parse", "--path-format=absolute", "--git-common-dir")
    try:
        if target.is_symlink():
            return None
        own = (target / ".git").read_text(encoding="utf-8").strip()
        for folder in (Path(os.fsdecode(common).rstrip("\n")) / "worktrees").iterdir():
            claimed = Path((folder / "gitdir").read_text(encoding="utf-8").strip())
            if claimed.resolve() == (target / ".git").resolve() and own == f"gitdir: {folder}":
                return folder
    except (OSError, ValueError):
        return None
    return None


def _read_mark(target: Path, repository: Path) -> dict[str, object] | None:
    folder = _registration(target, repository)
    try:
        mark = None if folder is None else json.loads((folder / _MARK).read_bytes())
    except (OSError, ValueError):
        return None
    return mark if isinstance(mark, dict) else None


def _state(target: Path) -> str:
    """A hash of what differs from the commit, untracked files included; what Python caches is not counted."""
    digest = hashlib.sha256(_git(target, "diff", "--binary", "--no-ext-diff", "--no-textconv", "HEAD"))
    names = sorted(_git(target, "ls-files", "--others", "--exclude-standard", "-z").split(b"\0"))
    for name in names:
        path = target / os.fsdecode(name)
        if not name or b"__pycache__" in name.split(b"/") or path.is_dir():
            continue
        digest.update(name + b"\0" + (os.fsencode(os.readlink(path)) if path.is_symlink() else path.read_bytes()) + b"\0")
    return digest.hexdigest()


def _missing_commit(commit: str, top: Path, *, run_id: str) -> str:
    try:
        shallow = _git(top, "rev-parse", "--is-shallow-repository").strip() == b"true"
    except GitError:
        shallow = False
    way_out = "`git fetch --unshallow` brings it" if shallow else f"`git fetch origin {commit}` may bring it"
    return f"run {run_id} was made from commit {commit[:12]}, which {top} does not have; {way_out}, or name another with --repo"


def _git(cwd: Path, *arguments: str) -> bytes:
    return run_git(cwd, *_SAFELY, *arguments, timeout_s=_TIMEOUT_S)

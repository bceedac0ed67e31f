"""Which code a re-run uses: the run's own, restored in a worktree, or what is there now."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import etude
from etude.errors import UserError
from etude.runs import trust, worktree
from etude.runs.git_command import GitError, run_git
from etude.runs.run import Run
from etude.runs.stored_code import StoredCode, read_stored_code

_TIMEOUT_S = 60
_MOST_COUNTED = 500


@dataclass(frozen=True)
class CodePlace:
    """Where a re-run starts, and what it finds on its path."""

    cwd: Path
    description: str
    python_path: tuple[Path, ...] = ()
    moved: tuple[Path, Path] | None = None
    """The user's repository and the worktree that stands for it."""
    brings_etude: bool = False
    """Whether the stored code holds Etude itself."""
    notes: tuple[str, ...] = ()


@contextmanager
def code_of(
    run: Run, *, current: bool, trusted: bool, repository: Path | None, temporary: Path, say: Callable[[str], None]
) -> Iterator[CodePlace]:
    """Provide the code to run `run` again with; a worktree made for it is gone afterwards."""
    stored = read_stored_code(run.path)
    if stored is None:
        yield CodePlace(Path.cwd(), "as it is now; the run was made outside a git repository, where code is not stored")
        return
    if current:
        say(f"using the code as it is now, not the run's own: {_difference(stored, run, repository, temporary)}")
        yield CodePlace(_current_folder(stored), "as it is now (--current-code)")
        return
    if not (trusted or trust.is_own_code(run.path)):
        raise UserError(
            f"run {run.id} or the code stored with it is not from you on this machine, and is not run: look at it with "
            f"`etude runs checkout {run.path}`, then allow it with --trust; --current-code uses the code that is here"
        )
    top = _find(stored, repository)
    restored = worktree.restore(stored, top, temporary / "code")
    try:
        yield _moved(stored, top, restored)
    finally:
        worktree.remove(restored.path, top, force=True)


def _find(stored: StoredCode, repository: Path | None) -> Path:
    try:
        return worktree.find_repository(stored, cwd=Path.cwd(), given=repository)
    except UserError as error:
        raise UserError(f"{error}; or use the code that is here with --current-code") from None


def _moved(stored: StoredCode, top: Path, restored: worktree.Restored) -> CodePlace:
    """The restored tree in the place of the repository: the folder to start in, and what of it was on the path."""
    real = top.resolve()
    inside = [path.resolve().relative_to(real) for path in _import_folders() if path.resolve().is_relative_to(real)]
    python_path = [restored.path / path for path in dict.fromkeys(inside) if (restored.path / path).is_dir()]
    cwd = restored.path / stored.folder
    cwd.mkdir(parents=True, exist_ok=True)
    changed = " with uncommitted changes" if stored.patch is not None or stored.untracked is not None else ""
    package = Path(etude.__file__).resolve().parent
    return CodePlace(
        cwd=cwd,
        description=f"commit {restored.commit[:12]}{changed}, in a worktree of {top}",
        python_path=tuple(python_path),
        moved=(real, restored.path),
        brings_etude=any((path / "etude" / "__init__.py").exists() for path in python_path) and package.is_relative_to(real),
        notes=restored.notes,
    )


def _import_folders() -> list[Path]:
    """Where modules are found, editable installs included: those on the path, and those that setuptools maps by name."""
    mapped = [
        Path(place).parent
        for name, module in list(sys.modules.items())
        if name.startswith("__editable__")
        for place in getattr(module, "MAPPING", {}).values()
    ]
    return [Path(entry) for entry in sys.path if entry and os.path.isdir(entry)] + mapped


def _current_folder(stored: StoredCode) -> Path:
    try:
        folder = worktree.repository_around(Path.cwd()) / stored.folder
    except GitError:
        return Path.cwd()
    return folder if folder.is_dir() else Path.cwd()


def _difference(stored: StoredCode, run: Run, repository: Path | None, temporary: Path) -> str:
    """How far the code that is here is from the run's own, in files and lines."""
    try:
        top = worktree.find_repository(stored, cwd=Path.cwd(), given=repository)
    except UserError as error:
        return f"how far they differ is not known ({error})"
    restored = worktree.restore(stored, top, temporary / "stored")
    try:
        ignored = run.path.resolve().parent
        differing = [name for name in _names(top, restored.path) if not (top.resolve() / name).is_relative_to(ignored)]
        differing = [name for name in differing if _content(top / name) != _content(restored.path / name)]
        lines = sum(_changed_lines(restored.path / name, top / name) for name in differing[:_MOST_COUNTED])
    finally:
        worktree.remove(restored.path, top, force=True)
    if not differing:
        return "they are the same"
    files = "1 file differs" if len(differing) == 1 else f"{len(differing)} files differ"
    more = "more than " if len(differing) > _MOST_COUNTED else ""
    first = ", ".join(differing[:3]) + (" ..." if len(differing) > 3 else "")
    return f"{files} in {more}{lines} {'line' if lines == 1 else 'lines'} ({first})"


def _names(*trees: Path) -> list[str]:
    listing = ("ls-files", "--cached", "--others", "--exclude-standard", "-z")
    found = [os.fsdecode(run_git(tree, *listing, timeout_s=_TIMEOUT_S)).split("\0") for tree in trees]
    return sorted({name for names in found for name in names if name})


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _changed_lines(one: Path, other: Path) -> int:
    """Lines added and lines removed, the larger of the two: a line that was edited counts once."""
    import difflib

    left, right = ((_content(path) or b"").splitlines() for path in (one, other))
    blocks = difflib.SequenceMatcher(None, left, right, autojunk=len(left) > 5000).get_matching_blocks()
    kept = sum(block.size for block in blocks)
    return max(len(left), len(right)) - kept

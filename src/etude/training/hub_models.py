"""Policies that somebody has published on Hugging Face, brought here as runs: `hub:OWNER/NAME` or `hub:OWNER/NAME@REVISION`.

They are anybody's. Of a repository only the files that a run has are fetched, by their whole names and up to a size; they come
into a folder of the cache and nowhere else, and are read as any stranger's run is.
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
from etude.files.printable import one_line
from etude.runs.run import Run

PREFIX = "hub:"
LARGEST = 2**33
"""Bytes of a whole policy: more than any has."""
_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
_REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,199}")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_WORD = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
_WANTED = re.compile(
    r"run\.json|config\.yaml|resolved\.yaml|"
    rf"checkpoints/[0-9][0-9A-Za-z-]*/(?:manifest\.json|policy/(?:state\.json|tensors\.safetensors))|"
    rf"provenance/(?:robot\.json|robot/(?:{_WORD}/){{0,8}}{_WORD})"
)


def check_repository(name: str, option: str) -> str:
    """Return the name of a repository, OWNER/NAME; UserError for anything else."""
    if not _REPOSITORY.fullmatch(name) or ".." in name:
        raise UserError(f"{option} {one_line(name)}: a repository is named OWNER/NAME, of letters, digits, dots, - and _")
    return name


def hub_package(reason: str) -> Any:
    """Return the package that talks to the hub; UserError with the line that installs it."""
    if find_spec("huggingface_hub") is None:
        raise UserError(f"{reason} needs the package of Hugging Face: pip install 'etude[hub]'")
    return importlib.import_module("huggingface_hub")


def endpoint() -> str | None:
    """Return where the hub is, if not where it usually is."""
    return os.environ.get("HF_ENDPOINT") or None


def cache_root() -> Path:
    """Return $ETUDE_CACHE, or etude in the user's cache folder."""
    given = os.environ.get("ETUDE_CACHE")
    return Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "etude"


def download(source: str) -> Path:
    """Bring a published policy into the cache and return its run directory; a version that is there is not fetched again."""
    name, at, revision = source.partition("@")
    check_repository(name, PREFIX.rstrip())
    if at and (not _REVISION.fullmatch(revision) or ".." in revision):
        raise UserError(f"{PREFIX}{one_line(source)}: '{one_line(revision)}' is no revision")
    folder = cache_root() / "hub" / name.replace("/", "--")
    if _COMMIT.fullmatch(revision) and (folder / revision).is_dir():
        return _opened(folder / revision)
    hub = hub_package(f"{PREFIX}{source}")
    api = hub.HfApi(endpoint=endpoint())
    info = _asked(lambda: api.model_info(name, revision=revision or None, files_metadata=True), source)
    commit = str(info.sha)
    if not _COMMIT.fullmatch(commit):
        raise EtudeError(f"{PREFIX}{source}: the hub names no commit")
    target = folder / commit
    if not target.is_dir():
        names = _wanted(info.siblings or [], source)
        staging = folder / f".{secrets.token_hex(6)}.tmp"
        try:
            for each in names:
                _asked(lambda each=each: _fetch(api, name, each, commit, staging), source)
            shutil.rmtree(staging / ".cache", ignore_errors=True)  # the package's own notes
            _check(staging, source)
            os.replace(staging, target)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    return _opened(target)


def _wanted(files: list[Any], source: str) -> list[str]:
    """The files of a run among those of a repository; the others are not looked at."""
    sizes = {str(each.rfilename): each.size for each in files if _WANTED.fullmatch(str(each.rfilename))}
    sizes = {name: size for name, size in sizes.items() if ".." not in name.split("/")}
    if "run.json" not in sizes or not any(name.startswith("checkpoints/") for name in sizes):
        raise UserError(f"{PREFIX}{source}: holds no policy of Etude's (no run.json with a checkpoint)")
    if sum(size or 0 for size in sizes.values()) > LARGEST:
        raise UserError(f"{PREFIX}{source}: has more than {LARGEST / 2**30:.0f} GiB, which no policy needs")
    return sorted(sizes)


def _fetch(api: Any, repository: str, name: str, commit: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    api.hf_hub_download(repository, name, revision=commit, local_dir=folder)


def _check(folder: Path, source: str) -> None:
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(place, name)
            if path.is_symlink() or not (path.is_file() or path.is_dir()):
                raise EtudeError(f"{PREFIX}{source}: {name} is neither a file nor a folder; nothing was kept")


def _asked(ask: Any, source: str) -> Any:
    try:
        return ask()
    except (OSError, ValueError, RuntimeError) as error:  # what the package raises is one of these
        said = one_line(str(error)) or type(error).__name__
        raise EtudeError(f"{PREFIX}{one_line(source)}: can't be fetched: {said}") from error


def _opened(path: Path) -> Path:
    _ = Run.open(path).record
    return path

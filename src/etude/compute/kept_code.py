"""Compiled code that is kept on this machine: whoever needs the same again loads it, in place of compiling for half a minute.

    <cache>/etude/compiled/<key of the settings>/<key of the shapes>.bin, .json
    <cache>/etude/compiled/inductor/                                             torch's own cache beside it

It is code: whoever can write there can have theirs run as this user. So the folder is the user's alone (0700), and one that is
not is left alone. The key has all that the code depends on: settings, Etude's source, torch, Python and the processor.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from etude.files.atomic import write_text_atomic
from etude.files.documents import DocumentError, parse_json
from etude.files.regular import read_bytes

INDUCTOR = "TORCHINDUCTOR_CACHE_DIR"
UNUSED_DAYS = 30
"""How long code that nobody loads is kept."""


class Plan(NamedTuple):
    """How the code is called: what comes at each place, and which of what it returns is wanted."""

    places: Sequence[int | str]
    """Of each argument: which of the call's own tensors, or the name of a tensor that stays where it is."""
    outputs: Sequence[int]
    note: Any = None
    """What else the caller needs to know, as JSON."""


class KeptCode:
    """One piece of compiled code in its place, whether it is there already or not."""

    def __init__(
        self, settings: str, call: str, tensors: Callable[[], Mapping[str, Tensor]], note: Callable[[], Any] = lambda: None
    ) -> None:
        """`settings` is a key of `key_of`, `call` says what else is special, `tensors` names those that stay where they are.

        `note` returns what else is to be kept, as JSON, once the code is there.
        """
        self._folder = folder()
        name = hashlib.sha256(call.encode()).hexdigest()[:32]
        self._path = None if self._folder is None else self._folder / settings / name
        self.tensors, self.note = tensors, note

    @property
    def can_be(self) -> bool:
        """Whether this machine has a place for it."""
        return self._path is not None

    def load(self) -> tuple[Callable[..., Any], Plan] | None:
        """Return the code and how to call it; None where there is none, or none that still works."""
        if self._path is None or not all(_is_ours(self._path.with_suffix(end)) for end in (".bin", ".json")):
            return None
        try:
            said = parse_json(read_bytes(self._path.with_suffix(".json")))
            plan = Plan(said["places"], said["outputs"], said["note"])
            with suppress(OSError):  # a disk that is only read is as good
                os.utime(self._path.parent)
            use_own_cache()
            # It takes a second, and only those who compile wait for it.
            from torch._inductor.standalone_compile import CompiledArtifact

            return CompiledArtifact.load(path=str(self._path.with_suffix(".bin"))), plan
        except (DocumentError, OSError):
            return None
        except Exception:  # noqa: BLE001 # torch's own format, which is experimental: what it can't read is compiled again
            return None

    def keep(self, artifact: Any, plan: Plan) -> None:
        """Write code and plan, the plan last; a disk that has no room is no reason to stop."""
        if self._folder is None or self._path is None:
            return
        try:
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            os.utime(self._path.parent)
            _forget_unused(self._folder)
            artifact.save(path=str(self._path.with_suffix(".bin")))
            self._path.with_suffix(".bin").chmod(0o600)
            write_text_atomic(self._path.with_suffix(".json"), json.dumps(plan._asdict()))
        except Exception:  # noqa: BLE001 # as above; and what can't be kept is compiled again next time
            return


def key_of(settings: Any) -> str:
    """Return the key of code that depends on these plain settings, on Etude's source and on this machine."""
    machine = (platform.python_version(), platform.machine(), torch.__version__, torch.backends.cpu.get_cpu_capability())
    said = json.dumps([settings, machine, _source()], sort_keys=True, default=str)
    return hashlib.sha256(said.encode()).hexdigest()[:32]


def is_kept(key: str) -> bool:
    """Whether there is code for these settings."""
    place = folder()
    return place is not None and any((place / key).glob("*.json"))


def folder() -> Path | None:
    """Return where compiled code is kept, and make it; None where that is not this user's alone, or can't be made."""
    base = os.environ.get("ETUDE_CACHE") or os.path.join(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "etude")
    place = Path(base) / "compiled"
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return None
    return place if _is_ours(place) else None


def use_own_cache() -> None:
    """Have torch's compiler keep what it makes beside ours, unless the user has said where."""
    place = folder()
    if place is not None:
        os.environ.setdefault(INDUCTOR, str(place / "inductor"))


def _is_ours(path: Path) -> bool:
    """Whether a folder or a file, no link to one, belongs to this user, and nobody else can write to it."""
    try:
        found = path.lstat()
    except OSError:
        return False
    is_own = not hasattr(os, "getuid") or found.st_uid == os.getuid()
    others = 0o077 if stat.S_ISDIR(found.st_mode) else 0o022
    return is_own and not found.st_mode & others and not stat.S_ISLNK(found.st_mode)


def _forget_unused(place: Path) -> None:
    """Remove code of settings that were last needed long ago: each version of Etude or torch has its own."""
    oldest = time.time() - UNUSED_DAYS * 24 * 3600
    for each in place.iterdir():
        if each.name != "inductor" and _is_ours(each) and each.stat().st_mtime < oldest:
            shutil.rmtree(each, ignore_errors=True)


@cache
def _source() -> str:
    """Return what tells this source from another: its files, their sizes and times."""
    root, digest = Path(__file__).parents[1], hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        found = path.stat()
        digest.update(f"{path.relative_to(root)} {found.st_size} {found.st_mtime_ns}\n".encode())
    return digest.hexdigest()

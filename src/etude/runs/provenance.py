"""Where a run came from: the command, the machine, the packages and the exact code."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cache, lru_cache
from importlib import metadata
from pathlib import Path

import torch

from etude.files.atomic import write_json_atomic
from etude.files.digest import file_digest
from etude.runs import own_code
from etude.runs.source_state import capture_source

_METADATA_FILES = ("METADATA", "PKG-INFO", "")
"""Of a wheel, of an older installation in a folder, and of one that is a single file."""
_NAME_AND_VERSION = re.compile(r"^(Name|Version):[ \t]*(\S.*?)[ \t\r]*$", re.MULTILINE)
_COMPARED_PACKAGES = ("torch", "numpy", "gymnasium", "etude")
_log = logging.getLogger(__name__)


def capture(directory: Path, *, cwd: Path, command: list[str], ignore: Sequence[Path]) -> None:
    """Write ``provenance/`` into the run `directory`; what can't be found out is noted there, never raised.

    `ignore` are folders whose untracked files are not part of the code, such as the runs themselves. Environment
    variables are not stored: they hold secrets.
    """
    folder = directory / "provenance"
    started = datetime.now(UTC).isoformat(timespec="seconds")
    sources: dict[str, Callable[[], object]] = {
        "command.json": lambda: {"argv": command, "cwd": cwd.name, "started": started},
        "environment.json": _environment,
        own_code.FILE: own_code.own_modules,
        "git.json": lambda: capture_source(folder, cwd=cwd, ignore=ignore),
    }
    for name, collect in sources.items():
        try:
            folder.mkdir(exist_ok=True)
            write_json_atomic(folder / name, _collected(collect))
        except OSError as error:
            _log.warning("provenance/%s of %s could not be written: %s", name, directory, error)


def _collected(collect: Callable[[], object]) -> object:
    try:
        return collect()
    except Exception as error:  # noqa: BLE001 - a run is worth more than its papers
        return {"error": f"{type(error).__name__}: {error}"}


def fingerprint() -> dict[str, object]:
    """What must be equal for a resumed run to be bit-identical."""
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cpu": _cpu_model(),
        "torch": str(torch.__version__),
        "threads": torch.get_num_threads(),
        "packages": {name: _version(name) for name in _COMPARED_PACKAGES},
    }


def _environment() -> dict[str, object]:
    return {
        "python": sys.version,
        "executable": Path(sys.executable).name,
        "os": platform.platform(),
        "machine": platform.machine(),
        "cpu": {"model": _cpu_model(), "count": os.cpu_count()},
        "torch": {
            "version": str(torch.__version__),
            "cuda": torch.version.cuda,
            "cpu_capability": torch.backends.cpu.get_cpu_capability(),
            "threads": torch.get_num_threads(),
            "interop_threads": torch.get_num_interop_threads(),
            "build": torch.__config__.show(),
        },
        "gpus": _gpus(),
        "compiler": _compiler(),
        "packages": installed_packages(),
        "etude_code": etude_code(),
    }


@cache
def _cpu_model() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.lower().startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _compiler() -> str | None:
    """The C++ compiler that compiled updates depend on."""
    program = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
    return None if program is None else _first_line_of_version(program)


@cache
def _first_line_of_version(program: str) -> str | None:
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.partition("\n")[0] or None


def etude_code() -> str:
    """Return a hash of Etude's own files: a version number says little about an editable install."""
    package, digest = str(Path(__file__).parents[1]), hashlib.sha256()
    folders = [(folder, name) for folder, _, names in os.walk(package) for name in names]
    for path in sorted(os.path.join(folder, name) for folder, name in folders if name.endswith((".py", ".yaml"))):
        inside = path[len(package) + 1 :].replace(os.sep, "/")
        digest.update(inside.encode() + b"\0" + file_digest(path))
    return digest.hexdigest()


def _gpus() -> object:
    try:
        if not torch.cuda.is_available():
            return []
        names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    except RuntimeError as error:  # a driver that is there but broken
        return {"error": str(error)}
    driver = None
    with contextlib.suppress(OSError):
        driver = Path("/proc/driver/nvidia/version").read_text(errors="replace").splitlines()[0]
    return [{"name": name, "driver": driver} for name in names]


def installed_packages() -> dict[str, str]:
    """Return the version of every installed package; looked up again when something was installed since."""
    return dict(_packages_of(tuple((place, _last_written(place)) for place in sys.path)))


def _last_written(place: str) -> int | None:
    try:
        return os.stat(place or ".").st_mtime_ns
    except OSError:
        return None


@lru_cache(1)
def _packages_of(_: tuple[tuple[str, int | None], ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for distribution in metadata.distributions():
        # A half-removed package has metadata without a name, or none.
        with contextlib.suppress(OSError, UnicodeDecodeError):
            head = _head(distribution)
            if "Name" in head and "Version" in head:
                found[head["Name"]] = head["Version"]
    return dict(sorted(found.items()))


def _head(distribution: metadata.Distribution) -> dict[str, str]:
    """Its name and version. `distribution.metadata` would parse the package's whole README: of all of them half a second."""
    text = next(filter(None, map(distribution.read_text, _METADATA_FILES)), "")
    return dict(_NAME_AND_VERSION.findall(text.partition("\n\n")[0]))


def _version(package: str) -> str | None:
    try:
        return _head(metadata.distribution(package)).get("Version")
    except metadata.PackageNotFoundError:
        return None

"""What works on this machine: the machine itself, and every family of environments in turn."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from etude.compute.processors import available_cpus
from etude.environments.families import FAMILIES, Family
from etude.isolation import Call, Result, run_isolated

TIMEOUT_S = 120.0
_PRELOAD = ("etude.environments.probe",)
_DRAWN_BY_MUJOCO = ("mujoco", "dmc", "robotics")
_GL_LINES = "apt install libegl1 (then MUJOCO_GL=egl), or apt install libosmesa6 (then MUJOCO_GL=osmesa)"


@dataclass
class Finding:
    """What was found out about one family."""

    family: Family
    status: Literal["works", "broken", "absent"]
    versions: dict[str, str] = field(default_factory=dict)
    """Of its packages, by their names on the index."""
    facts: dict[str, Any] = field(default_factory=dict)
    """steps_per_s, snapshot, backend, observation and action of its example."""
    pictures: str = ""
    """How it is drawn: `works`, `egl`, `osmesa`; or empty where it isn't."""
    problems: list[str] = field(default_factory=list)
    """What is wrong, a line each."""
    fixes: list[str] = field(default_factory=list)
    """The lines that would help."""

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain data."""
        family = self.family
        return {
            "family": family.name,
            "title": family.title,
            "example": family.example,
            "status": self.status,
            "versions": self.versions,
            "pictures": self.pictures or None,
            **{key: self.facts.get(key) for key in ("steps_per_s", "snapshot", "backend", "observation", "action")},
            "problems": self.problems,
            "fixes": self.fixes,
        }


@dataclass(frozen=True)
class Fact:
    """Something about the machine."""

    name: str
    value: str
    fix: str = ""
    """What would help, where something is not as it should be."""


def examine(families: Sequence[Family] | None = None, *, steps: int = 200, timeout_s: float = TIMEOUT_S) -> Iterator[Finding]:
    """Yield what was found out about each family, in order; a crash of one is its own."""
    # What the last family has in common is nothing: each of its environments is for itself.
    for family in FAMILIES[:-1] if families is None else families:
        yield _examine(family, steps, timeout_s)


def machine(runs: Path, timeout_s: float = TIMEOUT_S) -> list[Fact]:
    """Return the facts about this machine that runs depend on."""
    from etude import __version__

    call = Call("torch", tell_torch)
    (torch,) = run_isolated([call], jobs=1, timeout_s=timeout_s, preload=_PRELOAD)
    facts = torch.facts
    cores = available_cpus()
    broken = "" if torch.status == "done" else f"{torch.detail}; reinstall PyTorch: pip install --force-reinstall torch"
    return [
        Fact("etude", __version__),
        Fact("python", f"{platform.python_version()} on {platform.platform(aliased=True, terse=True)}"),
        Fact("torch", f"{facts.get('torch', '?')}, {facts.get('threads', '?')} threads by default, 1 in a run", broken),
        Fact("gpu", facts.get("gpu", "none")),
        Fact("cores", f"{cores}{_memory()}"),
        _display(),
        _video(),
        *_place(runs),
    ]


def tell_torch(tell: Any) -> None:
    """Tell about PyTorch and its devices; a driver may hang, so this is not done in the command's own process."""
    import torch

    gpu = "none"
    if torch.cuda.is_available():
        gpu = ", ".join(torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count()))
    elif torch.backends.mps.is_available():
        gpu = "Apple (mps)"
    tell(torch=torch.__version__, threads=torch.get_num_threads(), gpu=gpu)


def _examine(family: Family, steps: int, timeout_s: float) -> Finding:
    if missing := family.missing():
        install = f"pip install '{family.install}'"
        return Finding(family, "absent", problems=[f"not installed: {', '.join(missing)}"], fixes=[install])
    from etude.environments import probe

    walk = _one(Call(family.name, probe.probe_steps, (family.example, steps, family.backend)), timeout_s)
    finding = Finding(family, "works" if walk.status == "done" else "broken", _versions(family), walk.facts)
    if walk.status != "done":
        finding.problems.append(f"{family.example} does not {walk.facts.get('stage', 'build')}: {walk.detail}")
        if family.install and walk.status in ("raised", "died"):
            finding.fixes.append(f"pip install --upgrade '{family.install}'  (the versions that are tested with Etude)")
        return finding
    if family.backend == "auto":
        _draw(family, finding, timeout_s)  # other backends only step
    return finding


def _draw(family: Family, finding: Finding, timeout_s: float) -> None:
    from etude.environments import probe

    call = Call(family.name, probe.probe_picture, (family.example,))
    drawn = _one(call, timeout_s)
    by_mujoco = family.name in _DRAWN_BY_MUJOCO
    if drawn.status != "done" and by_mujoco and os.environ.get("MUJOCO_GL") != "osmesa":
        other = _one(call, timeout_s, {"MUJOCO_GL": "osmesa"})
        if other.status == "done":
            finding.pictures = "osmesa"
            finding.problems.append(f"can't be drawn with {drawn.facts.get('gl') or 'egl'}, but with osmesa")
            finding.fixes.append("export MUJOCO_GL=osmesa")
            return
    if drawn.status == "done":
        finding.pictures = (drawn.facts.get("gl") or "works") if by_mujoco else "works"
        return
    if "render modes" in drawn.detail:
        return  # it was never meant to be seen
    finding.problems.append(f"trains, but can't be drawn: {drawn.detail}")
    if by_mujoco:
        finding.fixes.append(_GL_LINES)
    elif "pygame" in drawn.output + drawn.detail:
        finding.fixes.append("pip install 'etude[classic]'")


def _one(call: Call, timeout_s: float, environ: dict[str, str] | None = None) -> Result:
    (result,) = run_isolated([call], jobs=1, timeout_s=timeout_s, preload=_PRELOAD, environ=environ)
    return result


def _versions(family: Family) -> dict[str, str]:
    distributions = importlib.metadata.packages_distributions()
    names = {name for package in family.packages or ("gymnasium",) for name in distributions.get(package, ())}
    return {name: importlib.metadata.version(name) for name in sorted(names)}


def _memory() -> str:
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return ""
    return f", {total / 2**30:.0f} GiB of memory"


def _display() -> Fact:
    from etude.environments.rendering import has_display

    if has_display():
        return Fact("display", "there is one")
    return Fact("display", "none: windows can't be opened, pictures and videos work without one")


def _video() -> Fact:
    if importlib.util.find_spec("imageio") is None:
        return Fact("video", "no imageio", "pip install 'etude[video]'")
    if importlib.util.find_spec("imageio_ffmpeg") is not None:
        return Fact("video", f"imageio {importlib.metadata.version('imageio')} with its own ffmpeg")
    if shutil.which("ffmpeg"):
        return Fact("video", "imageio with the system's ffmpeg", "pip install 'etude[video]'")
    return Fact("video", "no ffmpeg", "pip install 'etude[video]'")


def _place(runs: Path) -> list[Fact]:
    """The runs folder, which a first run makes: where it will be, may one write, and how much fits?"""
    there = runs.resolve()
    while not there.exists():
        there = there.parent
    free = shutil.disk_usage(there).free / 2**30
    too_little = "" if free > 1 else "free some space, or choose another disk: --runs DIR"
    disk = Fact("disk", f"{free:,.0f} GiB free for {runs}", too_little)
    try:
        with tempfile.NamedTemporaryFile(dir=there, prefix=".etude-"):
            pass
    except OSError as problem:
        said = problem.strerror or type(problem).__name__
        return [Fact("runs", f"{there} can't be written to: {said}", "choose another place: --runs DIR or ETUDE_RUNS"), disk]
    return [Fact("runs", f"{runs} can be written to" + ("" if there == runs.resolve() else f" (to be made in {there})")), disk]

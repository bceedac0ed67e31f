"""What works on this machine: the machine itself, and every family of environments in turn."""

from __future__ import annotations

import ctypes.util
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from etude.compute.processors import available_cpus
from etude.diagnosis.isolation import Call, Result, run_isolated
from etude.environments.families import FAMILIES, Family

TIMEOUT_S = 120.0
_PRELOAD = ("etude.environments.check.probe",)
_DRAWN_BY_MUJOCO = ("mujoco", "robots", "dmc", "robotics")
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
    """Yield what was found out about each family as soon as it is; a crash of one is its own."""
    # What the last family has in common is nothing: each of its environments is for itself.
    chosen = FAMILIES[:-1] if families is None else families
    yield from (_absent(family, missing) for family in chosen if (missing := family.missing()))
    to_draw: dict[str, Finding] = {}
    for finding in _walk({family.name: family for family in chosen if not family.missing()}, steps, timeout_s):
        if finding.status == "works" and finding.family.backend == "auto":
            to_draw[finding.family.name] = finding
        else:
            yield finding  # other backends only step
    yield from _draw(to_draw, timeout_s)


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
        *robot_facts(),
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


def _absent(family: Family, missing: Sequence[str]) -> Finding:
    problem = f"not installed: {', '.join(missing)}"
    return Finding(family, "absent", problems=[problem], fixes=[f"pip install '{family.install}'"])


def _walk(families: Mapping[str, Family], steps: int, timeout_s: float) -> Iterator[Finding]:
    """Take random steps in each family's example, in as many processes as leave each a processor for its threads."""
    from etude.environments.check import probe

    calls = [Call(name, probe.probe_steps, (one.example, steps, one.backend)) for name, one in families.items()]
    for walk in run_isolated(calls, jobs=max(1, available_cpus() // 2), timeout_s=timeout_s, preload=_PRELOAD):
        family = families[walk.name]
        finding = Finding(family, "works" if walk.status == "done" else "broken", _versions(family), walk.facts)
        if walk.status != "done":
            finding.problems.append(f"{family.example} does not {walk.facts.get('stage', 'build')}: {walk.detail}")
            if family.install and walk.status in ("raised", "died"):
                finding.fixes.append(f"pip install --upgrade '{family.install}'  (the versions that are tested with Etude)")
        yield finding


def _draw(findings: Mapping[str, Finding], timeout_s: float) -> Iterator[Finding]:
    """Draw a picture of each family's example; MuJoCo's are tried in software too where the GPU's way fails."""
    failed: dict[str, Result] = {}
    for drawn in _drawn(findings, timeout_s):
        finding = findings[drawn.name]
        by_mujoco = drawn.name in _DRAWN_BY_MUJOCO
        if drawn.status == "done":
            finding.pictures = (drawn.facts.get("gl") or "works") if by_mujoco else "works"
        elif by_mujoco and os.environ.get("MUJOCO_GL") != "osmesa":
            failed[drawn.name] = drawn
            continue
        else:
            _not_drawn(finding, drawn)
        yield finding
    for drawn in _drawn({name: findings[name] for name in failed}, timeout_s, {"MUJOCO_GL": "osmesa"}):
        finding, before = findings[drawn.name], failed[drawn.name]
        if drawn.status == "done":
            finding.pictures = "osmesa"
            finding.problems.append(f"can't be drawn with {before.facts.get('gl') or 'egl'}, but with osmesa")
            finding.fixes.append("export MUJOCO_GL=osmesa")
        else:
            _not_drawn(finding, before)
        yield finding


def _drawn(findings: Mapping[str, Finding], timeout_s: float, environ: dict[str, str] | None = None) -> Iterator[Result]:
    from etude.environments.check import probe

    calls = [Call(name, probe.probe_picture, (finding.family.example,)) for name, finding in findings.items()]
    if calls:
        yield from run_isolated(calls, jobs=available_cpus(), timeout_s=timeout_s, preload=_PRELOAD, environ=environ)


def _not_drawn(finding: Finding, drawn: Result) -> None:
    if "render modes" in drawn.detail:
        return  # it was never meant to be seen
    finding.problems.append(f"trains, but can't be drawn: {drawn.detail}")
    if finding.family.name in _DRAWN_BY_MUJOCO:
        finding.fixes.append(_GL_LINES)
    elif "pygame" in drawn.output + drawn.detail:
        finding.fixes.append("pip install 'etude[classic]'")


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


def robot_facts() -> list[Fact]:
    """What robots need: MuJoCo, how it draws, and Warp to simulate them on a GPU; nothing is imported."""
    if importlib.util.find_spec("mujoco") is None:
        return [Fact("robots", "no mujoco", "pip install 'etude[mujoco]'")]
    drawn = os.environ.get("MUJOCO_GL") or {"darwin": "cgl", "win32": "glfw"}.get(sys.platform, "egl")
    libraries = {"egl": "EGL", "osmesa": "OSMesa"}
    library = libraries.get(drawn)
    lacks = library is not None and ctypes.util.find_library(library) is None
    renderer = Fact("renderer", f"{drawn}, but lib{library} is not there" if lacks else drawn, _GL_LINES if lacks else "")
    if importlib.util.find_spec("mujoco_warp") is None:
        warp = Fact("warp", "none: robots are simulated on the CPU; on a GPU with pip install 'etude[gpu]'")
    else:
        warp = Fact("warp", f"mujoco_warp {importlib.metadata.version('mujoco-warp')}")
    return [Fact("robots", f"mujoco {importlib.metadata.version('mujoco')}"), renderer, warp]


def _display() -> Fact:
    from etude.environments.display import has_display

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

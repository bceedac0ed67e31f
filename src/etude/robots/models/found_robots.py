"""Robots of other packages on this machine, found without importing any of them."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

SUITE = ("quadruped", "humanoid", "dog")
"""Of dm_control's suite, those that move about freely, upright in their model's own frame."""


@dataclass(frozen=True)
class FoundRobot:
    """A model file somewhere on this machine."""

    source: str
    """Which collection it is of: menagerie, mjlab, playground, dm_control."""
    name: str
    """What it is called there, such as unitree_go1."""
    path: Path
    scene: Path | None = None
    """Another file that includes it and has poses."""

    @property
    def short_name(self) -> str:
        """The file's name without what says how it is simulated, such as go1."""
        return re.sub(r"(_mjx.*|_v\d+)$", "", self.path.stem)

    @property
    def full_name(self) -> str:
        """What `environment.robot.model` takes, and names this one alone."""
        return f"{self.source}:{self.name}"


def find_robots() -> list[FoundRobot]:
    """Return all robots of all collections, each collection once, in the order in which a bare name is looked for."""
    found: dict[str, FoundRobot] = {}
    for search in _SEARCHES:
        for robot in search():
            found.setdefault(robot.full_name, robot)
    return list(found.values())


def find_robot(name: str) -> FoundRobot | None:
    """Return the first robot of this name: source:name, a name, or a short name."""
    source, _, plain = name.rpartition(":")
    candidates = [robot for robot in find_robots() if source in ("", robot.source)]
    by_name = [robot for robot in candidates if robot.name == plain]
    return next(iter([*by_name, *(robot for robot in candidates if robot.short_name == plain)]), None)


def package_place(name: str) -> Path | None:
    """Return where a package lies, None where there is none; one within another is not looked for, which would import that."""
    if not name.isidentifier():
        return None
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    places = [] if spec is None else list(spec.submodule_search_locations or [])
    return Path(places[0]) if places else None


def _folders(place: Path) -> list[Path]:
    try:
        return sorted(path for path in place.iterdir() if path.is_dir() and not path.name.startswith((".", "_")))
    except OSError:
        return []


def _menagerie() -> Iterator[FoundRobot]:
    """A checkout or a cache of the menagerie: a folder for each robot."""
    for place in _menagerie_places():
        for folder in _folders(place):
            name = re.sub(r"-[0-9a-f]{16}$", "", folder.name)  # a cache's folders end with what their content hashes to
            path = _main_file(folder, name)
            if path is not None:
                scene = folder / "scene.xml"
                yield FoundRobot("menagerie", name, path, scene if scene.is_file() else None)


def _menagerie_places() -> Iterator[Path]:
    root = os.environ.get("MENAGERIE_ROOT")
    if root:
        yield Path(root)
    yield _cache_of("mujoco_menagerie", "MENAGERIE_CACHE_DIR") / "models"
    yield _cache_of("robot_descriptions", "ROBOT_DESCRIPTIONS_CACHE") / "mujoco_menagerie"
    playground = package_place("mujoco_playground")
    if playground is not None:
        yield playground / "external_deps" / "mujoco_menagerie"


def _cache_of(name: str, variable: str) -> Path:
    given = os.environ.get(variable)
    if given:
        return Path(given)
    home = Path(os.path.expanduser("~"))  # as it stands where there is no home: a folder that is not there either
    if sys.platform == "darwin" and name == "mujoco_menagerie":
        return home / "Library" / "Caches" / name
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / name


def _main_file(folder: Path, name: str) -> Path | None:
    """The robot's own file: no scene, no variant for one simulator; one that is called as the folder before others."""
    files = [path for path in sorted(folder.glob("*.xml")) if "scene" not in path.stem and "mjx" not in path.stem]
    files = [path for path in files if _moves_about(path)]
    called = [path for path in files if name == path.stem or name.endswith(f"_{path.stem}")]
    return min(called or files, key=lambda path: len(path.stem), default=None)


def _moves_about(path: Path) -> bool:
    """Whether a file has a free joint: arms and hands have none."""
    try:
        text = path.read_text(encoding="utf-8", errors="ignore")
    except OSError:
        return False
    return re.search(r"<freejoint|type=\"free\"", text) is not None


def _mjlab() -> Iterator[FoundRobot]:
    package = package_place("mjlab")
    for folder in [] if package is None else _folders(package / "asset_zoo" / "robots"):
        path = _main_file(folder / "xmls", folder.name)
        if path is not None:
            yield FoundRobot("mjlab", folder.name, path)


def _playground() -> Iterator[FoundRobot]:
    package = package_place("mujoco_playground")
    for folder in [] if package is None else _folders(package / "_src" / "locomotion"):
        files = sorted((folder / "xmls").glob(f"{folder.name}_mjx*.xml"), key=lambda path: len(path.stem))
        # Those whose feet alone collide are made to learn with.
        feet_only = [path for path in files if path.stem.endswith("feetonly")]
        scenes = sorted((folder / "xmls").glob("scene_mjx_feetonly*.xml"), key=lambda path: "flat" not in path.stem)
        if files:
            yield FoundRobot("playground", folder.name, (feet_only or files)[0], next(iter(scenes), None))


def _dm_control() -> Iterator[FoundRobot]:
    package = package_place("dm_control")
    for name in SUITE if package is not None else ():
        path = package / "suite" / f"{name}.xml"  # type: ignore[operator] # there is a package
        if path.is_file():
            yield FoundRobot("dm_control", name, path)


_SEARCHES: tuple[Callable[[], Iterator[FoundRobot]], ...] = (_menagerie, _mjlab, _playground, _dm_control)

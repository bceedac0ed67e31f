"""A robot dog as a URDF, of boxes, cylinders and spheres: an empty root link, and feet fixed to shanks."""

from __future__ import annotations

from pathlib import Path

_INERTIAL = (
    '<inertial><origin xyz="0 0 {z}"/><mass value="{mass}"/>'
    '<inertia ixx="{i}" ixy="0" ixz="0" iyy="{i}" iyz="0" izz="{i}"/></inertial>'
)


def _link(name: str, shape: str, mass: float, inertia: float, z: float = 0.0) -> str:
    body = _INERTIAL.format(mass=mass, i=inertia, z=z)
    return f'<link name="{name}">{body}<collision><origin xyz="0 0 {z}"/><geometry>{shape}</geometry></collision></link>'


def _hinge(name: str, parent: str, child: str, place: str, axis: str, limits: tuple[float, float], effort: float) -> str:
    return (
        f'<joint name="{name}" type="revolute"><parent link="{parent}"/><child link="{child}"/><origin xyz="{place}"/>'
        f'<axis xyz="{axis}"/><limit lower="{limits[0]}" upper="{limits[1]}" effort="{effort}" velocity="20"/></joint>'
    )


def _fixed(parent: str, child: str, place: str) -> str:
    return (
        f'<joint name="{child}_fixed" type="fixed"><parent link="{parent}"/><child link="{child}"/>'
        f'<origin xyz="{place}"/></joint>'
    )


def _leg(name: str, x: float, y: float) -> str:
    out = 0.05 if y > 0 else -0.05
    return (
        _link(f"{name}_hip", '<sphere radius="0.03"/>', 0.5, 0.001)
        + _hinge(f"{name}_hip_joint", "trunk", f"{name}_hip", f"{x} {y} 0", "1 0 0", (-0.8, 0.8), 20)
        + _link(f"{name}_thigh", '<box size="0.03 0.03 0.16"/>', 0.8, 0.003, -0.1)
        + _hinge(f"{name}_thigh_joint", f"{name}_hip", f"{name}_thigh", f"0 {out} 0", "0 1 0", (-0.5, 2.5), 20)
        + _link(f"{name}_calf", '<cylinder radius="0.012" length="0.16"/>', 0.2, 0.001, -0.1)
        + _hinge(f"{name}_calf_joint", f"{name}_thigh", f"{name}_calf", "0 0 -0.2", "0 1 0", (-2.6, -0.5), 30)
        + _link(f"{name}_foot", '<sphere radius="0.02"/>', 0.05, 0.0001)
        + _fixed(f"{name}_calf", f"{name}_foot", "0 0 -0.2")
    )


LEGS = "".join(_leg(f"{end}{side}", x, y) for end, x in (("F", 0.18), ("R", -0.18)) for side, y in (("L", 0.05), ("R", -0.05)))
DOG = (
    '<?xml version="1.0"?><robot name="dog"><link name="base"/>'
    + _link("trunk", '<box size="0.4 0.16 0.1"/>', 6.0, 0.06)
    + _fixed("base", "trunk", "0 0 0")
    + LEGS
    + "</robot>"
)


def write_dog(folder: Path, *, mesh: str = "", seen: str = "") -> Path:
    """Write the dog; `mesh` is its trunk's shape in place of a box, `seen` a mesh that is only looked at."""
    text = DOG
    if mesh:
        text = text.replace('<box size="0.4 0.16 0.1"/>', f'<mesh filename="{mesh}"/>')
    if seen:
        text = text.replace("</inertial>", f'</inertial><visual><geometry><mesh filename="{seen}"/></geometry></visual>', 1)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "dog.urdf"
    path.write_text(text)
    return path

"""Reading a robot's MJCF or URDF file as it lies there, also where its pictures are missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mujoco  # type: ignore[import-untyped] # compiled, without stubs

from etude.errors import UserError
from etude.robots.models.urdf import read_urdf

_mujoco: Any = mujoco
_DEFAULTS = {
    "actuator": (
        "ctrllimited", "ctrlrange", "forcelimited", "forcerange", "actlimited", "actrange", "gear", "dyntype", "dynprm",
        "gainprm", "biasprm",
    ),
    "geom": ("group", "rgba", "margin", "gap", "solref", "solimp", "solmix", "type", "quat", "material"),
}  # fmt: skip


def read_model(path: Path) -> Any:
    """Return the file's MjSpec, with a name for every body, joint and geom, and without what belongs to a scene.

    Meshes and textures whose files are missing are left out, with the geoms that show them: most are there to be looked at.
    """
    spec = read_file(path)
    _leave_out_missing_files(spec, path)
    _leave_out_scene(spec)
    _name_everything(spec)
    _forget_defaults(spec)
    return spec


def read_file(path: Path) -> Any:
    """Return the file's MjSpec as it is; a URDF's root link floats."""
    if path.suffix.lower() == ".urdf":
        return read_urdf(path)
    try:
        return _mujoco.MjSpec.from_file(str(path))
    except (ValueError, FileNotFoundError) as error:
        raise UserError(f"{path.name}: MuJoCo can't read this robot: {' '.join(str(error).split())}") from error


def files_of(path: Path) -> set[Path]:
    """Return a model file and all that it is made of: what it includes, its meshes and its pictures, where they are there."""
    path = path.resolve()
    if path.suffix.lower() == ".urdf":
        named = [mesh.file for mesh in read_urdf(path).meshes]
    else:
        named = list(_mujoco.mju_getXMLDependencies(str(path)))
    return {path, *(place for name in named if (place := (path.parent / name).resolve()).is_file())}


def poses_of(path: Path) -> dict[str, dict[str, float]]:
    """Return the poses (keyframes) of a file: where each hinge and slide is, rad or m; none where it can't be compiled."""
    spec = read_file(path)
    _leave_out_missing_files(spec, path)
    try:
        model = spec.compile()
    except ValueError:
        return {}
    simple = (int(_mujoco.mjtJoint.mjJNT_HINGE), int(_mujoco.mjtJoint.mjJNT_SLIDE))
    joints = [joint for joint in range(model.njnt) if int(model.jnt_type[joint]) in simple and model.joint(joint).name]
    return {
        model.key(i).name: {model.joint(joint).name: float(model.key_qpos[i, model.jnt_qposadr[joint]]) for joint in joints}
        for i in range(model.nkey)
    }


def _leave_out_missing_files(spec: Any, path: Path) -> None:
    missing = {mesh.name: mesh for mesh in spec.meshes if _is_missing(path, spec.meshdir, mesh.file)}
    for geom in [geom for geom in spec.geoms if geom.meshname in missing]:
        spec.delete(geom)
    for mesh in missing.values():
        spec.delete(mesh)
    pictures = {texture.name: texture for texture in spec.textures if _is_missing(path, spec.texturedir, texture.file)}
    for material in spec.materials:
        if any(name in pictures for name in material.textures):
            material.textures = [""] * len(material.textures)
    for texture in pictures.values():
        spec.delete(texture)
    for skin in [skin for skin in spec.skins if _is_missing(path, spec.meshdir, skin.file)]:
        spec.delete(skin)


def _is_missing(path: Path, folder: str, file: str) -> bool:
    """A file that is named, relative to the model's folder for its kind, and is not there."""
    return bool(file) and not (path.parent / folder / file).is_file()


def _leave_out_scene(spec: Any) -> None:
    """Ground is the task's, and so is what touches it. Keyframes and sensors of actuators would not fit other motors."""
    for geom in list(spec.worldbody.geoms):
        if geom.type in (_mujoco.mjtGeom.mjGEOM_PLANE, _mujoco.mjtGeom.mjGEOM_HFIELD) or geom.name == "floor":
            spec.delete(geom)
    for pair in list(spec.pairs):
        geoms = [geom for name in (pair.geomname1, pair.geomname2) if (geom := spec.geom(name)) is not None]
        if len(geoms) == 2 and all(geom.parent.name != "world" for geom in geoms):
            continue  # parts of the robot that don't pass through each other
        for geom in geoms:
            geom.conaffinity = 1  # it touched the ground in this way alone
        spec.delete(pair)
    for key in list(spec.keys):
        spec.delete(key)
    for sensor in list(spec.sensors):
        if sensor.objtype == _mujoco.mjtObj.mjOBJ_ACTUATOR:
            spec.delete(sensor)


def _name_everything(spec: Any) -> None:
    for kind, parts in (("body", spec.bodies), ("joint", spec.joints), ("geom", spec.geoms)):
        taken = {part.name for part in parts}
        for part in parts:
            if part.name:
                continue
            owner = part.parent.name if part.parent is not None else "world"
            stem = f"{owner}_{kind}"
            name = next(name for i in range(len(parts) + 1) if (name := stem if i == 0 else f"{stem}_{i}") not in taken)
            part.name = name
            taken.add(name)


def _forget_defaults(spec: Any) -> None:
    """Let what is added to the model be as we say, and not as the file's defaults say of what it does not mention."""
    plain = _mujoco.MjSpec().default
    for kind, names in _DEFAULTS.items():
        ours, theirs = getattr(spec.default, kind), getattr(plain, kind)
        for name in names:
            setattr(ours, name, getattr(theirs, name))

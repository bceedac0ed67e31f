"""A robot with its motors on the ground of its task as a MJCF, with the files it needs beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import torch

from etude.config.robots import RobotConfig
from etude.deploy.robot_layout import ROBOT_FILE
from etude.errors import UserError
from etude.files.atomic import write_bytes_atomic, write_text_atomic
from etude.robots.models.description import load_robot
from etude.robots.scene import FLOOR, build_scene
from etude.robots.terrain import Terrain

ASSETS = "assets"
GROUND = f"{ASSETS}/ground.hf"
WALK = Path(__file__).with_name("walk.py")
_FOLDERS = {"mesh": "meshdir", "skin": "meshdir", "texture": "texturedir", "hfield": "meshdir"}
"""Which setting of the compiler says where the files of each kind are."""


def write_robot(task: RobotConfig, folder: Path) -> None:
    """Write robot.xml, copies of the meshes and pictures that it names, and what lets it walk without Etude."""
    description = load_robot(task.files or task.model)
    terrain = None if task.terrain.type == "flat" else Terrain(task.terrain, torch.device("cpu"))
    text = build_scene(task, description, terrain=terrain).spec.to_xml()
    root = ElementTree.fromstring(text)
    compiler = root.find("compiler")
    settings = {} if compiler is None else compiler.attrib
    copied: dict[str, Path] = {}
    for kind, setting in _FOLDERS.items():
        for element in root.iter(kind):
            name = element.get("file")
            if name is None:
                continue
            beside = description.path.parent  # a package's model lies deep in its folder
            source = _find(name, [beside / settings.get(setting, settings.get("assetdir", "")), beside])
            element.set("file", _copy(source, folder, copied))
    if terrain is not None:
        _write_heights(root, folder)
    for setting in ("assetdir", *_FOLDERS.values()):
        settings.pop(setting, None)
    write_text_atomic(folder / ROBOT_FILE, ElementTree.tostring(root, encoding="unicode") + "\n")
    write_bytes_atomic(folder / WALK.name, WALK.read_bytes())


def _write_heights(root: ElementTree.Element, folder: Path) -> None:
    """Move the heights of the ground into a file of their own, in MuJoCo's format: rows, columns, numbers from 0 to 1."""
    (field,) = [element for element in root.iter("hfield") if element.get("name") == FLOOR]
    rows, columns = (int(field.attrib.pop(key)) for key in ("nrow", "ncol"))
    # The text begins with the row that is farthest along y, the file and the model's memory with the nearest.
    heights = np.array(field.attrib.pop("elevation").split(), np.float32).reshape(rows, columns)[::-1]
    (folder / ASSETS).mkdir(exist_ok=True)
    write_bytes_atomic(folder / GROUND, np.array([rows, columns], np.int32).tobytes() + heights.tobytes())
    field.set("file", GROUND)
    field.set("content_type", "image/vnd.mujoco.hfield")


def _find(name: str, folders: Sequence[Path]) -> Path:
    for folder in folders:
        for place in (folder / name, folder / Path(name).name):
            if place.is_file():
                return place
    raise UserError(f"the robot's file {name} is not in {folders[0]}")


def _copy(source: Path, folder: Path, copied: dict[str, Path]) -> str:
    """Copy a file into assets/ and return its new place; another of the same name is told apart by its folder's."""
    name = source.name if copied.get(source.name, source) == source else f"{source.parent.name}-{source.name}"
    copied[name] = source
    (folder / ASSETS).mkdir(exist_ok=True)
    write_bytes_atomic(folder / ASSETS / name, source.read_bytes())
    return f"{ASSETS}/{name}"

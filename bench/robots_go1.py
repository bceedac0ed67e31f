"""Unitree's Go1 out of an mjlab package, for Etude: the same file, with the collisions that mjlab's task gives it."""

from __future__ import annotations

import importlib.util
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

DATA = Path(__file__).resolve().parent / "robots"
INSIDE = Path("asset_zoo", "robots", "unitree_go1", "xmls", "go1.xml")
FOOT, COLLISION = re.compile("[FR][LR]_foot_collision"), re.compile(r".*_collision\d*")


def find_model(packages: Sequence[Path] = ()) -> Path:
    """Return mjlab's go1.xml, from one of these folders of packages or from this python's own; mjlab is not imported."""
    folders = [folder / "mjlab" for folder in packages]
    found = importlib.util.find_spec("mjlab") if not packages else None
    if found is not None and found.origin is not None:
        folders.append(Path(found.origin).parent)
    for folder in folders:
        if (folder / INSIDE).is_file():
            return folder / INSIDE
    looked = ", ".join(map(str, folders)) or "this python's packages"
    raise FileNotFoundError(f"no mjlab with its Go1 in {looked}: name the folder that has it with --mjlab")


def write_robot(model: Path, folder: Path) -> Path:
    """Write the robot for Etude into a folder and return its YAML.

    As mjlab's FULL_COLLISION says: every part meets every other and the ground, feet with sliding, spinning and rolling
    friction of their own, other parts without any. Feet have priority 2 because Etude's ground has 1, where mjlab's have 1
    and 0.
    """
    tree = ElementTree.parse(model)
    root = tree.getroot()
    compiler = root.find("compiler")
    assert compiler is not None
    compiler.set("meshdir", str((model.parent / compiler.get("meshdir", ".")).resolve()))
    for geom in root.iter("geom"):
        name = geom.get("name", "")
        if not COLLISION.fullmatch(name):
            continue
        geom.set("solref", "0.01 1")
        geom.set("condim", "1")
        if FOOT.fullmatch(name):
            geom.attrib |= {"condim": "6", "priority": "2", "friction": "1 5e-3 5e-4"}
    folder.mkdir(parents=True, exist_ok=True)
    tree.write(folder / "go1.xml")
    shutil.copy(DATA / "go1.yaml", folder / "go1.yaml")
    return folder / "go1.yaml"

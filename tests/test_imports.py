"""Imports point downward only, and the border cases the design names hold."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "etude"

# What each room may import of ours, besides itself, `errors` and `files`. `workflows.base` and `workflows.collector` are
# contracts, not algorithms.
BELOW = {
    "errors": "",
    "files": "",
    "presets": "",
    "config": "presets",
    "compute": "",
    "environments": "compute config",
    "robots": "environments compute config",
    "buffers": "compute config",
    "datasets": "buffers environments runs compute config",
    "components": "environments buffers compute config",
    "learning": "components buffers compute config",
    "acting": "components environments compute",
    "workflows": "acting learning components datasets environments buffers compute config",
    "orchestration": "workflows acting environments compute config",
    "runs": "",
    "telemetry": "",
    "training": "orchestration workflows acting components buffers robots environments reporting runs telemetry compute config",
    "using": "training saved_components orchestration workflows acting components datasets robots environments runs telemetry "
    "compute config",
    "inspecting": "using training orchestration workflows acting components robots environments runs compute config",
    "saved_components": "training workflows acting components environments runs compute config",
    "comparison": "runs telemetry",
    "reporting": "comparison runs telemetry",
    "deploy": "using robots environments workflows acting components compute config",
    "publishing": "deploy using training reporting runs config",
    "verification": "training orchestration runs telemetry compute config",
    "diagnosis": "training environments compute config",
    "launching": "",
    "control": "training runs config",
    "mcp_server": "control comparison runs telemetry",
    "testing": "training orchestration workflows environments runs telemetry compute config",
    "tuning": "training environments runs telemetry compute config",
    "ui": "inspecting control comparison runs telemetry",
    "viewing": "ui inspecting using training orchestration acting robots environments runs compute config",
    "api": "using training saved_components orchestration workflows acting buffers environments runs telemetry config",
    "cli": "viewing ui mcp_server control launching publishing deploy verification diagnosis reporting comparison tuning "
    "inspecting using training orchestration robots datasets buffers environments runs telemetry compute config",
}
HALL = {"__init__", "__main__", "api", "errors"}
"""The only modules that stand directly in the package."""
NAMES = "config/registry.py"
"""The one table of what lies above by name alone: names of parts to the places of their classes."""


def _modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def _room(path: Path) -> str:
    relative = path.relative_to(SOURCE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


@cache
def _nodes(path: Path) -> list[ast.AST]:
    return [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]


def _imports(path: Path) -> set[str]:
    found = set()
    for node in _nodes(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: imports are absolute"
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if name.split(".")[0] == "etude" and name != "etude"}


def _named(path: Path) -> set[str]:
    """Modules of ours that a text in a file names, to be imported later: "etude.robots.environment:RobotVector"."""
    texts = (node.value for node in _nodes(path) if isinstance(node, ast.Constant))
    found = (re.fullmatch(r"(etude(?:\.\w+)+)(?::\w+)?", text) for text in texts if isinstance(text, str))
    return {match[1] for match in found if match is not None and _exists(match[1])}


def _exists(module: str) -> bool:
    place = SOURCE.joinpath(*module.split(".")[1:])
    return place.with_suffix(".py").exists() or (place / "__init__.py").exists()


def test_every_module_has_a_room() -> None:
    assert {path.stem for path in SOURCE.glob("*.py")} == HALL
    assert {path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()} == set(BELOW) - HALL


@pytest.mark.parametrize("path", _modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_downward_only(path: Path) -> None:
    room, place = _room(path), str(path.relative_to(SOURCE))
    if room in ("__init__", "__main__"):
        return
    used = _imports(path) | (set() if place == NAMES else _named(path))
    rooms = {name.split(".")[1] for name in used} - {room, "errors", "files", "__version__"}
    assert rooms <= set(BELOW[room].split()), f"{room} imports {sorted(rooms - set(BELOW[room].split()))}"


def test_the_loop_knows_no_algorithm() -> None:
    contracts = {"etude.workflows.base", "etude.workflows.collector", "etude.workflows.hooks"}
    for path in (SOURCE / "orchestration").glob("*.py"):
        modules = {name for name in _imports(path) if name.startswith("etude.workflows.")}
        assert all(any(name == c or name.startswith(c + ".") for c in contracts) for name in modules), path.name


def test_only_borders_catch_everything() -> None:
    """A broad except hides faults; it may stand only where it re-raises or where a failure of others is isolated."""
    borders = {"telemetry/sinks.py", "telemetry/console.py", "telemetry/wandb.py", "runs/provenance.py"}
    borders |= {"telemetry/background.py", "training/run_sinks.py"}
    borders |= {"compute/system_use.py"}  # a GPU's driver
    borders |= {"telemetry/monitor.py", "telemetry/alert_delivery.py"}  # who hears of alerts, and networks
    borders |= {"training/sampling_process.py"}  # its learner raises what it is told
    borders |= {"compute/kept_code.py"}  # torch's own files of code, in a format that may change
    borders |= {"compute/traced.py"}  # torch's compiler, on code of anybody's: that runs as it is, and raises what is its own
    borders |= {"inspecting/desk.py"}  # an environment's failure ends its inspection, not the server
    for path in _modules():
        for node in _nodes(path):
            if not isinstance(node, ast.ExceptHandler) or str(path.relative_to(SOURCE)) in borders:
                continue
            broad = node.type is None or (isinstance(node.type, ast.Name) and node.type.id in ("Exception", "BaseException"))
            assert not broad or isinstance(node.body[-1], ast.Raise), f"{path.name}:{node.lineno}"

"""Imports point downward only, and the border cases the design names hold."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "etude"

# What each package may import of ours. `workflows.base` and `workflows.collector` are contracts, not algorithms.
ALLOWED = {
    "errors": set(),
    "files": {"errors"},
    "segments": set(),
    "config": {"config", "errors", "presets"},
    "presets": set(),
    "compute": {"compute", "errors"},
    "environments": {"environments", "compute", "config", "errors"},
    "robots": {"robots", "environments", "compute", "config", "errors"},
    "buffers": {"buffers", "config", "errors", "segments"},
    "components": {"components", "environments", "buffers", "compute", "config", "errors"},
    "workflows": {"workflows", "components", "environments", "buffers", "compute", "config", "errors"},
    "orchestration": {"orchestration", "workflows", "environments", "compute", "config", "errors"},
    "runs": {"runs", "errors", "segments"},
    "telemetry": {"telemetry", "errors"},
    "comparison": {"comparison", "runs", "telemetry", "errors"},
    "deploy": {"deploy", "stored_policy", "robots", "environments", "workflows", "components", "config", "runs", "errors"},
    "saved_components": {
        "saved_components",
        "assembly",
        "workflows",
        "components",
        "environments",
        "compute",
        "config",
        "runs",
        "errors",
    },
    "verification": {
        "verification",
        "session",
        "assembly",
        "orchestration",
        "runs",
        "telemetry",
        "compute",
        "config",
        "errors",
    },
}


def _modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def _package(path: Path) -> str:
    relative = path.relative_to(SOURCE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def _imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: imports are absolute"
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if name.split(".")[0] == "etude" and name != "etude"}


@pytest.mark.parametrize("path", _modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_downward_only(path: Path) -> None:
    package = _package(path)
    if package not in ALLOWED:
        return  # the top: __init__, __main__, assembly, session, cli
    used = {name.split(".")[1] for name in _imports(path)} - {"files"}  # below everything, as `errors` is
    assert used <= ALLOWED[package], f"{package} imports {sorted(used - ALLOWED[package])}"


def test_the_loop_knows_no_algorithm() -> None:
    contracts = {"etude.workflows.base", "etude.workflows.collector"}
    for path in (SOURCE / "orchestration").glob("*.py"):
        modules = {name for name in _imports(path) if name.startswith("etude.workflows.")}
        assert all(any(name == c or name.startswith(c + ".") for c in contracts) for name in modules), path.name


def test_only_borders_catch_everything() -> None:
    """A broad except hides faults; it may stand only where it re-raises or where a failure of others is isolated."""
    borders = {"telemetry/sinks.py", "telemetry/console.py", "telemetry/wandb.py", "runs/provenance.py"}
    borders |= {"telemetry/background.py", "run_sinks.py"}
    for path in _modules():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ExceptHandler) or str(path.relative_to(SOURCE)) in borders:
                continue
            broad = node.type is None or (isinstance(node.type, ast.Name) and node.type.id in ("Exception", "BaseException"))
            assert not broad or isinstance(node.body[-1], ast.Raise), f"{path.name}:{node.lineno}"

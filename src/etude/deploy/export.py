"""From a run's checkpoint to a folder of files that run without Etude, each checked against the policy."""

from __future__ import annotations

import hashlib
import importlib.util
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from etude.deploy.acting_graph import graph_of
from etude.deploy.check import TOLERANCE, Runner, largest_difference
from etude.deploy.graph import PolicyGraph
from etude.deploy.metadata import METADATA, FileLayout, Metadata, describe, write_metadata
from etude.deploy.mnn_file import mnn_model, run_mnn
from etude.deploy.onnx_file import onnx_model, run_onnx
from etude.deploy.robot_layout import RobotLayout, robot_layout
from etude.deploy.torch_files import capture, exported_program, run_exported_program, run_torchscript, torchscript
from etude.environments.make import make_environment
from etude.environments.vector import VectorEnvironment
from etude.errors import EtudeError, MissingPackageError, UserError, did_you_mean
from etude.files.atomic import write_bytes_atomic
from etude.using.stored_policy import StoredPolicy

FILES = {"onnx": "policy.onnx", "torchscript": "policy.pt", "torch": "policy.pt2", "mnn": "policy.mnn"}
RUNNER = "act.py"
"""What acts by the files, in a file that needs nothing of Etude."""
_RUNNER = Path(__file__).with_name(RUNNER)
_PACKAGES = {"onnx": (("onnx", "onnxscript", "onnxruntime"), "etude[export]"), "mnn": (("MNN",), "etude[mnn]")}
_RUNNERS: dict[str, Callable[[Path, PolicyGraph], Runner]] = {
    "onnx": run_onnx,
    "torchscript": run_torchscript,
    "torch": run_exported_program,
    "mnn": run_mnn,
}


@dataclass
class Export:
    """What was written, and how it did."""

    folder: Path
    metadata: Metadata
    notes: list[str] = field(default_factory=list)
    """What a user should know about it."""
    problems: list[EtudeError] = field(default_factory=list)
    """What could not be written, or does something else than the policy."""


def choose_formats(words: Sequence[str]) -> list[str]:
    """Return the formats that words name, commas allowed, in the order they are made; an unknown one is an error."""
    chosen = [name for word in words for part in word.split(",") if (name := part.strip())]
    for name in chosen:
        if name not in FILES:
            raise UserError(f"--format {name}: unknown format{did_you_mean(name, FILES)} (there are {', '.join(FILES)})")
    if not chosen:
        raise UserError(f"--format: choose at least one of {', '.join(FILES)}")
    if "mnn" in chosen:
        chosen.append("onnx")  # what MNN is converted from
    return [name for name in FILES if name in chosen]


def require_packages(format_name: str) -> None:
    """Raise MissingPackageError with the line that installs what a format needs."""
    packages, extra = _PACKAGES.get(format_name, ((), ""))
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingPackageError(f"--format {format_name} needs {', '.join(missing)}: pip install '{extra}'")


def export_policy(
    stored: StoredPolicy, formats: Sequence[str], folder: Path, on_file: Callable[[Path, FileLayout], None] | None = None
) -> Export:
    """Write a policy in every format, check each file, and write metadata.json last.

    A file that can't be made or does something else than the policy is a problem in the result; the others are still written.
    """
    if "onnx" in formats:
        require_packages("onnx")
    config = replace(stored.config.environment, workers=0)
    environment = make_environment(config, num_envs=1)
    try:
        algorithm = stored.config.algorithm.name
        policy = stored.build(environment)
        spaces = environment.single_observation_space, environment.single_action_space
        # What its own evaluations do: some act by chance or not at all.
        graph = graph_of(policy, *spaces, algorithm, mode=stored.modes("auto")[0])
        _make_folder(folder)
        metadata = describe(stored, graph, _write_robot(stored, environment, graph, folder))
        write_bytes_atomic(folder / RUNNER, _RUNNER.read_bytes())
        export = Export(folder, metadata, notes=_notes(metadata, formats, folder))
        maker = _Maker(graph, folder)
        for name in formats:
            path = folder / FILES[name]
            if name == "mnn" and "onnx" not in metadata.files:
                continue  # what it would be made from is not there, as a problem already says
            try:
                data = maker.make(name)
                write_bytes_atomic(path, data)
                difference = largest_difference(
                    policy, graph, environment.single_observation_space, _RUNNERS[name](path, graph)
                )
            except EtudeError as problem:
                export.problems.append(problem)
                continue
            known = difference if math.isfinite(difference) else None
            written = FileLayout(path.name, hashlib.sha256(data).hexdigest(), known)
            metadata.files[name] = written
            if on_file is not None:
                on_file(path, written)
            if not difference <= TOLERANCE:
                export.problems.append(
                    EtudeError(f"{path}: differs from the policy by {difference:.3g}, more than {TOLERANCE:g}")
                )
        write_metadata(folder, metadata)
        return export
    finally:
        environment.close()


class _Maker:
    """Makes the contents of each file; what two formats are made from is made once."""

    def __init__(self, graph: PolicyGraph, folder: Path) -> None:
        self._graph, self._folder, self._program = graph, folder, None

    def make(self, name: str) -> bytes:
        """Return the contents of a format's file."""
        if name == "torchscript":
            return torchscript(self._graph)
        if name == "mnn":
            require_packages("mnn")
            source = self._folder / FILES["onnx"]
            return mnn_model(source)
        if self._program is None:
            self._program = capture(self._graph)
        return exported_program(self._program) if name == "torch" else onnx_model(self._program, self._graph)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {folder}: {error.strerror or error}") from error
    if not os.access(folder, os.W_OK):
        raise UserError(f"--out {folder}: nothing can be written there")


def _write_robot(stored: StoredPolicy, environment: VectorEnvironment, graph: PolicyGraph, folder: Path) -> RobotLayout | None:
    task = stored.config.environment.robot
    if task is None:
        return None
    from etude.deploy.robot_file import write_robot

    base: Any = environment.base
    write_robot(task, folder)
    return robot_layout(base, list(graph.inputs))


def _notes(metadata: Metadata, formats: Sequence[str], folder: Path) -> list[str]:
    notes = []
    if metadata.wrappers:
        names = ", ".join(str(wrapper.get("id")) for wrapper in metadata.wrappers)
        notes.append(f"the policy acts behind wrappers that are not in the files: {names}; {METADATA} has their settings")
    for name, file in FILES.items():
        if name not in formats and (folder / file).exists():
            notes.append(f"{folder / file} is of an earlier export; {METADATA} does not speak of it")
    return notes

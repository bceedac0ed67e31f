"""A policy as a file for MNN, made from its ONNX file."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from etude.deploy.check import Runner
from etude.deploy.graph import PolicyGraph
from etude.errors import EtudeError

_PROCESS = Path(__file__).with_name("mnn_process.py")
_TIMEOUT_S = 300


def mnn_model(onnx_file: Path) -> bytes:
    """Return the contents of an MNN file."""
    with tempfile.TemporaryDirectory(prefix="etude-mnn-") as folder:
        target = Path(folder) / "policy.mnn"
        said = _call("convert", str(onnx_file.absolute()), str(target), folder=folder)
        if not target.is_file() or target.stat().st_size == 0:
            raise EtudeError(f"MNN can't convert {onnx_file.name}: {said}")
        return target.read_bytes()


def run_mnn(path: Path, graph: PolicyGraph) -> Runner:
    """Return the file as a function."""

    def run(inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        with tempfile.TemporaryDirectory(prefix="etude-mnn-") as folder:
            given, results = Path(folder) / "inputs.npz", Path(folder) / "outputs.npz"
            arrays: dict[str, np.ndarray] = dict(inputs)
            np.savez(given, allow_pickle=False, **arrays)
            names = ",".join(graph.input_names), ",".join(graph.output_names)
            said = _call("run", str(path.absolute()), str(given), str(results), *names, folder=folder)
            if not results.is_file():
                raise EtudeError(f"MNN can't run {path.name}: {said}")
            with np.load(results, allow_pickle=False) as loaded:
                return {name: loaded[name] for name in graph.output_names}

    return run


def _call(*words: str, folder: str) -> str:
    """Run MNN's process and return the last line that it said."""
    try:
        # -P: the modules beside the script are none of its own.
        done = subprocess.run(
            [sys.executable, "-P", str(_PROCESS), *words],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {_TIMEOUT_S} s"
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    return lines[-1] if lines else f"it ended with code {done.returncode} and said nothing"

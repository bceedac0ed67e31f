"""A policy as files of PyTorch's own, which it loads without Etude: TorchScript and torch.export."""

from __future__ import annotations

import io
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from etude.deploy.check import Runner
from etude.deploy.graph import PolicyGraph
from etude.errors import EtudeError

_EXAMPLE_ROWS = 2
"""Not 0 or 1, which torch.export takes for constants."""


def capture(graph: PolicyGraph) -> torch.export.ExportedProgram:
    """Return the graph as torch.export's program, for any number of rows."""
    examples = graph.examples(_EXAMPLE_ROWS)
    rows = torch.export.Dim("rows", min=1)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what matters is found by the check
            program = torch.export.export(graph, examples, dynamic_shapes=(tuple({0: rows} for _ in examples),))
    except (RuntimeError, ValueError, TypeError, NotImplementedError) as error:
        raise EtudeError(f"torch.export can't capture this network: {_first_line(error)}") from error
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # names folders of this machine
    return program


def exported_program(program: torch.export.ExportedProgram) -> bytes:
    """Return the contents of a .pt2 file."""
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    return buffer.getvalue()


def torchscript(graph: PolicyGraph) -> bytes:
    """Return the contents of a TorchScript file."""
    buffer = io.BytesIO()
    with warnings.catch_warnings(), torch.no_grad():
        # That it is deprecated is known; that a trace may depend on the example's size is what the check is for.
        warnings.simplefilter("ignore")
        try:
            traced: Any = torch.jit.trace(graph, graph.examples(_EXAMPLE_ROWS), check_trace=False)
        except (RuntimeError, ValueError, TypeError) as error:
            raise EtudeError(f"TorchScript can't trace this network: {_first_line(error)}") from error
        torch.jit.save(traced, buffer)
    return _without_traces_of_this_machine(buffer.getvalue())


def _without_traces_of_this_machine(archive: bytes) -> bytes:
    """Return a TorchScript file without the notes on which source line each operation came from: they name folders here."""
    kept = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as source, zipfile.ZipFile(kept, "w") as target:
        for entry in source.infolist():
            if not entry.filename.endswith(".debug_pkl"):
                target.writestr(entry.filename, source.read(entry))
    return kept.getvalue()


def run_torchscript(path: Path, graph: PolicyGraph) -> Runner:
    """Return the file as a function."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _runner(torch.jit.load(str(path)), graph)


def run_exported_program(path: Path, graph: PolicyGraph) -> Runner:
    """Return the file as a function."""
    return _runner(torch.export.load(str(path)).module(), graph)


def _runner(function: Any, graph: PolicyGraph) -> Runner:
    def run(inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        with torch.no_grad():
            results = function(*(torch.from_numpy(inputs[name]) for name in graph.input_names))
        results = (results,) if isinstance(results, Tensor) else results
        return {name: value.numpy() for name, value in zip(graph.output_names, results, strict=True)}

    return run


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__

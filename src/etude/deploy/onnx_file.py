"""A policy as an ONNX file."""

from __future__ import annotations

import importlib
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from etude.deploy.check import Runner
from etude.deploy.graph import PolicyGraph
from etude.errors import EtudeError

OPSET = 18
"""What runtimes of several years' age read."""


def onnx_model(program: torch.export.ExportedProgram, graph: PolicyGraph) -> bytes:
    """Return the contents of an ONNX file; its inputs are called as the parts of the observation."""
    with _quietly():
        try:
            written = torch.onnx.export(
                program,
                input_names=graph.input_names,
                output_names=graph.output_names,
                opset_version=OPSET,
                external_data=False,
                verbose=False,
            )
        except torch.onnx.OnnxExporterError as error:
            raise EtudeError(f"ONNX can't express this network: {_last_line(error)}") from error
        assert written is not None
        model: Any = written.model_proto
    for node in model.graph.node:
        del node.metadata_props[:]  # stack traces, which name folders of this machine
        node.doc_string = ""
    return model.SerializeToString()


def run_onnx(path: Path, graph: PolicyGraph) -> Runner:
    """Return the file as a function."""
    onnxruntime: Any = importlib.import_module("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def run(inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        results = session.run(graph.output_names, dict(inputs))
        return dict(zip(graph.output_names, results, strict=True))

    return run


@contextmanager
def _quietly() -> Iterator[None]:
    """What exporters say of themselves is no news to the user; what goes wrong is raised, and the check finds the rest."""
    names = ("torch.onnx", "onnxscript", "onnx_ir")
    before = {name: logging.getLogger(name).level for name in names}
    try:
        for name in names:
            logging.getLogger(name).setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)


def _last_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:300] if lines else type(error).__name__

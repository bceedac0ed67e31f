"""MNN in its own process: its converter prints, and may end the process. Needs MNN and numpy alone.

mnn_process.py convert MODEL.onnx MODEL.mnn
mnn_process.py run MODEL.mnn INPUTS.npz OUTPUTS.npz INPUT,NAMES OUTPUT,NAMES
"""

from __future__ import annotations

import sys
from typing import Any


def convert(source: str, target: str) -> None:
    """Call the converter in MNN's library; the `mnnconvert` command around it would also install packages and send data."""
    import _tools  # type: ignore[import-not-found] # compiled, a part of MNN

    _tools.mnnconvert(["mnnconvert", "-f", "ONNX", "--modelFile", source, "--MNNModel", target, "--bizCode", "etude"])


def run(model: str, inputs: str, outputs: str, input_names: str, output_names: str) -> None:
    """Pass arrays through a model, exactly: on one thread and in full precision."""
    import MNN  # type: ignore[import-not-found] # compiled
    import numpy as np

    mnn: Any = MNN
    names = input_names.split(","), output_names.split(",")
    settings = {"precision": "high", "backend": "CPU", "numThread": 1}
    manager = mnn.nn.create_runtime_manager((settings,))
    network = mnn.nn.load_module_from_file(model, *names, runtime_manager=manager)
    given = np.load(inputs)
    variables = []
    for name in names[0]:
        value = given[name]
        value = value.astype(np.int32) if value.dtype.kind in "iub" and value.dtype != np.uint8 else value
        kinds = {"f": mnn.expr.float, "i": mnn.expr.int, "u": mnn.expr.uint8}
        variables.append(mnn.expr.const(np.ascontiguousarray(value), list(value.shape), mnn.expr.NCHW, kinds[value.dtype.kind]))
    results = network.forward(variables)
    arrays = {name: np.array(result.read()) for name, result in zip(names[1], results, strict=True)}
    np.savez(outputs, allow_pickle=False, **arrays)


if __name__ == "__main__":
    {"convert": convert, "run": run}[sys.argv[1]](*sys.argv[2:])

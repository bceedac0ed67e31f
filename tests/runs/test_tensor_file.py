"""Tensors as files: whatever their strides, their entries are written in order."""

from __future__ import annotations

from pathlib import Path

import torch

from etude.runs.tensor_file import read_tensors, write_tensors


def test_one_number_out_of_a_row_is_written_whatever_its_stride(tmp_path: Path) -> None:
    """A robot's single copy was: it is contiguous, and torch does not view it as bytes."""
    table = torch.arange(12.0).view(3, 4)
    tensors = {"one": table[1:2, 2], "column": table[:, 1], "none": table[:0, 1], "scalar": table[2, 3]}
    write_tensors(tmp_path / "a.safetensors", tensors)
    _, read = read_tensors((tmp_path / "a.safetensors").read_bytes())
    assert all(torch.equal(read[name], tensor) for name, tensor in tensors.items())

"""Tensor files in the safetensors format: written in one pass, read with suspicion."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import safe_open

from etude.errors import CheckpointError
from etude.runs.state_tree import STORABLE_DTYPES

MAX_HEADER = 64 * 2**20
_LENGTH_FIELD = 8


def write_tensors(path: Path, tensors: Mapping[str, torch.Tensor]) -> tuple[str, int]:
    """Write `tensors` to a new file, fsynced; returns its SHA-256 and size.

    Not the library's own writer: this one has a single tensor in host memory at a time, hashes what it writes on the
    way, and a full disk stays an OSError.
    """
    # Widest first, so that every tensor starts at a multiple of its item size.
    ordered = sorted(tensors.items(), key=lambda item: -item[1].element_size())
    header: dict[str, object] = {}
    end = 0
    for name, tensor in ordered:
        start, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": STORABLE_DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)
    if len(encoded) > MAX_HEADER:
        raise CheckpointError(f"part '{path.parent.name}': {len(tensors)} tensors are more than one file can name")
    digest = hashlib.sha256()
    with open(path, "xb") as file:
        for data in (len(encoded).to_bytes(_LENGTH_FIELD, "little"), encoded):
            file.write(data)
            digest.update(data)
        for _, tensor in ordered:
            # resolve_neg: a lazily negated view holds the bits of its opposite.
            flat = tensor.detach().cpu().resolve_neg().contiguous().reshape(-1)
            content = flat.view(torch.uint8).numpy().data
            file.write(content)
            digest.update(content)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest(), _LENGTH_FIELD + len(encoded) + end


class TensorFile:
    """The tensors of one file, each read once, so that what was shared when saved is shared again."""

    def __init__(self, path: Path, device: str | torch.device) -> None:
        _check_header(path)
        self._path = path
        self._device = device
        self._loaded: dict[str, torch.Tensor] = {}

    def __getitem__(self, name: str) -> torch.Tensor:
        return self.all()[name]

    def all(self) -> dict[str, torch.Tensor]:
        """Return every tensor by its name."""
        if not self._loaded:
            # A copy: the original is a view of the mapped file, at any alignment, and dies with it (SIGBUS).
            self._loaded = {key: tensor.to(self._device, copy=True) for key, tensor in _mapped(self._path).items()}
        return self._loaded


def _mapped(path: Path) -> dict[str, torch.Tensor]:
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    except Exception as error:  # for strange files the library raises its own type, KeyError, ValueError ...
        raise ValueError(f"not readable as safetensors ({str(error)[:200]})") from error
    for name, tensor in tensors.items():
        if tensor.dtype not in STORABLE_DTYPES:
            raise ValueError(f"tensor '{name[:120]}' is {tensor.dtype}, which is never stored")
    return tensors


def _check_header(path: Path) -> None:
    size = path.stat().st_size
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(_LENGTH_FIELD), "little")
        first = file.read(1)
    if size < _LENGTH_FIELD + 2 or first != b"{":
        raise ValueError("not a safetensors file")
    if length > min(size - _LENGTH_FIELD, MAX_HEADER):
        raise ValueError(f"its header claims {length} bytes, the file has {size}")

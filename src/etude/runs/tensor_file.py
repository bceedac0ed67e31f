"""Tensor files in the safetensors format: written in one pass, read with suspicion."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import safe_open

from etude.errors import CheckpointError
from etude.files.documents import parse_json
from etude.files.state_tree import STORABLE_DTYPES

MAX_HEADER = 64 * 2**20
_LENGTH_FIELD = 8
_METADATA = "__metadata__"


def write_tensors(
    path: Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str] | None = None
) -> tuple[str, int]:
    """Write `tensors`, and words about them, to a new file, fsynced; returns its SHA-256 and size.

    Not the library's own writer: this one has a single tensor in host memory at a time, hashes what it writes on the
    way, and a full disk stays an OSError.
    """
    # Widest first, so that every tensor starts at a multiple of its item size.
    ordered = sorted(tensors.items(), key=lambda item: -item[1].element_size())
    header: dict[str, object] = {} if metadata is None else {_METADATA: dict(metadata)}
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
            content = content_of(tensor)
            file.write(content)
            digest.update(content)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest(), _LENGTH_FIELD + len(encoded) + end


def content_of(tensor: torch.Tensor) -> memoryview:
    """Return the bytes of a tensor's entries, in order."""
    # resolve_neg: a lazily negated view holds the bits of its opposite.
    flat = tensor.detach().cpu().resolve_neg().contiguous().reshape(-1)
    # One number out of a row is contiguous whatever its stride, and is not viewed as bytes unless that is 1.
    return flat.as_strided(flat.shape, (1,)).view(torch.uint8).numpy().data


def read_tensors(data: bytes) -> tuple[dict[str, str], dict[str, torch.Tensor]]:
    """Return the words and the tensors of a file whose bytes are `data`; ValueError when it is not such a file."""
    _check_length(data[: _LENGTH_FIELD + 1], len(data))
    header = parse_json(data[_LENGTH_FIELD : _LENGTH_FIELD + int.from_bytes(data[:_LENGTH_FIELD], "little")])
    words = header.get(_METADATA, {}) if isinstance(header, dict) else None
    if not isinstance(words, dict) or not all(isinstance(word, str) for word in words.values()):
        raise ValueError("its header is not that of a safetensors file")
    try:
        tensors = safetensors.torch.load(data)
    except Exception as error:  # for strange files the library raises its own type, KeyError, ValueError ...
        raise _unreadable(error) from error
    return words, _storable(tensors)


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
        raise _unreadable(error) from error
    return _storable(tensors)


def _unreadable(error: Exception) -> ValueError:
    return ValueError(f"not readable as safetensors ({str(error)[:200]})")


def _storable(tensors: dict[str, Any]) -> dict[str, torch.Tensor]:
    for name, tensor in tensors.items():
        if tensor.dtype not in STORABLE_DTYPES:
            raise ValueError(f"tensor '{name[:120]}' is {tensor.dtype}, which is never stored")
    return tensors


def _check_header(path: Path) -> None:
    size = path.stat().st_size
    with open(path, "rb") as file:
        _check_length(file.read(_LENGTH_FIELD + 1), size)


def _check_length(begin: bytes, size: int) -> None:
    """`begin` are the first bytes of a file of `size` bytes: the length of its header, and where that begins."""
    length = int.from_bytes(begin[:_LENGTH_FIELD], "little")
    if size < _LENGTH_FIELD + 2 or begin[_LENGTH_FIELD:] != b"{":
        raise ValueError("not a safetensors file")
    if length > min(size - _LENGTH_FIELD, MAX_HEADER):
        raise ValueError(f"its header claims {length} bytes, the file has {size}")

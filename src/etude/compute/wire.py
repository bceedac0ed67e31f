"""State as bytes, for processes that talk to each other: nested dicts and lists of tensors and plain values, without pickle.

    8 bytes      JSON                                       tensors, one after the other
    its length   the tree, and each tensor's type and shape

What comes out are tensors of this process's own, on the CPU.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from etude.files.segments import Segment, StoredSegment
from etude.files.state_tree import STORABLE_DTYPES, TreeEncoder, decode

_LENGTH = struct.Struct("<Q")
_PART = "wire"
_DTYPES = {name: dtype for dtype, name in STORABLE_DTYPES.items()}


def packed(tree: Any) -> bytes:
    """Return a tree as bytes. Of segments that are on disk already only where they are; the rows of others."""
    encoder = TreeEncoder()
    encoded, tensors = encoder.encode(_PART, tree)
    segments: list[Any] = []
    for number, (segment, entry) in enumerate(encoder.segments):
        entry[0] = str(number)
        rows = {} if segment.stored is not None else segment.load()
        names = [f"segment {number} {name}" for name in rows]
        tensors |= dict(zip(names, rows.values(), strict=True))
        segments.append({"stored": segment.stored and vars(segment.stored), "columns": [*rows]})
    described = [[name, STORABLE_DTYPES[tensor.dtype], list(tensor.shape)] for name, tensor in tensors.items()]
    head = json.dumps({"tree": encoded, "tensors": described, "segments": segments}).encode()
    return b"".join([_LENGTH.pack(len(head)), head, *map(_bytes_of, tensors.values())])


def unpacked(data: bytes | bytearray | memoryview) -> Any:
    """Return the tree that was packed."""
    return unpacked_with_segments(data)[0]


def unpacked_with_segments(data: bytes | bytearray | memoryview) -> tuple[Any, list[Segment]]:
    """Return the tree that was packed, and the segments in it, in order."""
    (length,) = _LENGTH.unpack_from(data)
    begin = _LENGTH.size + length
    head = json.loads(bytes(memoryview(data)[_LENGTH.size : begin]))
    tensors: dict[str, Tensor] = {}
    for name, dtype, shape in head["tensors"]:
        size = math.prod(shape) * _DTYPES[dtype].itemsize
        tensors[name] = _tensor_of(memoryview(data)[begin : begin + size], _DTYPES[dtype], shape)
        begin += size
    segments: list[Segment] = []

    def refer(place: str, owner: str, first: int, count: int) -> Segment:
        told = head["segments"][int(place)]
        rows = {column: tensors[f"segment {place} {column}"] for column in told["columns"]}
        stored = told["stored"] and StoredSegment(**told["stored"])

        def load() -> dict[str, Tensor]:
            if not rows:
                raise RuntimeError(f"rows {first} to {first + count} of '{owner}' are in no file, and their owner kept none")
            return rows

        segments.append(Segment(owner, first, count, load, stored=stored))
        return segments[-1]

    return decode(head["tree"], lambda part, name: tensors[name], refer), segments


def segments_of(tree: Any) -> list[Segment]:
    """Return the segments of a tree, in the order in which it is packed."""
    encoder = TreeEncoder()
    encoder.encode(_PART, tree)
    return [segment for segment, _ in encoder.segments]


def mark_stored(segments: Sequence[Segment], stored: Sequence[dict[str, Any]]) -> None:
    """Let segments know in which files they are now."""
    for segment, where in zip(segments, stored, strict=True):
        if segment.stored is None or vars(segment.stored) != where:
            segment.mark_stored(StoredSegment(**where))


def _bytes_of(tensor: Tensor) -> memoryview:
    whole = tensor.detach().to("cpu").contiguous().resolve_neg()
    return whole.reshape(-1).view(torch.uint8).numpy().data


def _tensor_of(data: memoryview, dtype: torch.dtype, shape: Sequence[int]) -> Tensor:
    if not len(data):
        return torch.empty(tuple(shape), dtype=dtype)
    own = np.frombuffer(data, np.uint8).copy()  # which may be written to, and lies as its type asks
    return torch.from_numpy(own).view(dtype).reshape(tuple(shape))

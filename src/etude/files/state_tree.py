"""Nested state as JSON plus named tensors, and back, exactly.

Whatever JSON can't say is an object with one key that starts with ``$``:

    {"$tensor": ["policy", "actor.weight"]}     the part that holds it, its name there
    {"$tuple": [...]}   {"$bytes": "base64"}
    {"$int": "0x..."}   {"$float": "bits"}      beyond 64 bits; NaN and the infinities
    {"$dict": [[key, value], ...]}              a dict whose keys are not all plain text
    {"$segment": ["replay/..", "owner", 0, 8]}  a file that checkpoints share, whose rows, the first, how many
"""

from __future__ import annotations

import base64
import math
import struct
from collections import OrderedDict
from collections.abc import Callable

import numpy as np
import torch

from etude.files.segments import Segment

# Far above any real state, far below Python's recursion limit: what can be saved can be loaded.
MAX_DEPTH = 100

STORABLE_DTYPES = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.uint16: "U16",
    torch.int16: "I16",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.uint32: "U32",
    torch.int32: "I32",
    torch.float32: "F32",
    torch.uint64: "U64",
    torch.int64: "I64",
    torch.float64: "F64",
}


class TreeEncoder:
    """Encodes the parts of one checkpoint; a tensor that an earlier part holds already is only referred to."""

    def __init__(self) -> None:
        self.segments: list[tuple[Segment, list[object]]] = []
        """Each with its entry in the JSON, whose first item is still to become the path of the segment's file."""
        self._stored: dict[tuple[object, ...], list[str]] = {}

    def encode(self, part: str, state: object) -> tuple[object, dict[str, torch.Tensor]]:
        """Return `state` as a JSON value, and the tensors that `part` has to store for it."""
        tensors: dict[str, torch.Tensor] = {}
        return self._encode(state, "", 0, part, tensors), tensors

    def _encode(self, value: object, path: str, depth: int, part: str, tensors: dict[str, torch.Tensor]) -> object:
        if depth > MAX_DEPTH:
            raise TypeError(f"{path[:80]}...: nested deeper than {MAX_DEPTH} levels; does it contain itself?")

        def inner(item: object, key: object) -> object:
            return self._encode(item, f"{path}.{key}" if path else str(key), depth + 1, part, tensors)

        # Exact types: an enum or a NumPy float would come back as something else.
        if value is None or type(value) is bool or type(value) is str:
            return value
        if isinstance(value, torch.Tensor):
            return {"$tensor": self._place(value, path, part, tensors)}
        if isinstance(value, Segment):
            entry: list[object] = [None, value.owner, value.first, value.count]
            self.segments.append((value, entry))
            return {"$segment": entry}
        if type(value) is int:
            return value if -(2**63) <= value < 2**63 else {"$int": hex(value)}
        if type(value) is float:
            return value if math.isfinite(value) else {"$float": struct.pack(">d", value).hex()}
        if type(value) is bytes:
            return {"$bytes": base64.b64encode(value).decode("ascii")}
        if type(value) is list:
            return [inner(item, index) for index, item in enumerate(value)]
        if type(value) is tuple:
            return {"$tuple": [inner(item, index) for index, item in enumerate(value)]}
        if type(value) is dict or type(value) is OrderedDict:
            if all(type(key) is str and not key.startswith("$") for key in value):
                return {key: inner(item, key) for key, item in value.items()}
            for key in value:
                if not _is_plain_key(key):
                    raise TypeError(f"{path or 'state'}: a {type(key).__name__} can't be stored as a dict's key")
            return {"$dict": [[inner(key, "key"), inner(item, key)] for key, item in value.items()]}
        raise TypeError(f"{path or 'state'}: a {type(value).__name__} can't be stored{_way_out(value)}")

    def _place(self, tensor: torch.Tensor, path: str, part: str, tensors: dict[str, torch.Tensor]) -> list[str]:
        if tensor.dtype not in STORABLE_DTYPES or tensor.layout is not torch.strided or tensor.is_meta:
            raise TypeError(f"{path or 'state'}: a {tensor.dtype} tensor ({tensor.layout}, on {tensor.device}) can't be stored")
        identity = (
            tensor.device,
            tensor.untyped_storage().data_ptr(),
            tensor.storage_offset(),
            tuple(tensor.shape),
            tensor.stride(),
            tensor.dtype,
            tensor.is_neg(),
        )
        if identity not in self._stored:
            name = _unused_name(path, tensors)
            tensors[name] = tensor
            self._stored[identity] = [part, name]
        return self._stored[identity]


Fetch = Callable[[str, str], torch.Tensor]
Refer = Callable[[str, str, int, int], Segment]


def decode(value: object, fetch: Fetch, refer: Refer | None = None) -> object:
    """Rebuild a state. ValueError when the JSON is not ours.

    ``fetch(part, name)`` returns a stored tensor, ``refer(path, owner, first, count)`` a stored segment.
    """
    if isinstance(value, list):
        return [decode(item, fetch, refer) for item in value]
    if not isinstance(value, dict):
        return value
    tag = next(iter(value), "")
    if not tag.startswith("$"):
        return {key: decode(item, fetch, refer) for key, item in value.items()}
    match tag, value[tag]:
        case "$tensor", [str(part), str(name)]:
            return fetch(part, name)
        case "$segment", [str(path), str(owner), int(first), int(count)] if refer is not None:
            return refer(path, owner, first, count)
        case "$tuple", list(items):
            return tuple(decode(item, fetch, refer) for item in items)
        case "$dict", list(pairs):
            return dict(_decode_pair(pair, fetch, refer) for pair in pairs)
        case _, str(text):
            return _decode_scalar(tag, text)
        case _, other:
            raise ValueError(f"not a state: {tag} {str(other)[:80]}")


def _decode_pair(pair: object, fetch: Fetch, refer: Refer | None) -> tuple[object, object]:
    match pair:
        case [key, item]:
            decoded = decode(key, fetch)
            if _is_plain_key(decoded):
                return decoded, decode(item, fetch, refer)
    raise ValueError(f"not a state: $dict entry {str(pair)[:80]}")


def _decode_scalar(tag: str, text: str) -> object:
    try:
        match tag:
            case "$int":
                return int(text, 16)
            case "$float":
                return struct.unpack(">d", bytes.fromhex(text))[0]
            case "$bytes":
                return base64.b64decode(text, validate=True)
    except (ValueError, struct.error):
        pass
    raise ValueError(f"not a state: {tag[:20]} {text[:80]!r}")


def _is_plain_key(key: object) -> bool:
    if isinstance(key, tuple):
        return all(_is_plain_key(item) for item in key)
    return key is None or type(key) in (bool, int, float, str, bytes)


def _unused_name(path: str, tensors: dict[str, torch.Tensor]) -> str:
    # {"a.b": x} and {"a": {"b": y}} have the same path; safetensors keeps `__metadata__` for itself.
    plain = path.encode("utf-8", "backslashreplace").decode()
    name, count = plain, 1
    while name in tensors or name in ("", "__metadata__"):
        count += 1
        name = f"{plain}#{count}"
    return name


def _way_out(value: object) -> str:
    if isinstance(value, np.ndarray):
        return "; store torch.from_numpy(array)"
    if isinstance(value, np.generic):
        return "; store value.item()"
    return ""

"""Plain data as tensors and JSON values, and back: numbers, text, containers, arrays, tensors and NumPy's generators."""

from __future__ import annotations

import bisect
from typing import Any

import numpy as np
import torch
from numpy.lib import array_utils

_TENSOR_DTYPES = frozenset(["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool"])
_BIT_GENERATORS = {
    kind.__name__: kind for kind in (np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937, np.random.Philox, np.random.SFC64)
}


class NotPlainError(Exception):
    """An attribute holds something whose state can't be captured."""


class Seen:
    """What has been captured already: two names for one array would come back as two arrays."""

    def __init__(self) -> None:
        self._ids: set[int] = set()
        self._starts: list[int] = []  # of the memory seen so far; stretches never overlap
        self._ends: list[int] = []

    def is_new(self, value: Any) -> bool:
        """Return whether a thing is seen for the first time, where meeting it twice is no harm."""
        new = id(value) not in self._ids
        self._ids.add(id(value))
        return new

    def add(self, value: Any, path: str) -> None:
        """Note a thing and its memory; raises NotPlainError if either has been seen."""
        shared = id(value) in self._ids
        self._ids.add(id(value))
        low, high = _memory(value)
        if high > low:
            place = bisect.bisect_right(self._starts, low)
            before = place > 0 and self._ends[place - 1] > low
            after = place < len(self._starts) and self._starts[place] < high
            shared = shared or before or after
            self._starts.insert(place, low)
            self._ends.insert(place, high)
        if shared:
            raise NotPlainError(f"{path} shares its data with another attribute")


def _memory(value: Any) -> tuple[int, int]:
    if isinstance(value, np.ndarray):
        return array_utils.byte_bounds(value) if value.size else (0, 0)
    if isinstance(value, torch.Tensor):
        storage = value.untyped_storage()
        return storage.data_ptr(), storage.data_ptr() + storage.nbytes()
    return 0, 0


def encode(value: Any) -> Any:
    """Return plain data as tensors and JSON values; raises NotPlainError where it is not plain."""
    return encode_part(value, type(value).__name__, Seen())


def encode_part(value: Any, path: str, seen: Seen) -> Any:
    """Do the same for a part of something larger, which must not share its data with any part before it."""
    if value is None or type(value) in (bool, int, float, str, bytes):
        return value
    if isinstance(value, np.generic):
        return {"$scalar": encode_part(np.asarray(value), path, Seen())}
    if type(value) is tuple:
        return tuple(encode_part(item, path, seen) for item in value)
    seen.add(value, path)
    if type(value) is np.ndarray:
        return _encode_array(value, path)
    if type(value) is np.random.Generator:
        state = value.bit_generator.state
        if state["bit_generator"] not in _BIT_GENERATORS:
            raise NotPlainError(f"{path} draws from a {state['bit_generator']}")
        return {"$generator": encode_part(state, path, Seen())}
    if type(value) is np.random.RandomState:
        return {"$random_state": encode_part(value.get_state(legacy=False), path, Seen())}
    if type(value) is torch.Tensor and value.device.type == "cpu" and not value.requires_grad:
        return {"$torch": value.clone()}
    if type(value) is list:
        return [encode_part(item, path, seen) for item in value]
    if type(value) is dict:
        pairs = [[encode_part(key, path, seen), encode_part(item, f"{path}.{key}", seen)] for key, item in value.items()]
        return {"$dict": pairs}
    raise NotPlainError(f"{path} is a {type(value).__name__}")


def _encode_array(value: np.ndarray, path: str) -> Any:
    if value.dtype.hasobject or value.dtype.names:
        raise NotPlainError(f"{path} is an array of {'objects' if value.dtype.hasobject else 'records'}")
    if value.flags.f_contiguous and not value.flags.c_contiguous:
        # Sums run along memory: another layout may differ in the last bit.
        return {"$transposed": _encode_array(value.T, path)}
    if value.dtype.name in _TENSOR_DTYPES and value.dtype.isnative:
        return torch.from_numpy(value.copy())
    return {"$array": [value.dtype.str, list(value.shape), value.tobytes().hex()]}


def decode(value: Any) -> Any:
    """Return what `encode` was given."""
    if isinstance(value, torch.Tensor):
        return value.numpy().copy()
    if isinstance(value, tuple):
        return tuple(decode(item) for item in value)
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    tag, content = next(iter(value.items()))
    if tag == "$scalar":
        return decode(content)[()]
    if tag == "$torch":
        return content.clone()
    if tag == "$transposed":
        return decode(content).T
    if tag == "$array":
        dtype, shape, data = content
        return np.frombuffer(bytes.fromhex(data), dtype=dtype).reshape(shape).copy()
    if tag == "$generator":
        state = decode(content)
        bits = _BIT_GENERATORS[state["bit_generator"]]()
        bits.state = state
        return np.random.Generator(bits)
    if tag == "$random_state":
        old = np.random.RandomState()
        old.set_state(decode(content))
        return old
    return {decode(key): decode(item) for key, item in content}

"""A MuJoCo simulation as plain data: every array of its MjData that lies outside the arena.

MuJoCo's own integration state is not enough: tasks read positions, forces and sensors that the last step left behind. What
lies in the arena (contacts, constraints) is made anew from the other arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

# Of the numbers in MjData, those that say how current its arrays are; the others count what lies in its arena.
_NUMBERS = (
    *("time", "flg_energypos", "flg_energyvel", "flg_subtreevel", "flg_rnepost"),
    *("ntree_awake", "nbody_awake", "nparent_awake", "nv_awake"),
)


def fields_outside_arena(model: Any, data_type: type[Any]) -> list[str]:
    """Return the names of the arrays to keep: in a new MjData the arena is empty, and so is every array in it."""
    new = data_type(model)
    return [name for name in dir(new) if isinstance(value := getattr(new, name), np.ndarray) and value.size]


def capture(data: Any, fields: list[str]) -> dict[str, Any]:
    """Return the arrays `fields` of an MjData, one tensor for each type of number, and how current they are."""
    arrays = {name: getattr(data, name) for name in fields}
    values: dict[str, list[np.ndarray]] = {}
    for array in arrays.values():
        values.setdefault(array.dtype.name, []).append(array.ravel())
    return {
        "arrays": _listed(arrays),
        "values": {dtype: torch.from_numpy(np.concatenate(parts)) for dtype, parts in values.items()},
        "numbers": {name: getattr(data, name) for name in _NUMBERS},
    }


def check(data: Any, fields: list[str], saved: dict[str, Any]) -> None:
    """Raise ValueError where a saved state does not fit this MjData."""
    if saved["arrays"] != _listed({name: getattr(data, name) for name in fields}):
        raise ValueError("the saved MuJoCo state has other arrays than this one: it is of another model or version of MuJoCo")


def restore(data: Any, fields: list[str], saved: dict[str, Any]) -> None:
    """Write a captured state into the MjData that is there: renderers and named views refer to it."""
    check(data, fields, saved)
    arrays = {name: getattr(data, name) for name in fields}
    offsets = dict.fromkeys(saved["values"], 0)
    for array in arrays.values():
        dtype = array.dtype.name
        begin, offsets[dtype] = offsets[dtype], offsets[dtype] + array.size
        array[...] = saved["values"][dtype][begin : offsets[dtype]].numpy().reshape(array.shape)
    for name, number in saved["numbers"].items():
        setattr(data, name, number)


def _listed(arrays: dict[str, np.ndarray]) -> str:
    return " ".join(f"{name}:{array.size}" for name, array in arrays.items())

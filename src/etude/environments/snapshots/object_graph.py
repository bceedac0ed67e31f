"""An object that holds other objects, as plain data: who refers to whom is kept, cycles included, and nothing is pickled.

Only classes of one package are taken, besides plain data and NumPy arrays and generators. Coming back, their objects are
made empty and given their attributes: no constructor runs, and no name outside that package is ever looked up.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from etude.environments.snapshots import plain_data


def capture(root: Any, package: str, leave_out: Iterable[str] = ()) -> dict[str, Any]:
    """Return the attributes of `root` and all they lead to; raises NotPlainError where that is not of `package`."""
    return _Writer(root, package).write(frozenset(leave_out))


def restore(root: Any, package: str, saved: dict[str, Any], leave_out: Iterable[str] = ()) -> None:
    """Give `root` the attributes that `capture` found, and no others."""
    attributes = _Reader(root, package, saved).attributes(saved["root"])
    for name in vars(root).keys() - attributes.keys() - frozenset(leave_out):
        delattr(root, name)
    for name, value in attributes.items():
        setattr(root, name, value)


class _Writer:
    """Numbers objects as it meets them and writes each once, one after the other: a long chain needs no deep stack."""

    def __init__(self, root: Any, package: str) -> None:
        self._root, self._package = root, package
        self._numbers: dict[int, int] = {}
        self._met: list[tuple[Any, str]] = []  # also keeps them alive: an id is only theirs as long as they are
        self._memory = plain_data.Seen()
        self._classes: dict[tuple[str, ...], int] = {}

    def write(self, leave_out: frozenset[str]) -> dict[str, Any]:
        attributes = {name: self._refer(value, name) for name, value in vars(self._root).items() if name not in leave_out}
        nodes = []
        while len(nodes) < len(self._met):
            nodes.append(self._describe(*self._met[len(nodes)]))
        return {"classes": [list(key) for key in self._classes], "nodes": nodes, "root": attributes}

    def _refer(self, value: Any, path: str) -> Any:
        """Return a value that can't change as it is, any other as a number."""
        if value is None or type(value) in (bool, int, float, str):
            return value
        if value is self._root:
            return {"root": True}
        if isinstance(value, np.generic):
            return {"scalar": [value.dtype.str, value.item()]}
        if type(value) is tuple:
            return {"tuple": [self._refer(item, path) for item in value]}
        if isinstance(value, type):
            return {"class": self._name(value, path)}
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self._met)
            self._met.append((value, path))
        return {"node": self._numbers[id(value)]}

    def _describe(self, value: Any, path: str) -> list[Any]:
        if type(value) is list:
            return ["list", [self._refer(item, path) for item in value]]
        if type(value) is dict:
            return ["dict", [[self._refer(key, path), self._refer(item, path)] for key, item in value.items()]]
        if type(value) in (np.ndarray, np.random.Generator):
            return ["data", plain_data.encode_part(value, path, self._memory)]
        name = self._name(type(value), path)
        if not hasattr(value, "__dict__"):
            raise plain_data.NotPlainError(f"{path} is a {type(value).__name__}")
        attributes = vars(value)
        index = self._classes.setdefault((name, *attributes), len(self._classes))
        return ["object", index, [self._refer(item, f"{path}.{key}") for key, item in attributes.items()]]

    def _name(self, kind: type[Any], path: str) -> str:
        if not _belongs(kind.__module__, self._package) or "<" in kind.__qualname__:
            raise plain_data.NotPlainError(f"{path} is a {kind.__name__}")
        return f"{kind.__module__}:{kind.__qualname__}"


class _Reader:
    """Makes every object first and gives them their contents then: they may refer to each other in any order."""

    def __init__(self, root: Any, package: str, saved: dict[str, Any]) -> None:
        self._root, self._package = root, package
        self._classes = [(self._find(name), attributes) for name, *attributes in saved["classes"]]
        self._made = [self._make(node) for node in saved["nodes"]]
        for node, made in zip(saved["nodes"], self._made, strict=True):
            self._fill(node, made)

    def attributes(self, saved: dict[str, Any]) -> dict[str, Any]:
        """Return the attributes of the root."""
        return {name: self._value(value) for name, value in saved.items()}

    def _make(self, node: list[Any]) -> Any:
        kind = node[0]
        if kind == "object":
            made = self._classes[node[1]][0]
            return made.__new__(made)
        return plain_data.decode(node[1]) if kind == "data" else [] if kind == "list" else {}

    def _fill(self, node: list[Any], made: Any) -> None:
        if node[0] == "list":
            made.extend(self._value(item) for item in node[1])
        elif node[0] == "dict":
            made.update((self._value(key), self._value(item)) for key, item in node[1])
        elif node[0] == "object":
            names = self._classes[node[1]][1]
            vars(made).update({name: self._value(item) for name, item in zip(names, node[2], strict=True)})

    def _value(self, saved: Any) -> Any:
        if not isinstance(saved, dict):
            return saved
        tag, content = next(iter(saved.items()))
        if tag == "node":
            return self._made[content]
        if tag == "tuple":
            return tuple(self._value(item) for item in content)
        if tag == "scalar":
            return np.dtype(content[0]).type(content[1])
        return self._root if tag == "root" else self._find(content)

    def _find(self, name: str) -> type[Any]:
        module, _, path = name.partition(":")
        if not _belongs(module, self._package):
            raise ValueError(f"the saved state names {name}, which is not of {self._package}")
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part, None)
        if not isinstance(found, type) or not _belongs(found.__module__, self._package):
            raise ValueError(f"the saved state names {name}, which is no class here: it is of another version")
        return found


def _belongs(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")

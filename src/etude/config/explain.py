"""What every setting means, read from the schema itself."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from etude.config.compose import Composition
from etude.config.schedules import Schedule
from etude.config.schema import Config
from etude.config.validate import Part, field_types, to_plain


@cache
def option_docs(cls: type) -> dict[str, str]:
    """Return the documentation of each field of a dataclass: the string literal under it, on one line."""
    docs: dict[str, str] = {}
    for parent in reversed(cls.__mro__):
        if not dataclasses.is_dataclass(parent):
            continue
        try:
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(parent))).body
        except (OSError, TypeError):
            continue  # made at run time: there is no source to read
        assert isinstance(tree, ast.ClassDef)
        for item, below in zip(tree.body, tree.body[1:], strict=False):
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) and _literal(below):
                docs[item.target.id] = " ".join(_literal(below).split())
    return docs


@dataclasses.dataclass(frozen=True)
class Setting:
    """One setting of a config, explained."""

    key: str
    value: Any
    origin: str
    """The layer that it came from: the defaults, a preset, a file, the command line."""
    meaning: str


def explained(composition: Composition) -> list[Setting]:
    """Return every setting of a config with where it came from and what it does."""
    found = []
    for name, kind in field_types(Config).items():
        for key, value, meaning in _settings(name, kind, getattr(composition.config, name)):
            found.append(Setting(key, to_plain(value), composition.origin(key), meaning))
    return found


def explain_config(composition: Composition) -> str:
    """Return every setting of a config with its value, where it came from and what it does, section by section."""
    sections: dict[str, list[str]] = {}
    for setting in explained(composition):
        section = setting.key.partition(".")[0]
        lines = sections.setdefault(section, [f"# {section}: {option_docs(Config)[section]}"])
        lines.append(f"{setting.key} = {show(setting.value)}  ({setting.origin})")
        lines += [f"    {setting.meaning}"] if setting.meaning else []
    return "\n\n".join("\n".join(lines) for lines in sections.values())


def show(value: Any) -> str:
    """Return a value as YAML would have it, on one line."""
    plain = to_plain(value)
    if plain is None:
        return "null"
    if isinstance(plain, bool):
        return str(plain).lower()
    if isinstance(plain, Mapping):
        return "{" + ", ".join(f"{key}: {show(item)}" for key, item in plain.items()) + "}"
    if isinstance(plain, list):
        return "[" + ", ".join(show(item) for item in plain) + "]"
    return str(plain) if plain != "" else "''"


def _literal(node: ast.stmt) -> str:
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    return node.value.value if is_text else ""  # type: ignore[attr-defined] # checked on the line above


def _settings(path: str, kind: Any, value: Any) -> Iterator[tuple[str, Any, str]]:
    """Every single setting below a key: (dotted key, value, documentation)."""
    if isinstance(value, Part):
        yield f"{path}.{value.key}", value.type, ""
        for option, item in value.options.items():
            yield f"{path}.{option}", item, ""
    elif dataclasses.is_dataclass(value) and not isinstance(value, Schedule):
        docs = option_docs(type(value))
        for name, inner in field_types(type(value)).items():
            item = getattr(value, name)
            if isinstance(item, Part):
                yield f"{path}.{name}", item.type, docs.get(name, "")
                yield from ((f"{path}.{name}.{option}", given, "") for option, given in item.options.items())
            elif dataclasses.is_dataclass(item) and not isinstance(item, Schedule):
                yield from _settings(f"{path}.{name}", inner, item)
            else:
                yield f"{path}.{name}", item, docs.get(name, "")
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from _settings(f"{path}.{name}", Any, item)

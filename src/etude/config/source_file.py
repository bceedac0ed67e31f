"""Reads one config file. Every fault names the file and, where it is known, the line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from etude.errors import ConfigError, UserError, did_you_mean
from etude.files import documents
from etude.files.documents import DocumentError, LimitError, check_yaml, parse_json
from etude.files.regular import read_own_bytes

SUFFIXES = (".yaml", ".yml", ".json")


@dataclass(frozen=True)
class SourceFile:
    """A file that was read, and the line of every key in it."""

    path: Path
    data: dict[str, Any]
    lines: dict[str, int] = field(repr=False)
    package: str = ""
    """Where Hydra put its keys: `network.actor` for `/network@network.actor: name`."""

    def line_of(self, key: str, prefixes: Sequence[str] = ("",)) -> int | None:
        """Return the line of a dotted key, below the first of `prefixes` that has it."""
        if self.package:
            key = key.removeprefix(f"{self.package}.") if key.startswith(f"{self.package}.") else "?"
        return next((self.lines[prefix + key] for prefix in prefixes if prefix + key in self.lines), None)


def read_file(path: Path, package: str = "") -> SourceFile:
    """Read one YAML or JSON file that must be a mapping of sections."""
    if path.is_dir():
        raise UserError(f"{path}: is a folder; name a file in it")
    if path.suffix.lower() not in SUFFIXES:
        raise UserError(f"{path}: a config file ends in {', '.join(SUFFIXES)}")
    text = _read_text(path)
    if path.suffix.lower() == ".json":
        if not text.strip():
            raise ConfigError(f"{path}: is empty")
        try:
            data = parse_json(text)
        except DocumentError as error:
            raise ConfigError(error.of(path)) from None
        _check_mapping(data, f"{path}:1")
        return SourceFile(path, {str(key): value for key, value in data.items()}, _json_lines(text, path), package)
    lines = _lines(_compose_nodes(text, path), path)
    return SourceFile(path, parse_yaml(text, path), lines, package)


def check_file(path: Path) -> Any:
    """Raise ConfigError if a YAML file that others are going to read goes past a limit; returns its defaults list, if any."""
    try:
        data = documents.parse_yaml(_read_text(path))
    except LimitError as error:
        raise ConfigError(error.of(path)) from None
    except DocumentError:
        return None  # those others say it better
    return data.get("defaults") if isinstance(data, Mapping) else None


def parse_yaml(text: str, where: Path | str) -> dict[str, Any]:
    """Read YAML as Hydra does: `1e-3` is a number, a date is text, `${...}` stays."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        plain = OmegaConf.to_container(OmegaConf.create(text), resolve=False)
    except (OmegaConfBaseException, yaml.YAMLError) as error:
        raise ConfigError(one_line(error, where)) from None
    except (ValueError, TypeError, AttributeError) as error:  # a value that is not what its tag says: `!!int x`
        raise ConfigError(f"{where}: a value can't be read: {str(error)[:200]}") from None
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def _read_text(path: Path) -> str:
    try:
        return read_own_bytes(path).decode("utf-8-sig")
    except FileNotFoundError:
        siblings = [item.name for item in path.parent.iterdir()] if path.parent.is_dir() else []
        raise UserError(f"{path}: there is no such file{did_you_mean(path.name, siblings)}") from None
    except PermissionError:
        raise UserError(f"{path}: you have no permission to read it") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: is not a text file in UTF-8") from None
    except OSError as error:
        raise UserError(f"{path}: can't be read: {error.strerror}") from None


def _compose_nodes(text: str, path: Path) -> yaml.MappingNode:
    problem = None
    try:
        check_yaml(text)
    except LimitError as error:
        raise ConfigError(error.of(path)) from None
    except DocumentError as error:
        problem = error
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.reader.ReaderError:
        raise UserError(f"{path}: is not a text file") from None
    except yaml.YAMLError as error:  # which says it better than the parser above
        raise ConfigError(one_line(error, path)) from None
    if problem is not None:
        raise ConfigError(problem.of(path))
    if root is None:
        raise ConfigError(f"{path}: is empty")
    if not isinstance(root, yaml.MappingNode):
        _check_mapping([] if isinstance(root, yaml.SequenceNode) else "", f"{path}:{root.start_mark.line + 1}")
    assert isinstance(root, yaml.MappingNode)
    return root


def _check_mapping(data: Any, where: str) -> None:
    if not isinstance(data, Mapping):
        kind = "a list" if isinstance(data, list) else "a single value"
        raise ConfigError(f"{where}: must be a mapping of sections, not {kind}")


def _lines(root: yaml.Node, path: Path) -> dict[str, int]:
    """Return the line of every key: `training.phases[0].name` → 12. What `<<` merges in comes last."""
    lines: dict[str, int] = {}

    def walk(node: yaml.Node, key: str, parents: tuple[yaml.Node, ...]) -> None:
        if any(node is parent for parent in parents):
            raise ConfigError(f"{path}:{lines[key]}: {key}: refers to itself")
        inside = (*parents, node)
        if isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                lines.setdefault(f"{key}[{index}]", item.start_mark.line + 1)
                walk(item, f"{key}[{index}]", inside)
        elif isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for name, item in sorted(node.value, key=lambda pair: pair[0].value == "<<"):
                if name.value == "<<":
                    for merged in item.value if isinstance(item, yaml.SequenceNode) else [item]:
                        walk(merged, key, inside)
                    continue
                child = f"{key}.{name.value}" if key else str(name.value)
                if name.value in seen:
                    raise ConfigError(f"{path}:{name.start_mark.line + 1}: {child}: is here twice")
                seen.add(name.value)
                lines.setdefault(child, name.start_mark.line + 1)
                walk(item, child, inside)

    walk(root, "", ())
    return lines


def _json_lines(text: str, path: Path) -> dict[str, int]:
    try:
        check_yaml(text := text.replace("\t", " "))
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except (DocumentError, yaml.YAMLError):
        return {}  # not every JSON file is YAML; then problems are shown without a line
    return _lines(root, path) if root is not None else {}


def one_line(error: BaseException, where: Path | str) -> str:
    """Say on one line what PyYAML, OmegaConf or Hydra says on many."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem:
        mark = error.problem_mark or error.context_mark
        place = mark.name if mark is not None and Path(mark.name).is_file() else where
        return f"{place}:{mark.line + 1}: {error.problem}" if mark is not None else f"{place}: {error.problem}"
    text = str(error).strip() or str(error.__cause__ or type(error).__name__)
    key = getattr(error, "full_key", None) or getattr(error.__cause__, "full_key", None)
    text = re.sub(r"^In '[^']*': ", "", text)
    lines = [line.strip() for line in text.partition("Config search path")[0].splitlines() if line.strip()]
    head = [line for line in lines if not line.startswith(("full_key:", "object_type="))]
    options = head.index(found[0]) if (found := [line for line in head if line.startswith("Available options")]) else None
    if options is not None:
        head = [*head[:options], f"(there are: {', '.join(head[options + 1 :])})"]
    return f"{where}: " + (f"{key}: " if key else "") + " ".join(head)

"""Reads config files. Every fault names its file and, where it is known, the line.

A file without a `defaults` list is read as it is. Defaults lists and presets chosen by `group=name` are composed by Hydra,
which looks for `group/name.yaml` beside the file, then in `./configs`, then among Etude's own presets.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from etude.config.interpolation import register_resolvers
from etude.config.overrides import GROUPS, Choice
from etude.errors import ConfigError, UserError, did_you_mean

PRESETS = "etude.presets"
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
    if path.suffix.lower() not in SUFFIXES and not path.is_dir():
        raise UserError(f"{path}: a config file ends in {', '.join(SUFFIXES)}")
    text = _read_text(path)
    if path.suffix.lower() == ".json":
        try:
            data = json.loads(text)
        except json.JSONDecodeError as error:
            raise ConfigError(f"{path}: is empty" if not text.strip() else f"{path}:{error.lineno}: {error.msg}") from None
        _check_mapping(data, f"{path}:1")
        return SourceFile(path, {str(key): value for key, value in data.items()}, _json_lines(text, path), package)
    lines = _lines(_compose_nodes(text, path), path)
    return SourceFile(path, parse_yaml(text, path), lines, package)


def parse_yaml(text: str, where: Path | str) -> dict[str, Any]:
    """Read YAML as Hydra does: `1e-3` is a number, a date is text, `${...}` stays."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        plain = OmegaConf.to_container(OmegaConf.create(text), resolve=False)
    except (OmegaConfBaseException, yaml.YAMLError) as error:
        raise ConfigError(_one_line(error, where)) from None
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def read(file: SourceFile | None, choices: Sequence[Choice]) -> tuple[dict[str, Any], list[SourceFile]]:
    """Return a file composed with its defaults list and the chosen presets, and every file of the user's that took part."""
    own = [] if file is None else [file]
    if file is not None and "defaults" in file.data:
        if file.path.suffix != ".yaml":
            raise UserError(f"{file.path}: only files that end in .yaml can have a defaults list")
        _check_defaults(file)
        data, more = _compose(file, choices)
        return data, [*own, *more]
    data = {} if file is None else dict(file.data)
    if choices:
        from etude.config.layers import overlay

        chosen, more = _compose(None, choices, beside=file)
        return overlay(data, chosen), [*own, *more]
    return data, own


def preset_names(group: str, file: Path | None = None) -> list[str]:
    """Return the presets of a group that can be chosen, the user's own and Etude's."""
    places = [folder / group for folder in _folders(file)] + [resources.files(PRESETS).joinpath(group)]
    return sorted({item.name[:-5] for place in places if place.is_dir() for item in place.iterdir() if item.name.endswith(".yaml")})


def own_preset(group: str, name: str, file: Path | None = None) -> Path | None:
    """Return the user's own file for a preset, if there is one."""
    return next((path for folder in _folders(file) if (path := folder / group / f"{name}.yaml").is_file()), None)


def _folders(file: Path | None) -> list[Path]:
    """Where a user's own groups may lie."""
    folders = []
    if file is not None:
        parent = file.resolve().parent
        folders.append(parent)
        if parent.name in GROUPS:
            folders.append(parent.parent)  # configs/experiment/mine.yaml: the groups are in configs/
    configs = Path("configs").resolve()
    if configs.is_dir() and configs not in folders:
        folders.append(configs)
    return folders


def _compose(
    file: SourceFile | None, choices: Sequence[Choice], beside: SourceFile | None = None
) -> tuple[dict[str, Any], list[SourceFile]]:
    import hydra
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    register_resolvers()
    where = file.path if file is not None else choices[0].word
    anchor = file or beside
    folders = _folders(anchor.path if anchor is not None else None)
    search = [*(f"file://{folder}" for folder in folders[1:]), f"pkg://{PRESETS}"]
    quoted = ",".join("'" + place.replace("\\", "\\\\").replace("'", "\\'") + "'" for place in search)
    words = [*(f"+{choice.word.lstrip('+')}" for choice in choices), f"hydra.searchpath=[{quoted}]"]
    # 1.3 warns when it is not told a version, 1.4 when it is.
    version: dict[str, Any] = {"version_base": None} if hydra.__version__.startswith("1.3.") else {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            start = (
                hydra.initialize_config_dir(str(folders[0]), **version)
                if folders
                else hydra.initialize_config_module(PRESETS, **version)
            )
            with start:
                name = file.path.name if file is not None else None
                composed = hydra.compose(config_name=name, overrides=words, return_hydra_config=True)
        files = _chosen_files(OmegaConf.to_container(composed.hydra.runtime.choices), anchor)
        OmegaConf.set_struct(composed, False)
        composed.pop("hydra")
        plain = OmegaConf.to_container(composed, resolve=False)
    except RecursionError:
        raise ConfigError(f"{where}: its defaults list leads back to itself") from None
    except (HydraException, OmegaConfBaseException, yaml.YAMLError, ValueError) as error:
        raise ConfigError(_one_line(error, where)) from None
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}, files


def _chosen_files(choices: Any, anchor: SourceFile | None) -> list[SourceFile]:
    """The user's own files behind `{group@package: name}`, so that a problem in one can be shown where it is."""
    found = []
    for chosen, name in choices.items():
        group, _, package = str(chosen).partition("@")
        path = own_preset(group, str(name), anchor.path if anchor is not None else None)
        if path is None:
            continue
        header = path.read_text(encoding="utf-8").lstrip().partition("\n")[0]
        if header.startswith("# @package"):
            package = header.removeprefix("# @package").strip().replace("_global_", "").strip(".")
        elif not package:
            package = group.replace("/", ".")
        shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
        found.append(read_file(shown, package.replace("_global_", "").strip(".")))
    return found


def _check_defaults(file: SourceFile) -> None:
    entries, line = file.data["defaults"], file.lines.get("defaults", 1)
    if not isinstance(entries, list):
        raise ConfigError(f"{file.path}:{line}: defaults: must be a list, such as [/network@network.actor: mlp_256, _self_]")
    if "_self_" not in entries and set(file.data) - {"defaults"}:
        raise ConfigError(
            f"{file.path}:{line}: defaults: needs _self_ to say where this file's own values go; put it last, and they win"
        )


def check_choice(choice: Choice, file: Path | None) -> None:
    """Raise if a word chooses a preset that isn't there."""
    known = preset_names(choice.group, file)
    if choice.name not in known:
        there = f" (there are: {', '.join(known)})" if known else f"; there are none in {choice.group}/"
        raise UserError(f"{choice.word}: no such preset{did_you_mean(choice.name, known)}{there}")


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        siblings = [item.name for item in path.parent.iterdir()] if path.parent.is_dir() else []
        raise UserError(f"{path}: there is no such file{did_you_mean(path.name, siblings)}") from None
    except IsADirectoryError:
        raise UserError(f"{path}: is a folder; name a file in it") from None
    except PermissionError:
        raise UserError(f"{path}: you have no permission to read it") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: is not a text file in UTF-8") from None
    except OSError as error:
        raise UserError(f"{path}: can't be read: {error.strerror}") from None


def _compose_nodes(text: str, path: Path) -> yaml.MappingNode:
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.reader.ReaderError:
        raise UserError(f"{path}: is not a text file") from None
    except yaml.YAMLError as error:
        raise ConfigError(_one_line(error, path)) from None
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
            raise ConfigError(f"{path}:{node.start_mark.line + 1}: {key}: refers to itself")
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
        root = yaml.compose(text.replace("\t", " "), Loader=yaml.SafeLoader)
    except yaml.YAMLError:
        return {}  # not every JSON file is YAML; then problems are shown without a line
    return _lines(root, path) if root is not None else {}


def _one_line(error: BaseException, where: Path | str) -> str:
    """Say on one line what PyYAML, OmegaConf or Hydra says on many."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem:
        mark = error.problem_mark or error.context_mark
        place = mark.name if mark is not None and Path(mark.name).is_file() else where
        return f"{place}:{mark.line + 1}: {error.problem}" if mark is not None else f"{place}: {error.problem}"
    text = str(error).strip() or str(error.__cause__ or type(error).__name__)
    key = getattr(error, "full_key", None) or getattr(error.__cause__, "full_key", None)
    lines = [line.strip() for line in text.partition("Config search path")[0].splitlines() if line.strip()]
    head = [line for line in lines if not line.startswith(("full_key:", "object_type="))]
    options = head.index(found[0]) if (found := [line for line in head if line.startswith("Available options")]) else None
    if options is not None:
        head = [*head[:options], f"(there are: {', '.join(head[options + 1 :])})"]
    return f"{where}: " + (f"{key}: " if key else "") + " ".join(head)

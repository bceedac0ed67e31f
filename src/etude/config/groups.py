"""Presets in groups, `group/name.yaml`, chosen by words and by defaults lists.

They are looked for beside the user's file, then in `./configs`, then among Etude's own. A file without a defaults list is
taken as it is; everything else is composed by Hydra.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from etude.config.interpolation import register_resolvers
from etude.config.layers import overlay
from etude.config.overrides import GROUPS, Choice
from etude.config.source_file import SourceFile, check_file, one_line, read_file
from etude.errors import ConfigError, UserError, did_you_mean

PRESETS = "etude.presets"
EXTENDS = "extends"
"""The key of a file that begins as another one."""


@dataclass(frozen=True)
class Reading:
    """What a file and the chosen presets come to."""

    data: dict[str, Any]
    sources: list[SourceFile]
    """The user's own files that took part."""
    environments: list[str] = field(default_factory=list)
    """Etude's own environment presets that a defaults list names."""


def read(file: SourceFile | None, choices: Sequence[Choice]) -> Reading:
    """Compose a file with its defaults list, what it extends and the chosen presets."""
    if file is not None and "defaults" in file.data:
        if file.path.suffix != ".yaml":
            raise UserError(f"{file.path}: only files that end in .yaml can have a defaults list")
        _check_defaults(file)
        return _extended(_compose(file, choices), file.path)
    plain = Reading({}, []) if file is None else _extended(Reading(dict(file.data), [file]), file.path)
    if not choices:
        return plain
    experiment = next((choice.name for choice in choices if choice.group == "experiment"), None)
    origin = None if experiment is None else own_preset("experiment", experiment, None if file is None else file.path)
    chosen = _extended(_compose(None, choices, beside=file), origin)
    return _over(plain, chosen)


def _over(below: Reading, above: Reading) -> Reading:
    """Lay one reading over another; a problem is looked for in the files of the upper one first."""
    environments = [*below.environments, *above.environments]
    return Reading(overlay(below.data, above.data), [*above.sources, *below.sources], environments)


def _extended(reading: Reading, origin: Path | None, chain: tuple[str, ...] = ()) -> Reading:
    """Lay a reading over what its `extends` names: a file, looked for beside `origin`, or else an experiment."""
    rest = {key: value for key, value in reading.data.items() if key != EXTENDS}
    if len(rest) == len(reading.data):
        return reading
    name = reading.data[EXTENDS]
    if not isinstance(name, str) or not name:
        raise ConfigError(f"{EXTENDS}={name}: must be one file, such as base.yaml, or the name of an experiment")
    folder = Path() if origin is None else origin.parent
    path = next((path for path in (folder / name, folder / f"{name}.yaml") if path.is_file()), None)
    known = str(path.resolve()) if path is not None else f"experiment {name}"
    chain = chain or (str(origin and origin.resolve()),)
    if known in chain:
        raise ConfigError(f"{EXTENDS}: {name}: leads back to itself")
    if path is not None:
        source = read_file(path)
        below = _compose(source, ()) if "defaults" in source.data else Reading(dict(source.data), [source])
    elif name in (experiments := preset_names("experiment", origin)):
        path = own_preset("experiment", name, origin)
        below = _compose(None, [Choice(f"+experiment={name}", "experiment", name)], beside=None)
    else:
        near = did_you_mean(name, [*experiments, *(item.name for item in folder.iterdir())])
        raise ConfigError(f"{EXTENDS}: {name}: there is no such file beside it, and no experiment of this name{near}")
    return _over(_extended(below, path, (*chain, known)), replace(reading, data=rest))


def preset_names(group: str, file: Path | None = None) -> list[str]:
    """Return the presets of a group that can be chosen, the user's own and Etude's."""
    places = [folder / group for folder in _folders(file)] + [resources.files(PRESETS).joinpath(group)]
    names = {item.name for place in places if place.is_dir() for item in place.iterdir()}
    return sorted(name.removesuffix(".yaml") for name in names if name.endswith(".yaml"))


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


def _compose(file: SourceFile | None, choices: Sequence[Choice], beside: SourceFile | None = None) -> Reading:
    import hydra
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    anchor = file or beside
    _check_own_files(file, choices, anchor)
    register_resolvers()
    where = file.path if file is not None else choices[0].word
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
        chosen = {str(group): str(name) for group, name in composed.hydra.runtime.choices.items()}
        OmegaConf.set_struct(composed, False)
        composed.pop("hydra")
        plain = OmegaConf.to_container(composed, resolve=False)
    except RecursionError:
        raise ConfigError(f"{where}: its defaults list leads back to itself") from None
    except (HydraException, OmegaConfBaseException, yaml.YAMLError, ValueError) as error:
        raise ConfigError(one_line(error, where)) from None
    assert isinstance(plain, dict)
    sources = [*([] if file is None else [file]), *_chosen_files(chosen, anchor)]
    environments = [name for group, name in chosen.items() if group.partition("@")[0] == "environment"]
    return Reading({str(key): value for key, value in plain.items()}, sources, environments)


def _chosen_files(choices: Mapping[str, str], anchor: SourceFile | None) -> list[SourceFile]:
    """The user's own files behind `{group@package: name}`, so that a problem in one can be shown where it is."""
    found = []
    for chosen, name in choices.items():
        group, _, package = chosen.partition("@")
        path = own_preset(group, name, anchor.path if anchor is not None else None)
        if path is None:
            continue
        header = path.read_text(encoding="utf-8").lstrip().partition("\n")[0]
        if header.startswith("# @package"):
            package = header.removeprefix("# @package").strip().replace("_global_", "").strip(".")
        elif not package:
            package = group.replace("/", ".")
        found.append(read_file(_shown(path), package.replace("_global_", "").strip(".")))
    return found


def _shown(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _check_own_files(file: SourceFile | None, choices: Sequence[Choice], anchor: SourceFile | None) -> None:
    """Hold the user's own files that Hydra is going to read to the limits of any other: it has none."""
    waiting = [(choice.group, choice.name) for choice in choices]
    waiting += [] if file is None else _named_in(file.data.get("defaults"))
    seen: set[Path] = set()
    while waiting:
        path = own_preset(*waiting.pop(), anchor.path if anchor is not None else None)
        if path is not None and path not in seen:
            seen.add(path)
            waiting += _named_in(check_file(path))


def _named_in(entries: Any) -> list[tuple[str, str]]:
    """The groups and names of a defaults list: `- /network@network.actor: wide`, `- network/wide`."""
    named = []
    for entry in entries if isinstance(entries, list) else []:
        pairs = entry.items() if isinstance(entry, Mapping) else [str(entry).rpartition("/")[::2]]
        for key, names in pairs:
            group = str(key).removeprefix("optional ").removeprefix("override ").lstrip("/").partition("@")[0]
            named += [(group, str(name)) for name in (names if isinstance(names, list) else [names])]
    return named


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
    if choice.group == "experiment":
        check_own_name(choice.name, file)
    if choice.name not in known:
        there = f" (there are: {', '.join(known)})" if known else f"; there are none in {choice.group}/"
        raise UserError(f"{choice.word}: no such preset{did_you_mean(choice.name, known)}{there}")


def check_own_name(experiment: str, file: Path | None = None) -> None:
    """Raise if an experiment of the user's has the name of one of Etude's: neither may stand for the other unnoticed."""
    own = own_preset("experiment", experiment, file)
    if own is not None and resources.files(PRESETS).joinpath("experiment", f"{experiment}.yaml").is_file():
        raise UserError(f"{_shown(own)}: Etude has an experiment '{experiment}' already; give yours another name")

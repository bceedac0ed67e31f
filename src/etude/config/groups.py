"""Presets in groups, `group/name.yaml`, chosen by words and by defaults lists.

They are looked for beside the user's file, then in `./configs`, then among Etude's own. A file without a defaults list is
taken as it is; everything else is composed by Hydra.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from etude.config.interpolation import register_resolvers
from etude.config.layers import overlay
from etude.config.overrides import GROUPS, Choice
from etude.config.source_file import SourceFile, one_line, read_file
from etude.errors import ConfigError, UserError, did_you_mean

PRESETS = "etude.presets"


@dataclass(frozen=True)
class Reading:
    """What a file and the chosen presets come to."""

    data: dict[str, Any]
    sources: list[SourceFile]
    """The user's own files that took part."""
    environments: list[str] = field(default_factory=list)
    """Etude's own environment presets that a defaults list names."""


def read(file: SourceFile | None, choices: Sequence[Choice]) -> Reading:
    """Compose a file with its defaults list and the chosen presets."""
    if file is not None and "defaults" in file.data:
        if file.path.suffix != ".yaml":
            raise UserError(f"{file.path}: only files that end in .yaml can have a defaults list")
        _check_defaults(file)
        return _compose(file, choices)
    plain = Reading({}, []) if file is None else Reading(dict(file.data), [file])
    if not choices:
        return plain
    chosen = _compose(None, choices, beside=file)
    return Reading(overlay(plain.data, chosen.data), [*plain.sources, *chosen.sources], chosen.environments)


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

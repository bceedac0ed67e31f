"""From `ENV:ALGO`, a file and `key=value` words to one complete, checked config.

Layers, each over the one before:

    dataclass defaults → environment preset → its variant → --config file → +experiment presets → key=value words

The first pass over the layers finds the names (environment, algorithm, component types); the second lays them over the
defaults of exactly those parts and validates the result. Hydra reads the files (defaults lists, groups, packages) and the
grammar of the words; validation is ours, so an unknown key can't slip in through any of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

from etude.config import aliases, migrate, overrides
from etude.config.registry import algorithms
from etude.config.schema import Config
from etude.config.validate import Validator, field_types, options_schema, to_plain
from etude.errors import ConfigError, UserError, did_you_mean

SECTIONS = (*field_types(Config), "description", "defaults", "_base")


@dataclass(frozen=True)
class Composition:
    """A checked config and what was noticed while reading it."""

    config: Config
    asked: dict[str, Any]
    """What the user asked for: every layer above the defaults."""
    notes: tuple[str, ...] = ()
    """Spellings that were translated, one line each."""


def compose(
    spec: str | None = None,
    *,
    file: Path | None = None,
    words: Sequence[str] = (),
    base: Mapping[str, Any] | None = None,
    allow_imports: bool = True,
) -> Composition:
    """Compose a run's config; `base` is the complete config of an earlier run, to start from instead of presets."""
    environment, variant = split_spec(spec) if spec else (None, None)
    asked = overrides.parse(words)
    notes: list[str] = []
    layers: list[dict[str, Any]] = []

    def add(layer: Mapping[str, Any]) -> None:
        normalized, renamed = aliases.normalize(migrate.migrate(layer))
        layers.append(normalized)
        notes.extend(renamed)

    if base is not None:
        add(base)
    if file is not None or asked.groups:
        add(_select_variant(_read_with_hydra(file, asked.groups), variant, where=str(file or asked.groups[0])))
    add(asked.values)
    named = _overlay_all(layers)
    environment = environment or _text(named, "environment", "id")
    if not environment:
        raise UserError("which environment? name it: etude train CartPole-v1:ppo, or set environment.id in the file")
    preset = {} if base is not None else environment_preset(environment)
    block = _select_variant(preset, variant, where=environment)
    chosen, renamed = aliases.normalize(block)
    algorithm = _text(named, "algorithm", "name") or _text(chosen, "algorithm", "name") or variant
    if not algorithm:
        raise UserError(
            f"which algorithm? name it: etude train {environment}:ppo (known: {', '.join(algorithms.names())})"
        )
    if variant is not None and algorithm == variant:
        _check_variant(environment, variant, preset)
    workflow = algorithms.resolve(algorithm, allow_imports=allow_imports)

    asked_for = _overlay_all([chosen, *layers])
    asked_for = overlay(asked_for, {"environment": {"id": environment}, "algorithm": {"name": algorithm}})
    complete = overlay(_defaults(workflow, algorithm), asked_for)
    complete = overlay(complete, _derived_names(complete, file))
    config = check(_interpolate(complete), allow_imports=allow_imports)
    return Composition(config, asked_for, tuple(notes))


def load_config(environment: str, variant: str) -> Config:
    """Return the complete config of `environment` with `variant` (an algorithm, or a variant of its preset)."""
    return compose(f"{environment}:{variant}").config


def check(data: Mapping[str, Any], *, allow_imports: bool = True) -> Config:
    """Validate complete plain data into a Config, each part's own cross-checks included."""
    public = {key: value for key, value in data.items() if not key.startswith("_") and key != "description"}
    config = Validator(allow_imports=allow_imports).build(Config, public)
    problems = [*_phase_problems(config)]
    if hasattr(config.algorithm, "problems"):
        problems += config.algorithm.problems(config)
    if problems:
        raise ConfigError(*problems)
    return config


def split_spec(spec: str) -> tuple[str, str]:
    """Split `ENV:ALGO` at the last colon."""
    environment, colon, variant = spec.rpartition(":")
    if not colon or not environment or not variant:
        raise UserError(f"{spec}: write it as ENV:ALGO, for example {spec.strip(':') or 'CartPole-v1'}:ppo")
    return environment, variant


def environment_presets() -> dict[str, dict[str, Any]]:
    """Return every shipped environment preset by environment id."""
    folder = resources.files("etude.presets").joinpath("environment")
    files = sorted(item.name for item in folder.iterdir() if item.name.endswith(".yaml"))
    return {
        name.removesuffix(".yaml").replace("--", "/"): environment_preset(name.removesuffix(".yaml")) for name in files
    }


def environment_preset(environment: str) -> dict[str, Any]:
    """Return the preset of an environment: base settings at the top (or under `_base`) and one block per variant."""
    name = environment.replace("/", "--") + ".yaml"
    file = resources.files("etude.presets").joinpath("environment", name)
    return _parse_yaml(file.read_text(encoding="utf-8"), name) if file.is_file() else {}


def variants(preset: Mapping[str, Any]) -> list[str]:
    """Return the variants that a preset defines."""
    return [key for key in preset if key not in SECTIONS and not key.startswith("_") and key not in aliases.ALIASES]


def overlay(base: Mapping[str, Any], layer: Mapping[str, Any]) -> dict[str, Any]:
    """Lay `layer` over `base`: mappings merge, all else replaces. A part of another type starts from nothing."""
    merged = dict(base)
    for key, value in layer.items():
        below = merged.get(key)
        if isinstance(value, str) and isinstance(below, Mapping) and "type" in below:
            value = {"type": value}  # `optimizer: adamw` is short for {type: adamw}
        if isinstance(value, Mapping) and isinstance(below, Mapping) and not _other_part(below, value):
            merged[key] = overlay(below, value)
        else:
            merged[key] = value
    return merged


def _other_part(below: Mapping[str, Any], above: Mapping[str, Any]) -> bool:
    return "type" in above and "type" in below and above["type"] != below["type"]


def _overlay_all(layers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for layer in layers:
        merged = overlay(merged, layer)
    return merged


def _defaults(workflow: Any, algorithm: str) -> dict[str, Any]:
    """The defaults of exactly the parts that are in play."""
    plain = to_plain(replace(Config(), algorithm=None))
    schema = options_schema(workflow)
    plain["algorithm"] = {**(to_plain(schema()) if schema else {}), "name": algorithm}
    plain["network"] = to_plain(getattr(workflow, "default_networks", dict)())
    plain["buffers"] = to_plain(getattr(workflow, "default_buffers", dict)())
    return plain


def _derived_names(complete: Mapping[str, Any], file: Path | None) -> dict[str, Any]:
    experiment = complete["experiment"]
    environment, algorithm = complete["environment"]["id"], complete["algorithm"]["name"]
    name = f"{environment}-{algorithm}".replace("/", "-").replace(":", "-")
    return {
        "experiment": {
            "name": experiment["name"] or name,
            "project": experiment["project"] or (file.stem if file else environment),
        }
    }


def _select_variant(document: Mapping[str, Any], variant: str | None, where: str) -> dict[str, Any]:
    names = variants(document)
    nested = {name for name in names if isinstance(document[name], Mapping)}
    base = {key: value for key, value in document.items() if key not in nested and key not in ("_base", "defaults")}
    if isinstance(document.get("_base"), Mapping):
        base = overlay(document["_base"], base)
    if variant in nested:
        return overlay(base, document[variant] or {})
    if variant is None and nested:
        raise UserError(f"{where} has the variants {', '.join(sorted(nested))}: choose one as ENV:VARIANT")
    return base


def _check_variant(environment: str, variant: str, preset: Mapping[str, Any]) -> None:
    from etude.config.registry import is_import_path

    if variant in algorithms.names() or is_import_path(variant):
        return
    known = sorted({*variants(preset), *algorithms.names()})
    raise UserError(
        f"{environment}:{variant}: no such algorithm or variant{did_you_mean(variant, known)} (known: {', '.join(known)})"
    )


def _phase_problems(config: Config) -> Iterator[str]:
    from etude.config.phases import parse_phases

    try:
        parse_phases(config.training.phases)
    except ConfigError as error:
        yield from error.problems


def _read_with_hydra(file: Path | None, groups: Sequence[str]) -> dict[str, Any]:
    """Let Hydra read a file with its defaults list, or the presets chosen by `+experiment=name`."""
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir, initialize_config_module
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    if file is not None and not file.is_file():
        raise UserError(f"--config {file}: there is no such file")
    if file is not None and file.suffix == ".json":
        return _parse_yaml(file.read_text(encoding="utf-8"), file.name)  # JSON is YAML
    _register_resolvers()
    words = [word if word.startswith("+") else f"+{word}" for word in groups]
    words.append("hydra.searchpath=[pkg://etude.presets]")
    try:
        if file is None:
            with initialize_config_module("etude.presets", version_base="1.3"):
                composed = hydra_compose(overrides=words)
        else:
            with initialize_config_dir(str(file.resolve().parent), version_base="1.3"):
                composed = hydra_compose(config_name=file.name, overrides=words)
    except (HydraException, OmegaConfBaseException, YAMLError) as error:
        lines = [line for line in str(error).strip().splitlines() if line.strip()]
        raise ConfigError(f"{file or groups[0]}: " + " ".join(lines[:3])) from None
    plain = OmegaConf.to_container(composed, resolve=False)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def _parse_yaml(text: str, where: str) -> dict[str, Any]:
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    try:
        plain = OmegaConf.to_container(OmegaConf.create(text), resolve=False)
    except (OmegaConfBaseException, YAMLError) as error:
        raise ConfigError(f"{where}: {str(error).splitlines()[0]}") from None
    if not isinstance(plain, dict):
        raise ConfigError(f"{where}: must be a mapping of sections")
    return {str(key): value for key, value in plain.items()}


def _interpolate(data: Mapping[str, Any]) -> dict[str, Any]:
    """Resolve `${a.b}` and `${add:x,y}`; a reference that leads nowhere or to itself is named."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    _register_resolvers()
    try:
        plain = OmegaConf.to_container(OmegaConf.create(dict(data)), resolve=True)
    except (OmegaConfBaseException, RecursionError) as error:
        key = getattr(error, "full_key", None) or "a value"
        reason = "refers to itself" if isinstance(error, RecursionError) else str(error).splitlines()[0]
        raise ConfigError(f"{key}: {reason}") from None
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def _register_resolvers() -> None:
    from omegaconf import OmegaConf

    if not OmegaConf.has_resolver("add"):
        OmegaConf.register_new_resolver("add", lambda *numbers: sum(numbers))


def _text(data: Mapping[str, Any], section: str, key: str) -> str | None:
    value = data.get(section)
    if section == "algorithm" and isinstance(value, str):
        return value
    found = value.get(key) if isinstance(value, Mapping) else None
    return found if isinstance(found, str) and found else None

"""From `ENV:ALGO`, a file and `key=value` words to one complete, checked config.

Layers, each over the one before:

    dataclass defaults → preset of the family → its block → preset of the environment → its variant
        → --config file → +experiment presets → key=value words

The first pass over the layers finds the names (environment, algorithm, component types); the second lays them over the
defaults of exactly those parts and validates the result. Hydra reads defaults lists, groups and the grammar of the words;
validation is ours, so an unknown key can't slip in through any of them.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from etude.config import aliases, groups, interpolation, overrides
from etude.config.environment_presets import (
    RESERVED,
    SECTIONS,
    Preset,
    environment_preset,
    family_name,
    family_preset_of,
    preset_of,
    variants,
    with_name,
)
from etude.config.hooks import hooks_of
from etude.config.layers import Layer, has, overlay, overlay_all, put, restrict
from etude.config.migrate import migrate
from etude.config.phases import default_hooks, parse_phases, phase_problems, until_problems
from etude.config.registry import algorithms, is_import_path
from etude.config.schema import Config, TrainingConfig
from etude.config.source_file import SourceFile, read_file
from etude.config.validate import Validator, check_part, field_defaults, field_types, options_schema, to_plain
from etude.errors import ConfigError, UserError, did_you_mean

_NO_PRESET = Preset("", {}, {})
DEFAULTS, COMMAND_LINE = "default", "command line"
"""What the lowest and the highest layer are called."""


@dataclass(frozen=True)
class Composition:
    """A checked config and what was noticed while reading it."""

    config: Config
    asked: dict[str, Any]
    """What the user asked for: every layer above the defaults."""
    notes: tuple[str, ...] = ()
    """Spellings that were translated, one line each."""
    layers: tuple[Layer, ...] = ()
    """What the config was laid together from, the defaults first."""

    def origin(self, key: str) -> str:
        """Return which layer the value at a dotted key came from."""
        # What a part of another type has replaced is in some layer still, but no longer in what they come to.
        setting = (layer.origin for layer in reversed(self.layers) if has(layer.values, key))
        return next(setting, DEFAULTS) if has(self._complete, key) else DEFAULTS

    @cached_property
    def _complete(self) -> dict[str, Any]:
        return overlay_all(layer.values for layer in self.layers)


def compose(
    spec: str | None = None,
    *,
    file: Path | None = None,
    words: Sequence[str] = (),
    base: Mapping[str, Any] | None = None,
    allow_imports: bool = True,
) -> Composition:
    """Compose a run's config; `base` is the complete config of an earlier run, to start from instead of presets.

    `spec` is ENV:ALGO, or the name of an experiment, which is the same as the word `+experiment=name`.
    """
    if spec is not None and ":" not in spec and spec in groups.preset_names("experiment", file):
        spec, words = None, [f"+experiment={spec}", *words]
    asked = _choose(overrides.parse(words), file)
    sources: list[SourceFile] = []
    try:
        return _complete(_name(spec, file, asked, base, sources), allow_imports)
    except ConfigError as error:
        raise ConfigError(*(_located(problem, sources, spec, asked.values) for problem in error.problems)) from None


@dataclass(frozen=True)
class Outline:
    """What a config is about, as far as that can be said without importing its algorithm."""

    environment: str
    algorithm: str
    total_steps: int


def outline(experiment: str) -> Outline:
    """Return what an experiment is about; its settings are not checked."""
    named = _name(None, None, _choose(overrides.parse([f"+experiment={experiment}"]), None), None, [])
    if not is_import_path(named.algorithm) and named.algorithm not in algorithms.names():
        near = did_you_mean(named.algorithm, algorithms.names())
        raise UserError(f"unknown algorithm '{named.algorithm}'{near}")
    layers = [aliases.normalize(values)[0] for _, values in (*named.presets, *named.theirs)]
    training = overlay_all([{"training": to_plain(TrainingConfig())}, *layers])["training"]
    return Outline(named.environment, named.algorithm, training["total_steps"])


@dataclass(frozen=True)
class _Named:
    """What the first pass finds: the names, and the layers to lay over the defaults of what they name."""

    spec: str | None
    file: Path | None
    environment: str
    algorithm: str
    presets: list[tuple[str, dict[str, Any]]]
    theirs: list[tuple[str, dict[str, Any]]]


def _name(
    spec: str | None,
    file: Path | None,
    asked: overrides.Overrides,
    base: Mapping[str, Any] | None,
    sources: list[SourceFile],
) -> _Named:
    """Pass 1: the names."""
    environment, variant = split_spec(spec) if spec else (None, None)
    source = read_file(file) if file is not None else None
    sources += [] if source is None else [source]
    reading = groups.read(source, asked.choices)
    sources[:] = reading.sources
    document = _without_blocks(reading)
    in_file = variant in variants(document)
    document = _select_variant(document, variant, _named(asked.values, "algorithm.name"), where=str(file or "the presets"))
    stored = {} if base is None else interpolation.literal(dict(base))
    theirs = [migrate(layer) for layer in (stored, document, asked.values)]
    named = overlay_all(aliases.normalize(layer)[0] for layer in theirs)
    environment = _agreed("environment.id", environment, named, spec)
    if not environment:
        raise UserError("which environment? name it: etude train CartPole-v1:ppo, or set environment.id in the file")
    own, family = (_NO_PRESET, _NO_PRESET) if base is not None else (preset_of(environment), family_preset_of(environment))
    algorithm, own_layers = _named_algorithm(environment, variant, named, own, family, spec, in_file=in_file)
    if _text(stored, "algorithm.name") not in (None, algorithm):
        # Another algorithm than the earlier run's: what belonged to that one stays behind.
        theirs[0] = {key: value for key, value in theirs[0].items() if key not in ("algorithm", "network", "buffers")}
    presets = [*family.layers(family.block(variant, algorithm)), *own_layers]
    origins = ("earlier run", _origin(file, asked.choices), COMMAND_LINE)
    return _Named(spec, file, environment, algorithm, presets, list(zip(origins, theirs, strict=True)))


def _complete(named: _Named, allow_imports: bool) -> Composition:
    """Pass 2: the layers over the defaults of exactly those parts."""
    workflow = _workflow(named.algorithm, allow_imports)
    layers, notes = _in_our_words(named.presets, named.theirs, workflow, family_name(named.environment))
    if named.spec is not None:
        names = {"environment": {"id": named.environment}, "algorithm": {"name": named.algorithm}}
        layers.append(Layer(COMMAND_LINE, names))
    defaults = _defaults(workflow, named.algorithm)
    complete = overlay_all(layer.values for layer in (*defaults, *layers))
    asked_for = restrict(complete, overlay_all(layer.values for layer in layers))
    complete = overlay(complete, _derived_names(complete, named.file))
    config = check(interpolation.resolve(complete), allow_imports=allow_imports)
    return Composition(config, asked_for, tuple(notes), (*defaults, *layers))


def _named_algorithm(
    environment: str,
    variant: str | None,
    named: Mapping[str, Any],
    own: Preset,
    family: Preset,
    spec: str | None,
    *,
    in_file: bool,
) -> tuple[str, list[tuple[str, dict[str, Any]]]]:
    """The algorithm that ENV:ALGO, the user's layers and the presets come to, and the layers of the environment's preset."""
    own_layers = own.layers(own.block(variant, _text(named, "algorithm.name")))
    implied = _named(overlay_all(values for _, values in own_layers), "algorithm.name")
    if variant is not None and not in_file and own.block(variant) is None:
        if family.block(variant) is not None:
            implied = _named(overlay_all(values for _, values in family.layers(variant)), "algorithm.name")
        else:
            _check_algorithm(environment, variant, {*own.blocks, *family.blocks})
            implied = variant
    is_name = variant is not None and (variant in algorithms.names() or is_import_path(variant))
    algorithm = _agreed("algorithm.name", implied if is_name else None, named, spec) or implied
    if not algorithm:
        raise UserError(f"which algorithm? name it: etude train {environment}:ppo (known: {', '.join(algorithms.names())})")
    return algorithm, own_layers


def _origin(file: Path | None, choices: Sequence[overrides.Choice]) -> str:
    """Where the settings of a file and of the presets that words choose came from."""
    return " and ".join([*([] if file is None else [f"file {file}"]), *(choice.word for choice in choices)])


def _in_our_words(
    presets: Sequence[tuple[str, Mapping[str, Any]]],
    theirs: Sequence[tuple[str, Mapping[str, Any]]],
    workflow: Any,
    family: str,
) -> tuple[list[Layer], list[str]]:
    """Every layer in our own spelling, and what was translated in those above the presets."""
    own = field_types(schema) if (schema := options_schema(workflow)) is not None else {}
    ours, notes = [], []
    for index, (origin, values) in enumerate([*presets, *theirs]):
        normalized, renamed = aliases.normalize(values, own, family)
        # A section with nothing below it (all of its lines commented out, say) asks for nothing.
        kept = {key: value for key, value in normalized.items() if value is not None or key not in SECTIONS}
        ours.append(Layer(origin, kept))
        notes += renamed if index >= len(presets) else []
    _check_sections([layer.values for layer in ours])
    return ours, notes


def load_config(environment: str, variant: str) -> Config:
    """Return the complete config of `environment` with `variant` (an algorithm, or a variant of its preset)."""
    return compose(f"{environment}:{variant}").config


def check(data: Mapping[str, Any], *, allow_imports: bool = True) -> Config:
    """Validate complete plain data into a Config, each part's own cross-checks included."""
    public = {key: value for key, value in migrate(data).items() if not str(key).startswith("_")}
    problems, known = _network_problems(public, allow_imports)
    try:
        config = Validator(allow_imports=allow_imports).build(Config, known)
    except ConfigError as error:
        raise ConfigError(*problems, *error.problems) from None
    problems += _phase_problems(config, algorithms.resolve(config.algorithm.name, allow_imports=allow_imports))
    if ":" in config.environment.id and not allow_imports:
        problems.append(
            f"environment.id={config.environment.id}: importing the module before the colon would run code, and this config "
            "did not come from your own files; pass --trust if you know where it is from"
        )
    if config.environment.robot is not None and not allow_imports:
        problems += [
            f"environment.robot.{term}: names code to import, and this config did not come from your own files; pass --trust "
            "(in Python trust=True) if you know where it is from"
            for term in config.environment.robot.own_terms
        ]
    if hasattr(config.algorithm, "problems"):
        problems += config.algorithm.problems(config)
    if problems:
        raise ConfigError(*dict.fromkeys(problems))
    return config


def split_spec(spec: str) -> tuple[str, str]:
    """Split `ENV:ALGO` at the last colon."""
    environment, colon, variant = spec.rpartition(":")
    if not colon or not environment or not variant:
        raise UserError(f"{spec}: write it as ENV:ALGO, for example {spec.strip(':') or 'CartPole-v1'}:ppo")
    return environment, variant


def _choose(asked: overrides.Overrides, file: Path | None) -> overrides.Overrides:
    """Sort out `algorithm=ppo` and `environment=CartPole-v1`: a file of that name, or else the name itself."""
    values, choices = dict(asked.values), []
    for choice in asked.choices:
        named = {"algorithm": "algorithm.name", "environment": "environment.id"}.get(choice.group)
        if named and choice.package is None and groups.own_preset(choice.group, choice.name, file) is None:
            if not isinstance(values.get(choice.group, {}), Mapping):
                raise ConfigError(f"{choice.word}: '{choice.group}' is a plain value in another word")
            put(values, named, choice.name)
        else:
            groups.check_choice(choice, file)
            choices.append(choice)
    return overrides.Overrides(values, tuple(choices))


def _without_blocks(reading: groups.Reading) -> dict[str, Any]:
    """A file whose defaults list names a preset of ours: its variants lie below the file, so they aren't the file's own."""
    blocks = {}
    for environment in reading.environments:
        preset = environment_preset(environment)
        blocks |= {name: preset[name] for name in variants(preset)}
    return {key: value for key, value in reading.data.items() if key not in blocks or value != blocks[key]}


def _select_variant(document: Mapping[str, Any], variant: str | None, algorithm: str | None, where: str) -> dict[str, Any]:
    """Lay the chosen block of a file over its base; a block nobody could mean is an unknown key."""
    blocks = variants(document)
    base = {key: value for key, value in document.items() if key not in (*blocks, "_base", "defaults")}
    if isinstance(document.get("_base"), Mapping):
        base = overlay(document["_base"], base)
    chosen = variant or algorithm or _named(base, "algorithm.name")
    for name in blocks:
        near = difflib.get_close_matches(name.lower(), RESERVED, n=1, cutoff=0.8)
        if name != chosen and (near or not any(key in aliases.ALIASES or key in RESERVED for key in document[name])):
            hint = f"; did you mean '{near[0]}'?" if near else f" (known: {', '.join(SECTIONS)})"
            raise ConfigError(f"{name}: unknown key{hint}")
    if chosen in blocks:
        return with_name(overlay(base, document[chosen]), chosen)
    if blocks and variant is None:
        raise UserError(f"{where} has the variants {', '.join(sorted(blocks))}: choose one as ENV:VARIANT")
    if blocks:
        near = did_you_mean(str(variant), blocks)
        raise UserError(f"{where} has no variant '{variant}'{near} (it has: {', '.join(sorted(blocks))})")
    return base


def _agreed(key: str, wanted: str | None, named: Mapping[str, Any], spec: str | None) -> str | None:
    """What ENV:ALGO and the other layers say about a name, which must be the same."""
    found = _text(named, key)
    if wanted and found and wanted != found:
        raise ConfigError(f"{key}={found}: but {spec} asks for {wanted}; leave one of the two out")
    return wanted or found


def _check_algorithm(environment: str, variant: str, blocks: Collection[str]) -> None:
    if variant in algorithms.names() or is_import_path(variant):
        return
    known = sorted({*blocks, *algorithms.names()})
    near = did_you_mean(variant, known)
    raise UserError(f"{environment}:{variant}: no such algorithm or variant{near} (known: {', '.join(known)})")


def _check_sections(layers: Sequence[Mapping[str, Any]]) -> None:
    given = [(section, layer[section]) for layer in layers for section in SECTIONS if section in layer and section != "version"]
    wrong = [f"{section}={value}: must be a mapping of settings" for section, value in given if not isinstance(value, Mapping)]
    if wrong:
        raise ConfigError(*wrong)


def _workflow(algorithm: str, allow_imports: bool) -> Any:
    """The class that an algorithm's name means; one that is no algorithm is an error."""
    workflow = algorithms.resolve(algorithm, allow_imports=allow_imports)
    try:
        check_part(algorithms, workflow, algorithm)
    except UserError as error:
        raise ConfigError(f"algorithm: {error}") from None
    return workflow


def _defaults(workflow: Any, algorithm: str) -> list[Layer]:
    """The defaults of exactly the parts that are in play."""
    schema = options_schema(workflow)
    own: dict[str, Any] = {
        "algorithm": {**(to_plain(field_defaults(schema)) if schema else {}), "name": algorithm},
        "network": to_plain(workflow.default_networks()),
        "buffers": to_plain(workflow.default_buffers()),
    }
    if copies := workflow.default_num_envs:
        own["environment"] = {"num_envs": copies}
    return [Layer(DEFAULTS, to_plain(replace(Config(), algorithm={}))), Layer(f"{DEFAULTS} of {algorithm}", own)]


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


def _network_problems(data: Mapping[str, Any], allow_imports: bool) -> tuple[list[str], dict[str, Any]]:
    """Compare the networks with the roles that the algorithm has; also return the data without those it doesn't have."""
    algorithm, given = _text(data, "algorithm.name"), data.get("network", {})
    if algorithm is None or not isinstance(given, Mapping):
        return [], dict(data)  # the validator says what is wrong
    workflow = _workflow(algorithm, allow_imports)
    roles = list(workflow.default_networks())
    problems = [f"network.{role}: is required" for role in roles if role not in given]
    for role in [role for role in given if role not in roles]:
        near = did_you_mean(role, roles) or (f" (known: {', '.join(roles)})" if roles else "")
        problems.append(f"network.{role}: {algorithm} has no network of this name{near}")
    return problems, {**data, "network": {role: value for role, value in given.items() if role in roles}}


def _phase_problems(config: Config, workflow: Any) -> Iterator[str]:
    try:
        phases = parse_phases(config.training.phases, hooks=default_hooks(workflow, config), marks=hooks_of(workflow))
    except ConfigError as error:
        yield from error.problems
    else:
        yield from phase_problems(phases, workflow, config.buffers)
        evaluation = config.evaluation
        yield from until_problems(phases, is_evaluated=evaluation.every_steps != 0 or evaluation.every_updates is not None)


def _located(problem: str, sources: Sequence[SourceFile], spec: str | None, words: Mapping[str, Any]) -> str:
    """Put `file:line:` before a problem whose key was written in a file."""
    found = re.match(r"[^\s:=]+", problem)
    key = found.group() if found else ""
    spellings = [key]
    for old, new in aliases.ALIASES.items():
        if key == new or key.startswith(f"{new}."):
            spellings.append(old + key.removeprefix(new))
    if any(has(words, spelling) for spelling in spellings):
        return problem
    for source in sources:
        blocks = [spec.rpartition(":")[2]] if spec else variants(source.data)
        prefixes = [*(f"{block}." for block in blocks), "", "_base."]
        line = next((line for spelling in spellings if (line := source.line_of(spelling, prefixes)) is not None), None)
        if line is not None:
            return f"{source.path}:{line}: {problem}"
    return problem


def _named(layer: Mapping[str, Any], key: str) -> str | None:
    return _text(aliases.normalize(layer)[0], key)


def _text(data: Mapping[str, Any], key: str) -> str | None:
    section, _, name = key.partition(".")
    values = data.get(section)
    found = values.get(name) if isinstance(values, Mapping) else None
    if isinstance(found, str) and "${" in found:
        found = interpolation.resolve_one(data, key)
    return found if isinstance(found, str) and found else None

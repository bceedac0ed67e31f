"""Turns plain data into typed config objects, and says everything that is wrong with it."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import math
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml

from etude.config.constraints import Bounds, Component, Interval, Size
from etude.config.registry import REGISTRIES, Registry
from etude.config.schedules import Schedule, as_float
from etude.errors import ConfigError, UserError, did_you_mean

T = TypeVar("T")


@dataclass(frozen=True)
class Part:
    """A chosen part whose options are the keyword arguments of its constructor."""

    type: str
    options: dict[str, Any] = field(default_factory=dict)
    key: str = "type"
    """What the config calls the name."""


class _InvalidError(Exception):
    """A value that can't be what its type says; carries the end of the sentence `key=value: ...`."""


class Validator:
    """Checks plain data against the dataclasses of the schema and collects every problem."""

    def __init__(self, *, allow_imports: bool = True) -> None:
        self.allow_imports = allow_imports
        self.problems: list[str] = []

    def build(self, cls: type[T], data: Mapping[str, Any], path: str = "") -> T:
        """Return an instance of dataclass `cls`; raises ConfigError with all problems found."""
        built = self._dataclass(cls, data, path)
        if self.problems:
            raise ConfigError(*self.problems)
        return built

    def value(self, kind: Any, value: Any, path: str) -> Any:
        """Return one value as what its type says; raises ConfigError with what is wrong."""
        built = self._attempt(kind, value, path)
        if self.problems:
            raise ConfigError(*self.problems)
        return built

    def choose(self, mark: Component, data: Any, path: str) -> Any:
        """Return the settings of one part, chosen by name; raises ConfigError with all problems found."""
        built = self._attempt(Annotated[Any, mark], data, path)
        if self.problems:
            raise ConfigError(*self.problems)
        return built

    def _dataclass(self, cls: type[Any], data: Mapping[str, Any], path: str) -> Any:
        known = field_types(cls)
        values = {}
        for key, value in data.items():
            where = f"{path}.{key}" if path else str(key)
            if key not in known:
                near = did_you_mean(str(key), known) or f" (known: {', '.join(known)})"
                self.problems.append(f"{where}: unknown key{near}")
                continue
            converted = self._attempt(known[key], value, where)
            if converted is not _FAILED:
                values[key] = converted
        for name in known:
            if name not in data and name not in field_defaults(cls):
                self.problems.append(f"{path}.{name}: is required")
        if self.problems:
            return None
        try:
            return cls(**values)
        except ValueError as error:  # a check of the part's own, in its __post_init__
            self.problems.append(f"{path}: {error}")
            return None

    def _attempt(self, kind: Any, value: Any, path: str) -> Any:
        try:
            return self._convert(kind, value, path)
        except _InvalidError as problem:
            self.problems.append(f"{path}={_show(value)}: {problem}")
        except UserError as problem:
            self.problems.append(f"{path}: {problem}")
        return _FAILED

    def _convert(self, kind: Any, value: Any, path: str) -> Any:
        if isinstance(value, str) and value == "???":
            raise _InvalidError("needs a value")
        origin = get_origin(kind)
        if origin is Annotated:
            base, *marks = get_args(kind)
            for mark in marks:
                if isinstance(mark, Component):
                    return self._component(mark, value, path)
                if isinstance(mark, Size):
                    value = _parsed(mark, value)
            converted = self._convert(base, value, path)
            for mark in marks:
                message = mark.violated_by(converted) if isinstance(mark, Bounds | Interval) else None
                if message:
                    raise _InvalidError(message)
            return converted
        if origin in (Union, types.UnionType):
            return self._union(get_args(kind), value, path)
        if origin is Literal:
            choices = get_args(kind)
            if value is False and "off" in choices:
                return "off"  # YAML reads a bare `off` as false
            if value not in choices or isinstance(value, bool):
                near = did_you_mean(str(value), [str(choice) for choice in choices])
                raise _InvalidError(f"must be one of {', '.join(map(str, choices))}{near}")
            return value
        if origin in (tuple, list):
            return self._list(kind, value, path)
        if origin is dict:
            if not isinstance(value, Mapping):
                raise _InvalidError("must be a mapping of names to values")
            item = get_args(kind)[1]
            if item is Any:
                return {str(name): entry for name, entry in value.items()}
            return {str(name): self._attempt(item, entry, f"{path}.{name}") for name, entry in value.items()}
        if dataclasses.is_dataclass(kind) and kind is not Schedule:
            if not isinstance(value, Mapping):
                raise _InvalidError(f"must be a mapping with the keys {', '.join(field_types(kind))}")  # type: ignore[arg-type] # narrowed to a class
            return self._dataclass(kind, value, path)  # type: ignore[arg-type] # narrowed to a class
        return _scalar(kind, value)

    def _list(self, kind: Any, value: Any, path: str) -> Any:
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise _InvalidError("must be a list, such as [1, 2]")
        items = get_args(kind)
        if get_origin(kind) is list or items[-1] is Ellipsis:
            items = (items[0],) * len(value)
        if len(items) != len(value):
            raise _InvalidError(f"must be a list of {len(items)}")
        entries = [self._attempt(item, entry, f"{path}[{i}]") for i, (item, entry) in enumerate(zip(items, value, strict=True))]
        return entries if get_origin(kind) is list else tuple(entries)

    def _union(self, members: Sequence[Any], value: Any, path: str) -> Any:
        if value is None:
            if type(None) in members:
                return None
            raise _InvalidError("can't be null")
        problem: _InvalidError | None = None
        # The value's own type first: where a whole number and a fraction are both allowed, 1.0 is the fraction.
        for member in sorted(members, key=lambda member: _bare(member) is not type(value)):
            if member is type(None):
                continue
            try:
                return self._convert(member, value, path)
            except _InvalidError as error:
                problem = problem or error
        raise problem or _InvalidError("can't be used here")

    def _component(self, mark: Component, value: Any, path: str) -> Any:
        if value is None or value == "":
            raise _InvalidError(f"choose one of {', '.join(REGISTRIES[mark.registry].names()) or 'your own classes'}")
        if isinstance(value, str):
            value = {mark.key: value}
        if not isinstance(value, Mapping):
            raise _InvalidError(f"must be a name or a mapping with '{mark.key}'")
        name = value.get(mark.key)
        if not isinstance(name, str):
            raise _InvalidError(f"needs '{mark.key}', one of {', '.join(REGISTRIES[mark.registry].names())}")
        registry = REGISTRIES[mark.registry]
        cls = registry.resolve(name, allow_imports=self.allow_imports)
        check_part(registry, cls, name)
        schema = options_schema(cls)
        if schema is not None:
            if mark.key not in field_types(schema):
                raise UserError(f"{schema.__name__}, the settings of '{name}', must declare a field '{mark.key}: str'")
            return self._dataclass(schema, {**value, mark.key: name}, path)
        options = {str(key): item for key, item in value.items() if key != mark.key}
        self._check_keywords(cls, name, options, registry.supplied, path)
        return Part(name, options, mark.key)

    def _check_keywords(self, cls: Any, name: str, options: Mapping[str, Any], supplied: Sequence[str], path: str) -> None:
        accepted = _keyword_names(cls)
        for key in options:
            if key in supplied:
                self.problems.append(f"{path}.{key}: is set from elsewhere in the config, not here")
            elif accepted is not None and key not in accepted:
                known = [option for option in accepted if option not in supplied]
                near = did_you_mean(key, known) or f" (known: {', '.join(known) or 'none'})"
                self.problems.append(f"{path}.{key}: unknown option of '{name}'{near}")


_FAILED = object()


@cache
def field_types(cls: type) -> dict[str, Any]:
    """Return the settable fields of a dataclass with their types, in order."""
    hints = get_type_hints(cls, include_extras=True)
    return {item.name: hints[item.name] for item in dataclasses.fields(cls) if item.init}


def field_defaults(cls: type) -> dict[str, Any]:
    """Return the default of every settable field that has one."""
    defaults: dict[str, Any] = {}
    for item in dataclasses.fields(cls):
        if item.init and item.default is not dataclasses.MISSING:
            defaults[item.name] = item.default
        elif item.init and item.default_factory is not dataclasses.MISSING:
            defaults[item.name] = item.default_factory()
    return defaults


def check_part(registry: Registry, cls: Any, name: str) -> None:
    """Raise UserError where what a name means is not of a registry's kind."""
    missing = next((need for need in registry.needs if not hasattr(cls, need)), None)
    if inspect.isabstract(cls):
        gaps = ", ".join(sorted(cls.__abstractmethods__))
        raise UserError(f"'{name}' can't be used itself: a class derived from it must have {gaps}")
    if not callable(cls) or missing:
        raise UserError(f"'{name}' is no {registry.kind}: it " + (f"has no {missing}" if missing else "is not a class"))
    schema = options_schema(cls)
    if schema is None and "Config" in registry.needs:
        raise UserError(f"the Config of '{name}' must be a dataclass")
    if schema is not None and not issubclass(schema, registry.settings):
        base = registry.settings
        raise UserError(f"the Config of '{name}' must be derived from {base.__module__}.{base.__qualname__}")


def options_schema(cls: Any) -> type | None:
    """Return the dataclass that declares a part's options: its `Config`, or None if it has none."""
    schema = getattr(cls, "Config", None)
    return schema if isinstance(schema, type) and dataclasses.is_dataclass(schema) else None


def _bare(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _keyword_names(cls: Any) -> list[str] | None:
    try:
        parameters = inspect.signature(cls).parameters.values()
    except ValueError:  # some classes written in C don't say
        return None
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]


def _scalar(kind: Any, value: Any) -> Any:
    if kind is Any:
        return value
    if kind is bool:
        if isinstance(value, bool):
            return value
        raise _InvalidError("must be true or false")
    if kind is int:
        if isinstance(value, bool) or not isinstance(value, int | float) or not (isinstance(value, int) or value.is_integer()):
            raise _InvalidError("must be a whole number")
        if abs(value) >= 2**63:
            raise _InvalidError("is too large: whole numbers here have 64 bits")
        return int(value)  # 1e6 reads as a float
    if kind is float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _InvalidError("must be a number")
        number = as_float(value)
        if not math.isfinite(number):
            raise _InvalidError("must be a finite number")
        return number
    if kind is str:
        if isinstance(value, str):
            return value
        raise _InvalidError("must be text")
    if kind in (dict, list, tuple):
        if isinstance(value, str) or not isinstance(value, Mapping if kind is dict else Sequence):
            raise _InvalidError(f"must be a {'mapping' if kind is dict else 'list'}")
        return kind(value)
    if kind is Schedule:
        try:
            return Schedule.parse(value)
        except ValueError as error:
            raise _InvalidError(str(error)) from None
    raise TypeError(f"the schema uses a type the validator does not know: {kind}")


def _parsed(mark: Size, value: Any) -> Any:
    try:
        return mark.parse(value)
    except ValueError as error:
        raise _InvalidError(str(error)) from None


def _show(value: Any) -> str:
    try:
        text = str(value) if isinstance(value, str | int | float | bool) or value is None else repr(value)
    except ValueError:
        return "a number of thousands of digits"  # which Python doesn't write out
    return text if len(text) <= 60 else text[:57] + "..."


def to_plain(value: Any) -> Any:
    """Return a config object as dicts, lists and scalars, ready for YAML or JSON."""
    if value is None or type(value) in (bool, int, float, str):  # most of them: what follows asks about protocols
        return value
    if isinstance(value, Schedule):
        return value.to_plain()
    if isinstance(value, Part):
        return {value.key: value.type, **to_plain(value.options)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            item.name: to_plain(getattr(value, item.name))
            for item in dataclasses.fields(value)
            if item.metadata.get("plain", True)
        }
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    return value


def to_yaml(value: Any) -> str:
    """Return a config as YAML that reads back equal: text that looks like a number is quoted."""
    return yaml.dump(to_plain(value), Dumper=_Dumper, default_flow_style=False, allow_unicode=True, sort_keys=False)


class _Dumper(yaml.SafeDumper):
    """Quotes text as OmegaConf does, which takes more for a number than YAML does: 1e-3, inf."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="'" if _looks_like_another_type(text) else None)


_Dumper.add_representer(str, _represent_text)


def _looks_like_another_type(text: str) -> bool:
    with contextlib.suppress(ValueError):
        float(text)
        return True
    return text.lower() in ("y", "yes", "n", "no", "true", "false", "on", "off")

"""References inside a config: `${a.b}`, `${add:1,2}`, and names of your own under `_dims` or any other `_key`."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from etude.errors import ConfigError


def resolve(data: Mapping[str, Any]) -> dict[str, Any]:
    """Replace every reference by its value; each that leads nowhere, or to itself, is named by its key."""
    with contextlib.suppress(_RefersError, RecursionError):
        return _copied(dict(data))  # most configs refer to nothing, and OmegaConf takes a twentieth of a second to say so
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    register_resolvers()
    try:
        tree = OmegaConf.create(dict(data))
        problems = list(_problems(tree, ""))
        if problems:
            raise ConfigError(*problems)
        plain = OmegaConf.to_container(tree, resolve=True)
    except OmegaConfBaseException as error:
        raise ConfigError(f"{getattr(error, 'full_key', None) or 'config'}: {_reason(error)}") from None
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def resolve_one(data: Mapping[str, Any], key: str) -> Any:
    """Return the value at a dotted key with its references followed, or None if there is none."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    register_resolvers()
    try:
        return OmegaConf.select(OmegaConf.create(dict(data)), key)
    except (OmegaConfBaseException, RecursionError) as error:
        raise ConfigError(f"{key}: {_reason(error)}") from None


def literal(value: Any) -> Any:
    """Return stored data with any `${` in it escaped: a value that was resolved once is not resolved again."""
    if isinstance(value, Mapping):
        return {key: literal(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [literal(item) for item in value]
    return value.replace("${", "\\${") if isinstance(value, str) else value


def register_resolvers() -> None:
    """Make `${add:1,2}` known."""
    from omegaconf import OmegaConf

    if not OmegaConf.has_resolver("add"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the only name that OmegaConf 2.3 has; 2.4 would prefer another
            OmegaConf.register_new_resolver("add", lambda *numbers: sum(numbers))


class _RefersError(Exception):
    """Something is left to OmegaConf: a reference, a missing value, or what is no plain data."""


def _copied(value: Any) -> Any:
    if type(value) is dict and all(type(key) is str for key in value):
        return {key: _copied(item) for key, item in value.items()}
    if type(value) is list:
        return [_copied(item) for item in value]
    if value is None or type(value) in (bool, int, float) or (type(value) is str and "${" not in value and value != "???"):
        return value
    raise _RefersError


def _problems(node: Any, path: str) -> Iterator[str]:
    from omegaconf import DictConfig, ListConfig
    from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

    keys = list(node) if isinstance(node, DictConfig) else range(len(node))
    for key in keys:
        where = f"{path}[{key}]" if not isinstance(node, DictConfig) else f"{path}.{key}".lstrip(".")
        try:
            value = node[key]
        except MissingMandatoryValue:
            yield f"{where}: is marked ??? and needs a value"
            continue
        except (OmegaConfBaseException, RecursionError) as error:
            yield f"{where}: {_reason(error)}"
            continue
        if isinstance(value, DictConfig | ListConfig):
            yield from _problems(value, where)


def _reason(error: BaseException) -> str:
    if isinstance(error, RecursionError) or "Recursive" in str(error):
        return "refers to itself, directly or through others"
    text = str(error).splitlines()[0]
    return text.replace("Interpolation key", "refers to").replace(" not found", ", which is not there")

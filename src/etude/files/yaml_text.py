"""Reads YAML within limits: no nesting that overflows a stack, no aliases that grow without end, no endless numbers.

Ten lines of YAML can name each other until they mean a billion values, and a hundred thousand brackets crash a parser written
in C. So the limits are checked on the stream of events, before anything is built.
"""

from __future__ import annotations

from typing import Any

import yaml

from etude.files.documents import DEEPEST, LONGEST_NUMBER, MOST_VALUES, DocumentError, LimitError, too_long

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load(text: bytes | str) -> Any:
    """Return what YAML text says, dates as text."""
    check(text)
    try:
        return yaml.load(text, _PlainLoader)
    except DocumentError:
        raise
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _document_error(error) from None


def check(text: bytes | str) -> None:
    """Raise DocumentError if the text is no YAML, or goes past a limit."""
    sizes: dict[str, int] = {}  # by anchor: how many values it stands for
    open_anchors: list[tuple[str | None, int]] = []
    values = 0
    try:
        for event in yaml.parse(text, _LOADER):
            if isinstance(event, yaml.AliasEvent):
                if event.anchor not in sizes:
                    raise LimitError(f"the alias *{event.anchor[:60]} refers to itself or to nothing", _line(event))
                values += sizes[event.anchor]
            elif isinstance(event, yaml.CollectionStartEvent):
                open_anchors.append((event.anchor, values))
                values += 1
                if len(open_anchors) > DEEPEST:
                    raise LimitError(f"nested more than {DEEPEST} deep", _line(event))
            elif isinstance(event, yaml.CollectionEndEvent):
                anchor, before = open_anchors.pop()
                if anchor is not None:
                    sizes[anchor] = values - before
            elif isinstance(event, yaml.ScalarEvent):
                values += 1
                if event.anchor is not None:
                    sizes[event.anchor] = 1
                if event.implicit[0] and len(event.value) > LONGEST_NUMBER and _digits(event.value) > LONGEST_NUMBER:
                    raise LimitError(too_long(event.value), _line(event))
            if values > MOST_VALUES:
                raise LimitError(f"more than {MOST_VALUES:,} values, aliases counted", _line(event))
    except DocumentError:
        raise
    except (yaml.YAMLError, ValueError) as error:
        raise _document_error(error) from None


def _document_error(error: BaseException) -> DocumentError:
    """Say on one line what PyYAML says on many."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem:
        mark = error.problem_mark or error.context_mark
        return DocumentError(error.problem, None if mark is None else mark.line + 1)
    if isinstance(error, RecursionError):
        return DocumentError("nested too deeply")
    return DocumentError(" ".join(str(error).split())[:200] or type(error).__name__)


def _digits(text: str) -> int:
    plain = text.replace("_", "").lstrip("+-")
    return len(plain) if plain.isdigit() else 0


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1


class _PlainLoader(_LOADER):  # type: ignore[misc, valid-type]  # one of two classes, by what is installed
    """Plain values only: a date stays text, so that 2024-99-99 is no error of a calendar."""


def _whole_number(loader: Any, node: yaml.ScalarNode) -> int:
    number = loader.construct_yaml_int(node)
    if abs(number) >= 10**LONGEST_NUMBER:  # in any base
        raise LimitError(too_long(str(node.value)), node.start_mark.line + 1)
    return number


_PlainLoader.add_constructor("tag:yaml.org,2002:int", _whole_number)
_PlainLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in _LOADER.yaml_implicit_resolvers.items()
}

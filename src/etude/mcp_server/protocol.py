"""The Model Context Protocol over stdin and stdout, as far as tools need it: JSON-RPC 2.0, one message a line.

    initialize → notifications/initialized → tools/list, tools/call, ping …

Written here and not taken from the official package, which brings a web server, an HTTP client and cryptography with it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

from etude import __version__
from etude.errors import EtudeError
from etude.files.documents import DocumentError, parse_json

VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Of the protocol, the newest first; for tools alone they are the same."""
LARGEST_MESSAGE = 2**20
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32700, -32600, -32601, -32602


@dataclass(frozen=True)
class Tool:
    """Something that the model may call."""

    name: str
    description: str
    call: Callable[..., str]
    """Takes the arguments by name and returns text; EtudeError says what was wrong with them."""
    arguments: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """A JSON schema for each."""
    required: Sequence[str] = ()
    changes: bool = False
    """Whether it does more than read."""

    def described(self) -> dict[str, Any]:
        """Return it as `tools/list` does."""
        schema = {"type": "object", "properties": dict(self.arguments), "required": list(self.required)}
        hints = {"readOnlyHint": not self.changes, "destructiveHint": self.changes, "openWorldHint": False}
        shape = {**schema, "additionalProperties": False}
        return {"name": self.name, "description": self.description, "inputSchema": shape, "annotations": hints}


class ProtocolError(Exception):
    """A message that can't be answered as it should be."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Server:
    """Answers messages by calling tools, one after the other."""

    def __init__(self, tools: Sequence[Tool], instructions: str) -> None:
        self._tools, self._instructions = {tool.name: tool for tool in tools}, instructions

    def serve(self, reading: IO[bytes], writing: IO[bytes]) -> None:
        """Answer until nobody asks any more."""
        while line := reading.readline(LARGEST_MESSAGE + 1):
            if len(line) > LARGEST_MESSAGE:
                while line and not line.endswith(b"\n"):  # the rest of it
                    line = reading.readline(LARGEST_MESSAGE)
                answer: Any = _failure(None, INVALID_REQUEST, f"a message has at most {LARGEST_MESSAGE:,} bytes")
            elif line.strip():
                answer = self.answer(line)
            else:
                continue
            if answer is not None:
                writing.write(json.dumps(answer).encode() + b"\n")
                writing.flush()

    def answer(self, line: bytes) -> Any:
        """Return the answer to a message, or None where none is due."""
        try:
            message = parse_json(line)
        except DocumentError as error:
            return _failure(None, PARSE_ERROR, str(error))
        if isinstance(message, list):  # a batch, of earlier versions
            answers = [answer for each in message if (answer := self._answer_one(each)) is not None]
            return answers or None
        return self._answer_one(message)

    def _answer_one(self, message: Any) -> dict[str, Any] | None:
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
            return _failure(None, INVALID_REQUEST, "not a JSON-RPC 2.0 message")
        identity, method = message.get("id"), message.get("method")
        if "method" not in message or "id" not in message:
            return None  # an answer to us, who ask nothing, or a notification
        if not isinstance(identity, str | int) or isinstance(identity, bool):
            return _failure(None, INVALID_REQUEST, "an id is a text or a whole number")
        given = message.get("params", {})
        try:
            if not isinstance(given, dict):
                raise ProtocolError(INVALID_PARAMS, "params is an object")
            return {"jsonrpc": "2.0", "id": identity, "result": self._result(method, given)}
        except ProtocolError as error:
            return _failure(identity, error.code, str(error))

    def _result(self, method: object, given: dict[str, Any]) -> dict[str, Any]:
        if method == "initialize":
            asked = given.get("protocolVersion")
            return {
                "protocolVersion": asked if asked in VERSIONS else VERSIONS[0],
                "capabilities": {"tools": {"listChanged": False}},
                "serverInfo": {"name": "etude", "version": __version__},
                "instructions": self._instructions,
            }
        if method == "ping":
            return {}
        if method == "tools/list":
            return {"tools": [tool.described() for tool in self._tools.values()]}
        if method == "tools/call":
            return self._call(given.get("name"), given.get("arguments") or {})
        raise ProtocolError(METHOD_NOT_FOUND, f"there is no method {str(method)[:100]!r}")

    def _call(self, name: object, given: object) -> dict[str, Any]:
        tool = self._tools.get(name) if isinstance(name, str) else None
        if tool is None:
            raise ProtocolError(INVALID_PARAMS, f"there is no tool {str(name)[:100]!r}; there are {', '.join(self._tools)}")
        try:
            text, failed = tool.call(**_checked(given, tool)), False
        except (EtudeError, OSError) as error:
            text, failed = str(error), True
        return {"content": [{"type": "text", "text": text}], "isError": failed}


_KINDS: dict[str, tuple[type, ...]] = {"string": (str,), "integer": (int,), "array": (list,)}


def _checked(given: object, tool: Tool) -> dict[str, Any]:
    """The arguments of a call, held to the tool's schema."""
    if not isinstance(given, dict):
        raise ProtocolError(INVALID_PARAMS, "arguments is an object")
    if missing := next((name for name in tool.required if name not in given), None):
        raise ProtocolError(INVALID_PARAMS, f"{tool.name}: {missing} is missing")
    for name, value in given.items():
        schema = tool.arguments.get(name)
        if schema is None:
            known = ", ".join(tool.arguments)
            raise ProtocolError(INVALID_PARAMS, f"{tool.name}: there is no argument {name[:100]!r}; there are {known}")
        if isinstance(value, bool) or not isinstance(value, _KINDS[schema["type"]]):
            raise ProtocolError(INVALID_PARAMS, f"{tool.name}: {name} must be of type {schema['type']}")
        if isinstance(value, list) and not (len(value) <= schema["maxItems"] and all(isinstance(each, str) for each in value)):
            raise ProtocolError(INVALID_PARAMS, f"{tool.name}: {name} must be a list of at most {schema['maxItems']} texts")
    return given


def _failure(identity: object, code: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": identity, "error": {"code": code, "message": message}}

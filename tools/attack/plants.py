"""Hostile things to put into a run: links, pipes, texts that break parsers, values of other types, names with shell code."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import pickle
import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tools.attack.subjects import Subject

ESCAPE = "\x1b[31mred\x1b]0;title\x07\x9b1m\u202e"
MARK = "PWNED"
_SHELL = f"run;touch {MARK};#"


class _Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return (os.system, (f"touch {MARK}",))


TEXTS: dict[str, bytes] = {
    "empty": b"",
    "not UTF-8": b'{"a": "\xff\xfe\x00"}',
    "deep lists": b"[" * 100_000,
    "deep objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "deep blocks": b"".join(b" " * depth + b"a:\n" for depth in range(2000)),
    "alias bomb": b"a: &a [x, x, x, x, x, x, x, x, x]\n"
    + b"".join(b"%c: &%c [%s]\n" % (b, b, b", ".join([b"*%c" % (b - 1)] * 9)) for b in b"bcdefghijklmnop"),
    "alias to itself": b"a: &a\n  b: *a\n",
    "5,000 digits": b'{"version": ' + b"9" * 5000 + b"}",
    "400 digits": b'{"version": 1, "seed": ' + b"9" * 400 + b"}",
    "bad date": b"version: 1\ncreated: 2024-99-99\n",
    "a list": b"[1, 2, 3]",
    "a number": b"5",
    "null": b"null",
    "text": b'"text"',
    "NaN": b'{"version": NaN, "counters": {"env_steps": Infinity}}',
    "escape sequences": json.dumps({ESCAPE: ESCAPE}, ensure_ascii=False).encode(),
    "a tag that makes objects": b"!!python/object/apply:os.system ['touch " + MARK.encode() + b"']",
    "a pickle": pickle.dumps(_Bomb()),
    "an override that imports": f"training: {{callbacks: [{{type: '{MARK}.Thing'}}]}}".encode(),
}


@dataclass(frozen=True)
class Yard:
    """Where things lie: the canary, which nobody may change, and a place for results."""

    canary: Path
    out: Path


def _link(target: Callable[[Path, Yard], Path]) -> Callable[[Path, Yard], None]:
    def plant(path: Path, yard: Yard) -> None:
        to = target(path, yard)
        _remove(path)
        path.symlink_to(to)

    return plant


def _moved(path: Path, yard: Yard) -> Path:
    """Its own content, elsewhere: so that whoever follows the link finds what he looks for."""
    place = yard.canary / "moved"
    if not place.exists():
        shutil.copytree(path, place, symlinks=True) if path.is_dir() else shutil.copy(path, place)
    return place


def _folder(path: Path, yard: Yard) -> None:
    _remove(path)
    path.mkdir()


def _fifo(path: Path, yard: Yard) -> None:
    _remove(path)
    os.mkfifo(path)


def _sparse(path: Path, yard: Yard) -> None:
    _remove(path)
    path.touch()
    os.truncate(path, 2**40)


def _missing(path: Path, yard: Yard) -> None:
    _remove(path)


def _file(path: Path, yard: Yard) -> None:
    _remove(path)
    path.write_text("x")


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


LINKS = {
    "link to its content elsewhere": _link(_moved),
    "link to a file of the user's": _link(lambda path, yard: yard.canary / "letter.txt"),
    "link to a new name elsewhere": _link(lambda path, yard: yard.canary / "new"),
    "link to itself": _link(lambda path, yard: path),
    "link to /dev/zero": _link(lambda path, yard: Path("/dev/zero")),
    "link to a folder elsewhere": _link(lambda path, yard: yard.canary / "folder"),
}
SHAPES = {**LINKS, "fifo": _fifo, "folder": _folder, "huge": _sparse, "missing": _missing}
FOLDER_SHAPES = {**LINKS, "fifo": _fifo, "file": _file, "missing": _missing}
FOLDERS = ("checkpoints", "logs", "videos", "requests", "provenance", "provenance/untracked", "checkpoints/NEWEST",
           "checkpoints/NEWEST/policy", "checkpoints/NEWEST/rank", "checkpoints/replay")  # fmt: skip
VALUES: tuple[Any, ...] = (None, True, -5, 10**400, 1e308, "x", ESCAPE, [], {}, [[]], {"a": 1}, ["\x1b[2J"], "9" * 5000)
NAMES = (_SHELL, f"$(touch {MARK})", f"`touch {MARK}`", "\x1b[31mred", "a\nb", "-rf", "--help", "@last", "x" * 250,
         "ünï\u202eçø", "\udcff\udcfe", "%s%n", "[bold red]", " ", "...")  # fmt: skip
DOCUMENTS = ("run.json", "summary.json", "resolved.yaml", "config.yaml", "provenance/git.json", "provenance/origin.json",
             "provenance/command.json", "logs/evaluations.jsonl", "metrics.jsonl", "logs/changes.jsonl",
             "run_status.json")  # fmt: skip


@dataclass(frozen=True)
class Case:
    """Something hostile: what it is, and how it is put into a run. Returns where the run is then."""

    group: str
    name: str
    plant: Callable[[Path, Yard], Path]


def cases(subject: Subject, dice: random.Random, values: int) -> Iterator[Case]:
    """Every hostile thing that is done to a run; `values` of the many values that can be of another type."""
    kinds = {kind: file for kind, file in subject.files().items() if "/older/" not in kind}
    for (kind, file), (shape, plant) in itertools.product(kinds.items(), SHAPES.items()):
        yield Case("shapes", f"{kind} as {shape}", _at(file, plant))
    for (kind, file), (name, text) in itertools.product(kinds.items(), TEXTS.items()):
        if Path(kind).suffix in (".json", ".jsonl", ".yaml", ".safetensors", ""):
            yield Case("texts", f"{kind} with {name}", _at(file, lambda path, yard, text=text: _write(path, text)))
    newest = next(file for kind, file in kinds.items() if "/newest/" in kind).parts[1]
    for folder, (shape, plant) in itertools.product(FOLDERS, FOLDER_SHAPES.items()):
        relative = Path(folder.replace("NEWEST", newest))
        if (subject.kept / relative).is_dir() and folder.startswith(subject.below):
            yield Case("folders", f"{folder} as {shape}", _at(relative, plant))
    for name in NAMES if not subject.below else ():
        yield Case("names", f"a run named {name!r}", lambda run, yard, name=name: run.rename(run.with_name(name)))
        yield Case("names", f"a checkpoint named {name!r}", _renamed(Path("checkpoints") / newest, name))
    documents = [file for file in DOCUMENTS if file.startswith(subject.below)]
    places = [(file, path) for file in documents for path in _paths(_read(subject.kept / file))]
    states = [(f"{part}/{file}", None) for part in ("policy", "shared", "rank/0") for file in ("state.json",)]
    manifest = [("manifest.json", path) for path in _paths(_read(subject.kept / "checkpoints" / newest / "manifest.json"))]
    inner = [(file, path) for file, _ in states for path in _paths(_read(subject.kept / "checkpoints" / newest / file))]
    for (file, path), value in _some(dice, values, itertools.product(places, VALUES)):
        yield Case("values", f"{file} {_dotted(path)}={_short(value)}", _set(Path(file), path, value))
    for (file, path), value in _some(dice, values, itertools.product(manifest + inner, VALUES)):
        name = f"{file} {_dotted(path)}={_short(value)}, hashed anew"
        yield Case("checkpoints", name, _rehashed(Path("checkpoints") / newest, file, path, value))


def _some(dice: random.Random, most: int, things: Iterator[Any]) -> list[Any]:
    everything = list(things)
    return dice.sample(everything, min(most, len(everything)))


def _at(relative: Path, plant: Callable[[Path, Yard], None]) -> Callable[[Path, Yard], Path]:
    def planted(run: Path, yard: Yard) -> Path:
        plant(run / relative, yard)
        return run

    return planted


def _write(path: Path, text: bytes) -> None:
    _remove(path)
    path.write_bytes(text)


def _renamed(relative: Path, name: str) -> Callable[[Path, Yard], Path]:
    def planted(run: Path, yard: Yard) -> Path:
        (run / relative).rename(run / relative.with_name(name))
        return run

    return planted


def _read(path: Path) -> Any:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".yaml":
        return yaml.safe_load(text)
    return [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else json.loads(text)


def _put(path: Path, value: Any) -> None:
    if path.suffix == ".yaml":
        text = yaml.safe_dump(value)
    elif path.suffix == ".jsonl":
        text = "".join(json.dumps(row) + "\n" for row in value)
    else:
        text = json.dumps(value)
    path.write_text(text, encoding="utf-8")


def _paths(value: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a document that a value can be put."""
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*before, key)
        yield from _paths(item, (*before, key))


def _replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    node = value
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = new
    return value


def _set(relative: Path, path: tuple[Any, ...], new: Any) -> Callable[[Path, Yard], Path]:
    def planted(run: Path, yard: Yard) -> Path:
        _put(run / relative, _replaced(_read(run / relative), path, new))
        return run

    return planted


def _rehashed(checkpoint: Path, file: str, path: tuple[Any, ...], new: Any) -> Callable[[Path, Yard], Path]:
    """Change a value of a checkpoint as an attacker does: the hashes fit."""

    def planted(run: Path, yard: Yard) -> Path:
        folder = run / checkpoint
        content = _read(folder / "manifest.json")
        del content["checksum"]
        if file == "manifest.json":
            if path[0] == "checksum":
                return run
            _replaced(content, path, new)
        else:
            data = json.dumps(_replaced(_read(folder / file), path, new), separators=(",", ":")).encode()
            (folder / file).write_bytes(data)
            content["files"][file] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
        content["checksum"] = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        (folder / "manifest.json").write_text(json.dumps(content, indent=1))
        return run

    return planted


def _dotted(path: tuple[Any, ...]) -> str:
    return ".".join(map(str, path))


def _short(value: Any) -> str:
    return repr(value)[:24]

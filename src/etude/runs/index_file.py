"""The SQLite file behind the list of runs: a cache that any number of processes share and that may vanish at any time."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from etude.runs.indexed_run import IndexedRun
from etude.runs.run_reader import Entry

FILE_NAME = ".index.sqlite"
# Of the table and of what is read from run directories: a file of another version is filled anew.
VERSION = 2
_WAIT_S = 5.0

_JSON_FIELDS = ("tags", "metrics", "config")
_FIELDS = tuple(each.name for each in fields(IndexedRun) if each.name not in ("id", "path"))
_COLUMNS = ("folder", "stamp", "owner", "problems", "readable", *_FIELDS)
_QUOTED = [f'"{name}"' for name in _COLUMNS]  # group and commit are words of SQL
_CREATE = f"CREATE TABLE runs ({_QUOTED[0]} TEXT PRIMARY KEY, {', '.join(_QUOTED[1:])})"
_SELECT = f"SELECT {', '.join(_QUOTED)} FROM runs"
_INSERT = f"INSERT OR REPLACE INTO runs VALUES ({', '.join('?' for _ in _COLUMNS)})"

# By number, because the messages differ between versions of SQLite. The file can't be what we wrote, whoever looks at it:
_DAMAGE = {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_SCHEMA}


class DamagedIndexError(Exception):
    """The file holds something else than an index."""


class IndexFile:
    """The entries of one runs directory. Nothing here ever fails: without a usable file there are simply no entries."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._path = root / FILE_NAME

    def load(self) -> dict[str, Entry]:
        """Every entry by its folder; none when there is no file, or none that can be used now."""
        if not self._path.exists():
            return {}
        try:
            return self._load()
        except DamagedIndexError:
            self.delete()
        except (sqlite3.Error, OSError):
            pass  # locked for long, or a file system that can't lock: the directories have it all
        return {}

    def save(self, changed: Iterable[Entry], gone: Iterable[str]) -> bool:
        """Write and forget entries in one transaction; False where that is impossible, such as a read-only folder."""
        # A folder whose name is not text is listed all the same, only never remembered.
        rows = [_to_row(entry) for entry in changed if entry.folder.isprintable()]
        folders = [(folder,) for folder in gone]
        try:
            with self._connection() as connection:
                connection.execute("BEGIN IMMEDIATE")
                _prepare(connection)
                connection.executemany("DELETE FROM runs WHERE folder = ?", folders)
                connection.executemany(_INSERT, rows)
                connection.execute("COMMIT")
        except DamagedIndexError:
            self.delete()
            return False
        except (sqlite3.Error, OSError):
            return False
        return True

    def delete(self) -> None:
        """Remove the file. The next `save` starts a new one."""
        with contextlib.suppress(OSError):
            folder = os.open(self._root, os.O_RDONLY)
            try:
                # One at a time: else one process could pair another's new file with the journal of the old one.
                fcntl.flock(folder, fcntl.LOCK_EX)
                for path in self._files():
                    path.unlink(missing_ok=True)
            finally:
                os.close(folder)

    def _files(self) -> list[Path]:
        return [self._root / name for name in (f"{FILE_NAME}-wal", f"{FILE_NAME}-shm", FILE_NAME)]

    def _load(self) -> dict[str, Entry]:
        with self._connection() as connection:
            if _version(connection) != VERSION:
                return {}
            stored = connection.execute(_SELECT).fetchall()
        try:
            return {row[0]: _from_row(self._root, row) for row in stored}
        except (ValueError, TypeError, RecursionError) as error:
            raise DamagedIndexError(str(error)) from error

    @contextlib.contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        # SQLite would follow a link, and empty a table of somebody else's database.
        for path in self._files():
            if path.is_symlink() or (path.exists() and not path.is_file()):
                raise OSError(f"{path}: not a regular file")
        with contextlib.closing(sqlite3.connect(self._path, timeout=_WAIT_S, isolation_level=None)) as connection:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                # A cache need not survive a power cut; it must not slow down either.
                connection.execute("PRAGMA synchronous = OFF")
                yield connection
            except sqlite3.DatabaseError as error:
                if getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGE:
                    raise DamagedIndexError(str(error)) from error
                raise


def _version(connection: sqlite3.Connection) -> int:
    return connection.execute("PRAGMA user_version").fetchone()[0]


def _prepare(connection: sqlite3.Connection) -> None:
    if _version(connection) != VERSION:
        connection.execute("DROP TABLE IF EXISTS runs")
        connection.execute(_CREATE)
        connection.execute(f"PRAGMA user_version = {VERSION}")


def _to_row(entry: Entry) -> tuple[Any, ...]:
    run = entry.run or IndexedRun(entry.folder, Path())
    values = {name: getattr(run, name) for name in _FIELDS}
    for name in _JSON_FIELDS:
        values[name] = json.dumps(values[name])
    owner, problems = json.dumps(dict(entry.owner)), json.dumps(entry.problems)
    return entry.folder, entry.stamp, owner, problems, entry.run is not None, *values.values()


def _from_row(root: Path, row: tuple[Any, ...]) -> Entry:
    folder, stamp, owner, problems, readable, *rest = row
    values = dict(zip(_FIELDS, rest, strict=True))
    for name in _JSON_FIELDS:
        values[name] = json.loads(values[name])
    values["tags"] = tuple(values["tags"])
    run = IndexedRun(id=folder, path=root / folder, **values) if readable else None
    return Entry(folder, stamp, run, json.loads(owner), tuple(json.loads(problems)))

"""What is verified: a run's stored settings, rows and last checkpoint, and how far they reach."""

from __future__ import annotations

import ast
import copy
import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from etude.config.layers import put
from etude.config.overrides import quote
from etude.errors import EtudeError, UserError
from etude.runs.run import Run
from etude.runs.saved_checkpoint import Checkpoint
from etude.runs.settings_files import read_changes, read_settings
from etude.telemetry.jsonl import read_rows
from etude.telemetry.names import Row

_ENDS_BY_ITSELF = ("finished", "stopped")


class Position(NamedTuple):
    """A cycle boundary."""

    env_steps: int = 0
    updates: int = 0
    cycles: int = 0

    @classmethod
    def of(cls, counters: Mapping[str, float]) -> Position:
        """Return where these counters, or this row, stand."""
        return cls(*(int(counters[name]) for name in cls._fields))


@dataclass(frozen=True)
class Change:
    """Settings that a resume changed, and where: each key with its value before and after."""

    at: Position
    values: Mapping[str, tuple[Any, Any]]

    def undo(self, settings: dict[str, Any]) -> None:
        """Put back what was there before."""
        for key in self._replaced():
            if self.values[key][0] is None:
                _remove(settings, key)
        for key, (old, _) in self.values.items():
            if old is not None or key not in self._replaced():
                put(settings, key, old)

    def words(self) -> tuple[str, ...]:
        """The change as `key=value` words, to make it again."""
        replaced = self._replaced()
        words = [f"{key}={_word(new)}" for key, (_, new) in self.values.items() if key not in replaced]
        for root in [key for key in replaced if not any(key.startswith(f"{other}.") for other in replaced)]:
            nested = {key.removeprefix(f"{root}."): new for key, (_, new) in self.values.items() if key.startswith(f"{root}.")}
            new = self.values[root][1]
            words.append(f"{root}={_word(new if new is not None else nested)}")
        return tuple(words)

    def _replaced(self) -> list[str]:
        """Keys of a scalar that became a mapping, such as a constant that became a schedule, or the other way round."""
        keys = list(self.values)
        return [key for key in keys if any(key.startswith(f"{other}.") or other.startswith(f"{key}.") for other in keys)]


def changes_of(run: Run) -> list[Change]:
    """Return what was changed in a run after it began, oldest first."""
    return [_change(run.logs / "changes.jsonl", number, entry) for number, entry in enumerate(read_changes(run), start=1)]


def merged(changes: Sequence[Change]) -> list[Change]:
    """Return the changes with those that were made at one place, one after the other, as one, if any is left."""
    found: list[Change] = []
    for change in changes:
        if found and found[-1].at == change.at:
            values = dict(found[-1].values)
            for key, (old, new) in change.values.items():
                values[key] = (values[key][0] if key in values else old, new)
            found[-1] = Change(change.at, values)
        else:
            found.append(change)
    kept = ({key: sides for key, sides in change.values.items() if sides[0] != sides[1]} for change in found)
    return [Change(change.at, values) for change, values in zip(found, kept, strict=True) if values]


@dataclass(frozen=True)
class Subject:
    """A run as it lies on disk. Its config is data here: nothing that it names is imported."""

    run: Run
    settings: dict[str, Any]
    """Of the run's beginning: what was changed on the way is undone."""
    last_settings: dict[str, Any]
    """Of its end."""
    facts: dict[str, Any]
    """What the machine made of the settings: mode, snapshot, backend."""
    rows: list[Row]
    newest: Checkpoint | None
    last: Checkpoint | None
    """The newest one up to where the run is verified: what is compared."""
    changes: tuple[Change, ...]
    ends_by_itself: bool
    steps_asked: int | None = None

    @property
    def end(self) -> Position:
        """Where the re-run may stop."""
        if self.steps_asked is not None:
            return Position(self.steps_asked)
        return self.whole

    @property
    def changes_within(self) -> list[Change]:
        """What is to be changed again on the way."""
        return [change for change in self.changes if self.steps_asked is None or change.at.env_steps < self.steps_asked]

    @property
    def whole(self) -> Position:
        """As far as the run itself came."""
        ends = [Position.of(self.rows[-1])] if self.rows else []
        return max([*ends, *([] if self.last is None else [Position.of(self.last.counters)])])

    def setting(self, key: str, default: Any = None) -> Any:
        """Return a stored setting by its dotted name."""
        value: Any = self.settings
        for part in key.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return default if value is None else value


def read_subject(run: Run, *, steps: int | None = None) -> Subject:
    """Read what there is to verify, all of it or the first `steps` environment steps."""
    status = run.status
    if status == "running":
        pid = run.record.get("pid")
        raise UserError(f"run {run.id} is still running (process {pid}); verify it when it has ended, or stop it first")
    settings = read_settings(run)
    facts = settings.pop("_resolved", None)
    changes = changes_of(run)
    last_settings = copy.deepcopy(settings)
    for change in reversed(changes):
        change.undo(settings)
    rows: list[Row] = []
    if run.metrics_path.exists():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # half a last line: the run crashed, and we verify what is whole
            rows = read_rows(run.metrics_path)
    full = [checkpoint for checkpoint in run.checkpoints().list() if checkpoint.kind == "full"]
    subject = Subject(
        run=run,
        settings=settings,
        last_settings=last_settings,
        facts=facts if isinstance(facts, dict) else {},
        rows=rows,
        newest=full[-1] if full else None,
        last=full[-1] if full else None,
        changes=tuple(changes),
        ends_by_itself=status in _ENDS_BY_ITSELF,
    )
    if not rows and (subject.last is None or subject.whole == Position()):
        raise UserError(f"run {run.id} has neither rows nor a checkpoint: there is nothing to verify")
    return subject if steps is None or steps >= subject.whole.env_steps else _first(subject, full, steps)


def _first(subject: Subject, full: list[Checkpoint], steps: int) -> Subject:
    within = [checkpoint for checkpoint in full if 0 < checkpoint.counters["env_steps"] <= steps]
    return replace(
        subject,
        last=within[-1] if within else None,
        ends_by_itself=False,
        steps_asked=steps,
    )


def _change(path: Path, number: int, entry: Any) -> Change:
    try:
        pairs = [text.partition(": ") for text in entry["changes"]]
        values = {key: tuple(_value(side) for side in text.split(" → ")) for key, _, text in pairs}
        if any(len(sides) != 2 for sides in values.values()):
            raise ValueError("not old → new")
        return Change(Position.of(entry), values)  # type: ignore[arg-type] # two sides each, as just checked
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise EtudeError(f"{path}: line {number} is not a record of changed settings ({str(error)[:80]})") from None


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _word(value: Any) -> str:
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{_word(each)}" for key, each in value.items()) + "}"
    return "null" if value is None else json.dumps(value)


def _remove(settings: dict[str, Any], key: str) -> None:
    *parents, last = key.split(".")
    for part in parents:
        found = settings.get(part)
        if not isinstance(found, dict):
            return
        settings = found
    settings.pop(last, None)

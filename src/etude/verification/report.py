"""What a verification found, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from etude.verification.damage import Damage
from etude.verification.differences import Difference, RowsCompared, StatesCompared

Outcome = Literal["reproduced", "differs", "not comparable"]
_EXIT_CODES: dict[str, int] = {"reproduced": 0, "differs": 1, "not comparable": 2}
_MOST_PACKAGES = 5


@dataclass
class Check:
    """One re-run, compared with the stored run."""

    what: str
    rows: RowsCompared
    states: StatesCompared | None
    checkpoint: str | None
    env_steps: int
    seconds: float

    @property
    def first(self) -> Difference | None:
        """Where the two first part: in a row, or else in the checkpoint."""
        return self.rows.first or (self.states.first if self.states is not None else None)

    def to_json(self) -> dict[str, Any]:
        """Return what was compared and what was found."""
        states = self.states
        return {
            "what": self.what,
            "rows": self.rows.rows,
            "values": self.rows.values,
            "differing_rows": self.rows.differing_rows,
            "differing_keys": sorted(self.rows.differing_keys),
            "checkpoint": self.checkpoint,
            "tensors": 0 if states is None else states.tensors,
            "differing_tensors": [] if states is None else states.differing_tensors,
            "differing_values": [] if states is None else states.differing_values,
            "first_difference": None if self.first is None else vars(self.first),
            "env_steps": self.env_steps,
            "seconds": round(self.seconds, 2),
        }

    def lines(self) -> Iterator[str]:
        """Return what was compared, one line each."""
        if self.rows.first is not None:
            yield f"first     {_where(self.rows.first)}"
            keys = len(self.rows.differing_keys)
            of = f"{self.rows.differing_rows:,} of {max(self.rows.rows, self.rows.differing_rows):,} rows"
            yield f"in all    {keys} {'key' if keys == 1 else 'keys'} in {of}"
        else:
            yield f"rows      {self.rows.rows:,}, with {self.rows.values:,} values: all but time/ and system/"
        states = self.states
        if states is None and self.checkpoint is None:
            yield "weights   not compared: the run has no checkpoint up to here"
        elif states is None:
            yield f"weights   not compared: checkpoint {self.checkpoint} is damaged, or the re-run never came to it"
        elif states.first is None:
            yield f"weights   {states.tensors:,} tensors and {states.values:,} other values of checkpoint {self.checkpoint}"
        else:
            count, others = len(states.differing_tensors), len(states.differing_values)
            yield f"weights   {count:,} of {states.tensors:,} tensors and {others:,} of {states.values:,} other values differ"
            yield f"          first {_where(states.first)}"
        yield f"steps     {self.env_steps:,} environment steps in {self.seconds:.1f} s"


@dataclass
class Report:
    """The outcome and everything it rests on."""

    run: str
    outcome: Outcome
    reasons: list[str] = field(default_factory=list)
    """Why it can't be compared."""
    damage: list[Damage] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    modes: dict[str, Any] | None = None
    code: str = ""
    notes: list[str] = field(default_factory=list)
    other_packages: list[str] = field(default_factory=list)
    fingerprint: dict[str, Any] | None = None
    """Of the process that ran it again."""
    kept: str | None = None

    @property
    def exit_code(self) -> int:
        """0 reproduced, 1 differs, 2 not comparable."""
        return _EXIT_CODES[self.outcome]

    def to_json(self) -> dict[str, Any]:
        """Return the whole report as plain data."""
        plain = ("run", "outcome", "reasons", "code", "notes", "other_packages", "fingerprint", "kept")
        return {
            **{key: getattr(self, key) for key in plain},
            "damage": [vars(damage) for damage in self.damage],
            "checks": [check.to_json() for check in self.checks],
            "modes": self.modes,
        }

    def lines(self) -> Iterator[str]:
        """Return the report as a person reads it."""
        yield f"{self.outcome}: {self.run}"
        for text in [*self.reasons, *(str(damage) for damage in self.damage)]:
            yield f"  {text}"
        for check in self.checks:
            if len(self.checks) > 1:
                yield f"  {check.what}"
            indent = "    " if len(self.checks) > 1 else "  "
            yield from (f"{indent}{line}" for line in check.lines())
        if self.modes is not None:
            yield (
                f"  modes     eager and {self.modes['mode']} differ by {self.modes['largest']:.2g} at most, "
                f"in {self.modes['where']}; {self.modes['tensors']} tensors after one gradient step, "
                f"{self.modes['limit']:g} allowed"
            )
        if self.code:
            yield f"  code      {self.code}"
        yield from (f"  note      {note}" for note in self.notes)
        if self.other_packages and self.outcome == "differs":
            more = f" and {len(self.other_packages) - _MOST_PACKAGES} more" if len(self.other_packages) > _MOST_PACKAGES else ""
            yield f"  note      packages changed since: {', '.join(self.other_packages[:_MOST_PACKAGES])}{more}"
        if self.kept is not None:
            yield f"  kept      {self.kept}"


def _where(found: Difference) -> str:
    place = f"row {found.row} at {found.env_steps:,} environment steps: " if found.row is not None else ""
    return f"{place}{found.key} was {found.stored!r}, is {found.again!r}"

"""What an attack found, counted: outcomes in small letters are as they should be, those in capitals are findings."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

_LONGEST_DETAIL = 400
_EVERY = 100


@dataclass
class Report:
    """Outcomes of one attack, over all and by what was attacked."""

    attack: str
    is_quiet: bool = False
    outcomes: Counter[str] = field(default_factory=Counter)
    by_subject: dict[str, Counter[str]] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    facts: dict[str, object] = field(default_factory=dict)

    def add(self, subject: str, outcome: str, case: str = "", detail: str = "") -> None:
        """Count an outcome; a finding is also kept in words, and said at once."""
        self.outcomes[outcome] += 1
        self.by_subject.setdefault(subject, Counter())[outcome] += 1
        if outcome.isupper():
            words = f"{outcome}: {subject}: {case}: {' '.join(ascii(detail)[1:-1].split())[-_LONGEST_DETAIL:]}"
            self.findings.append(words)
            self._say(words)
        if self.outcomes.total() % _EVERY == 0:
            self._say(f"{self.attack}: {self.outcomes.total()} so far ({_counts(self.outcomes)})")

    def _say(self, words: str) -> None:
        if not self.is_quiet:
            print(words, file=sys.stderr, flush=True)

    def lines(self) -> list[str]:
        """The numbers, and the findings after them."""
        width = max(map(len, self.by_subject), default=0)
        rows = [f"  {subject:<{width}}  {_counts(counts)}" for subject, counts in sorted(self.by_subject.items())]
        facts = [f"  {name}: {value}" for name, value in self.facts.items()]
        return [f"{self.attack}: {self.outcomes.total()} ({_counts(self.outcomes)})", *facts, *rows, *self.findings]

    def to_json(self) -> str:
        """The same for programs."""
        return json.dumps({"attack": self.attack, "outcomes": self.outcomes, "by": self.by_subject, "findings": self.findings,
                           **self.facts})  # fmt: skip


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{outcome} {count}" for outcome, count in sorted(counts.items()))

"""Fails when Etude has become slower against references that are measured in the same run and need no peers.

Ratios are compared with those in baselines.json, not speeds: a slow or busy machine slows both sides.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import runner
from benches import choose

BASELINES = runner.HERE / "baselines.json"
TOLERANCE = 0.2
# In each bench, Etude's sides and what they are measured against.
REFERENCES = {
    "ppo-cartpole": (("etude-eager", "etude-compiled"), "plain"),
    "collect-cartpole": (("etude",), "plain"),
    "step-cartpole": (("etude-native", "etude-gymnasium"), "sync"),
    "step-halfcheetah": (("etude-native", "etude-gymnasium"), "sync"),
    "loaders": (("etude",), "data-loader-by-batch"),
}


@dataclass(frozen=True)
class Verdict:
    """What became of one stored ratio."""

    name: str
    stored: float | None
    now: float | None
    reason: str = ""
    """Why there is no ratio now."""
    broken: bool = False
    """Whether a side failed, rather than being absent."""

    @property
    def failed(self) -> bool:
        """Whether Etude fell behind, or what was once measured fails now."""
        if self.now is None:
            return self.broken
        return self.stored is not None and self.now < (1 - TOLERANCE) * self.stored

    def __str__(self) -> str:
        now = self.reason if self.now is None else f"{self.now:.2f}"
        stored = "none stored" if self.stored is None else f"stored {self.stored:.2f}"
        word = "FAIL" if self.failed else "skip" if self.now is None else "ok  "
        return f"{word} {self.name}: {now} ({stored})"


def main(arguments: list[str] | None = None) -> int:
    """Measure, compare or update; 1 if a ratio fell too far on the machine the ratios were stored on."""
    parser = _parser()
    options = parser.parse_args(arguments)
    unknown = set(options.benches).difference(REFERENCES)
    if unknown:
        parser.error(f"no bench '{min(unknown)}' here; there are: {', '.join(REFERENCES)}")
    stored = json.loads(options.baselines.read_text(encoding="utf-8"))
    with runner.machine() as machine:
        facts = runner.describe(machine)
        benches = [
            runner.measure(bench.with_sides(_sides_of(bench.name)), machine, repeats=options.repeats)
            for bench in choose(options.benches or REFERENCES, quick=options.quick)
        ]
    verdicts = judge(benches, stored["ratios"])
    for verdict in verdicts:
        sys.stdout.write(f"{verdict}\n")
    if options.update:
        measured = {verdict.name: round(verdict.now, 3) for verdict in verdicts if verdict.now is not None}
        document = {**stored, **_place(facts), "ratios": dict(sorted({**stored["ratios"], **measured}.items()))}
        options.baselines.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        sys.stdout.write(f"{len(measured)} ratios written to {options.baselines}\n")
        return 0
    return decide(verdicts, here=_place(facts), there={key: stored.get(key) for key in _place(facts)})


def judge(benches: list[dict[str, Any]], stored: Mapping[str, float]) -> list[Verdict]:
    """Compare each ratio with the stored one."""
    verdicts = []
    for bench in benches:
        sides = {side["name"]: side for side in bench["sides"]}
        own, reference = REFERENCES[bench["name"]]
        for name in own:
            key = f"{bench['name']}: {name} / {reference}"
            missing = [side for side in (sides[name], sides[reference]) if side["status"] != "ok"]
            if missing:
                broken = any(side["status"] == "failed" for side in missing)
                verdicts.append(Verdict(key, stored.get(key), None, missing[0]["reason"], broken))
            else:
                verdicts.append(Verdict(key, stored.get(key), bench["ratios"][f"{name} / {reference}"]))
    return verdicts


def decide(verdicts: list[Verdict], *, here: Mapping[str, Any], there: Mapping[str, Any]) -> int:
    """Return the exit status; on another processor the comparison only informs."""
    failures = [verdict for verdict in verdicts if verdict.failed]
    if all(verdict.stored is None for verdict in verdicts):
        sys.stdout.write("no ratios are stored: run with --update on a quiet machine\n")
    elif here != there:
        sys.stdout.write(f"for information only: the stored ratios are from {there}, this is {here}\n")
        return int(any(verdict.broken for verdict in failures))
    return int(bool(failures))


def _sides_of(bench: str) -> tuple[str, ...]:
    own, reference = REFERENCES[bench]
    return (*own, reference)


def _place(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {"cpu": facts["cpu"], "cpus_used": facts["cpus_used"]}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("benches", nargs="*", metavar="BENCH", help=f"any of: {', '.join(REFERENCES)}")
    parser.add_argument("--repeats", type=int, default=3, help="measurements of each side; the best counts")
    parser.add_argument("--update", action="store_true", help="store the ratios found instead of comparing them")
    parser.add_argument("--baselines", type=Path, default=BASELINES, help="where ratios are stored")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it runs")
    return parser


if __name__ == "__main__":
    sys.exit(main())

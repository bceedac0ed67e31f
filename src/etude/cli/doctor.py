"""`etude doctor`: what works on this machine."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from etude.cli.options import above_zero, at_least
from etude.cli.output import drawing, emit_json, styled
from etude.cli.parameters import AsJson, RunsFolder
from etude.cli.places import runs_root

if TYPE_CHECKING:
    from rich.console import Console

    from etude.diagnosis.doctor import Fact, Finding

_STYLES = {"works": "green", "broken": "bold red", "absent": "dim"}
_MARKS = {"works": "✓", "broken": "✗", "absent": "-"}


def doctor(
    *, family: str | None = None, steps: int = 200, timeout: float = 120.0, runs: RunsFolder = None, as_json: AsJson = False
) -> int:
    """Say what works here: the machine, and for each family of environments whether it is installed, steps and can be drawn.

    Everything is tried in its own process, so that a crash is a line of the report. Exit code 1 if a family that is
    installed does not work; one that trains but can't be drawn counts as working.

    Parameters
    ----------
    family
        Only this family: classic, mujoco, dmc, atari, ....
    steps
        Random steps to take in the example of each family.
    timeout
        Give a family up after this many seconds.
    """
    at_least(1, steps=steps)
    above_zero(timeout=timeout)
    from etude.diagnosis import doctor as examination
    from etude.environments.catalog import find_family
    from etude.environments.families import FAMILIES
    from etude.telemetry.one_line import OneLine

    chosen = FAMILIES[:-1] if family is None else [find_family(family)]
    console = drawing(width=None if sys.stdout.isatty() else 200)
    with OneLine(sys.stderr) as line:
        line.show("looking at the machine")
        facts = examination.machine(runs_root(runs), timeout)
    if not as_json:
        _show_machine(console, facts)
    findings = []
    with OneLine(sys.stderr) as line:
        line.show(f"trying {len(chosen)} families of environments")
        for finding in examination.examine(chosen, steps=steps, timeout_s=timeout):
            findings.append(finding)
            line.show(f"{len(findings)} of {len(chosen)}  {finding.family.title}: {finding.status}")
    findings.sort(key=lambda finding: FAMILIES.index(finding.family))
    if as_json:
        machine = [{"name": fact.name, "value": fact.value, "fix": fact.fix or None} for fact in facts]
        emit_json({"machine": machine, "families": [finding.as_json() for finding in findings]})
    else:
        _show_families(console, findings)
    return int(any(finding.status == "broken" for finding in findings))


def _show_machine(console: Console, facts: list[Fact]) -> None:
    from rich.table import Table

    table = Table.grid(padding=(0, 2, 0, 0))
    for fact in facts:
        table.add_row(styled(fact.name, style="bold"), styled(fact.value, style="yellow" if fact.fix else ""), styled(fact.fix))
    console.print(table)


def _show_families(console: Console, findings: list[Finding]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold dim")
    for heading in ("", "family", "versions", "steps/s", "pictures", "resume"):
        table.add_column(heading, justify="right" if heading == "steps/s" else "left", overflow="fold")
    for finding in findings:
        rate = finding.facts.get("steps_per_s")
        table.add_row(
            styled(_MARKS[finding.status], style=_STYLES[finding.status]),
            styled(finding.family.title, style="" if finding.status == "works" else _STYLES[finding.status]),
            styled(", ".join(f"{name} {version}" for name, version in finding.versions.items())),
            styled("" if rate is None else f"{rate:,.0f}"),
            styled(finding.pictures or ("none" if finding.status == "works" else "")),
            styled(str(finding.facts.get("snapshot", ""))),
        )
    console.print()
    console.print(table)
    troubled = [finding for finding in findings if finding.problems]
    if troubled:
        console.print()
    for finding in troubled:
        console.print(styled(f"{finding.family.title}: {'; '.join(finding.problems)}", style=_STYLES[finding.status]))
        for fix in finding.fixes:
            console.print(styled(f"    {fix}"))

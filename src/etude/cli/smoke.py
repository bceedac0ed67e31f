"""`etude smoke`: try everything briefly."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from etude.cli.options import above_zero, at_least
from etude.cli.output import drawing, emit_json, say, styled
from etude.cli.parameters import AsJson

if TYPE_CHECKING:
    from etude.diagnosis.smoke import Outcome

app = App(name="smoke", help="Try everything briefly: every environment, preset and config.")
Filter = Annotated[str, Parameter(name=["--filter", "-f"], help="Only names with this text, such as CartPole or :sac.")]
Limit = Annotated[int, Parameter(help="At most this many; 0 is all.")]
Jobs = Annotated[int | None, Parameter(help="How many at once. Default: as many as there are cores.")]
Timeout = Annotated[float, Parameter(help="Give one up after this many seconds.")]
_MARKS = {"passed": ("✓", "green"), "failed": ("✗", "bold red"), "skipped": ("-", "dim")}


@app.command
def envs(
    *,
    contains: Filter = "",
    limit: Limit = 0,
    steps: int = 200,
    jobs: Jobs = None,
    timeout: Timeout = 60.0,
    as_json: AsJson = False,
) -> int:
    """Take random steps in every environment that is known here, each in its own process.

    Exit code 1 if one fails. One whose package is missing is skipped, with the line that installs it.

    Parameters
    ----------
    steps
        Random steps in each.
    """
    from etude.diagnosis import smoke

    options = _checked(limit, steps, jobs, timeout)
    names = _chosen(smoke.environment_ids(contains), limit, f"no environment's id contains '{contains}'; see `etude envs`")
    return _report(smoke.try_environments(names, **options), len(names), "environments", as_json)


@app.command
def presets(
    *,
    contains: Filter = "",
    limit: Limit = 0,
    steps: int = 256,
    jobs: Jobs = None,
    timeout: Timeout = 180.0,
    as_json: AsJson = False,
) -> int:
    """Train every preset for a few steps and at least one update, each in its own process; no run is kept.

    Exit code 1 if one fails. One whose package is missing is skipped, with the line that installs it.

    Parameters
    ----------
    steps
        Environment steps of each training.
    """
    from etude.diagnosis import smoke

    options = _checked(limit, steps, jobs, timeout)
    specs = _chosen(smoke.preset_specs(contains), limit, f"no preset contains '{contains}'; see `etude envs`")
    return _report(smoke.try_presets(specs, **options), len(specs), "presets", as_json)


@app.command
def configs(*, contains: Filter = "", limit: Limit = 0, as_json: AsJson = False) -> int:
    """Compose every preset, experiment and network, Etude's own and those of ./configs, and every config file there.

    Every key, value and schedule is checked, and wrappers by their ids and options; nothing is trained. Exit code 1 if one
    is wrong.
    """
    at_least(0, limit=limit)
    from etude.diagnosis import smoke

    names = _chosen(smoke.config_names(contains), limit, f"no config's name contains '{contains}'; without it all are tried")
    return _report(smoke.try_configs(names), len(names), "configs", as_json)


def _checked(limit: int, steps: int, jobs: int | None, timeout: float) -> dict[str, Any]:
    from etude.compute.processors import available_cpus

    at_least(0, limit=limit)
    at_least(1, steps=steps, jobs=jobs)
    above_zero(timeout=timeout)
    return {"steps": steps, "jobs": jobs or available_cpus(), "timeout_s": timeout}


def _chosen(names: Sequence[str], limit: int, nothing: str) -> list[str]:
    from etude.errors import UserError

    if not names:
        raise UserError(f"--filter: {nothing}")
    return list(names[:limit] if limit > 0 else names)


def _report(outcomes: Iterator[Outcome], total: int, what: str, as_json: bool) -> int:
    from etude.telemetry.one_line import OneLine

    console = drawing(soft_wrap=True)
    counts = dict.fromkeys(_MARKS, 0)
    everything = []
    with OneLine(sys.stderr) as progress:
        for outcome in outcomes:
            counts[outcome.status] += 1
            everything.append(outcome)
            if not as_json:
                progress.show("")
                mark, style = _MARKS[outcome.status]
                console.print(styled((mark, style), f" {outcome.name:<32} {outcome.detail}"), overflow="ignore")
                if outcome.status == "failed" and outcome.output.strip():
                    console.print(styled("\n".join(f"    {line}" for line in outcome.output.splitlines()[-12:]), style="dim"))
            progress.show(f"{len(everything)} of {total} {what}, {counts['failed']} failed")
    summary = ", ".join(f"{count} {status}" for status, count in counts.items())
    if as_json:
        results = [
            {"name": each.name, "status": each.status, "detail": each.detail, "seconds": round(each.seconds, 2)}
            for each in everything
        ]
        emit_json({"total": total, **counts, "results": results})
    else:
        say(f"{total} {what}: {summary}")
    return int(counts["failed"] > 0)

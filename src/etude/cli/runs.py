"""`etude runs`: what has been run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from etude.cli.places import find_run, runs_root

if TYPE_CHECKING:
    from etude.runs.run import Run

app = App(name="runs", help="List runs, or show one.")
Json = Annotated[bool, Parameter(name="--json")]


@app.command(name="list")
def list_runs(*, runs: Path | None = None, limit: int = 30, as_json: Json = False) -> int:
    """List runs, newest first.

    Parameters
    ----------
    runs
        Where runs live. Default: $ETUDE_RUNS, or ./runs.
    limit
        How many to show.
    as_json
        Print JSON.
    """
    from etude.runs.run import Run

    root = runs_root(runs)
    found = Run.list(root) if root.exists() else []
    rows = [_row(run) for run in found[:limit]]
    if as_json:
        print(json.dumps(rows))
        return 0
    if not rows:
        print(f"no runs in {root} yet; start one with `etude train CartPole-v1:ppo`")
        return 0
    widths = max(len(row["id"]) for row in rows)
    print(f"{'RUN':<{widths}}  {'STATUS':<11} {'STEPS':>11}  {'BEST':>9}  {'LAST':>9}")
    for row in rows:
        steps = f"{row['env_steps']:,}" if row["env_steps"] is not None else "-"
        print(f"{row['id']:<{widths}}  {row['status']:<11} {steps:>11}  {_number(row['best']):>9}  {_number(row['last']):>9}")
    if len(found) > limit:
        print(f"... and {len(found) - limit} more (--limit)")
    return 0


@app.command
def show(run: Annotated[str, Parameter(name="RUN")], /, *, runs: Path | None = None, as_json: Json = False) -> int:
    """Show one run: how it stands, where it lies, what it is made of, its checkpoints and its last metrics.

    Parameters
    ----------
    run
        @last, @best, an id, a unique prefix of one, or a path.
    runs
        Where runs live. Default: $ETUDE_RUNS, or ./runs.
    as_json
        Print JSON.
    """
    found = find_run(run, runs).run
    git = _read(found.path / "provenance" / "git.json")
    last_row = _last_row(found)
    checkpoints = sorted(
        path.name for path in found.checkpoints_path.iterdir() if (path / "manifest.json").is_file() and not path.is_symlink()
    )
    if as_json:
        whole = {**found.record, "status": found.status, "summary": found.summary, "git": git}
        print(json.dumps({**whole, "path": str(found.path), "checkpoints": checkpoints, "last_row": last_row}))
        return 0
    summary = found.summary
    print(found.id)
    print(f"  status       {found.status}{_because(found)}")
    print(f"  lies in      {found.path}")
    print(f"  created      {found.record.get('created', '-')}")
    if git and git.get("commit"):
        changed = ", with changes" if git.get("dirty") else ""
        print(f"  commit       {git['commit'][:12]} on {git.get('branch') or 'no branch'}{changed}")
    if summary:
        counters = summary["counters"]
        steps, updates, episodes = (f"{counters[name]:,}" for name in ("env_steps", "updates", "episodes"))
        print(f"  progress     {steps} environment steps, {updates} updates, {episodes} episodes")
        print(f"  best         {_number(summary['best']['value'])} ({summary['best']['metric']})")
        print(f"  took         {summary['elapsed_s']:.1f} s")
    print(f"  checkpoints  {', '.join(checkpoints) or 'none'}")
    if last_row:
        print("  last row")
        for name, value in last_row.items():
            if "/" in name and not name.startswith("time/"):
                print(f"    {name:<28} {_number(value)}")
    return 0


def _row(run: Run) -> dict[str, Any]:
    summary = run.summary
    last = summary.get("last_evaluation", {}).get("eval/return_mean")
    steps = summary.get("counters", {}).get("env_steps")
    best = summary.get("best", {}).get("value")
    return {"id": run.id, "status": run.status, "env_steps": steps, "best": best, "last": last, "path": str(run.path)}


def _because(run: Run) -> str:
    reason = run.record.get("stop_reason")
    return f" ({reason})" if reason else ""


def _read(path: Path) -> dict[str, Any] | None:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _last_row(run: Run) -> dict[str, float] | None:
    from etude.telemetry.jsonl import read_rows

    rows = read_rows(run.metrics_path) if run.metrics_path.exists() else []
    return dict(rows[-1]) if rows else None


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"

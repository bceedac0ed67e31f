"""`etude runs list`: the runs there are."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

from etude.cli.options import at_least, exclusive
from etude.cli.output import emit, emit_json, note, say
from etude.cli.parameters import AsJson, RunsFolder
from etude.cli.places import runs_root

Filters = Annotated[list[str] | None, Parameter(name=["--filter", "-f"])]


def list_runs(
    *,
    filters: Filters = None,
    group: str | None = None,
    sort: str | None = None,
    reverse: bool = False,
    columns: str | None = None,
    limit: int = 30,
    runs: RunsFolder = None,
    as_json: AsJson = False,
    as_csv: Annotated[bool, Parameter(name="--csv")] = False,
) -> int:
    """List runs, newest first, or those that meet every --filter.

    A key is a column (algorithm, env, tag, status, group, name, seed, date, age, commit, ...), a metric or a setting.

    Parameters
    ----------
    filters
        key=value, also with !=, >, >=, < and <=: algorithm=ppo, eval/return>400, date>=2026-11-01, age<7d, name=ant-*. May be
        repeated.
    group
        Only runs of this group, as --filter group=....
    sort
        A key to sort by: results with the highest first, all else ascending.
    reverse
        The other way round.
    columns
        The keys to show, such as id,best,algorithm.gamma.
    limit
        How many to show; 0 is all.
    as_csv
        Print CSV: every fact and metric of each run, or the columns asked for.
    """
    from etude.cli.runs.columns import as_json as to_json
    from etude.cli.runs.columns import chosen_columns, default_columns
    from etude.comparison.spelling import our_spelling, our_words
    from etude.runs.conditions import Condition
    from etude.runs.index import RunIndex
    from etude.runs.places import runs_option
    from etude.runs.run_keys import RunKeys
    from etude.runs.run_query import Query

    at_least(0, limit=limit)
    exclusive({"--json": as_json, "--csv": as_csv})
    root = runs_root(runs)
    sort = None if sort is None else our_spelling(sort)
    conditions = [*our_words(filters or ()), *([] if group is None else [Condition.equal("group", group)])]
    query = Query(conditions, sort=sort, reverse=reverse, limit=limit)
    listing = RunIndex(root).read() if root.exists() else None
    everything = listing.runs if listing else []
    found = query.matching(everything)
    keys = RunKeys(everything)
    chosen = None if columns is None else chosen_columns(",".join(map(our_spelling, columns.split(","))), keys)
    shown = found[:limit] if limit else found
    if listing and listing.problems:
        note(f"{len(listing.problems)} run files can't be read; `etude runs rebuild{runs_option(root)}` says which")
    if as_json:
        emit_json([to_json(run, chosen) for run in shown])
        return 0
    if as_csv:
        _emit_csv([to_json(run, chosen) for run in shown])
        return 0
    if not everything:
        say(f"no runs in {root} yet; start one with `etude train CartPole-v1:ppo{runs_option(root)}`")
        return 0
    if not found:
        note(f"none of the {len(everything)} runs in {root} meets the filter")
        return 0
    from etude.cli.runs.table import print_table

    by_default = default_columns(shown, None if sort is None else keys.resolve(sort))
    print_table(shown, chosen or by_default, may_drop=not chosen)
    if len(found) > len(shown):
        note(f"... and {len(found) - len(shown)} more (--limit)")
    return 0


def _emit_csv(rows: list[dict[str, Any]]) -> None:
    """Print what is known of each run; settings by themselves are asked for as columns."""
    from etude.files.csv_text import csv_text

    flat: list[dict[str, Any]] = []
    for row in rows:
        metrics = row.get("metrics")
        known = {**row, **metrics} if isinstance(metrics, dict) else row
        flat.append({name: _in_a_cell(value) for name, value in known.items() if not isinstance(value, dict)})
    columns = list(dict.fromkeys(name for row in flat for name in row))
    emit(csv_text(columns, flat))


def _in_a_cell(value: Any) -> Any:
    return ", ".join(map(str, value)) if isinstance(value, list) else value

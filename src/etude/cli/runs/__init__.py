"""`etude runs`: what has been run. One file a command."""

from __future__ import annotations

from cyclopts import App

app = App(name="runs", help="Find, show and compare runs.")
app.command("etude.cli.runs.list:list_runs", name="list", help="List runs, newest first.")
app.command("etude.cli.runs.show:show", name="show", help="Show one run.")
app.command("etude.cli.runs.path:path", name="path", help="Print where a run or one of its checkpoints lies.")
app.command("etude.cli.runs.tag:tag", name="tag", help="Tag a run, or remove tags.")
app.command("etude.cli.runs.group:group", name="group", help="Put a run into a group, or take it out.")
app.command("etude.cli.runs.cleanup:cleanup", name="cleanup", help="Remove the checkpoints of runs that are not worth keeping.")
app.command("etude.cli.runs.rebuild:rebuild", name="rebuild", help="Build the index of runs anew from their directories.")
app.command("etude.cli.runs.checkout:checkout", name="checkout", help="Restore a run's exact code into its own worktree.")
app.command("etude.cli.runs.compare:compare", name="compare", help="Compare runs: statistics over seeds, what differs, plots.")
app.command("etude.cli.runs.reach:reach", name="reach", help="Say how long runs took to reach a threshold.")
app.command("etude.cli.runs.export:export", name="export", help="Export results over seeds as LaTeX, Markdown, CSV or JSON.")

"""`etude runs`: what has been run. One file a command."""

from __future__ import annotations

from cyclopts import App

app = App(name="runs", help="Find, show and compare runs.")
app.command("etude.cli.runs.list:list_runs", name="list", help="List runs, newest first.")
app.command("etude.cli.runs.show:show", name="show", help="Show one run.")
app.command("etude.cli.runs.checkout:checkout", name="checkout", help="Restore a run's exact code into a worktree of its own.")

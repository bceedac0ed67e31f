"""`etude sweep`: search over settings. One file a command."""

from __future__ import annotations

from cyclopts import App

from etude.cli.sweep.start import sweep

app = App(name="sweep", help="Search over settings: a grid, at random or by Optuna; resumable.")
app.default(sweep)
app.command("etude.cli.sweep.resume:resume", name="resume", help="Go on with a sweep that was stopped or killed.")
app.command("etude.cli.sweep.report:report", name="report", help="What came of a sweep: best trials, importances, pictures.")
app.command("etude.cli.sweep.list:list_sweeps", name="list", help="List sweeps and how they stand.")

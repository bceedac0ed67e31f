"""`etude dataset`: stored episodes. One file a command."""

from __future__ import annotations

from cyclopts import App

app = App(name="dataset", help="Record, list, show and convert datasets of episodes.")
app.command("etude.cli.dataset.record:record", name="record", help="Record episodes of a run's policy.")
app.command("etude.cli.dataset.list:list_datasets", name="list", help="List datasets.")
app.command("etude.cli.dataset.show:show", name="show", help="Show one dataset: origin, statistics, a picture.")
app.command("etude.cli.dataset.convert:convert", name="convert", help="Convert from and to Minari, HDF5 and npz.")

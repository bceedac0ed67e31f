"""`etude wandb`: a dashboard for a W&B project, and policies and checkpoints to and from it. One file a command."""

from __future__ import annotations

from cyclopts import App

app = App(name="wandb", help="W&B: a dashboard, and policies and checkpoints to and from it.")
app.command("etude.cli.wandb.dashboard:dashboard", name="dashboard", help="Create a dashboard in a W&B project.")
app.command("etude.cli.wandb.download:download", name="download", help="Bring a policy or a checkpoint back as a run.")
app.command("etude.cli.wandb.upload:upload", name="upload", help="Keep a run's report, policy and checkpoint there.")

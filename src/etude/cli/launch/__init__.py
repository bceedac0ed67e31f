"""`etude launch`: train elsewhere. One file a backend; the tools that do the work are SLURM's, ssh, Ray, Docker and Modal."""

from __future__ import annotations

from cyclopts import App

app = App(name="launch", help="Train on a cluster, another machine or a cloud, and ask how it stands.")
app.command("etude.cli.launch.slurm:slurm", name="slurm", help="Submit to a SLURM cluster, an array task a run.")
app.command("etude.cli.launch.ssh:ssh", name="ssh", help="Train on another machine by ssh, detached.")
app.command("etude.cli.launch.ray:ray", name="ray", help="Submit to a Ray cluster that runs already.")
app.command("etude.cli.launch.clouds:gce", name="gce", help="Rent machines of Google Compute Engine and train there.")
app.command("etude.cli.launch.clouds:ec2", name="ec2", help="Rent machines of Amazon EC2 and train there.")
app.command("etude.cli.launch.containers:modal", name="modal", help="Train on Modal, a container a task.")
app.command("etude.cli.launch.containers:docker", name="docker", help="Train in Docker containers on this machine.")
app.command("etude.cli.launch.manage:status", name="status", help="Say how the tasks of a launch stand.")
app.command("etude.cli.launch.manage:logs", name="logs", help="Show or follow what tasks print.")
app.command("etude.cli.launch.manage:cancel", name="cancel", help="Stop a launch; its runs save themselves first.")
app.command("etude.cli.launch.manage:sync", name="sync", help="Bring the runs of a launch here.")

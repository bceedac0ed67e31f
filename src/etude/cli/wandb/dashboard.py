"""`etude wandb dashboard`: sections for training, evaluations, diagnostics and videos in a W&B project."""

from __future__ import annotations

from etude.cli.output import emit, say
from etude.errors import UserError


def dashboard(
    *,
    project: str = "etude",
    entity: str | None = None,
    name: str = "Etude",
    overwrite: bool = False,
    select_latest: bool = False,
    dry: bool = False,
) -> int:
    """Create a saved view in a W&B project; one of that name is left alone.

    Parameters
    ----------
    project
        The project there.
    entity
        The user or team that owns it. Default: the one that `wandb login` knows.
    name
        What the view is called.
    overwrite
        Put a view of that name back to what this command makes.
    select_latest
        Show only the run that was started last; the others can be switched on there.
    dry
        Print exactly what would be sent, as JSON, and ask nothing of W&B.
    """
    from etude.telemetry import wandb_dashboard

    if dry:
        if select_latest:
            raise UserError("--select-latest asks W&B which run is the latest, and --dry asks nothing: leave one of them out")
        emit(wandb_dashboard.as_json(entity or "ENTITY", project, name) + "\n")
        return 0
    outcome = wandb_dashboard.save(entity, project, name, overwrite=overwrite, select_latest=select_latest)
    way_out = "; --overwrite puts it back to what this command makes" if outcome.state == "there already" else ""
    say(f"{outcome.state}: {outcome.url}{way_out}")
    return 0

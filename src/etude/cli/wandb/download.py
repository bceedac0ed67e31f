"""`etude wandb download`: a policy or a checkpoint that W&B keeps, brought back as a run."""

from __future__ import annotations

from etude.cli.output import emit_path, note
from etude.cli.parameters import RunsFolder
from etude.cli.places import runs_root


def download(source: str, /, *, runs: RunsFolder = None) -> int:
    """Bring ENTITY/PROJECT/NAME:VERSION into the folder of runs and print where it lies.

    Parameters
    ----------
    source
        The artifact as W&B names it, such as me/cartpole/20260301-120000-CartPole-v1-ppo-s1-policy:best.
    """
    from etude.training.wandb_artifacts import PREFIX, download

    path = download(source.removeprefix(PREFIX), runs_root(runs))
    emit_path(path)
    note("evaluate it, play it, begin with it (--init-from) or, if it is a full checkpoint, resume it like any run")
    return 0

"""`etude dataset record`: a run's policy as a dataset."""

from __future__ import annotations

import sys
from typing import Literal

from etude.cli.dataset.root import DatasetsFolder, datasets_root
from etude.cli.options import at_least
from etude.cli.output import note, note_in_place, say
from etude.cli.parameters import Device, RunName, RunsFolder, Trust
from etude.cli.places import find_run
from etude.cli.starting import starting


def record(
    run: RunName,
    /,
    *,
    episodes: int = 100,
    name: str | None = None,
    checkpoint: str | None = None,
    mode: Literal["auto", "greedy", "sample"] = "auto",
    seed: int = 0,
    num_envs: int | None = None,
    description: str = "",
    device: Device = None,
    datasets: DatasetsFolder = None,
    runs: RunsFolder = None,
    trust: Trust = False,
) -> int:
    """Record whole episodes of a run's policy.

    Episodes are on the disk as they finish. The same command goes on where it was stopped, and with more episodes it adds the
    rest: the dataset is the same as one recorded at once.

    Parameters
    ----------
    episodes
        How many episodes the dataset has in the end.
    name
        What it is called. Default: the run's id and the checkpoint.
    checkpoint
        best, last, a sequence number or environment steps: an early one gives data of medium quality. Default: last.
    mode
        greedy: the most likely action; sample: as in training; auto: as in the run's own evaluations.
    seed
        Another set of episodes.
    num_envs
        Copies of the environment to record on. Default: as many as episodes, at most 16.
    description
        A line about it, kept with it.
    """
    at_least(1, episodes=episodes, num_envs=num_envs)
    with starting(f"recording {run}") as tell:
        found = find_run(run, runs)
        tell("loading torch")
        import torch

        from etude.datasets.places import folder_of
        from etude.datasets.statistics import summary
        from etude.runs.naming import safe_name
        from etude.using.record_dataset import record as recording
        from etude.using.stored_policy import open_policy

        torch.set_num_threads(1)
        stored = open_policy(found.run, checkpoint or found.checkpoint or "last", trusted=trust, device=device)
        root = datasets_root(datasets)
        name = name or safe_name(f"{found.run.id}-{stored.checkpoint.name}", 100)
        folder = folder_of(name, root)
    if stored.note is not None:
        note(stored.note)

    def progress(done: int) -> None:
        note_in_place(f"{done}/{episodes} episodes", ends=done >= episodes)

    dataset = recording(
        stored,
        name,
        root,
        episodes,
        mode=mode,
        seed=seed,
        num_envs=num_envs,
        description=description,
        on_progress=progress if sys.stderr.isatty() else None,
    )
    told = summary(dataset)
    say(
        f"{folder}: {told['episodes']} episodes, {told['steps']:,} steps, "
        f"return {told['return']['mean']:.2f} ± {told['return']['std']:.2f}"
    )
    return 0

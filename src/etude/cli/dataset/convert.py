"""`etude dataset convert`: from and to other formats."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from etude.cli.dataset.root import DatasetsFolder, datasets_root
from etude.cli.options import at_least
from etude.cli.output import note, say

Source = Annotated[str, Parameter(name="SOURCE", help="A dataset's name, minari:ID, script:ID, or a file .hdf5, .h5 or .npz.")]
Target = Annotated[str, Parameter(name="TARGET", help="What to write: a name, minari:ID, or such a file.")]


def convert(
    source: Source, target: Target, /, *, env: str | None = None, episodes: int = 200, datasets: DatasetsFolder = None
) -> int:
    """Convert a dataset from another format to Etude's, or from Etude's to another one.

    Nothing pickled is read, no link inside a file is followed, and what a file unpacks to is bounded.

    Parameters
    ----------
    env
        The environment that the episodes are of, which says their spaces. Needed where a file does not say them.
    episodes
        How many, of `script:ID`: demonstrations by rules, of tasks that know how they are done (TwoWays-v0).
    """
    from etude.datasets import convert as converting
    from etude.datasets.dataset import Dataset
    from etude.errors import UserError

    root = datasets_root(datasets)
    to_ours = converting.is_foreign(source)
    if to_ours == converting.is_foreign(target):
        raise UserError(f"{source} to {target}: one of them must be a dataset's name, the other minari:ID, *.hdf5 or *.npz")
    if not to_ours:
        if env is not None:
            raise UserError("--env: a dataset of Etude's says its spaces itself; leave it out")
        converting.write_foreign(Dataset.open(source, root), target)
        say(f"wrote {target}")
        return 0
    at_least(1, episodes=episodes)
    task = None if env is None else (env, _making(env))
    dataset, notes = converting.read_foreign(source, target, root, environment=task, scripted_episodes=episodes)
    for line in notes:
        note(line)
    say(f"{dataset.folder}: {len(dataset):,} episodes, {dataset.manifest.steps:,} steps")
    return 0


def _making(env: str):
    """Make one copy of an environment, when it is asked for."""

    def make():
        from etude.config.compose import compose
        from etude.environments.make import make_environment

        config = compose(f"{env}:random").config
        return make_environment(config.environment, num_envs=1)

    return make

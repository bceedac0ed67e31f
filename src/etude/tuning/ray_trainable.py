"""Etude under Ray Tune: a Trainable for scripts of one's own, with any of Tune's searches and schedulers.

tune.Tuner(
    EtudeTrainable,
    param_space={"spec": "CartPole-v1:ppo", "algorithm.learning_rate": tune.loguniform(1e-4, 1e-2)},
    tune_config=tune.TuneConfig(scheduler=ASHAScheduler(), metric="eval/return_mean", mode="max", num_samples=20),
).fit()

Tune's checkpoints of it are run directories of Etude: JSON and tensors. A trial that is paused, moved to another node or copied
by a scheduler goes on to the bit.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from etude.errors import EtudeError, MissingPackageError, UserError
from etude.runs.clone import exported_run
from etude.runs.lock import is_held
from etude.runs.places import default_root
from etude.runs.run import Run
from etude.training.experiment import Experiment
from etude.tuning.plan import swept_words

try:
    from ray.tune import Trainable  # pyright: ignore[reportMissingImports] # of an extra
except ImportError:
    raise MissingPackageError("EtudeTrainable needs Ray Tune: pip install 'etude[raytune]'") from None

_OPTIONS = {"spec": None, "config": None, "words": (), "runs": None, "group": "tune", "every_steps": None, "trust": False}


class EtudeTrainable(Trainable):
    """A trial of Ray Tune that is a run of Etude; each step of it is the training up to the next evaluation.

    Its config has `spec` (ENV:ALGO) or `config` (a file), and settings by their dotted names. `words` are further settings,
    `runs` is where the runs lie, `group` the first part of their group, `every_steps` the least environment steps of a step,
    and with `trust` settings may name code of one's own also in a checkpoint from another machine.
    """

    def setup(self, config: dict[str, Any]) -> None:
        """Take in what to train; the run begins with the first step, or goes on from a checkpoint."""
        self._experiment: Experiment | None = None
        self._take_in(config)

    def step(self) -> dict[str, Any]:
        """Train to the next evaluation, and return its row of metrics."""
        if self._experiment is None:
            options = {"config": self._options["config"], "runs": self._root, "every_steps": self._options["every_steps"]}
            self._experiment = Experiment(self._options["spec"], *self._words, f"experiment.group={self._group}", **options)
        row = self._experiment.step()
        ended = {"done": self._experiment.has_ended, "timesteps_total": int(row["env_steps"]), "run": self._experiment.run.id}
        return {**row, **ended}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Write the exact state, as a run directory of Etude."""
        if self._experiment is None:
            raise UserError("a trial that has not begun has nothing to save")
        self._experiment.save(checkpoint_dir)

    def load_checkpoint(self, checkpoint: str | dict[str, Any] | None) -> None:
        """Go on from what was saved: with the trial's own run where that stands there still, else with a copy of it."""
        self._close()
        if not isinstance(checkpoint, str):
            raise UserError("a checkpoint of EtudeTrainable is a folder")
        saved = exported_run(Path(checkpoint))
        options = {"every_steps": self._options["every_steps"], "trust": self._options["trust"]}
        own = self._root / saved.id
        if self._stands_there(own, saved):
            self._experiment = Experiment.resume(Run.open(own), *self._words, **options)
        else:
            self._experiment = Experiment.load(checkpoint, *self._words, runs=self._root, group=self._group, **options)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Become another trial, in the same process (Tune's `reuse_actors`)."""
        self._close()
        self._take_in(new_config)
        return True

    def cleanup(self) -> None:
        """Save the run and stop."""
        self._close()

    def _take_in(self, config: Mapping[str, Any]) -> None:
        self._options = {key: config.get(key, default) for key, default in _OPTIONS.items()}
        settings = {key: value for key, value in config.items() if key not in _OPTIONS}
        unknown = next((key for key in settings if "." not in key and not key.startswith("_")), None)
        if unknown is not None:
            raise UserError(
                f"{unknown}: a setting has a dotted name, such as algorithm.gamma; else there are {', '.join(_OPTIONS)}"
            )
        self._words = [*self._options["words"], *swept_words(settings)]
        self._group = f"{self._options['group']}/{self.trial_id or 'alone'}"
        # Tune starts trials in folders of its own; a path of the script is meant from where the script was.
        here = Path(os.environ.get("TUNE_ORIG_WORKING_DIR") or os.getcwd())
        self._root = here / (self._options["runs"] or default_root())
        if self._options["config"] is not None:
            self._options["config"] = here / self._options["config"]

    def _stands_there(self, own: Path, saved: Run) -> bool:
        """Whether this trial's own run is there, nobody trains it, and it has not gone past what was saved."""
        try:
            run = Run.open(own)
            if run.record.get("group") != self._group or is_held(own / ".lock"):
                return False
            return run.checkpoints().newest_whole().name == saved.checkpoints().newest_whole().name
        except EtudeError:
            return False

    def _close(self) -> None:
        experiment, self._experiment = self._experiment, None
        if experiment is not None:
            experiment.close()

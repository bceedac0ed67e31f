"""Under the real Ray Tune: its schedulers stop, copy and restore trials of ours, and every run stays exact."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from etude.runs.index import find_runs
from etude.runs.run import Run
from tests.runs_compared import assert_same_run, rows, train
from tests.tuning.ray_cluster import cluster

pytestmark = [
    pytest.mark.optional,
    pytest.mark.timeout(2400),
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed here (extra ray)"),
]
WORDS = ["training.total_steps=1024", "algorithm.epochs=1", "evaluation.episodes=2", "evaluation.every_steps=256"]


@pytest.fixture(scope="module")
def tune(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    import ray  # pyright: ignore[reportMissingImports] # of an extra
    from ray import tune  # pyright: ignore[reportMissingImports] # of an extra

    with cluster(tmp_path_factory.mktemp("home"), cpus=2) as nodes:
        ray.init(address=nodes.address, log_to_driver=False)
        yield tune
        ray.shutdown()


def fit(tune: Any, trainable: Any, folder: Path, scheduler: Any = None, samples: int = 1, **config: Any) -> Any:
    space = {"spec": "CartPole-v1:ppo", "words": WORDS, "runs": str(folder / "runs"), **config}
    tuner = tune.Tuner(
        trainable,
        param_space=space,
        tune_config=tune.TuneConfig(scheduler=scheduler, num_samples=samples, metric="eval/return_mean", mode="max"),
        run_config=tune.RunConfig(
            name="it",
            storage_path=str(folder / "tune"),
            checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=1),
            failure_config=tune.FailureConfig(max_failures=2),
            verbose=0,
        ),
    )
    found = tuner.fit()
    assert not found.errors
    return found


def test_a_population_of_tunes_own_copies_exactly(tune: Any, tmp_path: Path) -> None:
    from ray.tune.schedulers import PopulationBasedTraining  # pyright: ignore[reportMissingImports] # of an extra

    from etude.tuning.ray_trainable import EtudeTrainable

    scheduler = PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=1,
        quantile_fraction=0.5,
        hyperparam_mutations={"algorithm.learning_rate": tune.loguniform(1e-4, 1e-1)},
        synch=True,
    )
    found = fit(tune, EtudeTrainable, tmp_path, scheduler, samples=3)
    assert all(result.metrics["env_steps"] == 1024 for result in found)
    runs = {run.id: Run.open(run.path) for run in find_runs(tmp_path / "runs")}
    copies = [run for run in runs.values() if "cloned_from" in run.record]
    assert copies
    for copy in copies:
        source = runs[copy.record["cloned_from"]["run"]]
        steps = int(copy.record["cloned_from"]["checkpoint"].split("-")[1])
        count = sum(json.loads(line)["env_steps"] <= steps for line in copy.metrics_path.read_text().splitlines())
        assert count >= 1
        assert rows(copy)[:count] == rows(source)[:count]
    saved = [path for path in (tmp_path / "tune").rglob("checkpoint_*/*") if path.is_dir()]
    assert saved
    for folder in saved:
        assert not [path for path in folder.rglob("*") if path.suffix in (".pkl", ".pickle", ".pt")]


def test_successive_halving_of_tunes_own_stops_some(tune: Any, tmp_path: Path) -> None:
    from ray.tune.schedulers import ASHAScheduler  # pyright: ignore[reportMissingImports] # of an extra

    from etude.tuning.ray_trainable import EtudeTrainable

    scheduler = ASHAScheduler(time_attr="training_iteration", max_t=100, grace_period=1, reduction_factor=2)
    rates = tune.grid_search([1e-5, 1e-4, 1e-3, 1e-2])
    found = fit(tune, EtudeTrainable, tmp_path, scheduler, **{"algorithm.learning_rate": rates})
    steps = sorted(result.metrics["env_steps"] for result in found)
    assert steps[0] < steps[-1] == 1024
    statuses = {run.env_steps: run.status for run in find_runs(tmp_path / "runs")}
    assert statuses[1024] == "finished"
    assert statuses[steps[0]] == "interrupted"  # saved, and could go on


def test_a_trial_whose_process_dies_is_restored_to_the_bit(tune: Any, tmp_path: Path) -> None:
    from etude.tuning.ray_trainable import EtudeTrainable

    class Dying(EtudeTrainable):
        """Its process ends once, amid its third step."""

        def step(self) -> dict[str, Any]:
            row = super().step()
            mark = tmp_path / "died"
            if row["env_steps"] >= 768 and not mark.exists():
                mark.touch()
                os._exit(1)
            return row

    (result,) = fit(tune, Dying, tmp_path, **{"algorithm.learning_rate": 0.001})
    assert (tmp_path / "died").exists()
    run = next(run for run in find_runs(tmp_path / "runs") if run.id == result.metrics["run"])
    whole = train(
        "CartPole-v1:ppo", tmp_path / "whole", *WORDS, "algorithm.learning_rate=0.001", f"experiment.group={run.group}"
    )
    assert_same_run(Run.open(run.path), whole)

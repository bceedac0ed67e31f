"""What the loop promises around hooks: budgets, rows, evaluations, saves, callbacks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from etude.config.compose import compose
from etude.errors import ConfigError, EtudeError
from etude.orchestration.callbacks import Callback, EarlyStop, Progress, load_states
from etude.runs.run import Run
from etude.telemetry.jsonl import read_rows
from etude.training import session, sitting
from tests.runs_compared import rows, train

SMALL = ("algorithm.epochs=2", "training.total_steps=3000")


@pytest.mark.parametrize("num_envs", [1, 3, 8])
def test_the_budget_is_honoured_within_one_vector_step(num_envs: int, tmp_path: Path) -> None:
    words = [f"environment.num_envs={num_envs}", "algorithm.batch_size=1.0", "training.total_steps=1000", "algorithm.epochs=1"]
    run = train("CartPole-v1:ppo", tmp_path, *words)
    steps = run.summary["counters"]["env_steps"]
    assert 1000 <= steps < 1000 + num_envs


def test_every_row_carries_all_five_counters_and_they_never_fall(tmp_path: Path) -> None:
    run = train("CartPole-v1:ppo", tmp_path, *SMALL)
    logged = read_rows(run.metrics_path)
    for name in ("decisions", "env_steps", "updates", "episodes", "cycles"):
        values = [row[name] for row in logged]
        assert values == sorted(values)
    assert logged[-1]["updates"] == 2 * (3000 // 256)


def test_the_first_checkpoint_is_at_step_0_and_last_and_best_point_somewhere(tmp_path: Path) -> None:
    words = (*SMALL, "checkpoint.every_steps=0", "checkpoint.keep=10")
    run = train("CartPole-v1:ppo", tmp_path, *words)
    full = [c for c in run.checkpoints().list() if c.kind == "full"]
    assert [c.counters["env_steps"] for c in full] == [0, 3000]
    assert run.checkpoints().find("best").load(["policy"])["policy"]
    best = max(row["eval/return_mean"] for row in read_rows(run.metrics_path) if "eval/return_mean" in row)
    assert run.summary["best"]["value"] == best
    assert run.checkpoints().find("best").metadata["metrics"]["eval/return_mean"] == best  # type: ignore[index]


def test_the_run_directory_has_everything_the_layout_promises(tmp_path: Path) -> None:
    run = train("CartPole-v1:ppo", tmp_path, *SMALL)
    names = {path.name for path in run.path.iterdir()}
    wanted = {"config.yaml", "resolved.yaml", "provenance", "checkpoints", "metrics.jsonl", "metrics.csv", "summary.json",
              "run.log", "logs", "videos", "run.json", "report.md", "report.html"}  # fmt: skip
    assert wanted <= names
    assert {"last", "best"} <= {path.name for path in run.checkpoints_path.iterdir()}
    written = [path for path in run.path.rglob("*") if "untracked" not in path.parts]
    assert not any(path.suffix in (".pkl", ".pt", ".pickle", ".py") for path in written)
    assert "environment.json" in {path.name for path in (run.path / "provenance").iterdir()}


def test_evaluation_runs_on_its_grid_and_reports_both_modes_when_asked(tmp_path: Path) -> None:
    words = ("evaluation.every_steps=1000", "evaluation.warmup_steps=1000", "evaluation.mode=both", "evaluation.episodes=3")
    run = train("CartPole-v1:ppo", tmp_path, *SMALL, *words)
    evaluated = [row for row in read_rows(run.metrics_path) if "eval/return_mean" in row]
    assert [row["env_steps"] for row in evaluated] == [2048, 3000]
    assert all(row["eval/episodes"] == 3 and "eval/sample_return_mean" in row for row in evaluated)
    assert run.summary["evaluation_mode"] == ["greedy", "sample"]


def test_a_return_threshold_stops_the_run_and_is_its_reason(tmp_path: Path) -> None:
    words = (*SMALL, "training.early_stop=eval", "training.return_threshold=5", "evaluation.every_steps=500")
    run = train("CartPole-v1:ppo", tmp_path, *words)
    assert run.status == "stopped"
    assert "eval/return_mean" in run.summary["stop_reason"]
    assert "reached 5" in run.summary["stop_reason"]
    assert run.summary["counters"]["env_steps"] == 512


def test_early_stopping_without_a_threshold_asks_for_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"set training.return_threshold"):
        train("Pendulum-v1:random", tmp_path, "training.early_stop=train", "environment.spec.return_threshold=null",
              "training.return_threshold=null")  # fmt: skip
    assert not any(tmp_path.iterdir())


class Watcher(Callback):
    """A user's callback: counts cycles, and may ask to stop."""

    def __init__(self, limit: int = 10**9) -> None:
        self.limit, self.cycles, self.events = limit, 0, []

    def on_start(self, progress: Progress) -> None:
        self.events.append("start")

    def on_cycle(self, progress: Progress) -> str | None:
        self.cycles += 1
        return f"saw {self.cycles} cycles" if self.cycles >= self.limit else None

    def on_checkpoint(self, progress: Progress, path: Path) -> None:
        assert path.is_dir()
        self.events.append("checkpoint")

    def on_end(self, progress: Progress, reason: str) -> None:
        assert progress.run_dir is not None
        (progress.run_dir / "logs" / "watcher.txt").write_text(f"{self.cycles} {reason} {self.events[0]} {self.events[-1]}")

    def state_dict(self) -> dict[str, Any]:
        return {"cycles": self.cycles}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.cycles = state["cycles"]


WATCHER = "tests.orchestration.test_orchestrator.Watcher"


def test_a_users_callback_from_yaml_sees_every_cycle_and_can_stop_the_run(tmp_path: Path) -> None:
    run = train("CartPole-v1:ppo", tmp_path, *SMALL, f"training.callbacks=[{{type: {WATCHER}, limit: 4}}]")
    assert (run.logs / "watcher.txt").read_text() == "4 saw 4 cycles start checkpoint"
    assert run.summary["counters"]["cycles"] == 4
    assert run.summary["stop_reason"] == "saw 4 cycles"


def test_a_callback_changes_nothing_about_the_run(tmp_path: Path) -> None:
    with_one = train("CartPole-v1:ppo", tmp_path, *SMALL, f"training.callbacks=[{{type: {WATCHER}}}]")
    assert rows(with_one) == rows(train("CartPole-v1:ppo", tmp_path, *SMALL))


def test_a_callbacks_wrong_option_is_found_before_the_run_exists(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown option of .* did you mean 'limit'"):
        train("CartPole-v1:ppo", tmp_path, f"training.callbacks=[{{type: {WATCHER}, limt: 4}}]")
    assert not any(tmp_path.iterdir())


def test_a_hook_that_fails_leaves_a_failed_run_with_its_traceback_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from etude.learning.execute import Executor

    calls = 0
    original = Executor.once

    def broken(self: Executor, *arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > 10:
            raise RuntimeError("the loss exploded")
        return original(self, *arguments)

    monkeypatch.setattr(Executor, "once", broken)
    with pytest.raises(RuntimeError, match="exploded"):
        train("CartPole-v1:ppo", tmp_path, *SMALL, "experiment.compile=off")
    run = Run.resolve("@last", tmp_path)
    assert run.status == "failed"
    assert "RuntimeError: the loss exploded" in run.log_path.read_text()
    assert run.checkpoints().newest_whole().counters["env_steps"] == 5 * 256


def test_a_sink_that_fails_becomes_an_alert_and_training_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def write(self, rows: Any) -> None:
            raise OSError("the server is gone")

        def flush(self) -> None: ...
        def close(self) -> None: ...

    monkeypatch.setattr(sitting, "optional_sinks", lambda *_: [Broken()])
    run = train("CartPole-v1:ppo", tmp_path, *SMALL)
    assert run.status == "finished"
    assert "the server is gone" in run.log_path.read_text()


def test_rows_can_be_iterated_like_epochs() -> None:
    from etude.training import assembly

    words = [*SMALL, "logging.every_steps=512", "evaluation.every_steps=0"]
    config = assembly.resolve(compose("CartPole-v1:ppo", words=words).config)
    orchestrator = assembly.build(config)
    assert orchestrator.collector is not None
    orchestrator.collector.start(orchestrator.workflow.initial_state)
    seen = [row["env_steps"] for row in orchestrator.rows()]
    assert seen == [512, 1024, 1536, 2048, 2560, 3000]


def test_a_cycle_of_nothing_is_reported_with_the_run_saved_at_its_start(tmp_path: Path) -> None:
    little = "{name: little, hooks: [{collect: {count: 1}}], duration_cycles: 1}"
    phases = f"[{little}, {{name: stuck, type: offline, hooks: [update], duration_updates: 5}}]"
    composition = compose("CartPole-v1:ppo", words=[f"training.phases={phases}"])
    with open(os.devnull, "w") as nowhere, pytest.raises(EtudeError, match="phase 'stuck' is offline"):
        session.train(composition, root=tmp_path, quiet=True, stream=nowhere)


def test_evaluating_an_environment_that_draws_from_the_global_generators_changes_no_training(tmp_path: Path) -> None:
    import gymnasium
    import numpy as np

    class Gambler(gymnasium.Env[Any, Any]):
        observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
        action_space = gymnasium.spaces.Discrete(2)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            return np.random.uniform(-1, 1, 1).astype(np.float32), {}  # noqa: NPY002

        def step(self, action: Any) -> Any:
            return np.random.uniform(-1, 1, 1).astype(np.float32), 1.0, np.random.rand() < 0.1, False, {}  # noqa: NPY002

    gymnasium.register("Gambler-v0", Gambler)
    try:
        words = ("training.total_steps=600", "algorithm.rollout_steps=16", "algorithm.epochs=1", "logging.every_steps=128")
        evaluated = train("Gambler-v0:ppo", tmp_path, *words, "evaluation.every_steps=100")
        plain = train("Gambler-v0:ppo", tmp_path, *words, "evaluation.every_steps=0")
    finally:
        del gymnasium.registry["Gambler-v0"]
    last, other = (read_rows(run.metrics_path)[-1] for run in (evaluated, plain))
    assert last["collect/return_mean"] == other["collect/return_mean"]
    assert last["episodes"] == other["episodes"]


def test_a_run_that_a_callback_stops_has_one_row_for_its_last_step_and_an_evaluation(tmp_path: Path) -> None:
    words = ("training.early_stop=train", "training.return_threshold=0", "evaluation.every_steps=100000")
    run = train("CartPole-v1:ppo", tmp_path, "training.total_steps=20000", "algorithm.epochs=1", *words)
    assert run.status == "stopped"
    steps = [row["env_steps"] for row in read_rows(run.metrics_path)]
    assert steps == sorted(set(steps))
    assert "eval/return_mean" in run.summary["last_evaluation"]


def test_a_callback_of_ours_that_has_moved_to_another_module_goes_on_with_its_state() -> None:
    saved = [{"type": "etude.where.it.was.EarlyStop", "state": {"over": [1.0]}}, {"type": "theirs.Own", "state": {}}]
    loaded: list[object] = []

    class Remembers(EarlyStop):
        def load_state_dict(self, state: dict[str, Any]) -> None:
            loaded.append(state)

    Remembers.__module__, Remembers.__qualname__ = EarlyStop.__module__, EarlyStop.__qualname__
    assert load_states([Remembers("eval/return_mean", 1.0)], saved) == ["callback Own ends here"]
    assert loaded == [{"over": [1.0]}]

"""Settings from a W&B sweep's agent are merged before training, and words of the command line win."""

from __future__ import annotations

import importlib.machinery
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from etude.cli import run as etude
from etude.errors import UserError
from etude.runs.index import find_runs
from etude.tuning.wandb_sweep import sweep_words


class Settings(dict[str, Any]):
    """Stands in for wandb.config."""

    def update(self, values: Any, allow_val_change: bool = False) -> None:  # type: ignore[override] # as W&B's
        assert allow_val_change
        super().update(values)


class Run:
    def __init__(self, config: dict[str, Any]) -> None:
        self.config, self.rows = Settings(config), []

    def define_metric(self, *names: str, **options: str) -> None: ...

    def log(self, row: dict[str, float], step: int) -> None:
        self.rows.append(row)

    def finish(self) -> None: ...


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> Run:
    """An agent of a sweep has started this process."""
    begun = Run(
        {
            "algorithm.learning_rate": "lin_0.001",
            "algorithm": {"gamma": 0.9},
            "network.actor.hidden_dims": [8, 8],
            "training.total_steps": 5000,
            "_wandb": {"version": 1},
        }
    )
    module: Any = types.ModuleType("wandb")
    module.run, module.__spec__ = None, importlib.machinery.ModuleSpec("wandb", None)

    def init(**settings: Any) -> Run:
        assert "id" not in settings, "a second run would be no part of the sweep"
        module.run = begun
        return begun

    module.init = init
    monkeypatch.setitem(sys.modules, "wandb", module)
    monkeypatch.setenv("WANDB_SWEEP_ID", "abc")
    return begun


def test_words_win_over_the_sweep_and_metrics_are_sent(agent: Run) -> None:
    words = sweep_words(["algorithm.gamma=0.5", "training.total_steps=1e3", "algorithm.lr=1e-5"])
    assert words == ["network.actor.hidden_dims=[8,8]", "logging.wandb.enabled=true", "logging.wandb.mode='online'"]


def test_an_agent_without_a_sweep_is_an_error(monkeypatch: pytest.MonkeyPatch, agent: Run) -> None:
    monkeypatch.delenv("WANDB_SWEEP_ID")
    with pytest.raises(UserError, match="WANDB_SWEEP_ID is not set"):
        sweep_words([])


def test_a_training_of_an_agent_takes_its_settings_and_logs_to_its_run(
    agent: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert etude(["train", "CartPole-v1:ppo", "evaluation.episodes=1", "--total-steps", "5e2", "-q"]) == 0
    config = find_runs(tmp_path / "runs")[0].config
    assert (config["algorithm.gamma"], config["training.total_steps"]) == (0.9, 500)
    assert config["algorithm.learning_rate.start"] == 0.001
    assert agent.rows
    assert agent.config["training"]["total_steps"] == 500
    assert etude(["train", "CartPole-v1:ppo", "--seed", "1-2"]) == 2
    assert "--wandb-sweep trains one run" in capsys.readouterr().err

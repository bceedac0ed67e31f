from __future__ import annotations

import sys
import types

import pytest

from etude.config.compose import compose
from etude.errors import UserError
from etude.telemetry.alerts import Alerts
from etude.telemetry.wandb import WandbSink
from etude.training.run_sinks import optional_sinks
from tests.runs.run_trees import make_run


class FakeRun:
    def __init__(self):
        self.logged, self.steps, self.defined, self.finished = [], [], [], 0

    def define_metric(self, name, **options):
        self.defined.append((name, options))

    def log(self, row, step):
        self.logged.append(row)
        self.steps.append(step)

    def finish(self):
        self.finished += 1


@pytest.fixture
def wandb(monkeypatch):
    module = types.ModuleType("wandb")
    module.calls = []
    module.unreachable = False

    def init(**options):
        module.calls.append(options)
        if module.unreachable and options["mode"] == "online":
            raise ConnectionError("no route to host")
        module.run = FakeRun()
        return module.run

    module.init = init
    monkeypatch.setitem(sys.modules, "wandb", module)
    return module


def make(tmp_path, **changes):
    options = {"project": "etude", "entity": "us", "tags": ["a"], "name": "first", "config": {"seed": 1}}
    return WandbSink(**options, run_dir=tmp_path / "run-7f3a", **changes)


def test_the_users_settings_reach_wandb(wandb, tmp_path):
    make(tmp_path, mode="offline", group="seeds")
    (call,) = wandb.calls
    assert {key: call[key] for key in ("project", "entity", "tags", "group", "name", "config", "mode")} == {
        "project": "etude",
        "entity": "us",
        "tags": ["a"],
        "group": "seeds",
        "name": "first",
        "config": {"seed": 1},
        "mode": "offline",
    }


def test_a_resumed_run_continues_its_own_wandb_run(wandb, tmp_path):
    make(tmp_path)
    assert (wandb.calls[0]["id"], wandb.calls[0]["resume"]) == ("run-7f3a", "allow")


@pytest.mark.parametrize("axis", ["env_steps", "updates"])
def test_rows_are_logged_over_the_runs_axis(wandb, tmp_path, axis):
    sink = make(tmp_path, axis=axis)
    sink.write([{"env_steps": 8, "train/loss": 0.5}, {"env_steps": 16, "train/loss": 0.25}])
    sink.flush()
    sink.close()
    counters = {name for name, options in wandb.run.defined if options == {"hidden": True}}
    assert counters == {"decisions", "env_steps", "updates", "episodes", "cycles"}
    assert wandb.run.defined[-1] == ("*", {"step_metric": axis})
    assert wandb.run.logged == [{"env_steps": 8, "train/loss": 0.5}, {"env_steps": 16, "train/loss": 0.25}]
    assert wandb.run.finished == 1


def test_without_a_connection_it_logs_offline_and_says_so(wandb, tmp_path):
    wandb.unreachable = True
    with pytest.warns(UserWarning, match="no route to host.*wandb sync"):
        make(tmp_path)
    assert [call["mode"] for call in wandb.calls] == ["online", "offline"]


def test_without_the_package_the_error_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match=r"pip install 'etude\[wandb\]'"):
        make(tmp_path)


def test_rows_of_a_resumed_run_are_numbered_on(wandb, tmp_path):
    sink = make(tmp_path, rows_before=3)
    sink.write([{"env_steps": 40, "train/loss": 1.0}, {"env_steps": 50, "train/loss": 2.0}])
    assert wandb.run.steps == [3, 4]


def test_the_seeds_of_a_group_are_one_group_there_too(wandb, tmp_path):
    config = compose("CartPole-v1:ppo", words=["logging.wandb.enabled=true", "experiment.group=seeds"]).config
    run = make_run(tmp_path, "x")
    (sink,) = optional_sinks(config, run, [], Alerts(print))
    sink.close()
    assert wandb.calls[0]["group"] == "seeds"

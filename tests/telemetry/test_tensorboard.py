from __future__ import annotations

import sys
import time

import pytest

from etude.errors import UserError
from etude.telemetry.tensorboard import TensorBoardSink


def curves(folder):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(folder)).Reload()
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


ROWS = [
    {"env_steps": 8, "updates": 1, "train/loss": 0.5},
    {"env_steps": 16, "updates": 2, "train/loss": 0.25, "eval/return_mean": 7.0},
]


@pytest.mark.parametrize(("axis", "steps"), [("env_steps", (8, 16)), ("updates", (1, 2))])
def test_every_metric_is_a_curve_over_the_runs_axis(tmp_path, axis, steps):
    sink = TensorBoardSink(tmp_path, axis=axis)
    sink.write(ROWS)
    sink.flush()
    sink.close()
    assert curves(tmp_path) == {
        "train/loss": [(steps[0], 0.5), (steps[1], 0.25)],
        "eval/return_mean": [(steps[1], 7.0)],
    }


def test_a_resumed_run_replaces_what_came_after_its_checkpoint(tmp_path):
    first = TensorBoardSink(tmp_path)
    first.write(ROWS)
    first.close()
    second = TensorBoardSink(tmp_path, purge_step=16)
    second.write([{"env_steps": 16, "train/loss": 0.125}])
    second.close()
    assert curves(tmp_path)["train/loss"] == [(8, 0.5), (16, 0.125)]


def test_a_clock_that_was_set_back_does_not_put_the_second_sitting_first(tmp_path, monkeypatch):
    TensorBoardSink(tmp_path).close()
    monkeypatch.setattr(time, "time_ns", lambda: 10**9)
    second = TensorBoardSink(tmp_path, purge_step=8)
    second.write(ROWS)
    second.close()
    first, last = sorted(path.stat().st_size for path in tmp_path.iterdir())
    assert [path.stat().st_size for path in sorted(tmp_path.iterdir())] == [first, last]


def test_without_the_package_the_error_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard.summary.writer.record_writer", None)
    with pytest.raises(UserError, match=r"pip install 'etude\[tensorboard\]'"):
        TensorBoardSink(tmp_path)


def test_settings_are_in_the_table_of_runs_also_of_a_resumed_one(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing import event_accumulator
    from tensorboard.plugins.hparams import metadata

    known = {"algorithm.gamma": 0.98, "experiment.seed": 3, "algorithm.name": "ppo", "algorithm.clip": True}
    for purge_step in (None, 16):
        sink = TensorBoardSink(tmp_path, purge_step=purge_step, hyper_parameters=known)
        sink.write(ROWS[:1] if purge_step is None else ROWS[1:])
        sink.close()
    events = event_accumulator.EventAccumulator(str(tmp_path)).Reload()
    content = events.SummaryMetadata(metadata.SESSION_START_INFO_TAG).plugin_data.content
    session = metadata.parse_session_start_info_plugin_data(content)
    assert {name: getattr(value, value.WhichOneof("kind")) for name, value in session.hparams.items()} == known
    experiment = events.SummaryMetadata(metadata.EXPERIMENT_TAG).plugin_data.content
    found = metadata.parse_experiment_plugin_data(experiment)
    assert "eval/return_mean" in [metric.name.tag for metric in found.metric_infos]
    assert curves(tmp_path)["train/loss"] == [(8, 0.5), (16, 0.25)]

"""Recording a run: the dataset says what made it, and is the same however the recording was stopped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from etude.api import train
from etude.cli import run as command
from etude.datasets.dataset import Dataset
from etude.using import record_dataset


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    words = ("experiment.name=demo", "training.total_steps=64", "algorithm.rollout_steps=8", "algorithm.batch_size=64")
    train("CartPole-v1:ppo", *words, "evaluation.every_steps=0", runs=folder / "runs")
    return folder


def _record(root: Path, *words: str) -> int:
    places = ("--runs", str(root / "runs"), "--datasets", str(root / "data"))
    return command(["dataset", "record", "@last", *places, "--num-envs", "3", "--mode", "sample", *words])


def test_a_recording_that_was_stopped_is_the_same(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _record(root, "--episodes", "7", "--name", "whole") == 0
    added: list[int] = []

    class Dying(record_dataset.DatasetWriter):
        def add(self, *episodes: object) -> None:
            super().add(*episodes)  # type: ignore[arg-type]
            added.append(len(episodes))
            if sum(added) in (2, 5):
                raise KeyboardInterrupt

    with monkeypatch.context() as dying:
        dying.setattr("etude.datasets.writer.DatasetWriter", Dying)
        while _record(root, "--episodes", "7", "--name", "cut") != 0:
            pass
    whole, cut = (Dataset.open(name, root / "data") for name in ("whole", "cut"))
    assert len(added) >= 3
    assert whole.manifest.segments == cut.manifest.segments
    assert len({episode.seed for episode in whole.episodes()}) == 7
    for episode in whole.episodes():
        assert episode.terminated
        assert isinstance(episode.observation, torch.Tensor)
        position, _, angle, _ = episode.observation[-1].abs().tolist()
        assert angle > 0.2 or position > 2.4  # the end, not a new beginning
        assert torch.equal(episode.reward, torch.ones(len(episode)))
    seeds = [episode.seed for episode in cut.episodes()]
    assert _record(root, "--episodes", "9", "--name", "cut") == 0
    longer = [episode.seed for episode in Dataset.open("cut", root / "data").episodes()]
    assert len(longer) == 9
    assert longer[:7] == seeds
    capsys.readouterr()
    assert _record(root, "--episodes", "9", "--name", "cut", "--seed", "1") == 2
    assert "recorded with seed=0, not 1" in capsys.readouterr().err


def test_list_and_show_say_where_it_came_from(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _record(root, "--episodes", "3", "--name", "a/shown", "--description", "a pole") == 0
    capsys.readouterr()
    assert command(["dataset", "list", "--json", "--datasets", str(root / "data")]) == 0
    listed = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert listed["a/shown"]["episodes"] == 3
    assert listed["a/shown"]["origin"]["kind"] == "run"
    picture = root / "shown.png"
    words = ["--datasets", str(root / "data"), "--json", "--picture", str(picture)]
    assert command(["dataset", "show", "a/shown", *words]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["origin"]["algorithm"] == "ppo"
    assert shown["origin"]["env_steps"] == 64
    assert shown["description"] == "a pole"
    assert sum(shown["columns"]["action"]["counts"]) == shown["steps"]
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert command(["dataset", "show", "nothing", "--datasets", str(root / "data")]) == 2
    assert "there is no dataset 'nothing'" in capsys.readouterr().err
    assert command(["dataset", "convert", "a", "b", "--datasets", str(root / "data")]) == 2
    assert "one of them must be a dataset's name" in capsys.readouterr().err

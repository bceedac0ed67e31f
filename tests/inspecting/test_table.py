"""Inspected episodes as files: a column for each number, and nothing that a spreadsheet would run."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from etude.cli import run as etude
from etude.inspecting import facts, table
from etude.inspecting.inspector import Inspector
from tests.inspecting.conftest import Trained


def test_csv_and_json_hold_the_same_steps(trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = trained("CartPole-v1:ppo")
    words = ["--max-steps", "9", "--episodes", "2", "--seed", "4", "--sample"]
    assert etude(["inspect", str(run.path), *words, "--csv", str(tmp_path / "a.csv"), "--json", str(tmp_path / "a.json")]) == 0
    whole = json.loads((tmp_path / "a.json").read_text())
    rows = list(csv.DictReader(io.StringIO((tmp_path / "a.csv").read_text())))
    steps = [step for episode in whole["episodes"] for step in episode["steps"]]
    assert [episode["seed"] for episode in whole["episodes"]] == [4, 5]
    assert (whole["run"], whole["mode"], whole["algorithm"]) == (run.id, "sample", "ppo")
    assert len(rows) == len(steps)
    for row, step in zip(rows, steps, strict=True):
        for name in ("reward", "return", "mc_return", "value", "advantage"):
            assert float(row[name]) == step[name]
        assert row["action_label"] == step["action_label"] == ("left", "right")[step["action"]]
        assert [float(row["probabilities_left"]), float(row["probabilities_right"])] == step["probabilities"]
        assert float(row["observation_angle"]) == step["observation"][2]
    assert "seed 4" in capsys.readouterr().out


def test_hostile_labels_stay_text(trained: Trained) -> None:
    inspector = Inspector.open(trained("CartPole-v1:ppo"), pictures=False)
    performer = inspector.performer
    config: Any = performer.stored.config
    spec = replace(config.environment.spec, action_labels=("=HYPERLINK(1)", "@SUM(2)"))
    config = replace(config, environment=replace(config.environment, spec=spec))
    inspector.performer = replace(performer, stored=replace(performer.stored, config=config))
    recording = inspector.record(0, max_steps=4)
    rows = list(csv.reader(io.StringIO(table.as_csv(inspector, [recording]))))
    assert {row[rows[0].index("action_label")] for row in rows[1:]} <= {"'=HYPERLINK(1)", "'@SUM(2)"}
    inspector.close()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--csv", "x.csv", "--port", "1"], "--port is of the page"),
        (["--episodes", "2"], "--episodes is for --csv and --json"),
        (["--csv", "x.csv", "--max-steps", "0"], "--max-steps 0: must be at least 1"),
        (["--csv", "x.csv", "--sample", "--greedy"], "choose one"),
        (["--csv", "x.csv", "--checkpoint", "777777"], "checkpoint '777777' not found"),
        (["--port", "70000"], "must be from 0 to 65535"),
    ],
)
def test_a_slip_is_one_line(
    trained: Trained, words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert etude(["inspect", str(trained("CartPole-v1:ppo").path), *words]) != 0
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_facts_name_environment_model_and_checkpoint(trained: Trained) -> None:
    inspector = Inspector.open(trained("CartPole-v1:ppo"), pictures=False)
    inspector.record(0, max_steps=2)
    environment, model = dict(facts.environment_facts(inspector)), dict(facts.model_facts(inspector))
    assert environment["environment"] == "CartPole-v1"
    assert environment["state"].startswith("exact")
    assert "parameters" in model["critic"]
    assert model["algorithm.gae_lambda"]
    assert model["algorithm.learning_rate"].partition(" ")[0].replace(".", "").isdigit()
    assert model["algorithm.optimizer"].startswith("adam")
    assert dict(facts.checkpoint_facts(inspector))["holds"] == "the whole run"

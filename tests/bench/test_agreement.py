"""Etude's losses, gradients and updates are those of Stable-Baselines3, and a difference would be noticed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import agree
import numpy as np
import pytest
from agreement.etude_side import write_cases

from tests.bench.conftest import BENCH

PEERS = os.environ.get("ETUDE_PEERS")


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(BENCH / "agree.py"), *words], capture_output=True, text=True)


@pytest.mark.skipif(PEERS is None, reason="ETUDE_PEERS names no environment with Stable-Baselines3 (bench/install_peers.sh)")
def test_losses_gradients_and_updates_are_those_of_stable_baselines(tmp_path: Path) -> None:
    done = run(str(PEERS), "--json", str(tmp_path / "table.json"))
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads((tmp_path / "table.json").read_text())["rows"]
    compared = {(row["case"], row["what"]) for row in rows}
    for case in ("sac", "td3"):
        assert {(case, f"{part} {what}") for part in ("actor", "critic") for what in ("loss", "gradient", "update")} <= compared
    assert {
        ("sac", "temperature loss"),
        ("gae", "advantages"),
        ("ppo_discrete", "loss"),
        ("ppo_continuous", "loss"),
    } <= compared


def test_without_the_peers_it_says_how_to_install_them(tmp_path: Path) -> None:
    done = run(str(tmp_path / "none"))
    assert done.returncode == 2
    assert done.stderr == "Stable-Baselines3 is not installed: bench/install_peers.sh\n"


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    folder = tmp_path_factory.mktemp("cases")
    assert {"sac", "td3", "ppo_continuous", "ppo_discrete", "gae"} <= set(write_cases(folder))
    with np.load(folder / "td3.npz", allow_pickle=False) as stored:
        return dict(stored)


def answer(ours: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: value.copy() for name, value in ours.items() if name.startswith(("result.", "gradient.", "after."))}


def disagreements(rows: list[dict[str, Any]]) -> list[str]:
    return [row["what"] for row in rows if not row["agrees"]]


def test_what_is_the_same_agrees(ours: dict[str, np.ndarray]) -> None:
    assert disagreements(agree._differences("td3", ours, answer(ours))) == []


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("result.critic loss", "critic loss"),
        ("gradient.critic.1.0.weight", "critic gradient"),
        ("after.target_actor.2.bias", "target_actor update"),
    ],
)
def test_a_small_difference_is_noticed(ours: dict[str, np.ndarray], name: str, what: str) -> None:
    theirs = answer(ours)
    before = ours[name.replace("after.", "weight.")] if name.startswith("after.") else 0
    theirs[name] = theirs[name] + 1e-3 * np.abs(theirs[name] - before).max()
    assert disagreements(agree._differences("td3", ours, theirs)) == [what]


def test_a_network_that_did_not_move_is_no_agreement(ours: dict[str, np.ndarray]) -> None:
    still = {name: ours[name.replace("after.actor", "weight.actor")] for name in ours}
    assert disagreements(agree._differences("td3", still, answer(still))) == ["actor update"]


def test_what_only_one_side_has_is_an_error(ours: dict[str, np.ndarray]) -> None:
    theirs = answer(ours)
    del theirs["gradient.actor.0.bias"]
    with pytest.raises(SystemExit, match="only one side has gradient"):
        agree._differences("td3", ours, theirs)

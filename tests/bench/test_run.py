"""The whole of run.py in quick sizes and without peers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.bench.conftest import BENCH

NO_PEERS = "not installed: bench/install_peers.sh"


def run(tmp_path: Path, *words: str) -> tuple[str, dict[str, Any]]:
    out = tmp_path / "results.json"
    command = [sys.executable, str(BENCH / "run.py"), *words, "--quick", "--repeats", "1", "--json", str(out)]
    done = subprocess.run([*command, "--peers", str(tmp_path / "none")], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, json.loads(out.read_text())


def check_document(document: dict[str, Any]) -> None:
    """The shape that readers of the JSON rely on."""
    assert document["schema"] == 1
    assert {"cpu", "cpus_used", "cpus_in_machine", "platform", "python", "peers"} <= document["machine"].keys()
    for bench in document["benches"]:
        assert {"name", "group", "unit", "task", "repeats", "load_average", "sides", "ratios"} == bench.keys()
        for side in bench["sides"]:
            assert side["status"] in ("ok", "not installed", "not available", "failed")
            assert {"name", "label", "ours", "reason", "rate", "threads", "rates_by_threads"} <= side.keys()
            if side["status"] != "ok":
                assert side["reason"]
                assert side["rate"] is None
                continue
            assert side["rate"] == max(side["rates_by_threads"][str(side["threads"])]) > 0
            assert {"gradient_steps_per_unit", "compile_first_s", "compile_again_s", "setup_s"} <= side.keys()
            assert {"measured_units", "measured_seconds", "variables"} <= side.keys()
            assert side["resolved"]
            assert side["versions"]["python"]
        assert all(ratio > 0 for ratio in bench["ratios"].values())


def sides(document: dict[str, Any], bench: str) -> dict[str, dict[str, Any]]:
    (found,) = [entry for entry in document["benches"] if entry["name"] == bench]
    return {side["name"]: side for side in found["sides"]}


def test_environments_are_measured_without_peers(tmp_path: Path) -> None:
    printed, document = run(tmp_path, "step-cartpole")
    check_document(document)
    found = sides(document, "step-cartpole")
    assert found["envpool"]["reason"] == NO_PEERS
    assert NO_PEERS in printed
    assert found["etude-gymnasium"]["resolved"]["class"] == "GymnasiumVector"
    assert document["benches"][0]["ratios"]["etude-gymnasium / sync"] > 0


@pytest.mark.slow
def test_physics_is_measured_where_mujoco_is(tmp_path: Path) -> None:
    pytest.importorskip("mujoco")
    _, document = run(tmp_path, "step-halfcheetah", "--sides", "etude-gymnasium", "sync", "mujoco-batch")
    check_document(document)
    assert all(side["status"] == "ok" for side in sides(document, "step-halfcheetah").values())
    assert not list(BENCH.parent.glob("bench/MUJOCO_LOG.TXT"))


def test_ppo_takes_the_same_gradient_steps_on_all_sides(tmp_path: Path) -> None:
    printed, document = run(tmp_path, "ppo-cartpole", "--sides", "etude-eager", "plain", "sb3", "sbx")
    check_document(document)
    found = sides(document, "ppo-cartpole")
    assert found["sb3"]["reason"] == found["sbx"]["reason"] == NO_PEERS
    # 20 epochs of one batch of 256 for each 256 environment steps.
    assert found["etude-eager"]["gradient_steps_per_unit"] == found["plain"]["gradient_steps_per_unit"] == 20 / 256
    assert "quick sizes" in printed
    task, resolved = document["benches"][0]["task"], found["etude-eager"]["resolved"]
    for key in ("rollout_steps", "batch_size", "epochs", "gamma", "gae_lambda", "learning_rate", "clip_range", "max_grad_norm"):
        assert resolved["algorithm"][key] == task[key], key
    assert resolved["network"]["actor"]["hidden_dims"] == task["hidden"]


@pytest.mark.slow
def test_collectors_and_loaders_are_measured(tmp_path: Path) -> None:
    _, document = run(tmp_path, "collect-cartpole", "loaders")
    check_document(document)
    assert sides(document, "collect-cartpole")["etude"]["gradient_steps_per_unit"] == 0
    assert all(side["status"] == "ok" for side in sides(document, "loaders").values())


def test_an_unknown_bench_is_refused_by_name(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, str(BENCH / "run.py"), "pong"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert "no bench or group 'pong'" in done.stderr

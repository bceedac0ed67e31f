"""Two processes with half of a batch each take the step that one takes with all of it."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch

from etude.compute.world import ALONE, World
from etude.errors import UserError
from etude.learning.execute import make_executor
from etude.learning.update import Update
from tests.forked import ForkedProgram
from tests.learning.two_ranks import RANKS, UPDATES, build

PATIENCE = 240
"""Seconds after which ranks that wait for each other are ended."""


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What came of each update in each of two processes."""
    folder = tmp_path_factory.mktemp("ranks")
    command = [sys.executable, "-c", "import sys; from pathlib import Path; from tests.learning.two_ranks import main; "
               "main(int(sys.argv[1]), Path(sys.argv[2]))"]  # fmt: skip
    outputs, processes = [folder / f"{rank}.txt" for rank in range(RANKS)], []
    for rank, output in enumerate(outputs):
        with output.open("wb") as stream:
            processes.append(ForkedProgram([*command, str(rank), str(folder)], stdout=stream, stderr=stream))
    try:
        codes = [process.wait(PATIENCE) for process in processes]
    except subprocess.TimeoutExpired:
        pytest.fail(f"the ranks did not finish within {PATIENCE} seconds")
    finally:
        for process in processes:
            process.kill()
            process.wait()
    for rank, (code, output) in enumerate(zip(codes, outputs, strict=True)):
        assert code == 0, f"rank {rank} failed:\n{output.read_text()}"
    return [torch.load(folder / f"{rank}.pt") for rank in range(RANKS)]


@pytest.mark.parametrize("name", UPDATES)
def test_two_ranks_take_the_step_of_one_process_with_both_their_batches(name: str, ranks: list[dict[str, Any]]) -> None:
    whole = UPDATES[name](ALONE)
    for rank, found in enumerate(ranks):
        assert found[name].keys() == whole.keys()
        for key, value in whole.items():
            wanted = value.chunk(RANKS)[rank] if key.endswith("running_return") else value  # each environment's own
            torch.testing.assert_close(found[name][key], wanted, rtol=1e-6, atol=1e-6, msg=lambda m, k=key: f"{k}: {m}")


def test_ranks_have_one_policy_and_environments_of_their_own(ranks: list[dict[str, Any]]) -> None:
    first, second = (found["training"] for found in ranks)
    own = ("running_return", "metrics")
    learnt = [key for key in first["whole"] if "/shared/workflow/" in key and not any(name in key for name in own)]
    assert len(learnt) > 20
    for key in learnt:
        assert torch.equal(first["whole"][key], second["whole"][key]), key
    assert not torch.equal(first["observation"], second["observation"])
    streams = {key: [torch.equal(one["whole"][f"/streams/streams/{key}"], first["whole"][f"/streams/streams/{key}"])
                     for one in (first, second)] for key in ("action", "minibatch")}  # fmt: skip
    assert streams == {"action": [True, False], "minibatch": [True, True]}


def test_the_first_rank_logs_evaluates_and_saves_for_all(ranks: list[dict[str, Any]]) -> None:
    first, second = (found["training"] for found in ranks)
    assert first["rows"] > 3
    assert second["rows"] == 0
    assert first["saved"] == [["policy", "rank/0", "rank/1", "shared"]]
    assert second["saved"] == []
    assert first["best"] == second["best"]
    assert first["best"] is not None


def test_ranks_that_were_stopped_go_on_to_the_same_end(ranks: list[dict[str, Any]]) -> None:
    for found in (found["training"] for found in ranks):
        assert 0 < found["halfway"]["env_steps"] < 192
        assert found["whole"].keys() == found["resumed"].keys()
        for key, value in found["whole"].items():
            assert torch.equal(value, found["resumed"][key]), key


def several(size: int = 2) -> World:
    """A world of several processes in which nothing is said."""
    world = World()
    world.size = size
    return world


def test_a_checkpoint_of_another_number_of_processes_is_refused() -> None:
    parts = {"shared": {}, "rank/0": "own", "rank/1": "other"}
    assert several().own_part(parts) == "own"
    with pytest.raises(UserError, match="was saved by 2 processes, and this run has 1; resume it with 2"):
        ALONE.own_part(parts)


@pytest.mark.parametrize("mode", ["compiled", "captured", "compiled and captured"])
def test_what_ranks_can_not_do_yet_is_refused(mode: Any) -> None:
    with pytest.raises(UserError, match=f"{mode} updates don't run in several processes yet; set experiment.compile=off"):
        make_executor(Update([]), {}, mode=mode, world=several())


def test_an_algorithm_that_does_not_say_so_is_not_trained_by_several() -> None:
    with pytest.raises(UserError, match=r"algorithm.name=q_learning: can't be trained by several processes; use one"):
        build(several(), "FrozenLake-v1:q_learning")

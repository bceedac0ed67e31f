"""Two processes with half of a batch each take the step that one takes with all of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from etude.compute.world import ALONE
from tests.learning.two_ranks import RANKS, UPDATES

PATIENCE = 120
"""Seconds after which ranks that wait for each other are ended."""


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, dict[str, Tensor]]]:
    """What came of each update in each of two processes."""
    folder = tmp_path_factory.mktemp("ranks")
    command = [sys.executable, "-m", "tests.learning.two_ranks"]
    processes = [
        subprocess.Popen([*command, str(rank), str(folder)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for rank in range(RANKS)
    ]
    try:
        said = [process.communicate(timeout=PATIENCE)[0] for process in processes]
    except subprocess.TimeoutExpired:
        pytest.fail(f"the ranks did not finish within {PATIENCE} seconds")
    finally:
        for process in processes:
            process.kill()
            process.wait()
    for rank, process in enumerate(processes):
        assert process.returncode == 0, f"rank {rank} failed:\n{said[rank]}"
    return [torch.load(folder / f"{rank}.pt") for rank in range(RANKS)]


@pytest.mark.parametrize("name", UPDATES)
def test_two_ranks_take_the_step_of_one_process_with_both_their_batches(
    name: str, ranks: list[dict[str, dict[str, Tensor]]]
) -> None:
    whole = UPDATES[name](ALONE)
    for rank, found in enumerate(ranks):
        assert found[name].keys() == whole.keys()
        for key, value in whole.items():
            wanted = value.chunk(RANKS)[rank] if key.endswith("running_return") else value  # each environment's own
            torch.testing.assert_close(found[name][key], wanted, rtol=1e-6, atol=1e-6, msg=lambda m, k=key: f"{k}: {m}")

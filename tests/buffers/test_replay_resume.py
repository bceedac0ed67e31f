"""A run with a replay buffer that was stopped is the same run as one that was not: rows, weights, memory, next batch."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator

from etude.buffers import store_state
from etude.buffers.columns import leaves
from etude.runs.run import Run
from etude.training import assembly, stored_config
from etude.using.stored_policy import open_policy
from tests.runs_compared import assert_same_run, resume, state, stopped_after, train

SPEC = "CartPole-v1:tests.buffers.off_policy_double.LinearQ"
WORDS = ("environment.num_envs=3", "training.total_steps=900", "checkpoint.every_steps=400", "evaluation.every_steps=0")


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_state, "SMALLEST_SEGMENT", 2000)
    monkeypatch.setattr(store_state, "SEGMENTS_PER_RING", 7)


@pytest.mark.parametrize("kind", ["replay", "prioritized"])
def test_resume_equals_uninterrupted(kind: str, tmp_path: Path) -> None:
    words = (*WORDS, f"buffers.memory.type={kind}", "buffers.memory.capacity=300")
    whole = train(SPEC, tmp_path / "whole", *words)
    generator = random.Random(kind)
    with stopped_after(generator.randint(1, 60)):
        run = train(SPEC, tmp_path / "cut", *words)
    stops = 1
    while run.status == "interrupted":
        with stopped_after(generator.randint(1, 60)):
            resume(run)
        stops += 1
    assert stops > 2
    assert_same_run(whole, run)
    memory = state(run)["rank/0"]["buffers"]["memory"]
    assert len(memory["segments"]) > 2, "the ring went round more than once, and most of it lies in segments"
    _assert_same_next_batch(whole, run)


def _assert_same_next_batch(one: Run, other: Run) -> None:
    batches = []
    for run in (one, other):
        orchestrator = assembly.build(stored_config.load_config(run))
        orchestrator.load_state_dict(run.checkpoints().newest_whole().load())  # type: ignore[arg-type] # a dict of parts
        batches.append(orchestrator.buffers["memory"].sample(50, orchestrator.streams["buffer"]))
        orchestrator.close()
    assert all(torch.equal(a, b) for a, b in zip(*map(leaves, batches), strict=True))


def test_a_copied_run_goes_on_and_its_policy_needs_no_replay(tmp_path: Path) -> None:
    with stopped_after(60):
        run = train(SPEC, tmp_path / "here", *WORDS)
    shutil.copytree(run.path, tmp_path / "there" / run.id, symlinks=True)
    copied = Run.open(tmp_path / "there" / run.id)
    assert resume(copied, trusted=True).status == "finished"
    assert resume(run).status == "finished"
    assert_same_run(run, copied)
    shutil.rmtree(copied.path / "checkpoints" / "replay")
    policy, environment = open_policy(copied, "last", trusted=True).with_environment()
    assert policy is not None
    environment.close()


def test_rolling_back_in_the_same_process_forgets_the_rows_since(tmp_path: Path) -> None:
    with stopped_after(60):
        run = train(SPEC, tmp_path, *WORDS)
    parts: Any = run.checkpoints().newest_whole().load()
    orchestrator = assembly.build(stored_config.load_config(run))
    orchestrator.load_state_dict(parts)
    buffer, collector = orchestrator.buffers["memory"], orchestrator.collector
    assert collector is not None
    before = buffer.sample(50, Generator().manual_seed(0))
    collector.collect(orchestrator.workflow.explorer(), buffer, 250)
    assert not torch.equal(before["observation"], buffer.sample(50, Generator().manual_seed(0))["observation"])
    orchestrator.load_state_dict(parts)
    after = buffer.sample(50, Generator().manual_seed(0))
    assert all(torch.equal(a, b) for a, b in zip(leaves(before), leaves(after), strict=True))
    orchestrator.close()

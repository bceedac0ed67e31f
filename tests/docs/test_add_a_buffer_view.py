"""The page's views resume exactly and see what the page says; its commands are run by `test_docs.py`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from etude.buffers.replay import ReplayBuffer
from etude.cli import run as etude
from tests.buffers.transitions import transition
from tests.docs.pages import ROOT, blocks
from tests.runs_compared import assert_same_run, stopped_after, train

PAGE = ROOT / "docs/add-a-buffer-view.md"
FILES = {block.title: block.text for block in blocks(PAGE) if block.title}
WORDS = ("algorithm.batch_size=16", "network.q.hidden_dims=[8]", "evaluation.every_steps=0", "experiment.compile=off")


@pytest.fixture(autouse=True)
def own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    importlib.invalidate_caches()
    yield
    for name in FILES:
        sys.modules.pop(Path(name).stem, None)


def test_a_run_with_a_view_of_ones_own_resumes_exactly(tmp_path: Path) -> None:
    words = (*WORDS, "buffers.replay.view.type=mirrored.Mirrored", "algorithm.learning_starts=40", "training.total_steps=160")
    whole = train("CartPole-v1:dqn", tmp_path / "whole", *words)
    with stopped_after(5):
        stopped = train("CartPole-v1:dqn", tmp_path / "stopped", *words)
    assert etude(["resume", str(stopped.path), "-q"]) == 0
    assert_same_run(whole, stopped)


def test_a_mirrored_transition_has_the_other_signs_and_action() -> None:
    from mirrored import Mirrored  # type: ignore[import-not-found] # the page's

    plain, mirrored = (ReplayBuffer(20, 1, view=view) for view in (None, Mirrored(share=1.0)))
    for buffer in (plain, mirrored):
        for t in range(9):
            row = transition(t, 1)
            buffer.add(
                {**row, "observation": row["observation"]["vector"], "next_observation": row["next_observation"]["vector"]}
            )
    drawn = {"index": torch.arange(9), "mirror": torch.rand(9)}
    one, other = (buffer.gather(buffer.tensors(), drawn) for buffer in (plain, mirrored))
    assert torch.equal(one["observation"], -other["observation"])
    assert torch.equal(one["action"], 1 - other["action"])


def test_chunks_of_actions_are_drawn_where_they_are_held_and_say_which_are_of_the_episode() -> None:
    from action_chunks import ActionChunks  # type: ignore[import-not-found] # the page's

    buffer = ReplayBuffer(6, 1, view=ActionChunks(length=3))
    for t in range(10):  # rows 4 to 9 are held; an episode begins with 7
        buffer.add(transition(t, 1, is_first=[t in (0, 7)], terminated=[t == 6]))
    batch = buffer.sample(300, torch.Generator().manual_seed(0))
    assert set((batch["action"] // 1000).tolist()) == {4, 5, 6, 7}
    steps = batch["action"] // 1000
    assert torch.equal(batch["actions"] // 1000, steps[:, None] + torch.arange(3))
    assert torch.equal(batch["is_same"], (steps[:, None] + torch.arange(3) < 7) | (steps[:, None] >= 7))

"""What a workflow shows of itself is in the run when it is due, and training can't notice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from etude.runs.run import Run
from tests.buffers.off_policy_double import LinearQ
from tests.runs_compared import assert_same_run, resume, stopped_after, train
from tests.videos import decode

WORDS = ("environment.num_envs=2", "training.total_steps=400", "checkpoint.every_steps=300", "evaluation.every_steps=0",
         "logging.every_steps=60", "buffers.memory.online=true")  # fmt: skip
SPEC = "CartPole-v1:tests.test_media."


class Filming(LinearQ):
    """Shows what it has seen."""

    def media(self, generator: Generator) -> dict[str, Tensor]:
        batch = self.context.buffers["memory"].peek(8, generator)  # type: ignore[attr-defined] # a replay
        torch.rand(3)  # the global generators are not the run's either
        values = self.q(batch["observation"])
        assert not values.requires_grad
        shades = (values.sigmoid() * 255).to(torch.uint8)  # (8, 2)
        return {"values": shades[:, :1, None, None].expand(8, 16, 16, 3), "last": shades[-1:, :, None].expand(1, 2, 3)}


class Failing(Filming):
    def media(self, generator: Generator) -> dict[str, Tensor]:
        raise ValueError("nothing to see")


def names(run: Run) -> list[str]:
    return sorted(path.name for path in run.videos.iterdir())


def test_training_is_the_same_with_media_and_without(tmp_path: Path) -> None:
    filmed = train(f"{SPEC}Filming", tmp_path, *WORDS, "logging.media_every_steps=200")
    plain = train(f"{SPEC}Filming", tmp_path, *WORDS, "logging.media_every_steps=0")
    moments = ["0000000240", "0000000400"]
    assert names(filmed) == [f"steps-{moment}-{name}" for moment in moments for name in ("last.png", "values.mp4")]
    assert names(plain) == []
    assert_same_run(filmed, plain)


def test_a_resumed_run_goes_on_showing(tmp_path: Path) -> None:
    words = (*WORDS, "logging.media_every_steps=200")
    whole = train(f"{SPEC}Filming", tmp_path / "whole", *words)
    with stopped_after(50):
        run = train(f"{SPEC}Filming", tmp_path / "cut", *words)
    assert len(names(run)) == 2
    resume(run)
    assert_same_run(whole, run)
    assert names(run) == names(whole)
    for name in names(run)[1::2]:
        one, other = (decode(each.videos / name).frames for each in (run, whole))
        assert (one == other).all(), "with the same random numbers"


def test_by_default_it_shows_itself_after_evaluations(tmp_path: Path) -> None:
    words = [word for word in WORDS if "evaluation" not in word]
    run = train(f"{SPEC}Filming", tmp_path, *words, "evaluation.every_steps=400", "evaluation.episodes=1")
    assert names(run)[1::2] == ["steps-0000000400-values.mp4"]


def test_what_fails_is_said_once_and_the_run_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[Any]) -> None:
    run = train(f"{SPEC}Failing", tmp_path, *WORDS, "logging.media_every_steps=100")
    assert run.status == "finished"
    said = (run.path / "run.log").read_text()
    assert said.count("no media from 120 environment steps on: ValueError: nothing to see") == 1
    assert names(run) == []

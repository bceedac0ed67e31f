"""The page's losses are as short as it says, run as they stand, resume exactly, and are the same eager and compiled."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from etude.cli import run as etude
from etude.config.compose import compose
from etude.learning import compiled
from etude.training import assembly
from tests.docs.pages import ROOT, blocks
from tests.runs_compared import assert_same_run, stopped_after, train

PAGE = ROOT / "docs/change-a-loss.md"
FILES = {block.title: block.text for block in blocks(PAGE) if block.title}
PPO = ("CartPole-v1:calm_ppo.CalmPPO", "algorithm.rollout_steps=16", "training.total_steps=512", "environment.num_envs=4")
SAC = ("Pendulum-v1:huber_sac.HuberSAC", "algorithm.learning_starts=20", "algorithm.batch_size=16", "training.total_steps=60")
SMALL = ("network.actor.hidden_dims=[8]", "network.critic.hidden_dims=[8]", "evaluation.every_steps=0")


@pytest.fixture(autouse=True)
def own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    yield
    for name in FILES:
        sys.modules.pop(Path(name).stem, None)


def test_a_loss_is_changed_in_a_few_lines() -> None:
    for text in FILES.values():
        lines = [line for line in text.splitlines() if line.strip() and not line.startswith(("import", "from"))]
        assert len(lines) <= 15


@pytest.mark.parametrize("spec", [PPO, SAC], ids=["ppo", "sac"])
def test_it_resumes_exactly(spec: tuple[str, ...], tmp_path: Path) -> None:
    whole = train(spec[0], tmp_path / "whole", *spec[1:], *SMALL)
    with stopped_after(5):
        stopped = train(spec[0], tmp_path / "stopped", *spec[1:], *SMALL)
    assert stopped.status == "interrupted"
    assert etude(["resume", str(stopped.path), "-q"]) == 0
    assert_same_run(whole, stopped)


@pytest.mark.parametrize("spec", [PPO, SAC], ids=["ppo", "sac"])
def test_the_compiled_form_is_the_eager_one(spec: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    def as_it_is(function: Any, device: torch.device, *fixed: Any, kept: Any = None) -> Any:
        def call(*given: Any) -> Any:
            with torch.no_grad():
                return function(*given, *fixed)

        return call

    monkeypatch.setattr(compiled, "compile_apart", as_it_is)  # the pure form, without half a minute of compiling
    weights = []
    for mode in ("off", "on"):
        words = (*spec[1:], *SMALL, f"experiment.compile={mode}", "experiment.device=cpu")
        orchestrator = assembly.build(assembly.resolve(compose(spec[0], words=words).config))
        orchestrator.begin()
        for _ in range(24):
            orchestrator._run_cycle()
        weights.append([p.detach().clone() for p in orchestrator.workflow._executor.modules.parameters()])
        assert orchestrator.workflow._executor.mode == ("eager" if mode == "off" else "compiled")
        assert orchestrator.workflow._executor.taken.value > 0
    for one, other in zip(*weights, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)

"""DQN is the same run however it is cut: stopped and resumed, in pieces, compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from etude.compute.accelerate import SETTINGS, Mode
from etude.config.schedules import Moment
from etude.learning.compiled import Compiled
from etude.learning.execute import Eager
from etude.learning.sources import Minibatches
from etude.orchestration.orchestrator import Orchestrator
from etude.workflows.base import Phase
from etude.workflows.dqn import DQN
from tests.runs_compared import assert_same_run, assert_same_state, resume, stopped_after, train
from tests.workflows.dqn_runs import DISTRIBUTIONS, TINY, build, dqn_of
from tests.workflows.tiny_runs import copied, state_of

PRIORITIZED = ("buffers.replay.type=prioritized",)
KINDS = {
    "uniform": (),
    "n-step": ("algorithm.n_step=3",),
    "prioritized": PRIORITIZED,
    "categorical dueling n-step": (*DISTRIBUTIONS["categorical"], "algorithm.dueling=true", "algorithm.n_step=3"),
    "quantile soft": (*DISTRIBUTIONS["quantile"], "algorithm.tau=0.01", "algorithm.target_every=1"),
}
PHASE = Phase("train", env_steps=64, total_steps=400)


@pytest.mark.parametrize("kind", KINDS)
def test_a_stopped_run_is_the_run_that_was_not(kind: str, tmp_path: Path) -> None:
    words = (*TINY, *KINDS[kind], "evaluation.every_steps=100", "evaluation.episodes=1")
    whole = train("CartPole-v1:dqn", tmp_path / "whole", *words)
    with stopped_after(17):
        parted = train("CartPole-v1:dqn", tmp_path / "parted", *words)
    with stopped_after(13):
        resume(parted)
    resume(parted)
    assert_same_run(whole, parted)


@pytest.mark.parametrize("kind", ["uniform", "prioritized"])
def test_a_loaded_run_has_the_same_targets_moments_experience_and_next_batch(kind: str) -> None:
    first, second = build(*KINDS[kind]), build(*KINDS[kind], "experiment.seed=2")
    while first.counters.updates < 20:
        first._run_cycle()
    second.load_state_dict(copied(first.state_dict()))
    one, other = first.workflow.state_dict(), second.workflow.state_dict()
    for part in ("q", "target_q", "optimizer", "_executor", "_explored"):
        assert_same_state(other[part], one[part], part)
    assert not torch.equal(one["q"]["network.layers.0.weight"], one["target_q"]["network.layers.0.weight"])
    for run in (first, second):
        run.buffers["replay"].set_schedules(Moment(200, 400))  # as every update does
    assert_same_state(*(run.buffers["replay"].sample(16, run.streams["buffer"]) for run in (first, second)))


@pytest.mark.parametrize("kind", KINDS)
def test_work_in_pieces_is_work_at_once(kind: str) -> None:
    states = []
    for collects, updates in (((30,), (6,)), ((7, 23), (1, 2, 3))):
        run = build(*KINDS[kind])
        for _ in range(2):
            for count in collects:
                run.workflow.collect(PHASE, count)
            for count in updates:
                assert run.workflow.update(PHASE, count).updates == count
        states.append((copied(state_of(run)), run.workflow.metrics.drain()))
    assert_same_state(states[0][0], states[1][0])
    assert states[0][1] == states[1][1]


def weights(run: Orchestrator, part: str) -> torch.Tensor:
    return torch.cat([p.detach().flatten().clone() for p in getattr(run.workflow, part).parameters()])


@pytest.mark.parametrize("tau", [1.0, 0.25])
def test_the_target_network_moves_at_every_third_update_and_only_then(tau: float) -> None:
    run = build(f"algorithm.tau={tau}", "algorithm.gradient_steps=1", "algorithm.learning_rate=0.01")
    while not run.buffers["replay"].ready:
        run.workflow.collect(PHASE, 4)
    for update in range(1, 10):
        before = weights(run, "target_q")
        run.workflow.update(PHASE, 1)
        after = weights(run, "target_q")
        if update % 3:
            assert torch.equal(before, after)
        else:
            torch.testing.assert_close(after, before + tau * (weights(run, "q") - before))
            assert not torch.equal(before, after)


def test_priorities_are_written_back_before_the_next_batch_is_drawn() -> None:
    run = build(*PRIORITIZED, "experiment.compile=off")
    executor, calls, said = dqn_of(run)._executor, [], []
    buffer, once = run.buffers["replay"], executor.once
    sample, write = buffer.draw_places, buffer.learned  # type: ignore[attr-defined]
    buffer.draw_places = lambda *a: calls.append("draw") or sample(*a)  # type: ignore[attr-defined]
    buffer.learned = lambda *a, **k: calls.append(k["priority"].flatten()) or write(*a, **k)  # type: ignore[method-assign]
    executor.once = lambda *a: said.append(once(*a)) or said[-1]  # type: ignore[method-assign]
    while run.counters.updates < 4:
        run._run_cycle()
    assert [call if isinstance(call, str) else "write" for call in calls] == ["draw", "write"] * 4
    assert all(call.shape == (16,) and (call >= 0).all() for call in calls[1::2])
    assert all(torch.equal(call, report.per_row["priority"]) for call, (report,) in zip(calls[1::2], said, strict=True))


FAST: dict[str, tuple[tuple[str, ...], int]] = {
    "two at once": (("algorithm.gradient_steps=2", "algorithm.target_every=2"), 2),
    "prioritized categorical dueling": (
        (*PRIORITIZED, *DISTRIBUTIONS["categorical"], "algorithm.dueling=true", "algorithm.gradient_steps=4"),
        1,
    ),
    "quantile soft": (
        (*DISTRIBUTIONS["quantile"], "algorithm.gradient_steps=1", "algorithm.tau=0.1", "algorithm.target_every=1"),
        1,
    ),
}


@pytest.mark.slow  # it compiles; DQN does in every suite in test_network_modes.py
@pytest.mark.parametrize("kind", FAST)
def test_a_compiled_update_equals_an_eager_one(kind: str) -> None:
    compare_with_eager(*FAST[kind], "cpu", "compiled")


@pytest.mark.parametrize("kind", FAST)
def test_what_is_compiled_equals_an_eager_update(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def as_it_is(function: Any, device: torch.device, *fixed: Any, kept: Any = None) -> Any:
        return torch.no_grad()(lambda *given: function(*given, *fixed))

    monkeypatch.setattr("etude.learning.compiled.compile_apart", as_it_is)
    compare_with_eager(*FAST[kind], "cpu", "compiled")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("kind", FAST)
@pytest.mark.parametrize("mode", ["captured", "compiled and captured"])
def test_a_recorded_update_equals_an_eager_one(kind: str, mode: Mode) -> None:
    compare_with_eager(*FAST[kind], "cuda", mode)


def compare_with_eager(words: tuple[str, ...], at_once: int, device: str, mode: Mode) -> None:
    """After four updates: weights, what was said of rows where they have priorities, and metrics."""
    pair = [build(*words, f"experiment.compile={how}", f"experiment.device={device}") for how in ("off", SETTINGS[mode])]
    executor, calls, errors = dqn_of(pair[1])._executor, [], [_priorities_of(run) for run in pair]
    steps = executor.steps
    executor.steps = lambda *a: calls.append(len(a[-1])) or steps(*a)  # type: ignore[method-assign]
    for run in pair:
        while run.counters.updates < 4:
            run._run_cycle()
    assert executor.mode == mode
    assert calls == [at_once] * (4 // at_once)
    for part in ("q", "target_q"):
        torch.testing.assert_close(weights(pair[0], part), weights(pair[1], part), rtol=1e-4, atol=1e-5)
    assert [len(each) for each in errors] == ([4, 4] if words[:1] == PRIORITIZED else [0, 0])
    for eager, other in zip(*errors, strict=True):
        torch.testing.assert_close(eager, other, rtol=1e-3, atol=1e-4)
    one, other = (run.workflow.metrics.drain() for run in pair)
    assert other == pytest.approx(one, rel=1e-3, abs=1e-4)


def _priorities_of(run: Orchestrator) -> list[torch.Tensor]:
    """What is written back to its buffer from now on, (16,) for each update."""
    buffer, written = run.buffers["replay"], []
    write = buffer.learned
    buffer.learned = lambda *a, **k: written.append(k["priority"].flatten()) or write(*a, **k)  # type: ignore[method-assign]
    return written


@pytest.mark.parametrize("double", ["true", "false"])
def test_what_the_target_says_of_several_updates_at_once_is_what_it_says_of_each(
    double: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def as_it_is(function: Any, device: torch.device, *fixed: Any, kept: Any = None) -> Any:
        return lambda *tensors: function(*tensors, *fixed)

    monkeypatch.setattr("etude.learning.compiled.compile_apart", as_it_is)
    words = ("algorithm.target_every=3", "algorithm.tau=0.5", f"algorithm.double={double}")
    together, apart = build(*words), build(*words)
    while together.counters.updates < 1:
        together._run_cycle()
    apart.load_state_dict(copied(together.state_dict()))
    rows = together.buffers["replay"].sample(128, torch.Generator().manual_seed(1))
    rows, order = {name: rows[name] for name in DQN.columns}, torch.arange(128).view(8, 16)
    looked_ahead, original = [], DQN.target_outputs

    def counted(self: DQN, batch: Any) -> Any:
        looked_ahead.append(len(batch["next_observation"]))
        return original(self, batch)

    monkeypatch.setattr(DQN, "target_outputs", counted)
    executor = Compiled(dqn_of(together).losses(), {"q": dqn_of(together).q}, None)
    at_once = executor.steps(Minibatches(rows, order), rows, order, executor.due(8)).tables()["q"].values
    one_by_one = Eager(dqn_of(apart).losses(), {"q": dqn_of(apart).q}, None).run(Minibatches(rows, order), 8)["q"].values
    assert looked_ahead == [3 * 16, 3 * 16, 2 * 16], "as far as the target stays the same"
    torch.testing.assert_close(at_once, one_by_one, rtol=1e-4, atol=1e-5)
    for part in ("q", "target_q"):
        torch.testing.assert_close(weights(together, part), weights(apart, part), rtol=1e-4, atol=1e-6)


def test_batches_sampled_together_are_those_sampled_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    together, apart = build("algorithm.gradient_steps=6"), build("algorithm.gradient_steps=6")
    for orchestrator in (together, apart):
        while orchestrator.counters.updates < 18:
            orchestrator._run_cycle()
        monkeypatch.setattr("etude.learning.sources.SAMPLED_AT_ONCE", 1)
    assert_same_state(state_of(together), state_of(apart))

"""What makes a run exact: seeds, the chunk law, resuming, what is stored, and states and masks that are respected."""

from __future__ import annotations

import os
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from etude.compute.trees import map_tree
from etude.environments.vector import ACTION_MASK
from etude.orchestration.orchestrator import Orchestrator
from etude.runs.run import Run
from etude.telemetry.jsonl import read_rows
from etude.telemetry.names import deterministic_items
from etude.testing.subject import FailedError, SkippedError, Subject
from etude.testing.trees import copied, difference
from etude.training import assembly, session
from etude.workflows.base import ActResult, HookResult

PROBE = "Endings"
ASKED_AT_ONCE = 5


def same_seed(subject: Subject) -> str:
    """The same seed gives the same run, to the last bit; another seed another one."""
    length = _short(subject)
    states = []
    for seed in (subject.seed, subject.seed, subject.seed + 1):
        run = subject.build(PROBE, length, f"experiment.seed={seed}")
        run.run()
        states.append(copied(_state(run)))
        run.close()
    place = difference(states[0], states[1])
    if place is not None:
        raise FailedError(f"two runs with the same seed differ in {place}; draw from the generators you are given")
    if difference(states[0], states[2]) is None:
        raise FailedError("two runs with different seeds are the same run")
    return "two runs with one seed are the same; another seed gives another"


def chunk_law(subject: Subject) -> str:
    """hook(a) then hook(b) does exactly what hook(a + b) does, for every hook of its phases."""
    length = _short(subject)
    whole = subject.build(PROBE, length)
    calls = _drive(whole, in_pieces=False)
    after_whole = copied(_state(whole))  # before the other run moves the global generators on
    pieces = subject.build(PROBE, length)
    more_calls = _drive(pieces, in_pieces=True)
    place = difference(_state(pieces), after_whole)
    for run in (whole, pieces):
        run.close()
    if place is not None:
        raise FailedError(f"work done in pieces differs from the same work done at once, in {place}; count units, not calls")
    return f"{calls} calls of hooks, and the same work in {more_calls}, end in the same state"


def resume(subject: Subject) -> str:
    """A run that was stopped twice and resumed is the run that was never stopped: every row and every tensor."""
    composition = subject.compose(PROBE, _short(subject), f"logging.every_steps={_length(subject) // 12}")
    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w", encoding="utf-8") as nowhere:
        quiet: dict[str, Any] = {"quiet": True, "stream": nowhere}
        whole = session.start(composition, root=Path(folder, "whole"), **quiet).finish().run
        training = session.start(composition, root=Path(folder, "cut"), **quiet)
        for rows in (1, 2):
            for count, _ in enumerate(training, start=1):
                if count == rows:
                    break
            training = session.reopen(training.run, trusted=True, **quiet)
        cut = training.finish().run
        rows_whole, rows_cut = _rows(whole), _rows(cut)
        place = difference(rows_cut, rows_whole, "row") or difference(_saved(cut), _saved(whole))
    if place is not None:
        raise FailedError(f"resumed, it differs from the run that was never stopped, in {place}; is all state saved?")
    return f"stopped twice, all {len(rows_whole)} rows and the last checkpoint are the same"


def policy(subject: Subject) -> str:
    """The policy that is saved acts as the one that was trained."""
    run = subject.build(PROBE, _short(subject))
    run.run()
    environment = subject.environment(PROBE, 4)
    observation, _ = environment.reset(range(4))
    trained = run.workflow.policy()
    config = assembly.resolve(subject.compose(PROBE, _short(subject)).config)
    loaded = assembly.build_policy(config, copied(trained.state_dict()), environment)
    first = torch.ones(4, dtype=torch.bool)
    for mode in ("greedy", "sample"):
        one, other = (
            p.act(observation, p.initial_state(4), first, mode=mode, generator=torch.Generator().manual_seed(5)).action
            for p in (trained, loaded)
        )
        if not torch.equal(one, other):
            raise FailedError(
                f"loaded, it takes {other.tolist()} where it took {one.tolist()} ({mode}); is all of it in the state?"
            )
    environment.close()
    run.close()
    return "saved and loaded, it takes the same actions"


def endings(subject: Subject) -> str:
    """What is stored tells a termination from a time limit, and holds the observation that the episode ended in."""
    run = subject.build(PROBE, _short(subject))
    stored: list[dict[str, Any]] = []
    for buffer in run.buffers.values():
        _spy(buffer, "add", lambda row: stored.append(copied(dict(row))))
    run.run()
    run.close()
    names = ("next_observation", "terminated", "truncated", "is_first", "observation")
    if not stored or not all(name in stored[0] for name in names):
        raise SkippedError(f"what it stores is not under the names {', '.join(names)}")
    for row in stored:
        observed, final = (_state_number(row[name]) for name in ("observation", "next_observation"))
        for name, code in (("terminated", 2), ("truncated", 3)):
            if not torch.equal(row[name], final == code):
                raise FailedError(
                    f"'{name}' is {row[name].tolist()} where the episodes' last observations are {final.tolist()}"
                )
        if not torch.equal(row["is_first"], observed == 0):
            raise FailedError(f"'is_first' is {row['is_first'].tolist()} where the observations are {observed.tolist()}")
    ends = sum(int((row["terminated"] | row["truncated"]).sum()) for row in stored)
    return f"{ends} episodes, each stored with the end it had"


def hidden_state(subject: Subject) -> str:
    """An episode begins without memory of the one before, and without touching the others' memory."""
    run = subject.build(PROBE, _short(subject))
    workflow, count = run.workflow, 4
    if workflow.initial_state(count) is None:
        run.close()
        raise SkippedError("its actor keeps no state")
    run.run()
    environment = subject.environment(PROBE, count)
    observation, _ = environment.reset(range(count))
    seen = map_tree(lambda part: part[:1].clone().expand(part.shape), observation)
    environment.close()

    def act(state: Any, first: Tensor) -> ActResult:
        with torch.no_grad():
            return workflow.act(seen, state, first, mode="greedy", generator=torch.Generator().manual_seed(1))

    new, old = torch.ones(count, dtype=torch.bool), torch.zeros(count, dtype=torch.bool)
    state = act(workflow.initial_state(count), new).state
    for _ in range(3):
        state = act(copied(state), old).state
    fresh, again = act(workflow.initial_state(count), new), act(copied(state), new)
    place = difference(again.state, fresh.state) or difference(again.action, fresh.action, "the action")
    if place is not None:
        raise FailedError(f"after is_first the state still remembers the last episode, in {place}")
    mixed = torch.tensor([True, False, False, False])
    if difference(act(copied(state), mixed).action[1:], act(copied(state), old).action[1:]) is not None:
        raise FailedError("an episode that begins changes what happens in others")
    run.close()
    return "is_first brings the initial state back, for its own environment alone"


def action_mask(subject: Subject) -> str:
    """An action that its mask forbids is never taken, neither in training nor by the policy."""
    if not subject.takes("Masked"):
        raise SkippedError("it does not take observations with an action mask")
    run = subject.build("Masked", _short(subject))
    taken = [0]

    def check(action: Tensor, mask: Tensor) -> None:
        allowed = mask.gather(-1, action.long().unsqueeze(-1)).squeeze(-1)
        taken[0] += len(action)
        if not bool(allowed.bool().all()):
            raise FailedError(f"it took {action.tolist()} where only {mask.tolist()} are allowed")

    original = run.workflow.act

    def watched(observation: Any, *rest: Any, **options: Any) -> ActResult:
        result = original(observation, *rest, **options)
        check(result.action, observation[ACTION_MASK])
        return result

    run.workflow.act = watched  # type: ignore[method-assign] # of this run alone
    run.run()
    run.close()
    environment = subject.environment("Masked", 8)
    trained, generator = run.workflow.policy(), torch.Generator().manual_seed(1)
    for mode in ("greedy", "sample"):
        observation, _ = environment.reset(range(8))
        state, first = trained.initial_state(8), torch.ones(8, dtype=torch.bool)
        for _ in range(50):
            assert isinstance(observation, dict)
            with torch.no_grad():
                action, state, _ = trained.act(observation, state, first, mode=mode, generator=generator)
            check(action, observation[ACTION_MASK])
            step = environment.step(action)
            observation, first = step.observation, step.terminated | step.truncated
    environment.close()
    return f"{taken[0]:,} actions, all of them allowed"


# ---- support ----------------------------------------------------------------------------------------------------------------


def _length(subject: Subject) -> int:
    """Three rollouts and a half, or as much of anything else."""
    config = subject.compose(PROBE).config
    rollout = (config.algorithm.rollout_steps or 1) * config.environment.num_envs
    return max(400, 7 * rollout // 2)


def _short(subject: Subject) -> str:
    return f"training.total_steps={_length(subject)}"


def _drive(run: Orchestrator, *, in_pieces: bool) -> int:
    """Run every hook to the end of the budget, whole or in pieces of 1, 2, 3, ...; returns the calls made."""
    calls = 0

    def work(hook: str, count: int) -> HookResult:
        nonlocal calls
        results: list[HookResult] = []
        for piece in _pieces(count) if in_pieces else [count]:
            done = _summed(results)
            phase = run.scheduler.view().after(env_steps=done.env_steps, updates=done.updates)
            results.append(getattr(run.workflow, hook)(phase, piece))
            calls += 1
        return _summed(results)

    hooks = [hook for phase in run.scheduler.phases for hook in phase.hooks if hook.name != "evaluate"]
    while (action := run.scheduler.next_action(0, 0)) is not None:
        run.scheduler.advance(action, work(action.hook, action.count) if action.hook != "evaluate" else HookResult())
    for hook in hooks:  # many algorithms are asked for one a cycle: ask for more at once
        work(hook.name, ASKED_AT_ONCE)
    return calls


def _pieces(count: int) -> Iterator[int]:
    size = 1
    while count > 0:
        yield min(size, count)
        count -= size
        size += 1


def _summed(results: list[HookResult]) -> HookResult:
    return HookResult(
        sum(result.decisions for result in results),
        sum(result.env_steps for result in results),
        sum(result.updates for result in results),
    )


def _spy(subject: Any, method: str, note: Any) -> None:
    original = getattr(subject, method)

    def noted(*arguments: Any) -> Any:
        note(*arguments)
        return original(*arguments)

    setattr(subject, method, noted)


def _state_number(observation: Tensor) -> Tensor:
    """(N,) states, from either form of an observation."""
    return observation.argmax(-1) if observation.is_floating_point() else observation


def _state(run: Orchestrator) -> dict[str, Any]:
    """Everything but the clock, and the counters of the loop that these checks do without."""
    parts = run.state_dict()
    return {key: parts["shared"][key] for key in ("workflow", "scheduler")} | parts["rank/0"]


def _saved(run: Run) -> Any:
    parts: Any = run.checkpoints().newest_whole().load()
    parts["shared"].pop("elapsed_s")
    return parts


def _rows(run: Run) -> list[dict[str, bytes]]:
    logged = read_rows(run.metrics_path)
    return [{key: struct.pack("<d", value) for key, value in deterministic_items(row).items()} for row in logged]

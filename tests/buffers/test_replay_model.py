"""The ring and its n-step returns against a model that is slow and plain: one list of transitions per environment."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from torch import Generator

from etude.buffers.columns import leaves
from etude.buffers.replay import ReplayBuffer
from tests.buffers.transitions import transition

GAMMA = 0.5
FLAGS = st.sampled_from(["goes on", "goes on", "goes on", "terminated", "truncated", "lost"])


class Transition:
    def __init__(self, t: int, env: int, fate: str, is_first: bool) -> None:
        self.mark = 1000 * t + env
        self.terminated, self.truncated = fate == "terminated", fate == "truncated"
        self.is_first = is_first


def expected(history: list[Transition], place: int, n_step: int) -> dict[str, Any]:
    """What a batch says of the transition at `place` of what one environment's list still holds."""
    reward, last = 0.0, place
    for k in range(n_step):
        last = place + k
        reward += GAMMA**k * history[last].mark
        ended = history[last].terminated or history[last].truncated
        if ended or last + 1 == len(history) or history[last + 1].is_first:
            break
    end = history[last]
    discount = 0.0 if end.terminated else GAMMA ** (last - place + 1)
    return {
        "action": history[place].mark,
        "reward": reward,
        "discount": discount,
        "final": end.mark + 0.5,
        "terminated": end.terminated,
        "truncated": end.truncated,
    }


class ReplayAgainstLists(RuleBasedStateMachine):
    @initialize(num_envs=st.integers(1, 3), rows=st.integers(1, 7), n_step=st.integers(1, 4))
    def begin(self, num_envs: int, rows: int, n_step: int) -> None:
        self.num_envs, self.rows, self.n_step = num_envs, rows, n_step
        self.buffer = self.make()
        self.history: list[list[Transition]] = [[] for _ in range(num_envs)]
        self.starts = [True] * num_envs
        self.t = 0

    def make(self) -> ReplayBuffer:
        # One more than rows · N: what does not fill a row is not held.
        spare = self.num_envs - 1
        return ReplayBuffer(self.rows * self.num_envs + spare, self.num_envs, n_step=self.n_step, gamma=GAMMA)

    @rule(rows=st.lists(st.tuples(FLAGS, FLAGS, FLAGS), min_size=1, max_size=9))
    def add(self, rows: list[tuple[str, ...]]) -> None:
        for fates in rows:
            self.add_row(fates[: self.num_envs])

    def add_row(self, fates: tuple[str, ...]) -> None:
        row = transition(
            self.t,
            self.num_envs,
            terminated=[fate == "terminated" for fate in fates],
            truncated=[fate == "truncated" for fate in fates],
            is_first=self.starts,
        )
        self.buffer.add(row)
        for env, (fate, first) in enumerate(zip(fates, self.starts, strict=True)):
            self.history[env] = [*self.history[env], Transition(self.t, env, fate, first)][-self.rows :]
        # "lost": a resume could not continue the episode, and another began without an end of this one.
        self.starts = [fate != "goes on" for fate in fates]
        self.t += 1

    @rule(really=st.sampled_from([True, False, False]))
    def clear(self, really: bool) -> None:
        if not really:
            return
        self.buffer.clear()
        self.history = [[] for _ in range(self.num_envs)]

    @rule()
    def save_and_load(self) -> None:
        fresh = self.make()
        fresh.load_state_dict(self.buffer.state_dict())
        self.buffer = fresh

    @invariant()
    @precondition(lambda self: hasattr(self, "buffer"))
    def size_is_what_the_lists_hold(self) -> None:
        assert self.buffer.size == sum(map(len, self.history))

    @rule()
    @precondition(lambda self: self.history[0])
    def every_transition_is_what_the_lists_say(self) -> None:
        size = self.buffer.size
        batch = self.buffer._batch({"index": torch.arange(size)}, torch.device("cpu"), None)
        found = {
            int(batch["action"][k]): {
                "action": int(batch["action"][k]),
                "reward": float(batch["reward"][k]),
                "discount": float(batch["discount"][k]),
                "final": float(batch["next_observation"]["vector"][k, 0]),
                "terminated": bool(batch["terminated"][k]),
                "truncated": bool(batch["truncated"][k]),
            }
            for k in range(size)
        }
        wanted = [expected(past, place, self.n_step) for past in self.history for place in range(len(past))]
        assert found == {each["action"]: each for each in wanted}

    @rule(seed=st.integers(0, 2**32))
    @precondition(lambda self: self.history[0])
    def many_batches_are_single_batches(self, seed: int) -> None:
        one, other = Generator().manual_seed(seed), Generator().manual_seed(seed)
        many = self.buffer.sample_many(2, 3, one)
        for k in range(2):
            single = self.buffer.sample(3, other)
            assert all(torch.equal(a[k], b) for a, b in zip(leaves(many), leaves(single), strict=True))


TestReplayAgainstLists = ReplayAgainstLists.TestCase
TestReplayAgainstLists.settings = settings(max_examples=80, stateful_step_count=12, deadline=None)

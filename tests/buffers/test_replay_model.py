"""A replay against a model that is slow and plain: one list of transitions for each environment, whatever is combined."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from torch import Generator

from etude.buffers import store
from etude.buffers.columns import leaves
from etude.buffers.places import Prioritized, Priority
from etude.buffers.replay import ReplayBuffer

GAMMA = 0.5
FLAGS = st.sampled_from(["goes on", "goes on", "goes on", "terminated", "truncated", "lost"])


class Transition:
    """One step of one environment; frames are numbers that never come twice."""

    def __init__(self, t: int, env: int, fate: str, is_first: bool, seen: list[int], led_to: list[int]) -> None:
        self.t, self.mark = t, 1000 * t + env
        self.terminated, self.truncated = fate == "terminated", fate == "truncated"
        self.is_first, self.seen, self.led_to = is_first, seen, led_to


class ReplayAgainstLists(RuleBasedStateMachine):
    @initialize(
        num_envs=st.integers(1, 3),
        rows=st.integers(3, 8),
        n_step=st.integers(1, 3),
        frames=st.sampled_from([1, 1, 3]),
        sequence=st.sampled_from([None, None, 2, 3]),
        prioritized=st.booleans(),
        few_ends=st.booleans(),
    )
    def begin(
        self, num_envs: int, rows: int, n_step: int, frames: int, sequence: int | None, prioritized: bool, few_ends: bool
    ) -> None:
        self.num_envs, self.rows, self.n_step, self.frames, self.sequence = num_envs, rows, n_step, frames, sequence
        self.prioritized, self.most_ends = prioritized, 4 if few_ends else rows
        self.buffer = self.make()
        self.history: list[list[Transition]] = [[] for _ in range(num_envs)]
        self.ends: list[list[int]] = [[] for _ in range(num_envs)]
        self.starts = [True] * num_envs
        self.next_frame, self.t, self.first, self.was_cleared = 1, 0, 0, False
        self.stacks = [self.new_stack() for _ in range(num_envs)]

    def make(self) -> ReplayBuffer:
        # One more than rows · N: what does not fill a row is not held.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store, "ROOM_FOR_ENDS", 0 if self.most_ends < self.rows else 10**6)
            self.store_ends = store.ROOM_FOR_ENDS
        return ReplayBuffer(
            self.rows * self.num_envs + self.num_envs - 1,
            self.num_envs,
            n_step=self.n_step,
            gamma=GAMMA,
            frame_stack=self.frames if self.frames > 1 else None,
            sequence=self.sequence,
            priority=Priority(alpha=1.0) if self.prioritized else None,
        )

    def new_frame(self) -> int:
        self.next_frame += 1
        return self.next_frame

    def new_stack(self) -> list[int]:
        return [self.new_frame()] * self.frames

    @rule(rows=st.lists(st.tuples(FLAGS, FLAGS, FLAGS), min_size=1, max_size=9))
    def add(self, rows: list[tuple[str, ...]]) -> None:
        for fates in rows:
            self.add_row(fates[: self.num_envs])

    def add_row(self, fates: tuple[str, ...]) -> None:
        led_to = [[*stack[1:], self.new_frame()] for stack in self.stacks]
        row = {
            "observation": torch.tensor(self.stacks, dtype=torch.float64),
            "is_first": torch.tensor(self.starts),
            "action": 1000 * self.t + torch.arange(self.num_envs),
            "reward": (1000 * self.t + torch.arange(self.num_envs)).float(),
            "terminated": torch.tensor([fate == "terminated" for fate in fates]),
            "truncated": torch.tensor([fate == "truncated" for fate in fates]),
            "next_observation": torch.tensor(led_to, dtype=torch.float64),
        }
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store, "ROOM_FOR_ENDS", self.store_ends)
            self.buffer.add(row)
        for env, starts in enumerate(self.starts):
            if starts and self.history[env]:  # which is when the end before is noted
                self.ends[env].append(self.t - 1)
                if len(self.ends[env]) > self.most_ends:
                    self.first = max(self.first, self.ends[env][-self.most_ends - 1] + 1)
        for env, (fate, first) in enumerate(zip(fates, self.starts, strict=True)):
            self.history[env].append(Transition(self.t, env, fate, first, self.stacks[env], led_to[env]))
        # "lost": a resume could not continue the episode, and another began without an end of this one.
        self.starts = [fate != "goes on" for fate in fates]
        self.stacks = [self.new_stack() if starts else led for starts, led in zip(self.starts, led_to, strict=True)]
        self.t += 1
        self.first = max(self.first, self.t - self.rows)
        self.history = [[each for each in past if each.t >= self.first] for past in self.history]

    @rule(really=st.sampled_from([True, False, False]))
    def clear(self, really: bool) -> None:
        if really:
            self.buffer.clear()
            self.history, self.was_cleared = [[] for _ in range(self.num_envs)], self.t > 0

    @rule()
    def save_and_load(self) -> None:
        fresh = self.make()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store, "ROOM_FOR_ENDS", self.store_ends)
            fresh.load_state_dict(self.buffer.state_dict())
        self.buffer = fresh

    def drawable(self) -> list[list[Transition]]:
        lost = self.frames - 1 if self.first or self.was_cleared else 0
        ahead = 0 if self.sequence is None else self.sequence - 1
        return [past[lost : len(past) - ahead] for past in self.history]

    @invariant()
    @precondition(lambda self: hasattr(self, "buffer"))
    def size_is_what_the_lists_hold(self) -> None:
        assert self.buffer.size == sum(map(len, self.history))
        assert self.buffer.bounds.count == sum(map(len, self.drawable()))

    def expected(self, past: list[Transition], place: int) -> dict[str, Any]:
        """What a batch says of the transition at `place` of what one environment's list still holds."""
        reward, last = 0.0, place
        for k in range(self.n_step):
            last = place + k
            reward += GAMMA**k * past[last].mark
            ended = past[last].terminated or past[last].truncated
            if ended or last + 1 == len(past) or past[last + 1].is_first:
                break
        end = past[last]
        return {
            "action": past[place].mark,
            "is_first": past[place].is_first,
            "observation": past[place].seen,
            "reward": reward,
            "discount": 0.0 if end.terminated else GAMMA ** (last - place + 1),
            "next_observation": end.led_to,
            "terminated": end.terminated,
            "truncated": end.truncated,
        }

    @rule()
    @precondition(lambda self: any(self.drawable()))
    def every_transition_is_what_the_lists_say(self) -> None:
        buffer = self.buffer
        if isinstance(buffer.places, Prioritized):
            buffer.places.rank_new_steps()
            places = buffer.places.tree.leaves.nonzero()[:, 0]
        else:
            places = buffer.places.find({"place": torch.arange(buffer.bounds.count)}, torch.device("cpu"))["index"]
        batch = buffer.gather(buffer.tensors(), {"index": places})
        window = self.sequence or 1
        keys = list(self.expected(self.history[0], 0))
        shape = (len(places), window)
        rows = {key: batch[key].view(*shape, *batch[key].shape[2 if self.sequence else 1 :]).tolist() for key in keys}
        found = [[{key: rows[key][k][j] for key in keys} for j in range(window)] for k in range(len(places))]
        wanted = [
            [self.expected(past, past.index(first) + j) for j in range(window)]
            for past, firsts in zip(self.history, self.drawable(), strict=True)
            for first in firsts
        ]
        assert sorted(found, key=lambda each: each[0]["action"]) == sorted(wanted, key=lambda each: each[0]["action"])

    @rule(seed=st.integers(0, 2**32))
    @precondition(lambda self: any(self.drawable()))
    def many_batches_are_single_batches(self, seed: int) -> None:
        one, other = Generator().manual_seed(seed), Generator().manual_seed(seed)
        many = self.buffer.sample_many(2, 3, one)
        for k in range(2):
            single = self.buffer.sample(3, other)
            assert all(torch.equal(a[k], b) for a, b in zip(leaves(many), leaves(single), strict=True))


TestReplayAgainstLists = ReplayAgainstLists.TestCase
TestReplayAgainstLists.settings = settings(max_examples=100, stateful_step_count=12, deadline=None)

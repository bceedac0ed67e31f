"""Each new window is drawn once, in order, as soon as it is complete; uniform ones fill the batch. A resume changes nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from etude.buffers.columns import leaves, map_columns
from etude.buffers.new_first import NewFirst
from etude.buffers.places import Priority
from etude.buffers.replay import ReplayBuffer
from etude.errors import UserError
from etude.learning.sources import Replayed
from tests.buffers.transitions import transition
from tests.device_double import DEVICE, pretend_device

N, L, ROWS = 2, 4, 30


def make(rows: int = ROWS, **options: Any) -> ReplayBuffer:
    return ReplayBuffer(rows * N, N, **{"sequence": L, "online": True, **options})


def fill(buffer: ReplayBuffer, count: int) -> None:
    for t in range(buffer.store.written, buffer.store.written + count):
        buffer.add(transition(t, N))


def draw(buffer: ReplayBuffer, n: int, seed: int = 0) -> list[tuple[int, int]]:
    """Return the step and environment that each window of a batch begins with."""
    marks = buffer.sample(n, Generator().manual_seed(seed))["action"][:, 0]
    return [(int(mark) // 1000, int(mark) % 1000) for mark in marks]


def places(buffer: ReplayBuffer) -> NewFirst:
    assert isinstance(buffer.places, NewFirst)
    return buffer.places


def test_each_window_is_drawn_once_before_others() -> None:
    buffer, uniform = make(), make(online=False)
    for each in (buffer, uniform):
        fill(each, 2 * L + 3)
    new = [(0, 0), (0, 1), (L, 0), (L, 1)]
    first, second = draw(buffer, 3, seed=1), draw(buffer, 5, seed=2)
    assert first == new[:3]
    assert second == new[3:] + draw(uniform, 5, seed=2)[1:], "what is left is what would have been drawn anyway"
    assert draw(buffer, 5, seed=3) == draw(uniform, 5, seed=3)
    fill(buffer, 1)
    assert draw(buffer, 2) == [(2 * L, 0), (2 * L, 1)]
    assert places(buffer).waiting == 0


def test_a_window_waits_until_all_of_it_is_there() -> None:
    buffer = make()
    fill(buffer, L - 1)
    assert places(buffer).waiting == 0
    fill(buffer, 1)
    assert places(buffer).waiting == N


def test_what_was_overwritten_before_its_turn_is_left_out() -> None:
    buffer = make(rows=10)
    fill(buffer, 21)  # steps 11 to 20 are held: of the windows at 0, 4, 8, 12, 16 only the last two
    assert places(buffer).waiting == 2 * N
    assert draw(buffer, 4) == [(12, 0), (12, 1), (16, 0), (16, 1)]


def test_several_batches_at_once_are_those_drawn_one_by_one() -> None:
    one, other = make(), make()
    for each in (one, other):
        fill(each, 3 * L)
    together = one.sample_many(3, 4, Generator().manual_seed(5))
    generator = Generator().manual_seed(5)
    for number in range(3):
        single = other.sample(4, generator)
        batch = map_columns(together, lambda column, number=number: column[number])
        assert all(torch.equal(a, b) for a, b in zip(leaves(batch), leaves(single), strict=True))


def test_single_transitions_are_windows_of_one_step() -> None:
    buffer = make(sequence=None)
    fill(buffer, 2)
    assert buffer.sample(4, Generator().manual_seed(0))["action"].tolist() == [0, 1, 1000, 1001]


@pytest.mark.parametrize("rows", [ROWS, 12])
def test_what_waits_still_waits_after_a_resume(rows: int) -> None:
    """In a smaller ring steps have other numbers, and windows are the same steps."""
    buffer = make()
    fill(buffer, 41)
    assert draw(buffer, 14)[-1] == (36, 1), "the windows from 12 on"
    fill(buffer, 2 * L)
    loaded = make(rows)
    loaded.load_state_dict(buffer.state_dict())
    assert places(loaded).waiting == places(buffer).waiting == 2 * N
    for each in (buffer, loaded):
        fill_from = transition(49, N), transition(50, N), transition(51, N)
        for row in fill_from:
            each.add(row)
        assert draw(each, 6) == [(step, env) for step in (40, 44, 48) for env in range(N)]


def test_a_checkpoint_that_knew_no_windows_begins_with_those_to_come() -> None:
    plain, buffer = make(online=False), make()
    fill(plain, 9)
    buffer.load_state_dict(plain.state_dict())
    assert places(buffer).waiting == 0
    fill(buffer, L)
    assert draw(buffer, 2) == [(9, 0), (9, 1)]


def test_after_clearing_windows_begin_with_the_next_step() -> None:
    buffer = make()
    fill(buffer, 7)
    buffer.clear()
    begins = buffer.store.written
    fill(buffer, L)
    assert draw(buffer, 2) == [(begins, 0), (begins, 1)]


def test_it_is_not_combined_with_priorities() -> None:
    with pytest.raises(UserError, match=r"buffers.replay.online=true: not with priorities: .*; set one of them to null"):
        make(priority=Priority())


def test_on_a_device_the_host_says_which_windows_and_asks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = make()
    fill(expected, 2 * L)
    with pretend_device(monkeypatch):
        buffer = make(device=DEVICE)
        for t in range(2 * L):
            buffer.add(map_columns(transition(t, N), lambda column: column.to(DEVICE)))
        generator: Any = torch.Generator(DEVICE)
        generator.manual_seed(0)
        found = buffer.sample(6, generator)["action"].as_subclass(Tensor)
    assert torch.equal(found[: 2 * N], expected.sample(6, Generator().manual_seed(0))["action"][: 2 * N])


def test_drawing_is_no_part_of_a_capture_and_uniform_drawing_still_is() -> None:
    generator: Any = SimpleNamespace(device=torch.device("cuda"))
    sources = {online: Replayed(make(device="cuda", online=online), ("action",), 4, generator) for online in (True, False)}
    assert sources[True].generators == ()
    assert sources[False].generators == (generator,)

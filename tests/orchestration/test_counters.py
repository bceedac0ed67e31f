from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from etude.orchestration.cadences import Cadence


def test_evaluation_begins_on_the_grid_strictly_after_the_warm_up() -> None:
    for warmup, every, first in ((50, 15, 60), (50, 10, 60), (0, 10, 10), (59, 60, 60), (60, 60, 120)):
        cadence = Cadence(every, after=warmup)
        assert next(now for now in range(1, 200) if cadence.is_due(now)) == first


def test_nothing_is_ever_due_when_it_is_off() -> None:
    for off in (None, 0):
        assert not any(Cadence(off).is_due(now) for now in range(1000))
        assert Cadence(off).distance(5) is None


@given(st.integers(1, 50), st.lists(st.integers(1, 70), min_size=1, max_size=60))
def test_a_counter_that_jumps_over_multiples_triggers_once_for_each_jump(every: int, jumps: list[int]) -> None:
    cadence, now = Cadence(every), 0
    for jump in jumps:
        crossed = (now + jump) // every > now // every
        now += jump
        assert cadence.is_due(now) == crossed
        cadence.done(now)
        assert not cadence.is_due(now)


def test_a_cadence_survives_a_resume_and_a_changed_grid_starts_after_the_last_multiple() -> None:
    cadence = Cadence(100)
    cadence.done(130)
    same, changed, off = Cadence(100), Cadence(50), Cadence(0)
    for other in (same, changed, off):
        other.load_state_dict(cadence.state_dict())
    assert not same.is_due(199)
    assert same.is_due(200)
    assert changed.is_due(150)
    assert not off.is_due(10**9)

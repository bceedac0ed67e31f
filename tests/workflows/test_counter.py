"""A count that is part of a state: goes on from what was saved, and from nothing else."""

from __future__ import annotations

import pytest

from etude.compute.counter import Counter


def test_it_goes_on_from_what_was_saved() -> None:
    saved, fresh = Counter(), Counter()
    saved.value = 7
    fresh.load_state_dict(saved.state_dict())
    assert fresh.value == 7


@pytest.mark.parametrize("value", [None, True, -5, 1.5, "7", {"a": 1}])
def test_what_is_no_count_is_refused_when_it_is_loaded(value: object) -> None:
    with pytest.raises(ValueError, match="is not a count"):
        Counter().load_state_dict({"value": value})

"""The last whole episodes are found in a ring of steps, whole, in order and within bounds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from etude.buffers.last_paths import MOST_BYTES, LastPaths, whole_paths
from etude.errors import ConfigError


def written(lengths: list[list[int]], paths: LastPaths, *, arrays: bool = False, steps: int | None = None) -> None:
    """Write steps of copies whose episodes have these lengths; an observation is (copy, episode, step)."""
    marks = [[(e, t, t == n - 1) for e, n in enumerate(each) for t in range(n)] for each in lengths]
    for step in range(steps or min(map(len, marks))):
        here = [each[step] for each in marks]
        seen = torch.tensor([[copy, e, t] for copy, (e, t, _) in enumerate(here)], dtype=torch.float32)
        row: dict[str, Any] = {
            "observation": seen,
            "is_first": torch.tensor([t == 0 for _, t, _ in here]),
            "action": torch.tensor([t % 2 for _, t, _ in here]),
            "reward": torch.tensor([1.0 for _ in here]),
            "terminated": torch.tensor([ends and e % 2 == 0 for e, _, ends in here]),
            "truncated": torch.tensor([ends and e % 2 == 1 for e, _, ends in here]),
            "next_observation": seen + torch.tensor([0.0, 0.0, 1.0]),
        }
        paths.add({name: value.numpy() for name, value in row.items()} if arrays else row)


def told(paths: list[dict[str, Any]]) -> list[tuple[int, int, int]]:
    """Which copy and episode each path is, and how long; checks that it is whole."""
    for path in paths:
        steps = path["observations"][:, 2].tolist()
        assert steps == list(range(path["length"]))
        assert path["next_observations"][:, 2].tolist() == [step + 1 for step in steps]
        assert len({tuple(row) for row in path["observations"][:, :2].tolist()}) == 1
        ended = (path["terminated"] | path["truncated"]).tolist()
        assert ended == [False] * (path["length"] - 1) + [True]
        assert path["return"] == path["length"] == len(path["actions"]) == len(path["rewards"])
    return [(int(path["observations"][0, 0]), int(path["observations"][0, 1]), path["length"]) for path in paths]


@pytest.mark.parametrize("arrays", [False, True])
def test_the_last_whole_episodes_come_in_the_order_of_their_ends(arrays: bool) -> None:
    paths = LastPaths(3, num_envs=2, longest=5)
    written([[2, 5, 3, 4], [4, 4, 4, 4]], paths, arrays=arrays)
    # Copy 0 ends after 2, 7, 10 and 14 steps, copy 1 after 4, 8 and 12.
    assert told(paths.read()) == [(0, 2, 3), (1, 2, 4), (0, 3, 4)]
    assert told(paths.read(1)) == [(0, 3, 4)]
    assert told(paths.read(99)) == told(paths.read())
    assert paths.read(0) == []


def test_fewer_come_where_fewer_have_ended() -> None:
    paths = LastPaths(4, num_envs=1, longest=10)
    assert paths.read() == []
    written([[3, 10]], paths, steps=7)
    assert told(paths.read()) == [(0, 0, 3)]


@pytest.mark.parametrize(("count", "num_envs"), [(1, 1), (5, 1), (5, 3), (2, 6)])
def test_there_are_always_as_many_as_asked_for(count: int, num_envs: int) -> None:
    """Whatever the lengths, up to the limit, the ring holds the last paths of the copies that it watches."""
    random, longest = np.random.default_rng(count), 6
    lengths = [random.integers(1, longest + 1, 60).tolist() for _ in range(num_envs)]
    watched = min(count, num_envs)
    for steps in range(longest * (count + 1), longest * (count + 1) + 40):
        paths = LastPaths(count, num_envs, longest)
        written(lengths, paths, steps=steps)
        ends = [(int(np.cumsum(lengths[i])[e]), i, e) for i in range(watched) for e in range(60)]
        wanted = [(i, e, lengths[i][e]) for end, i, e in sorted(ends) if end <= steps][-count:]
        assert told(paths.read()) == wanted


def test_memory_does_not_grow_with_copies() -> None:
    """Four thousand robots: only the first copies are watched."""
    few, many = LastPaths(4, num_envs=4, longest=1000), LastPaths(4, num_envs=4096, longest=1000)
    assert (few.steps, few.copies) == (many.steps, many.copies) == (2000, 4)


def test_what_was_cut_off_by_a_new_beginning_is_no_path() -> None:
    """After a resume that had to begin new episodes, those before have no end."""
    paths = LastPaths(3, num_envs=1, longest=10)
    written([[3, 10]], paths, steps=7)
    written([[4]], paths)
    assert told(paths.read()) == [(0, 0, 3), (0, 0, 4)]


def test_a_saved_ring_goes_on_as_it_would_have() -> None:
    lengths = [[2, 5, 3, 4, 5], [4, 4, 4, 4, 4]]
    whole, first = LastPaths(3, 2, 5), LastPaths(3, 2, 5)
    written(lengths, whole, steps=12)
    written(lengths, first, steps=12)
    again = LastPaths(3, 2, 5)
    again.load_state_dict(first.state_dict())
    assert told(again.read()) == told(whole.read())
    for each in (whole, again):
        written([[1, 2, 3], [1, 2, 3]], each)
    assert told(again.read()) == told(whole.read())
    one, two = whole.state_dict(), again.state_dict()
    assert all(torch.equal(one["rows"][name], two["rows"][name]) for name in one["rows"])


def test_a_saved_ring_is_taken_over_by_another_number_of_paths() -> None:
    many = LastPaths(4, num_envs=2, longest=5)
    written([[2, 5, 3, 4], [4, 4, 4, 4]], many)
    fewer, more = LastPaths(1, num_envs=2, longest=5), LastPaths(6, num_envs=8, longest=5)
    fewer.load_state_dict(many.state_dict())
    assert told(fewer.read()) == [(0, 3, 4)]
    more.load_state_dict(many.state_dict())
    assert more.read() == [], "the copies that it watches were not all watched"


def environment(limit: int | None, shape: tuple[int, ...] = (3,)) -> Any:
    space = spaces.Box(0, 255, shape, np.uint8)
    base = SimpleNamespace(max_episode_steps=limit)
    options = {"single_observation_space": space, "single_action_space": spaces.Discrete(2)}
    return SimpleNamespace(base=base, num_envs=8, action_repeat=2, **options)


def test_paths_without_a_bound_or_with_too_high_a_one_are_refused() -> None:
    assert LastPaths.of(environment(100), 3).steps == 100, "50 decisions a path, and as many for their beginnings"
    with pytest.raises(ConfigError, match=r"training\.keep_paths=3: how long can a path be"):
        LastPaths.of(environment(None), 3)
    with pytest.raises(ConfigError, match=r"keep_paths=8: .* at most 256.0 MiB are kept; lower it, or environment.max"):
        LastPaths.of(environment(27_000, (4, 84, 84)), 8)
    assert MOST_BYTES == 2**28


def test_nothing_is_found_in_nothing() -> None:
    assert whole_paths({}, 3) == []

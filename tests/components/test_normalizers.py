from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

from etude.components.normalizers import CLIP, ObservationNormalizer, RewardNormalizer, RunningMoments

BOX = spaces.Box(-np.inf, np.inf, (3,), np.float32)


def uneven_batches(seed: int = 0) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    # Far from 0, with very different scales: where a naive sum of squares loses its digits.
    center, scale = np.array([1e4, -3.0, 0.0]), np.array([1.0, 100.0, 1e-3])
    return [(random.normal(size=(size, 3)) * scale + center).astype(np.float32) for size in random.integers(1, 200, 60)]


def test_running_moments_equal_numpy_over_uneven_batches() -> None:
    moments, seen = RunningMoments((3,)), []
    for batch in uneven_batches():
        moments.update(torch.from_numpy(batch))
        seen.append(batch)
        everything = np.concatenate(seen).astype(np.float64)
        np.testing.assert_allclose(moments.mean.numpy(), everything.mean(0), rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(moments.var.numpy(), everything.var(0), rtol=1e-6, atol=1e-12)
        assert moments.count == len(everything)


def test_rolling_observations_have_mean_zero_and_deviation_one() -> None:
    normalizer = ObservationNormalizer(BOX, "rolling")
    data = torch.from_numpy(np.concatenate(uneven_batches()))
    normalizer.update(data)
    scaled = normalizer(data)
    assert isinstance(scaled, torch.Tensor)
    torch.testing.assert_close(scaled.mean(0), torch.zeros(3), rtol=0, atol=0.01)
    # A deviation of 1e-3 is not lost in the constant that guards against 0.
    torch.testing.assert_close(scaled.std(0), torch.ones(3), rtol=0, atol=0.01)
    assert normalizer(torch.full((1, 3), 1e9)).abs().max() == CLIP


def test_rolling_is_the_identity_until_something_was_seen() -> None:
    observation = torch.tensor([[1.0, -2.0, 3.0]])
    torch.testing.assert_close(ObservationNormalizer(BOX, "rolling")(observation), observation)


def test_static_maps_finite_bounds_to_the_unit_interval_and_passes_the_rest() -> None:
    largest = float(np.finfo(np.float32).max)
    low = np.array([-2.0, 0.0, -np.inf, 1.0, -largest, 5.0], np.float32)
    high = np.array([2.0, 0.5, np.inf, np.inf, largest, 5.0], np.float32)
    normalizer = ObservationNormalizer(spaces.Box(low, high), "static")
    given = torch.tensor([[-2.0, 0.0, -7.0, 3.0, 9.0, 5.0], [2.0, 0.5, 7.0, 1.0, -9.0, 5.0], [0.0, 0.125, 0.0, 2.0, 1.0, 5.0]])
    expected = torch.tensor([[0.0, 0.0, -7.0, 3.0, 9.0, 5.0], [1.0, 1.0, 7.0, 1.0, -9.0, 5.0], [0.5, 0.25, 0.0, 2.0, 1.0, 5.0]])
    torch.testing.assert_close(normalizer(given), expected)
    normalizer.update(given)
    torch.testing.assert_close(normalizer(given), expected)


def test_double_precision_bounds_beyond_single_precision_count_as_none() -> None:
    normalizer = ObservationNormalizer(spaces.Box(-1e300, 1e300, (2,), np.float64), "static")
    given = torch.tensor([[3.0, -4.0]])
    assert torch.equal(normalizer(given), given)


@pytest.mark.parametrize("mode", ["rolling", "static"])
def test_only_the_float_parts_of_a_dict_are_normalised(mode: str) -> None:
    space = spaces.Dict(
        {
            "position": spaces.Box(0, 10, (2,), np.float32),
            "picture": spaces.Box(0, 255, (4, 4, 3), np.uint8),
            "room": spaces.Discrete(5),
            "action_mask": spaces.Box(0, 1, (3,), np.float32),
        }
    )
    normalizer = ObservationNormalizer(space, mode)  # type: ignore[arg-type] # parametrised
    observation = {
        "position": torch.tensor([[5.0, 10.0], [0.0, 0.0]]),
        "picture": torch.full((2, 4, 4, 3), 200, dtype=torch.uint8),
        "room": torch.tensor([4, 1]),
        "action_mask": torch.tensor([[1.0, 0.0, 1.0], [1.0, 0.0, 0.0]]),
    }
    normalizer.update(observation)
    scaled = normalizer(observation)
    assert isinstance(scaled, dict)
    assert not torch.equal(scaled["position"], observation["position"])
    for name in ("picture", "room", "action_mask"):
        assert scaled[name] is observation[name]


def test_off_changes_nothing_and_keeps_no_state() -> None:
    normalizer = ObservationNormalizer(BOX, "off")
    observation = torch.randn(4, 3)
    normalizer.update(observation)
    assert normalizer(observation) is observation
    assert not normalizer.state_dict()


def test_acting_never_changes_the_statistics() -> None:
    normalizer = ObservationNormalizer(BOX, "rolling")
    normalizer.update(torch.randn(50, 3))
    before = {key: value.clone() for key, value in normalizer.state_dict().items()}
    for _ in range(10):
        normalizer(torch.randn(8, 3) * 100)
    assert all(torch.equal(value, before[key]) for key, value in normalizer.state_dict().items())


def test_loaded_statistics_normalise_identically() -> None:
    normalizer = ObservationNormalizer(BOX, "rolling")
    for batch in uneven_batches():
        normalizer.update(torch.from_numpy(batch))
    fresh = ObservationNormalizer(BOX, "rolling")
    fresh.load_state_dict(normalizer.state_dict())
    probe = torch.randn(100, 3) * 10
    assert torch.equal(fresh(probe), normalizer(probe))


# ---- rewards --------------------------------------------------------------------------------------------------------


def _rollouts(seed: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    shape = (64, 16)
    return [
        (torch.randn(shape, generator=generator) * 30 + 5, torch.rand(shape, generator=generator) < 0.03) for _ in range(60)
    ]


def test_normalised_rewards_have_returns_of_variance_near_one() -> None:
    gamma = 0.95
    normalizer, returns = RewardNormalizer(16, gamma), []
    running = torch.zeros(16)
    for index, (rewards, ended) in enumerate(_rollouts(0)):
        normalizer.update(rewards, ended)
        for scaled, end in zip(normalizer(rewards), ended, strict=True):
            running = running * gamma + scaled
            if index >= 30:
                returns.append(running.clone())
            running = running * ~end
    assert torch.stack(returns).var() == pytest.approx(1.0, abs=0.1)


def test_the_running_return_equals_a_slow_loop_and_forgets_ended_episodes() -> None:
    gamma = 0.9
    normalizer, seen = RewardNormalizer(16, gamma), []
    running = np.zeros(16)
    for rewards, ended in _rollouts(1)[:5]:
        normalizer.update(rewards, ended)
        for reward, end in zip(rewards.numpy(), ended.numpy(), strict=True):
            running = running * gamma + reward
            seen.append(running.copy())
            running[end] = 0.0
    np.testing.assert_allclose(normalizer.running_return.numpy(), running, rtol=1e-9)
    np.testing.assert_allclose(float(normalizer.moments.var), np.concatenate(seen).var(), rtol=1e-6)


def test_reward_statistics_do_not_depend_on_how_a_rollout_is_loaded_from_a_save() -> None:
    straight, stopped = RewardNormalizer(16, 0.9), RewardNormalizer(16, 0.9)
    for rewards, ended in _rollouts(2)[:6]:
        straight.update(rewards, ended)
        stopped.update(rewards, ended)
        fresh = RewardNormalizer(16, 0.9)
        fresh.load_state_dict(stopped.state_dict())
        stopped = fresh
    assert all(torch.equal(a, b) for a, b in zip(straight.state_dict().values(), stopped.state_dict().values(), strict=True))

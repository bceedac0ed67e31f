from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Generator, Tensor, distributions

from etude.components.distributions import (
    Categorical,
    Gaussian,
    GaussianHead,
    MultiCategorical,
    check_mask,
    make_head,
)
from etude.errors import UserError


def generator(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def random_logits(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=generator(seed), dtype=torch.float64) * 2


def chi_square(counts: Tensor, probabilities: Tensor) -> float:
    expected = counts.sum() * probabilities
    return float(((counts - expected).square() / expected).sum())


# ---- against torch.distributions ------------------------------------------------------------------------------------


def test_categorical_equals_the_reference() -> None:
    logits = random_logits(50, 7)
    ours, reference = Categorical(logits), distributions.Categorical(logits=logits)
    action = reference.sample()
    torch.testing.assert_close(ours.log_prob(action), reference.log_prob(action), rtol=0, atol=1e-12)
    torch.testing.assert_close(ours.entropy(), reference.entropy(), rtol=0, atol=1e-12)
    assert torch.equal(ours.mode(), reference.mode)


def test_multi_categorical_equals_independent_references() -> None:
    sizes, logits = [3, 2, 5], random_logits(40, 10)
    ours = MultiCategorical(logits, sizes)
    parts = [distributions.Categorical(logits=part) for part in logits.split(sizes, -1)]
    action = torch.stack([part.sample() for part in parts], -1)
    log_prob = sum(part.log_prob(action[:, i]) for i, part in enumerate(parts))
    torch.testing.assert_close(ours.log_prob(action), log_prob, rtol=0, atol=1e-12)
    torch.testing.assert_close(ours.entropy(), sum(part.entropy() for part in parts), rtol=0, atol=1e-12)
    assert torch.equal(ours.mode(), torch.stack([part.mode for part in parts], -1))


def test_gaussian_equals_the_reference() -> None:
    mean, log_std = random_logits(30, 4), random_logits(4, seed=2) / 4
    ours = Gaussian(mean, log_std)
    reference = distributions.Independent(distributions.Normal(mean, log_std.exp().expand_as(mean)), 1)
    action = reference.sample()
    torch.testing.assert_close(ours.log_prob(action), reference.log_prob(action), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(ours.entropy(), reference.entropy(), rtol=1e-12, atol=1e-12)
    assert torch.equal(ours.mode(), mean)


# ---- sampling -------------------------------------------------------------------------------------------------------


def test_categorical_draws_in_proportion() -> None:
    logits = torch.tensor([0.0, 1.0, -1.0, 2.0, 0.5])
    draws = Categorical(logits.expand(100_000, 5)).sample(generator())
    # 4 degrees of freedom: 18.5 is the 99.9th percentile.
    assert chi_square(draws.bincount(minlength=5).double(), logits.softmax(-1).double()) < 18.5


def test_multi_categorical_draws_independently_and_in_proportion() -> None:
    logits = torch.tensor([1.0, 0.0, 0.5, -0.5, 0.0])
    draws = MultiCategorical(logits.expand(100_000, 5), [2, 3]).sample(generator(3))
    joint = (draws[:, 0] * 3 + draws[:, 1]).bincount(minlength=6).double()
    expected = torch.outer(logits[:2].softmax(-1), logits[2:].softmax(-1)).flatten().double()
    assert chi_square(joint, expected) < 20.5  # 5 degrees of freedom


def test_gaussian_draws_have_its_moments() -> None:
    mean, log_std = torch.tensor([1.0, -2.0]), torch.tensor([0.0, -1.0])
    draws = Gaussian(mean.expand(200_000, 2), log_std).sample(generator())
    torch.testing.assert_close(draws.mean(0), mean, rtol=0, atol=0.01)
    torch.testing.assert_close(draws.std(0), log_std.exp(), rtol=0.01, atol=0)


def test_draws_depend_on_the_given_generator_alone() -> None:
    logits = random_logits(64, 6).float()
    before = torch.get_rng_state()
    first = Categorical(logits).sample(generator(5))
    torch.manual_seed(99)
    assert torch.equal(first, Categorical(logits).sample(generator(5)))
    torch.set_rng_state(before)
    Gaussian(logits, torch.zeros(6)).sample(generator(5))
    assert torch.equal(torch.get_rng_state(), before)


# ---- masks ----------------------------------------------------------------------------------------------------------


def test_masked_actions_have_probability_exactly_zero() -> None:
    mask = torch.tensor([[1, 0, 1, 0], [0, 0, 0, 1]], dtype=torch.int8).repeat(5_000, 1)
    logits = torch.full((10_000, 4), 0.0)
    logits[:, 1] = 50.0  # the forbidden one would win by far
    distribution = Categorical(logits, mask)
    assert (distribution.log_probs.exp()[mask == 0] == 0.0).all()
    drawn = distribution.sample(generator())
    assert mask.gather(1, drawn[:, None]).all()
    assert mask.gather(1, distribution.mode()[:, None]).all()


def test_masked_entropy_is_that_of_the_allowed_actions() -> None:
    logits, mask = random_logits(20, 6), torch.tensor([1, 1, 0, 1, 0, 0])
    allowed = distributions.Categorical(logits=logits[:, mask == 1])
    torch.testing.assert_close(Categorical(logits, mask.expand(20, 6)).entropy(), allowed.entropy(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("sizes", [None, [2, 4]])
def test_masked_gradients_are_finite_and_zero_where_forbidden(sizes: list[int] | None) -> None:
    mask = torch.tensor([[1, 0, 1, 0, 0, 1], [0, 1, 0, 0, 0, 1]])
    logits = random_logits(2, 6).float().requires_grad_()
    distribution = Categorical(logits, mask) if sizes is None else MultiCategorical(logits, sizes, mask)
    action = distribution.sample(generator())
    loss = distribution.log_prob(action).sum() + distribution.entropy().sum()
    loss.backward()
    assert logits.grad is not None
    assert torch.isfinite(loss)
    assert torch.isfinite(logits.grad).all()
    assert (logits.grad[mask == 0] == 0).all()


@pytest.mark.parametrize("upstream", [1.0, 1.5, -40.0, 1e30])
def test_the_gradient_of_a_masked_entropy_is_finite_whatever_flows_back(upstream: float) -> None:
    # Defect 25: the lowest number times anything above 1 is infinite, and 0 times that is NaN.
    mask = torch.tensor([[1, 0, 1, 0, 0, 1], [0, 1, 0, 0, 0, 1]])
    logits = random_logits(2, 6).float().requires_grad_()
    (Categorical(logits, mask).entropy() * upstream).sum().backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
    assert (logits.grad[mask == 0] == 0).all()
    assert (logits.grad[mask == 1] != 0).all()
    allowed = logits.detach()[0, mask[0] == 1].requires_grad_()
    (distributions.Categorical(logits=allowed).entropy() * upstream).backward()
    assert allowed.grad is not None
    torch.testing.assert_close(logits.grad[0, mask[0] == 1], allowed.grad)


@pytest.mark.parametrize("sizes", [None, [2, 4]])
def test_a_mask_that_allows_nothing_forbids_nothing(sizes: list[int] | None) -> None:
    # Defect 25: the observation that an episode ended in allows no action, and was NaN.
    mask = torch.tensor([[0, 0, 0, 0, 0, 0], [1, 0, 1, 0, 0, 1]])
    logits = random_logits(2, 6).float().requires_grad_()

    def distribution(mask: Tensor | None) -> Categorical | MultiCategorical:
        return Categorical(logits, mask) if sizes is None else MultiCategorical(logits, sizes, mask)

    masked, plain = distribution(mask), distribution(None)
    assert torch.equal(masked.entropy()[0], plain.entropy()[0])
    assert masked.entropy()[1] < plain.entropy()[1]
    masked.entropy().sum().backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def test_the_greatest_entropy_is_that_of_what_is_allowed() -> None:
    mask = torch.tensor([[1, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0]])
    greatest = Categorical(torch.zeros(3, 4), mask).greatest_entropy()
    torch.testing.assert_close(greatest, torch.tensor([2.0, 1.0, 4.0]).log())
    torch.testing.assert_close(Categorical(torch.zeros(3, 4), mask).entropy(), greatest)
    assert Categorical(torch.zeros(3, 4)).greatest_entropy() == math.log(4)


def test_a_multi_discrete_mask_covers_each_choice() -> None:
    head = make_head(spaces.MultiDiscrete([2, 3]))
    mask = torch.tensor([[0, 1, 1, 0, 1]]).expand(1_000, 5)
    drawn = head(torch.zeros(1_000, 5), mask).sample(generator())
    assert (drawn[:, 0] == 1).all()
    assert set(drawn[:, 1].tolist()) == {0, 2}


def test_a_mask_must_fit_the_actions() -> None:
    def observation(mask: spaces.Space[object]) -> spaces.Dict:
        return spaces.Dict({"position": spaces.Box(-1, 1, (2,)), "action_mask": mask})

    check_mask(observation(spaces.MultiBinary(3)), make_head(spaces.Discrete(3)))
    check_mask(observation(spaces.Box(0, 1, (5,), np.int8)), make_head(spaces.MultiDiscrete([2, 3])))
    check_mask(spaces.Box(-1, 1, (2,)), make_head(spaces.Box(-1, 1, (2,))))
    with pytest.raises(UserError, match=r"action_mask.*3 flags"):
        check_mask(observation(spaces.MultiBinary(4)), make_head(spaces.Discrete(3)))
    with pytest.raises(UserError, match=r"action_mask.*continuous"):
        check_mask(observation(spaces.MultiBinary(2)), make_head(spaces.Box(-1, 1, (2,))))


# ---- heads ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "size"),
    [
        (spaces.Discrete(5), 5),
        (spaces.Discrete(4, start=3), 4),
        (spaces.MultiDiscrete([2, 3, 4]), 9),
        (spaces.MultiDiscrete(np.array([[2, 3], [4, 5]])), 14),
        (spaces.MultiBinary(3), 6),
        (spaces.MultiBinary([2, 2]), 8),
        (spaces.Box(-1, 1, (3,)), 3),
        (spaces.Box(-1, 1, (2, 2)), 4),
        (spaces.Box(-1, 1, ()), 1),
    ],
    ids=str,
)
def test_a_head_fits_its_action_space(space: spaces.Space[object], size: int) -> None:
    head = make_head(space)
    assert head.size == size
    distribution = head(torch.randn(6, size))
    sample = distribution.sample(generator())
    assert distribution.log_prob(sample).shape == distribution.entropy().shape == (6,)
    action = head.to_environment(sample)
    assert action.shape == (6, *(space.shape or ()))


def test_spaces_without_a_distribution_are_refused_by_name() -> None:
    with pytest.raises(UserError, match=r"Text.*Box, Discrete, MultiDiscrete or MultiBinary"):
        make_head(spaces.Text(4))


def test_continuous_actions_are_stretched_to_the_bounds_and_clipped() -> None:
    space = spaces.Box(np.array([-2.0, 0.0, -np.inf, 1.0], np.float32), np.array([2.0, 10.0, np.inf, np.inf], np.float32))
    head = make_head(space)
    given = torch.tensor([[-1.0, -1.0, -7.0, 0.0], [1.0, 1.0, 7.0, 3.0], [0.0, 0.5, 0.0, 1.5], [-9.0, 9.0, 1e6, 2.0]])
    expected = torch.tensor([[-2.0, 0.0, -7.0, 1.0], [2.0, 10.0, 7.0, 3.0], [0.0, 7.5, 0.0, 1.5], [-2.0, 10.0, 1e6, 2.0]])
    torch.testing.assert_close(head.to_environment(given), expected)


def test_stretching_can_be_undone_inside_the_bounds() -> None:
    low, high = torch.tensor([-3.0, 0.5]), torch.tensor([1.0, 0.75])
    head = make_head(spaces.Box(low.numpy(), high.numpy()))
    sample = torch.rand(1_000, 2, generator=generator()) * 2 - 1
    action = head.to_environment(sample)
    assert ((action >= low) & (action <= high)).all()
    torch.testing.assert_close((action - low) / (high - low) * 2 - 1, sample, rtol=0, atol=1e-5)


def test_bounds_that_stand_for_no_bound_leave_the_sample_alone() -> None:
    largest = float(np.finfo(np.float32).max)
    head = make_head(spaces.Box(-largest, largest, (2,)))
    sample = torch.tensor([[0.25, -3.0]])
    assert torch.equal(head.to_environment(sample), sample)


def test_the_standard_deviation_begins_as_asked_and_survives_a_save() -> None:
    space = spaces.Box(-1, 1, (2,))
    head = make_head(space, init_noise_std=0.5)
    assert isinstance(head, GaussianHead)
    torch.testing.assert_close(head.log_std, torch.full((2,), math.log(0.5)))
    with torch.no_grad():
        head.log_std.copy_(torch.tensor([0.3, -1.2]))
    fresh = make_head(space)
    fresh.load_state_dict(head.state_dict())
    assert torch.equal(fresh.log_std, head.log_std)


def test_a_fixed_standard_deviation_gets_no_gradient() -> None:
    head = make_head(spaces.Box(-1, 1, (2,)), fixed_std=True)
    outputs = torch.zeros(3, 2, requires_grad=True)
    head(outputs).log_prob(torch.ones(3, 2)).sum().backward()
    assert head.log_std.grad is None
    assert "log_std" in head.state_dict()

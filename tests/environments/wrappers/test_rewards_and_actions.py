"""Rewards, actions, delays and features, against what they are said to be."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from etude.environments.vector import VectorEnvironment
from etude.errors import UserError
from tests.environments.wrappers.tasks import Sensors, actions, around, inside, parts


def returns(
    environment: VectorEnvironment, plain: VectorEnvironment, gamma: float, steps: int
) -> list[tuple[float, float, Any]]:
    """Of each episode: the discounted sum of what a wrapper added, the potential at its beginning, and how it ended."""
    transform = environment.transforms[0]  # type: ignore[attr-defined] # it has one
    first = parts(environment.reset([1, 2, 3])[0])[""].clone()
    plain.reset([1, 2, 3])
    sums, factors = torch.zeros(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)
    beginnings, found = transform._of(first).double(), []
    for action in actions(environment, steps):
        step, raw = environment.step(action), plain.step(action)
        assert torch.equal(step.info["raw_reward"], raw.reward)
        sums += factors * (step.reward.double() - raw.reward.double())
        factors *= gamma
        last = transform._of(parts(step.final_observation)[""]).double()
        starts = transform._of(parts(step.observation)[""]).double()
        for row in (step.terminated | step.truncated).nonzero().flatten().tolist():
            rest = 0.0 if step.terminated[row] else float(factors[row] * last[row])
            found.append((float(sums[row]) - rest, float(beginnings[row]), bool(step.terminated[row])))
            sums[row], factors[row], beginnings[row] = 0.0, 1.0, starts[row]
    return found


@pytest.mark.parametrize(
    ("task", "name"), [("cartpole", "cartpole_shaping"), ("mountaincar", "mountaincar_shaping"), ("pong", "pong_shaping")]
)
def test_shaping_adds_up_to_minus_the_first_potential_whatever_is_done(task: str, name: str) -> None:
    shaped = around(task, {"id": name, "gamma": 0.9, "scale": 3.0})
    episodes = returns(shaped, around(task), 0.9, 150)
    assert len(episodes) > 5
    for total, potential, _ in episodes:
        assert total == pytest.approx(-potential, abs=2e-5)
    assert len({round(potential, 6) for _, potential, _ in episodes}) > 3
    kinds = {terminated for *_, terminated in episodes}
    assert kinds == {"cartpole": {True}, "mountaincar": {False}, "pong": {True, False}}[task] or kinds == {True, False}


def test_potentials_mean_what_they_say() -> None:
    from etude.environments.wrappers.potentials import CartPoleShaping, MountainCarShaping, PongShaping

    def of(cls: Any, *states: list[float]) -> list[float]:
        return cls(cls.Config()).potential(torch.tensor(states)).tolist()

    edge = 12 * math.pi / 180
    assert of(CartPoleShaping, [0, 5, 0, 5], [2.4, 0, 0, 0], [2.4, 0, -edge, 0]) == pytest.approx([1, 0.5, 0], abs=1e-6)
    assert of(MountainCarShaping, [-math.pi / 6, 0], [0.5, 0]) == pytest.approx([0, 1], abs=1e-6)
    # Friction-free coasting keeps energy: the valley at that speed is worth the height it climbs to.
    speed = math.sqrt(2 * 0.0025 / 3 * (math.sin(1.5) + 1))
    assert of(MountainCarShaping, [-math.pi / 6, speed]) == pytest.approx([1], abs=1e-6)
    assert of(PongShaping, [0.5, 0, 0.3, 0.5], [0.5, 0, 0.3, 0.9], [0.5, 0, 0, 0]) == pytest.approx([1, 0.6, 0])


def test_shaping_refuses_other_tasks() -> None:
    with pytest.raises(UserError, match=r"cartpole_shaping\): needs the observations of CartPole, 3 numbers"):
        around("mountaincar", {"id": "cartpole_shaping"})


def rewards(environment: VectorEnvironment, steps: int = 20) -> tuple[torch.Tensor, list[torch.Tensor]]:
    environment.reset([1, 2, 3])
    acts = actions(environment, steps)
    return torch.stack([environment.step(action).reward.clone() for action in acts]), acts


def test_rewards_are_clipped_scaled_and_added_to() -> None:
    raw, acts = rewards(around("rooms"))
    assert torch.equal(rewards(around("rooms", {"id": "reward_clip"}))[0], raw.sign())
    assert torch.equal(rewards(around("rooms", {"id": "reward_clip", "low": -0.5, "high": 1}))[0], raw.clamp(-0.5, 1))
    scaled, _ = rewards(around("rooms", {"id": "reward_scale", "factor": 2, "offset": 1}))
    torch.testing.assert_close(scaled, 2 * raw + 1)
    paid, _ = rewards(around("rooms", {"id": "action_reward", "rewards": [1, -1, 0.5]}))
    torch.testing.assert_close(paid, raw + torch.tensor([1, -1, 0.5])[torch.stack(acts)])
    with pytest.raises(UserError, match=r"rewards=\[1.0\]: must be 3 numbers"):
        around("rooms", {"id": "action_reward", "rewards": [1]})


def test_rewards_of_other_goals_are_changed_alike_or_not_given() -> None:
    achieved, desired = torch.rand(4, 2), torch.rand(4, 2)
    plain, scaled = around("mixed"), around("mixed", {"id": "reward_scale", "factor": 2}, {"id": "reward_clip", "low": -1})
    assert plain.compute_reward is not None
    assert scaled.compute_reward is not None
    expected = (2 * plain.compute_reward(achieved, desired)).clamp(min=-1)
    torch.testing.assert_close(scaled.compute_reward(achieved, desired), expected)
    within = inside("mixed", {"id": "reward_scale", "factor": 2}, {"id": "reward_clip", "low": -1})
    assert within.compute_reward is not None
    torch.testing.assert_close(within.compute_reward(achieved, desired), expected)
    assert inside("mixed", {"id": "action_reward", "rewards": [1, 2, 3]}).compute_reward is None
    assert around("mixed", {"id": "action_reward", "rewards": [1, 2, 3]}).compute_reward is None
    assert around("mixed", {"id": "stack", "key": "achieved_goal"}).compute_reward is None
    assert around("mixed", {"id": "stack", "key": "observation"}).compute_reward is not None


def test_rare_states_pay_more_and_copies_count_together() -> None:
    environment, plain = around("rooms", {"id": "state_count_bonus", "weight": 0.5}), around("rooms")
    (paid, _), (raw, _) = rewards(environment, 30), rewards(plain, 30)
    visits = dict.fromkeys(range(2, 7), 0)
    plain.reset([1, 2, 3])
    for number, action in enumerate(actions(plain, 30)):
        rooms = parts(plain.step(action).final_observation)[""].tolist()
        for room in rooms:
            visits[room] += 1
        expected = [0.5 / math.sqrt(visits[room]) for room in rooms]
        assert (paid - raw)[number].tolist() == pytest.approx(expected, abs=1e-5)
    with pytest.raises(UserError, match="no finite bounds; set low, 4 numbers"):
        around("cartpole", {"id": "state_count_bonus"})
    with pytest.raises(UserError, match=r"make 1,000,000,000 cells; use fewer bins"):
        around("sensors", {"id": "state_count_bonus", "bins": 1000})


class Acts(Sensors):
    """Keeps what it was told to do."""

    done: list[np.ndarray] = []  # noqa: RUF012 # one list for the test

    def step(self, action: Any) -> Any:
        self.done.append(np.array(action))
        return self._observe(), 0.0, False, False, {}


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    monkeypatch.setattr(Acts, "done", [])
    monkeypatch.setitem(__import__("tests.environments.wrappers.tasks", fromlist=["TASKS"]).TASKS, "acts", Acts)
    return Acts.done


def test_actions_are_rescaled_and_what_lies_beyond_is_clipped(done: list[np.ndarray]) -> None:
    environment = around("acts", {"id": "action_rescale"}, num_envs=1)
    environment.reset([1])
    assert environment.single_action_space.low.tolist() == [-1, -1]  # type: ignore[attr-defined] # a box
    for action in ([-1, -1], [1, 1], [0, 0], [-7, 7]):
        environment.step(torch.tensor([action], dtype=torch.float32))
    assert np.stack(done).tolist() == [[-2, 0], [2, 5], [0, 2.5], [-2, 5]]


def test_rescaling_forth_and_back_is_the_same_action(done: list[np.ndarray]) -> None:
    environment = around("acts", {"id": "action_rescale", "low": 0, "high": 4}, num_envs=1)
    environment.reset([1])
    low, width = np.array([-2, 0]), np.array([4, 5])
    wanted = np.random.default_rng(1).uniform(low, low + width, (20, 2))
    for action in wanted:
        environment.step(torch.from_numpy(((action - low) / width * 4)[None]).float())
    np.testing.assert_allclose(np.stack(done), wanted, atol=1e-6)


def test_actions_are_clipped_remapped_and_delayed(done: list[np.ndarray]) -> None:
    def follow(wrapper: dict[str, Any], *chosen: Any) -> list[Any]:
        done.clear()
        environment = around("acts", wrapper, num_envs=1)
        environment.reset([2])
        for action in chosen:
            environment.step(torch.tensor([action]))
        return np.stack(done).tolist()

    assert follow({"id": "action_clip"}, [9.0, -9.0]) == [[2, 0]]
    remap = {"id": "action_remap", "actions": [[1, 2], [-2, 0]]}
    assert follow(remap, 1, 0) == [[-2, 0], [1, 2]]
    lag = {"id": "action_lag", "steps": 2}
    assert follow(lag, [1.0, 1.0], [2.0, 2.0], [1.0, 3.0], [0.0, 0.0]) == [[0, 0], [0, 0], [1, 1], [2, 2]]


@pytest.mark.parametrize(
    ("task", "wrapper", "message"),
    [
        ("rooms", {"id": "action_remap", "actions": [3]}, "3 is not among the actions"),
        ("rooms", {"id": "action_remap", "actions": [[0]]}, "is no action of this task, which is a number"),
        ("sensors", {"id": "action_remap", "actions": [[9, 9]]}, "not among the actions"),
        ("sensors", {"id": "action_remap", "actions": ["up"]}, "not made of numbers"),
        ("rooms", {"id": "action_remap", "actions": []}, "something to choose from"),
        ("rooms", {"id": "action_mask", "allowed": [3]}, "must be some of the actions 0 to 2"),
        ("sensors", {"id": "action_mask", "allowed": [0]}, "needs discrete actions"),
        ("rooms", {"id": "action_rescale"}, "needs continuous actions"),
        ("rooms", {"id": "noise"}, "needs a box of floats, and observations are Discrete"),
        ("mixed", {"id": "noise"}, "which part of the observation is meant\\? set key, one of"),
        ("mixed", {"id": "noise", "key": "view"}, "key=view: is a box of shape \\(6, 4, 3\\) and type uint8"),
        ("mixed", {"id": "noise", "key": "sight"}, "key=sight: is no part of it"),
        ("sensors", {"id": "noise", "key": "sight"}, "which has no keys"),
        ("pictures", {"id": "time_feature", "limit": 4}, "needs a vector or a Dict"),
        ("pictures", {"id": "pong_features"}, "needs the objects of Pong, 4 or 6 numbers"),
    ],
)  # fmt: skip
def test_what_does_not_suit_is_refused_by_name(task: str, wrapper: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=rf"environment.wrappers\[0\] \({wrapper['id']}\): .*{message}"):
        around(task, wrapper)


def test_a_mask_is_added_and_joined_with_the_tasks_own() -> None:
    environment = around("rooms", {"id": "action_mask", "allowed": [0, 1]}, {"id": "action_mask", "allowed": [1, 2]})
    observation, _ = environment.reset([1, 2, 3])
    assert isinstance(observation, dict)
    assert observation["action_mask"].tolist() == [[0, 1, 0]] * 3
    assert observation.keys() == {"observation", "action_mask"}


def test_discrete_values_become_numbers_bits_and_places() -> None:
    rooms = parts(around("rooms").reset([1, 2, 3])[0])[""] - 2
    for encoding, code in (
        ("array", lambda room: [room]),
        ("binary", lambda room: [room >> 2, room >> 1 & 1, room & 1]),
        ("onehot", lambda room: [float(place == room) for place in range(5)]),
    ):
        seen = around("rooms", {"id": "discrete_encoder", "encoding": encoding}).reset([1, 2, 3])[0]
        assert parts(seen)[""].tolist() == [code(room) for room in rooms.tolist()]


def test_noise_has_the_deviation_that_was_asked_for_and_stays_in_bounds() -> None:
    for distribution in ("normal", "uniform"):
        noisy = around("float pictures", {"id": "noise", "std": 0.05, "distribution": distribution})
        plain, seen = (parts(environment.reset([1, 2, 3])[0])[""] for environment in (around("float pictures"), noisy))
        middle = (plain > 0.2) & (plain < 0.8)
        assert float((seen - plain)[middle].std()) == pytest.approx(0.05, rel=0.2)
        assert float(seen.min()) >= 0
        assert float(seen.max()) <= 1


def test_late_observations_are_those_of_before() -> None:
    late, plain = around("sensors", {"id": "observation_lag", "steps": 2}), around("sensors")
    first = parts(plain.reset([1, 2, 3])[0])[""][0].clone()
    late.reset([1, 2, 3])
    past = [first, first, first]
    for action in actions(plain, 30):
        step, seen = plain.step(action), late.step(action)
        past = [*past[1:], parts(step.final_observation)[""][0].clone()]
        assert torch.equal(parts(seen.final_observation)[""][0], past[0])
        if step.terminated[0] | step.truncated[0]:
            past = [parts(step.observation)[""][0].clone()] * 3


def test_time_runs_out() -> None:
    environment = around("cartpole", {"id": "time_feature", "limit": 30})
    observation, _ = environment.reset([1, 2, 3])
    assert parts(observation)[""][:, 4].tolist() == [1, 1, 1]
    elapsed = torch.zeros(3)
    for action in actions(environment, 80):
        step = environment.step(action)
        elapsed += 1
        torch.testing.assert_close(parts(step.final_observation)[""][:, 4], 1 - elapsed / 30)
        elapsed[step.terminated | step.truncated] = 0
        torch.testing.assert_close(parts(step.observation)[""][:, 4], 1 - elapsed / 30)


def test_features_of_objects_have_the_balls_speed_whether_the_task_tells_it_or_not() -> None:
    for game, ball in (("pong", 2), ("breakout", 1)):
        told, found, raw, still = (
            around(game, {"id": f"{game}_features"}), around(f"still {game}", {"id": f"{game}_features"}),
            around(game), around(f"still {game}"),
        )  # fmt: skip
        for environment in (told, found, raw, still):
            environment.reset([1, 2, 3])
        last: torch.Tensor | None = None
        for action in actions(raw, 25):
            steps = [environment.step(action) for environment in (told, found, raw, still)]
            seen, derived, facts, bare = (parts(step.final_observation)[""] for step in steps)
            assert torch.equal(seen[:, ball + 2 : ball + 4], facts[:, ball + 2 : ball + 4])
            position, in_play = bare[:, ball : ball + 2], bare[:, ball : ball + 2].abs().sum(1) > 0
            if last is not None:
                moved = torch.where((in_play & (last.abs().sum(1) > 0))[:, None], position - last, 0)
                assert torch.equal(derived[:, ball + 2 : ball + 4], moved)
            if game == "pong":
                heights = torch.where(in_play[:, None], bare[:, 3:4] - bare[:, :2], 0)
                assert torch.equal(derived[:, 6:], heights)
            else:
                torch.testing.assert_close(derived[:, 6:], bare[:, 3:].reshape(3, 6, 18).mean(2))
            last = parts(steps[3].observation)[""][:, ball : ball + 2].clone()

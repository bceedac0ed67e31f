"""Native MuJoCo tasks are Gymnasium's, bit for bit: observations, rewards, ends and new episodes."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

pytest.importorskip("mujoco")

from etude.config.schema import EnvironmentConfig
from etude.environments.native.mujoco_tasks import TASKS, MujocoVector
from etude.environments.vector import VectorEnvironment
from etude.errors import UserError
from etude.runs.checkpoint import CheckpointStore

N = 3
SEEDS = [11, 12, 13]
IDS = sorted(TASKS)
ENDLESS = ("HalfCheetah-v5", "Pusher-v5", "Reacher-v5", "Swimmer-v5")
WALKER = {"ctrl_cost_weight": 0.5, "forward_reward_weight": 2, "reset_noise_scale": 0.02, "frame_skip": 3}
HEALTHY = {"healthy_reward": 0.25, "healthy_z_range": [0.5, 1.3]}
EVERYTHING = {"exclude_current_positions_from_observation": False}
KWARGS: list[tuple[str, dict[str, Any]]] = [
    ("HalfCheetah-v5", WALKER | EVERYTHING),
    ("Swimmer-v5", WALKER | EVERYTHING),
    ("Hopper-v5", WALKER | EVERYTHING | HEALTHY | {"healthy_state_range": (-3, 3), "healthy_angle_range": (-0.1, 0.3)}),
    ("Hopper-v5", {"terminate_when_unhealthy": False}),
    ("Walker2d-v5", WALKER | EVERYTHING | HEALTHY | {"healthy_angle_range": (-0.3, 0.5)}),
    ("Walker2d-v5", {"terminate_when_unhealthy": False}),
    ("Ant-v5", WALKER | EVERYTHING | HEALTHY | {"contact_cost_weight": 0.1, "contact_force_range": (-0.5, 2.0)}),
    ("Ant-v5", {"include_cfrc_ext_in_observation": False, "terminate_when_unhealthy": False}),
    ("Humanoid-v5", WALKER | EVERYTHING | {"healthy_z_range": (1.2, 2), "contact_cost_range": (0.1, 5.0)}),
    ("Humanoid-v5", {"include_cinert_in_observation": False, "contact_cost_weight": 1e-4}),
    ("Humanoid-v5", {"include_cvel_in_observation": False, "terminate_when_unhealthy": False, "healthy_reward": 1.0}),
    ("Humanoid-v5", {"include_qfrc_actuator_in_observation": False, "include_cfrc_ext_in_observation": False}),
    ("Reacher-v5", {"frame_skip": 3, "reward_dist_weight": 2.5, "reward_control_weight": 0.3}),
    ("Pusher-v5", {"frame_skip": 3, "reward_near_weight": 0.7, "reward_dist_weight": 2, "reward_control_weight": 0.3}),
    ("InvertedPendulum-v5", {"frame_skip": 1, "reset_noise_scale": 0.1}),
    ("InvertedDoublePendulum-v5", {"frame_skip": 2, "healthy_reward": 3, "reset_noise_scale": 0.05}),
]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gymnasium's own HalfCheetah leaves a MUJOCO_LOG.TXT where it is made."""
    monkeypatch.chdir(tmp_path)


def make(name: str, num_envs: int = N, **options: Any) -> MujocoVector[Any]:
    return TASKS[name](num_envs, **options)


def actions(environment: VectorEnvironment, steps: int, seed: int = 0) -> list[torch.Tensor]:
    """Random actions, some of them outside of their bounds."""
    space = environment.single_action_space
    assert isinstance(space, gymnasium.spaces.Box)
    drawn = np.random.default_rng(seed).uniform(1.2 * space.low, 1.2 * space.high, (steps, environment.num_envs, *space.shape))
    return list(torch.from_numpy(drawn.astype(np.float32)))


def trajectory(environment: VectorEnvironment, moves: list[torch.Tensor]) -> bytes:
    """Everything that the steps return."""
    out = b""
    for action in moves:
        step = environment.step(action)
        out += b"".join(value.numpy().tobytes() for value in step[:5] if isinstance(value, torch.Tensor))
    return out


def assert_gymnasium(name: str, kwargs: dict[str, Any], *, limit: int, steps: int) -> int:
    """Compare every value of `steps` steps, new episodes included; returns how many terminated."""
    environment = make(name, max_episode_steps=limit, kwargs=kwargs)
    plain = [gymnasium.make(name, max_episode_steps=limit, disable_env_checker=True, **kwargs) for _ in SEEDS]
    assert environment.single_observation_space == plain[0].observation_space
    assert environment.single_action_space == plain[0].action_space
    observation, info = environment.reset(SEEDS)
    assert info == {}
    for row, env, seed in zip(observation, plain, SEEDS, strict=True):
        assert_equal(row, env.reset(seed=seed)[0])
    terminations = 0
    for action in actions(environment, steps):
        step = environment.step(action)
        for i, env in enumerate(plain):
            after, reward, terminated, truncated, _ = env.step(action[i].numpy())
            assert step.reward[i].item() == np.float32(reward)
            assert step.terminated[i].item() == terminated
            assert step.truncated[i].item() == truncated
            assert_equal(step.final_observation[i], after)  # type: ignore[index] # one tensor
            if terminated or truncated:
                after, _ = env.reset()
                terminations += terminated
            assert_equal(step.observation[i], after)  # type: ignore[index]
    return terminations


def assert_equal(row: Any, expected: np.ndarray) -> None:
    assert row.numpy().tobytes() == expected.astype(np.float32).tobytes()


@pytest.mark.parametrize("name", IDS)
def test_trajectories_are_those_of_gymnasium(name: str) -> None:
    terminations = assert_gymnasium(name, {}, limit=70, steps=300)
    assert (terminations > 0) == (name not in ENDLESS)


@pytest.mark.parametrize(("name", "kwargs"), KWARGS)
def test_keyword_arguments_mean_what_they_mean_in_gymnasium(name: str, kwargs: dict[str, Any]) -> None:
    assert TASKS[name].supports(kwargs)
    assert_gymnasium(name, kwargs, limit=40, steps=80)


@pytest.mark.parametrize("name", IDS)
def test_transitions_from_equal_states_are_those_of_gymnasium(name: str) -> None:
    """States that random actions seldom reach: upside down, in the air, deep in the ground, fast."""
    environment = make(name)
    plain: Any = gymnasium.make(name, disable_env_checker=True).unwrapped
    environment.reset(SEEDS)
    random = np.random.default_rng(3)
    terminations = 0
    for action in actions(environment, 60):
        qpos = environment.simulation.model.qpos0 + random.normal(0, 0.5, environment.qpos.shape)
        qvel = random.normal(0, 5, environment.qvel.shape)
        environment.simulation.reset(np.arange(N), qpos, qvel)
        step = environment.step(action)
        for i in range(N):
            plain.reset()
            plain.set_state(qpos[i], qvel[i])
            after, reward, terminated, _, _ = plain.step(action[i].numpy())
            assert step.reward[i].item() == np.float32(reward)
            assert step.terminated[i].item() == terminated
            assert_equal(step.final_observation[i], after)  # type: ignore[index] # one tensor
            terminations += terminated
    assert terminations < 60 * N


@pytest.mark.parametrize("name", IDS)
def test_limits_and_thresholds_are_those_registered(name: str) -> None:
    environment = make(name, num_envs=1)
    spec = gymnasium.registry[name]
    assert environment.return_threshold == spec.reward_threshold
    assert environment.snapshot == "exact"
    assert environment.device == torch.device("cpu")
    environment.reset([0])
    environment._elapsed[:] = (spec.max_episode_steps or 0) - 2
    action = torch.zeros(1, *environment.single_action_space.shape or ())
    assert [bool(environment.step(action).truncated[0]) for _ in range(3)] == [False, True, False]


@pytest.mark.parametrize("name", IDS)
def test_a_checkpoint_goes_on_bit_for_bit(name: str, tmp_path: Path) -> None:
    """In a fresh environment, in one that was elsewhere, and back in time in the one that was saved."""
    environment = make(name, max_episode_steps=90)
    environment.reset(SEEDS)
    moves = actions(environment, 250)
    trajectory(environment, moves[:50])
    store = CheckpointStore(tmp_path, keep=1)
    saved = store.save({"rank/0": environment.state_dict()}, counters={"env_steps": 50, "updates": 0}, metadata={})
    expected = trajectory(environment, moves[50:])
    used = make(name, max_episode_steps=90)
    used.reset([7, 8, 9])
    for other in (make(name, max_episode_steps=90), used, environment):
        other.load_state_dict(saved.load()["rank/0"])  # type: ignore[arg-type] # what was saved is a dict
        assert trajectory(other, moves[50:]) == expected


@pytest.mark.parametrize("name", IDS)
def test_only_ant_and_humanoid_need_more_than_the_integration_state(name: str) -> None:
    """Their speed begins at a body's position as the step before left it, which no state says."""
    environment = make(name)
    environment.reset(SEEDS)
    moves = actions(environment, 30)
    trajectory(environment, moves[:10])
    state = environment.state_dict()
    expected = trajectory(environment, moves[10:])
    for output in state["simulation"]["outputs"].values():
        output.zero_()
    environment.load_state_dict(state)
    assert (trajectory(environment, moves[10:]) == expected) == (name not in ("Ant-v5", "Humanoid-v5"))


@pytest.mark.parametrize("name", IDS)
def test_results_do_not_depend_on_threads_or_on_the_number_of_copies(name: str) -> None:
    wide = make(name, num_envs=17, max_episode_steps=20, threads=1)
    threaded = make(name, num_envs=17, max_episode_steps=20, threads=2)
    narrow = make(name, num_envs=1, max_episode_steps=20)
    wide.reset(range(17))
    threaded.reset(range(17))
    narrow.reset([7])
    for action in actions(wide, 50):
        step, same, one = wide.step(action), threaded.step(action), narrow.step(action[7:8])
        for value, other, single in zip(step[:5], same[:5], one[:5], strict=True):
            assert isinstance(value, torch.Tensor)
            assert isinstance(other, torch.Tensor)
            assert isinstance(single, torch.Tensor)
            assert torch.equal(value, other)
            assert torch.equal(value[7:8], single)


@pytest.mark.parametrize("name", IDS)
def test_a_step_stays_valid_through_the_next_one(name: str) -> None:
    environment = make(name, max_episode_steps=7)
    first, _ = environment.reset(SEEDS)
    kept: list[Any] = [first]
    copies = [first.clone()] if isinstance(first, torch.Tensor) else []
    for action in actions(environment, 30):
        step = environment.step(action)
        assert all(torch.equal(value, copy) for value, copy in zip(kept, copies, strict=True))
        ended = step.terminated | step.truncated
        assert (step.final_observation is step.observation) == (not ended.any())
        kept = list(step[:5])
        copies = [value.clone() for value in kept]


def test_a_step_is_overwritten_by_the_second_next() -> None:
    environment = make("InvertedPendulum-v5")
    environment.reset(SEEDS)
    first, second, third = (environment.step(action) for action in actions(environment, 3))
    assert first.observation is third.observation is not second.observation
    assert first.reward.data_ptr() == third.reward.data_ptr() != second.reward.data_ptr()


def test_a_fall_at_the_time_limit_is_both_terminated_and_truncated() -> None:
    fall = torch.full((1, 1), 3.0)
    environment = make("InvertedPendulum-v5", num_envs=1)
    environment.reset([0])
    length = 1
    while not environment.step(fall).terminated:
        length += 1
    for limit, ends in ((length - 1, [False, True]), (length, [True, True]), (length + 1, [True, False])):
        environment = make("InvertedPendulum-v5", num_envs=1, max_episode_steps=limit)
        environment.reset([0])
        step = [environment.step(fall) for _ in range(min(limit, length))][-1]
        assert [bool(step.terminated), bool(step.truncated)] == ends


def test_resetting_with_the_same_seeds_begins_the_same_episodes() -> None:
    environment = make("Ant-v5")
    first, _ = environment.reset(SEEDS)
    assert isinstance(first, torch.Tensor)
    first = first.clone()
    trajectory(environment, actions(environment, 20))
    assert torch.equal(first, environment.reset(SEEDS)[0])  # type: ignore[arg-type] # one tensor


@pytest.mark.parametrize(
    ("kwargs", "complaint"),
    [
        ({"forward_weight": 1.0}, "kwargs.forward_weight: native Hopper-v5 has no such parameter; did you mean"),
        ({"xml_file": "mine.xml"}, "kwargs.xml_file: native Hopper-v5 has no such parameter"),
        ({"render_mode": "rgb_array"}, "kwargs.render_mode"),
        ({"ctrl_cost_weight": "high"}, "kwargs.ctrl_cost_weight='high': must be a number"),
        ({"ctrl_cost_weight": True}, "must be a number"),
        ({"frame_skip": 0}, "kwargs.frame_skip=0: must be a positive whole number"),
        ({"terminate_when_unhealthy": 1}, "must be true or false"),
        ({"healthy_z_range": 0.7}, "must be a lower and an upper bound"),
        ({"healthy_z_range": (0.7, 1.0, 2.0)}, "must be a lower and an upper bound"),
        ({"healthy_z_range": "ab"}, "must be a lower and an upper bound"),
    ],
)
def test_keyword_arguments_without_meaning_are_refused(kwargs: dict[str, Any], complaint: str) -> None:
    assert not TASKS["Hopper-v5"].supports(kwargs)
    with pytest.raises(UserError) as error:
        make("Hopper-v5", kwargs=kwargs)
    assert complaint in str(error.value)
    assert str(error.value).startswith("environment.kwargs.")


def test_a_wrong_call_says_what_is_wrong() -> None:
    environment = make("Hopper-v5")
    with pytest.raises(gymnasium.error.ResetNeeded):
        environment.step(torch.zeros(N, 3))
    with pytest.raises(ValueError, match="2 seeds for 3 copies"):
        environment.reset([1, 2])
    environment.reset(SEEDS)
    with pytest.raises(ValueError, match=r"actions of shape \(3,\), not \(3, 3\)"):
        environment.step(torch.zeros(3))


def test_building_a_task_leaves_nothing_in_the_working_folder(tmp_path: Path) -> None:
    make("HalfCheetah-v5").reset(SEEDS)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("backend", ["native", "gymnasium"])
def test_warnings_are_told_and_leave_no_file(
    backend: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Defect 38: MuJoCo leaves a MUJOCO_LOG.TXT in the working directory for each warning that nobody takes."""
    from etude.environments import mujoco_warnings
    from etude.environments.make import make_environment

    mujoco: Any = importlib.import_module("mujoco")
    handler = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(None)  # as in a new process
    monkeypatch.setattr(mujoco_warnings, "_said", set())
    try:
        environment = make_environment(EnvironmentConfig(id="HalfCheetah-v5", num_envs=1, backend=backend))
        environment.reset([1])
        model = mujoco.MjModel.from_xml_string(
            "<mujoco><worldbody><body><freejoint/><geom size='1'/></body></worldbody></mujoco>"
        )
        data = mujoco.MjData(model)
        data.qvel[:] = 1e30
        for _ in range(2):
            mujoco.mj_step(model, data)
    finally:
        mujoco.set_mju_user_warning(handler)
    assert "MuJoCo: Nan, Inf or huge value" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())

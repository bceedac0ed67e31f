from __future__ import annotations

import pytest

from etude.telemetry.names import canonical, deterministic_items, join, split


@pytest.mark.parametrize("name", ["train/entropy", "time/share/collect", "env_steps"])
def test_a_name_is_split_and_joined_back(name):
    assert join(*split(name)) == name


def test_a_nested_name_belongs_to_its_first_part():
    assert split("time/share/collect") == ("time", "share/collect")
    assert split("env_steps") == ("", "env_steps")


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("train/roll/ep_rew/mean", "collect/return_mean"),
        ("train/roll/ep_rew/best", "collect/return_best"),
        ("train/roll/ep_len/mean", "collect/length_mean"),
        ("val/roll/ep_rew/mean", "eval/return_mean"),
        ("eval/roll/ep_rew/mean", "eval/return_mean"),
        ("val/roll/ep_rew/best", "eval/return_best"),
        ("test/roll/ep_len/std", "test/length_std"),
        ("val/success_rate", "eval/success_rate"),
        ("train/opt/loss/policy", "train/policy_loss"),
        ("train/opt/ppo/approx_kl", "train/approx_kl"),
        ("train/opt/ppo/clip_fraction", "train/clip_fraction"),
        ("train/opt/grads/norm/all", "train/grad_norm"),
        ("train/opt/grads/norm/backbone", "train/grad_norm_backbone"),
        ("train/hp/policy_lr", "hp/learning_rate"),
        ("train/hp/clip_range", "hp/clip_range"),
        ("Train/mean_reward", "collect/return_mean"),
        ("Policy/mean_noise_std", "train/action_std"),
        ("evaluation/episode-reward-mean", "eval/return_mean"),
        ("training/episode-reward-mean", "collect/return_mean"),
        ("training/episode-length-max", "collect/length_max"),
        ("update/Q_loss-mean", "train/q_loss"),
    ],
)
def test_reference_spellings_become_ours(theirs, ours):
    assert canonical(theirs) == ours
    assert canonical(ours) == ours


@pytest.mark.parametrize("name", ["env_steps", "train/roll/return/mean", "train/my_own", "rewards_raw/torque"])
def test_a_name_without_a_counterpart_is_kept(name):
    assert canonical(name) == name


def test_two_runs_are_compared_without_clock_and_machine():
    row = {"env_steps": 8, "train/entropy": 0.5, "time/elapsed_s": 1.0, "time/share/log": 0.1, "system/memory": 2.0}
    assert deterministic_items(row) == {"env_steps": 8, "train/entropy": 0.5}

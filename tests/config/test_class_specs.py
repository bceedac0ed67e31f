"""`{class_name, config}`: algorithms, policies, value functions, pools and samplers of softlearning, there and back."""

from __future__ import annotations

import pytest

from etude.buffers.replay import ReplayConfig
from etude.buffers.replay_config import HindsightConfig
from etude.cli import run as etude
from etude.components.networks.mlp import MLPConfig
from etude.config import class_specs
from etude.config.class_specs import get
from etude.config.compose import compose
from etude.config.schedules import Schedule
from etude.config.validate import to_yaml
from etude.errors import UserError
from tests.config.conftest import Complaints, Write

VARIANT = """
environment_params:
  training: {universe: gym, domain: HalfCheetah, task: v5, kwargs: {}}
  evaluation: {universe: gym, domain: HalfCheetah, task: v5, kwargs: {}}
algorithm_params:
  class_name: SAC
  config: {epoch_length: 1000, n_epochs: 300, policy_lr: 3e-4, Q_lr: 1e-3, alpha_lr: 2e-4, target_update_interval: 1, tau: 5e-3,
           target_entropy: auto, discount: 0.98, reward_scale: 1.0, batch_size: 128, train_every_n_steps: 2, n_train_repeat: 3,
           num_warmup_samples: 10000, min_pool_size: 1000, eval_n_episodes: 4, eval_render_kwargs: {}}
policy_params:
  class_name: FeedforwardGaussianPolicy
  config: {hidden_layer_sizes: [128, 128], squash: true, observation_keys: null, preprocessors: null}
exploration_policy_params: {class_name: ContinuousUniformPolicy, config: {observation_keys: null}}
Q_params: {class_name: double_feedforward_Q_function, config: {hidden_layer_sizes: [64, 32], preprocessors: null}}
replay_pool_params: {class_name: SimpleReplayPool, config: {max_size: 500000}}
sampler_params: {class_name: SimpleSampler, config: {max_path_length: 500}}
run_params: {seed: 7, checkpoint_at_end: true, checkpoint_frequency: 30}
"""


def test_a_variant_of_theirs_is_read_whole(write: Write) -> None:
    made = compose(file=write("variant.yaml", VARIANT))
    config, algorithm = made.config, made.config.algorithm
    assert (config.environment.id, config.environment.max_episode_steps, config.experiment.seed) == ("HalfCheetah-v5", 500, 7)
    assert (algorithm.name, algorithm.learning_rate, algorithm.gamma) == ("sac", Schedule.constant(3e-4), 0.98)
    assert (algorithm.critic_learning_rate, algorithm.temperature_learning_rate) == (
        Schedule.constant(1e-3),
        Schedule.constant(2e-4),
    )
    assert (algorithm.train_every, algorithm.gradient_steps, algorithm.learning_starts, algorithm.critics) == (2, 3, 10_000, 2)
    assert algorithm.target_entropy is None
    assert (config.training.total_steps, config.evaluation.episodes) == (300_000, 4)
    assert (config.network["actor"].hidden_dims, config.network["critic"].hidden_dims) == ((128, 128), (64, 32))
    assert (config.buffers["replay"].capacity, config.buffers["replay"].min_size) == (500_000, 1000)
    assert any(note.startswith("run_params: checkpoint_at_end, checkpoint_frequency") for note in made.notes)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("HalfCheetah-v5:sac", []),
        ("PointReach-v0:sac", ["environment.max_episode_steps=20", "algorithm.critics=5"]),
        ("Pendulum-v1:sac", ["algorithm.critics=1", "algorithm.target_entropy=-2", "algorithm.learning_rate=lin_1e-3"]),
        ("MultiGoal-v0:sql", ["training.total_steps=1234", "algorithm.target_every=3"]),
    ],
)
def test_what_is_written_reads_back_the_same(write: Write, spec: str, words: list[str]) -> None:
    config = compose(spec, words=words).config
    written = class_specs.write(config)
    assert {"class_name", "config"} == {key for name in class_specs.SECTIONS if name in written for key in written[name]}
    again = compose(file=write("written.yaml", to_yaml(written))).config
    for section in ("algorithm", "network", "buffers"):
        assert getattr(again, section) == getattr(config, section)
    assert (again.training.total_steps, again.evaluation.episodes) == (config.training.total_steps, config.evaluation.episodes)
    assert again.environment.max_episode_steps == config.environment.max_episode_steps
    assert class_specs.write(again) == written


def test_parts_are_got_one_by_one() -> None:
    pool = get("pool", {"class_name": "SimpleReplayPool", "config": {"max_size": 9}})
    assert pool == ReplayConfig(capacity=9)
    assert get("pool", pool) is pool
    assert get("policy", "FeedforwardGaussianPolicy") == MLPConfig()
    assert get(
        "value_function", {"class_name": "feedforward_Q_function", "config": {"hidden_layer_sizes": [3]}}
    ).hidden_dims == (3,)
    assert get("sampler", {"class_name": "SimpleSampler", "config": {"max_path_length": 30}}).max_episode_steps == 30
    assert get("algorithm", {"class_name": "SAC", "config": {"discount": 0.5}}).gamma == 0.5
    assert get("sampler", None) is None
    strategy = {"type": "final", "resampling_probability": 0.75}
    hindsight = get("pool", {"class_name": "HindsightExperienceReplayPool", "config": {"her_strategy": strategy}})
    assert hindsight == HindsightConfig(strategy="final", ratio=3.0)


def test_a_samplers_options_are_settings_of_ours(write: Write) -> None:
    options = "{max_path_length: 90, min_pool_size: 70, batch_size: 32, store_last_n_paths: 4}"
    text = f"sampler_params: {{class_name: SimpleSampler, config: {options}}}"
    config = compose("Pendulum-v1:sac", file=write("sampler.yaml", text)).config
    assert (config.environment.max_episode_steps, config.training.keep_paths) == (90, 4)
    assert (config.buffers["replay"].min_size, config.algorithm.batch_size) == (70, 32)
    again = class_specs.write(config)["sampler_params"]["config"]
    assert again == {"max_path_length": 90, "store_last_n_paths": 4}


def test_classes_of_theirs_are_read_in_our_sections_too(write: Write) -> None:
    text = """
        network:
          actor: {class_name: FeedforwardGaussianPolicy, config: {hidden_layer_sizes: [8]}}
          critic: {class_name: feedforward_Q_function, config: {hidden_layer_sizes: [9]}}
        buffers:
          replay: {class_name: SimpleReplayPool, config: {max_size: 100}}
    """
    config = compose("Pendulum-v1:sac", file=write("ours.yaml", text)).config
    assert (config.network["actor"].hidden_dims, config.network["critic"].hidden_dims) == ((8,), (9,))
    assert (config.algorithm.critics, config.buffers["replay"].capacity) == (1, 100)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "replay_pool_params: {class_name: SimpleReplayPol}",
            "class_name=SimpleReplayPol: no pool of this name can be read; did you",
        ),
        ("sampler_params: {class_name: RemoteSampler}", "class_name=RemoteSampler: no sampler of this name can be read"),
        (
            "policy_params: {class_name: FeedforwardGaussianPolicy, config: {squash: false}}",
            "config.squash=False: can't be read",
        ),
        ("algorithm_params: {class_name: SAC, config: {discont: 1}}", "algorithm.discont: unknown key"),
        ("environment_params: {training: {id: A-v0}, evaluation: {id: B-v0}}", "environment_params.evaluation: differs"),
    ],
)
def test_what_can_not_be_read_is_one_line(complaints: Complaints, write: Write, text: str, message: str) -> None:
    (line,) = complaints("Pendulum-v1:sac", file=write("wrong.yaml", text))
    assert message in line


def test_what_they_have_no_class_for_is_not_written() -> None:
    for spec, words in (("CartPole-v1:ppo", []), ("Pendulum-v1:sac", ["buffers.replay.type=prioritized"])):
        with pytest.raises(UserError):
            class_specs.write(compose(spec, words=words).config)


def test_the_command_line_prints_them(capsys: pytest.CaptureFixture[str], write: Write) -> None:
    assert etude(["config", "Pendulum-v1:sac", "--class-specs"]) == 0
    file = write("printed.yaml", capsys.readouterr().out)
    assert compose(file=file).config.algorithm == compose("Pendulum-v1:sac").config.algorithm
    assert etude(["config", "CartPole-v1:ppo", "--class-specs"]) == 2

"""Layers, names, and the files of other systems."""

from __future__ import annotations

import inspect
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from etude.config.compose import check, compose, load_config, split_spec
from etude.config.schedules import Schedule
from etude.config.validate import Part, to_plain
from etude.errors import ConfigError, UserError
from tests.config.conftest import Complaints, Write

MASTER = """
    experiment:
      name: "ppo_cartpole_baseline"
      seed: 42
      device: "cuda"

    algorithm:
      name: "ppo"
      lr: 3e-4
      gamma: 0.99
      gae_lambda: 0.95
      clip_ratio: 0.2
      value_coef: 0.5
      entropy_coef: 0.01

    environment:
      name: "CartPole-v1"
      wrapper: "gym"
      normalize_obs: true
      normalize_reward: true

    network:
      actor:
        type: "mlp"
        hidden_dims: [64, 64]
        activation: "tanh"
      critic:
        type: "mlp"
        hidden_dims: [64, 64]
        activation: "tanh"

    buffer:
      type: "trajectory"
      size: 2048

    training:
      total_timesteps: 1000000
      eval_frequency: 10000
      checkpoint_frequency: 50000
      num_eval_episodes: 10

    logging:
      terminal: true
      tensorboard: true
      wandb:
        enabled: true
        project: "rl-experiments"
        tags: ["ppo", "cartpole"]
"""


def test_a_master_file_of_sections_loads_unchanged(write: Write) -> None:
    config = compose(file=write("master.yaml", MASTER)).config
    assert (config.experiment.name, config.experiment.seed, config.experiment.device) == ("ppo_cartpole_baseline", 42, "cuda")
    assert config.environment.id == "CartPole-v1"
    assert config.environment.normalize_observations == "rolling"
    assert config.environment.normalize_rewards is True
    assert config.algorithm.learning_rate == Schedule.constant(3e-4)
    assert config.algorithm.clip_range == Schedule.constant(0.2)
    assert config.algorithm.entropy_coef == Schedule.constant(0.01)
    assert config.algorithm.rollout_size(config.environment.num_envs) == 2048
    assert config.network["actor"].hidden_dims == (64, 64)
    assert config.training.total_steps == 1_000_000
    assert (config.evaluation.every_steps, config.evaluation.episodes) == (10_000, 10)
    assert config.checkpoint.every_steps == 50_000
    assert config.logging.tensorboard is True
    assert config.logging.wandb.enabled is True
    assert config.logging.wandb.project == "rl-experiments"
    assert config.logging.wandb.tags == ("ppo", "cartpole")


def test_translations_are_listed_and_never_written(write: Write) -> None:
    composition = compose(file=write("master.yaml", MASTER))
    assert "algorithm.lr → algorithm.learning_rate" in composition.notes
    assert "training.total_timesteps → training.total_steps" in composition.notes
    written = yaml.safe_dump([to_plain(composition.config), composition.asked])
    for theirs in ("total_timesteps", "clip_ratio", "normalize_obs:", "trajectory"):
        assert theirs not in written


def test_each_layer_lies_over_the_one_before(write: Write) -> None:
    def composed(**options: Any) -> tuple[float, float, float]:
        config = compose("CartPole-v1:ppo", **options).config
        return config.algorithm.gamma, config.algorithm.gae_lambda, config.algorithm.epochs

    file = write("mine.yaml", "algorithm: {gamma: 0.5, gae_lambda: 0.5}")
    write("experiment/more.yaml", "# @package _global_\nalgorithm: {gae_lambda: 0.6, epochs: 7}")
    assert composed() == (0.98, 0.8, 20)  # the preset's variant, over the defaults
    assert composed(file=file) == (0.5, 0.5, 20)
    assert composed(file=file, words=["+experiment=more"]) == (0.5, 0.6, 7)
    assert composed(file=file, words=["+experiment=more", "algorithm.epochs=3"]) == (0.5, 0.6, 3)


def test_an_environment_without_a_preset_takes_the_defaults() -> None:
    config = compose("Some/Thing-v3:ppo").config
    assert config.environment.id == "Some/Thing-v3"
    assert config.algorithm == type(config.algorithm)()


def test_an_algorithm_without_a_variant_takes_the_environments_own_settings() -> None:
    config = compose("CartPole-v1:random").config
    assert config.environment.spec.return_threshold == 475
    assert config.training.total_steps == 100_000
    assert config.network == {}


def test_a_file_that_names_both_is_tuned_like_the_spec(write: Write) -> None:
    file = write("both.yaml", "environment: {id: CartPole-v1}\nalgorithm: {name: ppo}")
    assert compose(file=file).config.algorithm == compose("CartPole-v1:ppo").config.algorithm


def test_spec_splits_at_the_last_colon() -> None:
    assert split_spec("my_module:Name-v0:ppo") == ("my_module:Name-v0", "ppo")


@pytest.mark.parametrize("spec", ["CartPole-v1", "CartPole-v1:", ":ppo", ":", ""])
def test_a_spec_without_both_halves_shows_how_to_write_it(spec: str) -> None:
    with pytest.raises(UserError, match=r"write it as ENV:ALGO, for example \S+:ppo"):
        split_spec(spec)


def test_load_config_needs_both_names() -> None:
    assert load_config("CartPole-v1", "ppo") == compose("CartPole-v1:ppo").config
    assert all(item.default is item.empty for item in inspect.signature(load_config).parameters.values())
    with pytest.raises(TypeError):
        load_config("CartPole-v1")  # type: ignore[call-arg] # the point of the test


def test_a_missing_variant_lists_the_variants(complaints: Complaints) -> None:
    (line,) = complaints("CartPole-v1:pp0")
    assert line.startswith("CartPole-v1:pp0: no such algorithm or variant; did you mean 'ppo'? (known: a2c, bc, cma_es, ")


def test_a_missing_environment_or_algorithm_is_asked_for(complaints: Complaints, write: Write) -> None:
    assert complaints()[0].startswith("which environment?")
    assert complaints(words=["environment.id=CartPole-v1"])[0].startswith("which algorithm?")


def test_spec_and_file_must_agree(complaints: Complaints, write: Write) -> None:
    file = write("other.yaml", "environment:\n  id: Acrobot-v1\nalgorithm:\n  name: random")
    (line,) = complaints("CartPole-v1:random", file=file)
    assert (
        line == "other.yaml:2: environment.id=Acrobot-v1: but CartPole-v1:random asks for CartPole-v1; leave one of the two out"
    )
    (line,) = complaints("Acrobot-v1:ppo", file=file)
    assert line.startswith("other.yaml:4: algorithm.name=random: but Acrobot-v1:ppo asks for ppo")
    assert complaints("CartPole-v1:ppo", words=["algorithm.name=random"])
    assert complaints("CartPole-v1:ppo", words=["environment.id=Pendulum-v1"])


def test_algorithm_and_environment_can_be_plain_words(write: Write) -> None:
    expected = compose("CartPole-v1:ppo").config
    assert compose(words=["environment=CartPole-v1", "algorithm=ppo"]).config == expected
    short = compose(file=write("CartPole-v1.yaml", "environment: CartPole-v1\nalgorithm: ppo")).config
    assert short == expected


def test_project_is_the_files_stem_unless_set(write: Write) -> None:
    text = "environment: {id: CartPole-v1}\nalgorithm: {name: ppo}\n"
    assert compose(file=write("my_study.yaml", text)).config.experiment.project == "my_study"
    assert compose(file=write("a.yaml", text + "project_id: chosen")).config.experiment.project == "chosen"
    assert compose("CartPole-v1:ppo").config.experiment.project == "CartPole-v1"


FLAT_BASE = """
{indent}env_id: CartPole-v1
{indent}n_envs: 4
{indent}max_timesteps: 50000
{indent}env_kwargs: {{sutton_barto_reward: true}}
{indent}hidden_dims: [32, 32]
{indent}activation: relu
{indent}eval_deterministic: false
"""
FLAT_TOP = (
    FLAT_BASE.format(indent="")
    + """
ppo:
  n_steps: 64
  batch_size: 0.5
  policy_lr: lin_0.001
slow:
  algo_id: ppo
  n_steps: 128
  policy_lr: 0.0001
"""
)
FLAT_ANCHORED = (
    "_base: &base"
    + FLAT_BASE.format(indent="  ")
    + """
ppo:
  <<: *base
  n_steps: 64
  batch_size: 0.5
  policy_lr: lin_0.001
slow:
  <<: *base
  algo_id: ppo
  n_steps: 128
  policy_lr: 0.0001
"""
)


@pytest.mark.parametrize("variant", ["ppo", "slow"])
def test_variants_with_a_base_at_the_top_or_under_an_anchor_are_the_same(write: Write, variant: str) -> None:
    top = compose(f"CartPole-v1:{variant}", file=write("top/CartPole-v1.yaml", FLAT_TOP)).config
    anchored = compose(f"CartPole-v1:{variant}", file=write("anchored/CartPole-v1.yaml", FLAT_ANCHORED)).config
    assert top == anchored
    assert top.algorithm.name == "ppo"
    assert top.algorithm.rollout_steps == (64 if variant == "ppo" else 128)
    assert top.environment.num_envs == 4
    assert top.environment.kwargs == {"sutton_barto_reward": True}
    assert top.network["critic"].hidden_dims == (32, 32)
    assert top.network["critic"].activation == "relu"
    assert top.evaluation.mode == "sample"


def test_a_base_that_only_the_file_lays_below_is_the_same_too(write: Write) -> None:
    """`_base` without anchors: the variants needn't merge it themselves."""
    plain = FLAT_ANCHORED.replace("  <<: *base\n", "").replace("&base", "")
    composed = compose("CartPole-v1:slow", file=write("CartPole-v1.yaml", plain)).config
    assert composed == compose("CartPole-v1:slow", file=write("top/CartPole-v1.yaml", FLAT_TOP)).config


def test_a_file_with_variants_asks_for_one(complaints: Complaints, write: Write) -> None:
    file = write("v.yaml", FLAT_TOP)
    assert complaints(file=file) == ["v.yaml has the variants ppo, slow: choose one as ENV:VARIANT"]
    assert complaints("CartPole-v1:slo", file=file) == ["v.yaml has no variant 'slo'; did you mean 'slow'? (it has: ppo, slow)"]


def test_a_variant_must_come_to_an_algorithm(complaints: Complaints, write: Write) -> None:
    file = write("v.yaml", "fast:\n  gamma: 0.9")
    assert complaints("CartPole-v1:fast", file=file)[0].startswith("which algorithm?")


def test_a_misspelt_section_is_not_taken_for_a_variant(complaints: Complaints, write: Write) -> None:
    file = write("v.yaml", "environment: {id: CartPole-v1}\nalgoritm:\n  gamma: 0.9\nppo:\n  gamma: 0.8")
    assert complaints("CartPole-v1:ppo", file=file) == ["v.yaml:2: algoritm: unknown key; did you mean 'algorithm'?"]
    file = write("w.yaml", "stuff:\n  of: mine")
    assert complaints("CartPole-v1:ppo", file=file)[0].startswith("w.yaml:1: stuff: unknown key (known: version, experiment")


def test_a_section_with_nothing_in_it_asks_for_nothing(write: Write) -> None:
    file = write("e.yaml", "algorithm:\n  # gamma: 0.9\ntraining:\nnetwork:\n")
    assert compose("CartPole-v1:ppo", file=file).config.algorithm == compose("CartPole-v1:ppo").config.algorithm


def test_a_part_of_another_type_starts_from_its_own_defaults() -> None:
    optimizer = compose("CartPole-v1:ppo", words=["algorithm.optimizer.type=sgd"]).config.algorithm.optimizer
    assert optimizer == Part("sgd", {})  # adamw's eps and weight_decay stay behind
    short = compose("CartPole-v1:ppo", words=["algorithm.optimizer=sgd"]).config.algorithm.optimizer
    assert short == optimizer


def test_settings_of_an_earlier_run_are_the_base() -> None:
    earlier = compose("CartPole-v1:ppo", words=["algorithm.gamma=0.5", "experiment.name=first"]).config
    again = compose(base=to_plain(earlier)).config
    assert again == earlier
    changed = compose(base=to_plain(earlier), words=["algorithm.gamma=0.6"]).config
    assert changed.algorithm.gamma == 0.6
    assert changed.algorithm.epochs == earlier.algorithm.epochs


def test_another_algorithm_leaves_the_earlier_ones_parts_behind() -> None:
    earlier = compose("CartPole-v1:ppo", words=["environment.num_envs=16"]).config
    config = compose(base=to_plain(earlier), words=["algorithm.name=random"]).config
    assert config.algorithm.name == "random"
    assert config.network == {}
    assert config.environment.num_envs == 16


@pytest.mark.parametrize("dump", ["yaml", "json"])
@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("CartPole-v1:ppo", []),
        ("Pendulum-v1:ppo", ["algorithm.batch_size=0.25", "experiment.name='a: b # c'", "experiment.tags=['1','on','null']"]),
        ("CartPole-v1:random", ["environment.kwargs={a: 1.5, b: [x, null], c: {d: true}}"]),
        ("CartPole-v1:ppo", ["algorithm.learning_rate={start: 1e-3, end: 1e-5, start_at: 0.1, end_at: 50000}"]),
        (
            "CartPole-v1:ppo",
            ["training.phases=[{name: a, hooks: [collect, {update: {count: 2}}], duration_steps: 100}, {name: b}]"],
        ),
    ],
)
def test_a_printed_config_loads_again_as_an_equal_one(write: Write, dump: str, spec: str, words: list[str]) -> None:
    config = compose(spec, words=words).config
    plain = to_plain(config)
    text = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True) if dump == "yaml" else json.dumps(plain, indent=2)
    file = Path(f"printed.{dump}")
    write(file.name, "")
    file.write_text(text, encoding="utf-8")
    assert compose(file=file).config == config
    assert check(yaml.safe_load(text) if dump == "yaml" else json.loads(text)) == config


def test_json_may_be_indented_with_tabs(write: Write) -> None:
    file = write("t.json", '{\n\t"environment": {"id": "CartPole-v1"},\n\t"algorithm": {"name": "ppo", "gamma": 1e-1}\n}')
    assert compose(file=file).config.algorithm.gamma == 0.1


def test_class_dictionaries_and_targets_mean_the_same_as_types(write: Write) -> None:
    ours = """
        environment: {id: CartPole-v1}
        algorithm: {name: ppo, gamma: 0.9, optimizer: {type: torch.optim.Adam, eps: 1e-6}}
        network:
          actor: {type: mlp, hidden_dims: [8]}
        buffers:
          rollout: {type: rollout, steps: 32}
    """
    classes = """
        environment: {id: CartPole-v1}
        algorithm:
          class_name: PPO
          config: {gamma: 0.9, optimizer: {class_name: torch.optim.Adam, config: {eps: 1e-6}}}
        network:
          actor: {class_name: MLP, config: {hidden_dims: [8]}}
        buffers:
          rollout: {class_name: rollout, config: {steps: 32}}
    """
    targets = """
        environment: {id: CartPole-v1}
        algorithm: {name: ppo, gamma: 0.9, optimizer: {_target_: torch.optim.Adam, _partial_: true, eps: 1e-6}}
        network:
          actor: {_target_: etude.components.networks.mlp.MLP, hidden_dims: [8]}
        buffers:
          rollout: {_target_: etude.buffers.rollout.RolloutBuffer, steps: 32}
    """
    expected = compose(file=write("a/c.yaml", ours)).config
    assert compose(file=write("b/c.yaml", classes)).config == expected
    target = compose(file=write("d/c.yaml", targets)).config
    assert target.algorithm == expected.algorithm
    assert target.network["actor"].hidden_dims == (8,)
    assert target.buffers["rollout"].steps == 32
    assert check(to_plain(target)) == target


def test_import_paths_are_honoured_only_for_the_users_own_files() -> None:
    words = ["algorithm.optimizer={type: torch.optim.Adam}"]
    assert compose("CartPole-v1:ppo", words=words).config.algorithm.optimizer.type == "torch.optim.Adam"
    with pytest.raises(ConfigError, match="import path"):
        compose("CartPole-v1:ppo", words=words, allow_imports=False)
    with pytest.raises(UserError, match="--trust"):
        compose("CartPole-v1:etude.workflows.ppo.PPO", allow_imports=False)


def test_the_keys_of_an_environments_own_arguments_are_left_alone(write: Write) -> None:
    file = write("k.yaml", "environment:\n  kwargs: {class_name: X, config: {lr: 1}, _target_: y, lr_schedule: cosine}")
    kwargs = compose("CartPole-v1:ppo", file=file).config.environment.kwargs
    assert kwargs == {"class_name": "X", "config": {"lr": 1}, "_target_": "y", "lr_schedule": "cosine"}


# Defect 33: only the type is changed; what the preset says of another network's layers is not meant for this one.
@pytest.mark.parametrize("layer", ["words", "file"])
def test_a_network_of_another_type_begins_with_its_own_defaults(write: Write, layer: str) -> None:
    tuned = compose("CartPole-v1:sac").config
    assert tuned.network["actor"].hidden_dims == (64, 64)
    if layer == "words":
        made = compose("CartPole-v1:sac", words=["network.actor.type=cnn"])
    else:
        made = compose("CartPole-v1:sac", file=write("mine.yaml", "network: {actor: {type: cnn}}"))
    assert made.config.network["actor"].hidden_dims == (512,)
    assert made.config.network["critic"].hidden_dims == (64, 64)
    assert "hidden_dims" not in made.asked["network"]["actor"]
    assert made.origin("network.actor.hidden_dims") == "default"
    assert made.origin("network.critic.hidden_dims") == "environment preset CartPole-v1:sac"


# Defect 33: a variant with a name of the user's own lay over the algorithm's bare defaults.
def test_a_variant_in_a_file_lies_over_the_tuned_preset_of_its_algorithm(write: Write) -> None:
    text = """
        environment: {id: CartPole-v1}
        algorithm: {name: ppo}
        careful:
          algorithm: {clip_range: 0.1}
    """
    tuned, mine = compose("CartPole-v1:ppo").config, compose("CartPole-v1:careful", file=write("mine.yaml", text)).config
    assert mine.algorithm.clip_range == Schedule.constant(0.1)
    assert replace(mine.algorithm, clip_range=tuned.algorithm.clip_range) == tuned.algorithm
    assert mine.environment == tuned.environment


# Defect 34: with the environment named on the command line alone, Atari's own stack of frames was stacked again.
@pytest.mark.parametrize("environment", ["ALE/Boxing-v5", "BoxingNoFrameskip-v4"])
def test_switches_for_pictures_are_ataris_arguments_wherever_its_id_is_written(write: Write, environment: str) -> None:
    config = compose(f"{environment}:ppo", file=write("mine.yaml", "frame_stack: 2\ngrayscale_obs: true")).config
    assert config.environment.kwargs == {"grayscale": True, "stack": 2}
    assert [wrapper.id for wrapper in config.environment.wrappers] == ["reward_clip"]

"""Everything that is shipped composes, and a user's own presets work like ours."""

from __future__ import annotations

import math
from pathlib import Path

import gymnasium
import pytest

from etude.config.compose import Outline, compose, outline
from etude.config.environment_presets import environment_presets, variants
from etude.config.groups import preset_names
from etude.config.validate import to_plain
from etude.environments.make import make_environment
from etude.environments.spaces import leaf_spaces
from etude.errors import MissingPackageError, UserError
from tests.config.conftest import Complaints, Write

ROOT = Path(__file__).parents[2]
SHIPPED = [(name, variant) for name, preset in environment_presets().items() for variant in (*variants(preset), "random")]


@pytest.mark.parametrize(("environment", "variant"), SHIPPED)
def test_every_environment_preset_composes(environment: str, variant: str) -> None:
    config = compose(f"{environment}:{variant}").config
    assert config.environment.id == environment
    assert config.environment.spec.description


@pytest.mark.parametrize("name", environment_presets())
def test_every_preset_tells_the_truth_about_its_environment(name: str) -> None:
    config = compose(f"{name}:random").config.environment
    try:
        environment = make_environment(config, num_envs=1)
    except MissingPackageError as missing:
        pytest.skip(str(missing))
    if config.robot is not None:  # its model names the joints, and its task the parts of an observation
        assert config.spec.action_labels == config.spec.observation_labels == ()
        return
    registered = gymnasium.spec(name).reward_threshold
    if registered is not None:
        assert config.spec.return_threshold == registered
    actions, observations = environment.single_action_space, environment.single_observation_space
    assert len(config.spec.action_labels) == int(getattr(actions, "n", 0) or actions.shape[0])  # type: ignore[index] # a box
    parts = leaf_spaces(observations).values()
    size = sum(1 if hasattr(part, "n") else math.prod(part.shape or ()) for part in parts)
    assert len(config.spec.observation_labels) == (size if size < 100 else 0)  # more than a person reads
    environment.close()


@pytest.mark.parametrize("name", preset_names("experiment"))
def test_every_experiment_composes(name: str, write: Write) -> None:
    assert compose(words=[f"+experiment={name}"]).config.experiment.name == name


def test_a_bare_name_is_that_experiment(write: Write) -> None:
    by_name, by_word = (
        compose("quadruped_flat_ppo", words=["environment.num_envs=64"]),
        compose(words=["+experiment=quadruped_flat_ppo", "environment.num_envs=64"]),
    )
    assert by_name.config == by_word.config
    assert (by_name.config.environment.id, by_name.config.algorithm.name) == ("quadruped-flat", "ppo")
    tuned = compose("quadruped-flat:ppo", words=["environment.num_envs=64"]).config
    assert (by_name.config.algorithm, by_name.config.environment) == (tuned.algorithm, tuned.environment)


@pytest.mark.parametrize("name", preset_names("network"))
def test_every_network_preset_composes(name: str, write: Write) -> None:
    assert compose("CartPole-v1:ppo", words=[f"network@network.actor={name}"])


@pytest.mark.parametrize(
    "file", sorted(set(ROOT.glob("configs/**/*.yaml")) - set(ROOT.glob("configs/sweeps/*"))), ids=lambda path: path.stem
)
def test_every_file_under_configs_composes(file: Path) -> None:
    assert compose(file=file)


def test_the_experiments_the_docs_name_exist() -> None:
    robots = {"quadruped_flat_ppo", "quadruped_rough_ppo", "biped_flat_ppo", "ball_flat_ppo"}
    assert {"ppo_cartpole", "sac_halfcheetah", "sql_halfcheetah", "multi_goal"} | robots <= set(preset_names("experiment"))
    assert "ppo" in variants(environment_presets()["CartPole-v1"])


def test_the_experiment_and_the_quick_start_train_like_the_spec(write: Write) -> None:
    spec = compose("CartPole-v1:ppo").config
    experiment = compose(words=["+experiment=ppo_cartpole"]).config
    quickstart = compose(file=ROOT / "configs/quickstart/ppo_cartpole.yaml").config
    for config in (experiment, quickstart):
        assert config.algorithm == spec.algorithm
        assert config.environment == spec.environment
        assert config.network == spec.network
        assert config.training == spec.training


@pytest.mark.parametrize("word", ["+experiment=ppo_cartpol", "experiment=ppo_cartpol"])
def test_a_missing_experiment_lists_what_there_is(complaints: Complaints, write: Write, word: str) -> None:
    write("configs/experiment/mine.yaml", "# @package _global_\nalgorithm: {name: ppo}")
    there_are = f"(there are: {', '.join(preset_names('experiment'))})"
    assert "mine, multi_goal, og_wm_carracing, ppo_cartpole, quadruped_flat_ppo" in there_are
    assert complaints(words=[word]) == [f"{word}: no such preset; did you mean 'ppo_cartpole'? {there_are}"]
    assert complaints(words=["+experiment="])[0].endswith(there_are)
    assert complaints("CartPole-v1:ppo", words=["robot=x"]) == ["robot=x: no such preset; there are none in robot/"]


def test_an_experiment_of_the_users_own_is_found_in_configs(write: Write) -> None:
    write(
        "configs/experiment/mine.yaml",
        """
        # @package _global_
        defaults:
          - /environment: CartPole-v1
          - /network@network.actor: wide
          - /network@network.critic: mlp_256
          - _self_
        algorithm: {name: ppo, gamma: 0.5}
        """,
    )
    write("configs/network/wide.yaml", "type: mlp\nhidden_dims: [512]")
    config = compose(words=["+experiment=mine", "experiment.seed=123"]).config
    assert config.environment.id == "CartPole-v1"
    assert (config.algorithm.gamma, config.algorithm.epochs) == (0.5, 20)
    assert config.network["actor"].hidden_dims == (512,)
    assert config.network["critic"].hidden_dims == (256, 256)
    assert config.experiment.seed == 123


def test_an_experiment_takes_no_name_of_ours(complaints: Complaints, write: Write) -> None:
    file = write(
        "configs/experiment/ppo_cartpole.yaml", "# @package _global_\nenvironment: {id: CartPole-v1}\nalgorithm: {name: a2c}"
    )
    line = f"{file}: Etude has an experiment 'ppo_cartpole' already; give yours another name"
    assert complaints("ppo_cartpole") == complaints(words=["+experiment=ppo_cartpole"]) == [line]
    with pytest.raises(UserError, match="Etude has an experiment"):
        outline("ppo_cartpole")


def test_a_child_overrides_deep_keys_of_what_it_extends(write: Write) -> None:
    write(
        "grand.yaml",
        "environment: {id: CartPole-v1}\nalgorithm: {name: ppo, gamma: 0.9, epochs: 3}\ntraining: {total_steps: 500}",
    )
    write(
        "parents/parent.yaml",
        "extends: ../grand.yaml\nnetwork: {actor: {hidden_dims: [8], activation: elu}}\nalgorithm: {epochs: 4}",
    )
    child = write("child.yaml", "extends: parents/parent\nnetwork: {actor: {activation: relu}}\nalgorithm: {gamma: 0.5}")
    made = compose(file=child, words=["training.total_steps=600"])
    assert (made.config.algorithm.gamma, made.config.algorithm.epochs) == (0.5, 4)
    assert to_plain(made.config.network["actor"]) | {"encoders": {}} == {
        "type": "mlp", "hidden_dims": [8], "activation": "relu", "encoders": {},
    }  # fmt: skip
    assert made.config.training.total_steps == 600
    assert made.config.experiment.project == "child"
    # A preset lies below all of them.
    assert made.config.algorithm.gae_lambda == compose("CartPole-v1:ppo").config.algorithm.gae_lambda


def test_an_experiment_extends_another_by_name(write: Write) -> None:
    write(
        "configs/experiment/mine.yaml",
        "# @package _global_\nextends: ppo_cartpole\nexperiment: {name: mine}\nalgorithm: {gamma: 0.5}",
    )
    write("configs/experiment/third.yaml", "# @package _global_\nextends: mine\nalgorithm: {epochs: 7}")
    config, ours = compose("third").config, compose("ppo_cartpole").config
    assert (config.experiment.name, config.algorithm.gamma, config.algorithm.epochs) == ("mine", 0.5, 7)
    assert config.environment == ours.environment
    assert outline("third") == Outline("CartPole-v1", "ppo", 100_000)
    file = write("other.yaml", "extends: multi_goal\ntraining: {total_steps: 900}")
    assert compose(file=file).config.environment.id == "MultiGoal-v0"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "extends: [a, b]",
            "child.yaml:1: extends=['a', 'b']: must be one file, such as base.yaml, or the name of an experiment",
        ),
        ("extends: child.yaml", "child.yaml:1: extends: child.yaml: leads back to itself"),
        ("extends: round.yaml", "extends: child.yaml: leads back to itself"),
        ("extends: ppo_cartpol", "no experiment of this name; did you mean 'ppo_cartpole'?"),
        ("extends: wrong.yaml", "wrong.yaml:2: algorithm.gama: unknown key; did you mean 'gamma'?"),
    ],
)
def test_what_can_not_be_extended_is_one_line(complaints: Complaints, write: Write, text: str, message: str) -> None:
    write("round.yaml", "extends: child.yaml")
    write("wrong.yaml", "algorithm:\n  gama: 1")
    (line,) = complaints("CartPole-v1:ppo", file=write("child.yaml", text))
    assert line.endswith(message)


@pytest.mark.parametrize("name", ["study/main.yaml", "study/experiment/main.yaml", "a 'b', c/main.yaml"])
def test_a_defaults_list_finds_groups_beside_the_file_and_ours(write: Write, name: str) -> None:
    folder = "study" if name.startswith("study") else "a 'b', c"
    write(f"{folder}/network/wide.yaml", "type: mlp\nhidden_dims: [512]")
    file = write(
        name,
        """
        defaults:
          - /network@network.actor: wide
          - /network@network.critic: mlp_256
          - _self_
        environment: {id: CartPole-v1}
        algorithm: {name: ppo}
        network: {critic: {activation: elu}}
        """,
    )
    config = compose(file=file).config
    assert config.network["actor"].hidden_dims == (512,)
    assert to_plain(config.network["critic"]) == {"type": "mlp", "hidden_dims": [256, 256], "activation": "elu", "encoders": {}}


def test_a_users_preset_wins_over_ours_of_the_same_name(write: Write) -> None:
    write("configs/network/mlp_256.yaml", "type: mlp\nhidden_dims: [3]")
    config = compose("CartPole-v1:ppo", words=["network@network.actor=mlp_256"]).config
    assert config.network["actor"].hidden_dims == (3,)


def test_sections_of_a_hydra_lab_compose_from_groups(write: Write) -> None:
    """`/environment: cartpole` from the user's own folder is a section, as is the workflow behind a `_target_`."""
    write("configs/environment/cartpole.yaml", "id: CartPole-v1\nnum_envs: 4")
    write("configs/workflow/mine.yaml", "_target_: etude.workflows.ppo.PPO")
    write("configs/buffer/short.yaml", "type: rollout\nsteps: 64")
    file = write(
        "configs/experiment/lab.yaml",
        """
        # @package _global_
        defaults:
          - /workflow: mine
          - /environment: cartpole
          - /buffer: short
          - _self_
        algorithm: {rollout_steps: 64}
        training: {total_timesteps: 1000}
        """,
    )
    for config in (compose(file=file).config, compose(words=["+experiment=lab"]).config):
        assert config.algorithm.name == "etude.workflows.ppo.PPO"
        assert config.environment.num_envs == 4
        assert config.buffers["rollout"].steps == 64
        assert config.training.total_steps == 1000


def test_words_choose_groups_with_a_file_of_any_kind(write: Write) -> None:
    text = '{"environment": {"id": "CartPole-v1"}, "algorithm": {"name": "ppo"}}'
    for name in ("f.json", "f.yml", "f.yaml"):
        config = compose(file=write(name, text), words=["network@network.actor=mlp_256"]).config
        assert config.network["actor"].hidden_dims == (256, 256)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("defaults: 5\na: 1", "d.yaml:1: defaults: must be a list"),
        ("a: 1\ndefaults: [/network@network.actor: mlp_256]", "d.yaml:2: defaults: needs _self_"),
        ("defaults: [/network@network.actor: mpl, _self_]", "d.yaml: Could not find 'network/mpl' (there are: mlp_256"),
        ("defaults: [/nowhere: x, _self_]", "d.yaml: Could not find 'nowhere/x'"),
        ("defaults: [other, _self_]", "d.yaml: Could not load 'other'."),
        ("defaults: [d, _self_]", "d.yaml: its defaults list leads back to itself"),
        ("defaults: [broken, _self_]", "broken.yaml:2: mapping values are not allowed"),
    ],
)
def test_a_wrong_defaults_list_is_one_line(complaints: Complaints, write: Write, text: str, message: str) -> None:
    write("broken.yaml", "a: 1\nb: c: d")
    (line,) = complaints("CartPole-v1:ppo", file=write("d.yaml", text))
    assert message in line


def test_only_yaml_files_have_defaults_lists(complaints: Complaints, write: Write) -> None:
    assert complaints("CartPole-v1:ppo", file=write("d.yml", "defaults: [_self_]")) == [
        "d.yml: only files that end in .yaml can have a defaults list"
    ]


def test_composing_leaves_no_state_behind(write: Write) -> None:
    from hydra.core.global_hydra import GlobalHydra

    compose(words=["+experiment=ppo_cartpole"])
    assert not GlobalHydra.instance().is_initialized()

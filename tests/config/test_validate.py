"""One judge: every wrong key and value is one line with the way out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import pytest

from etude.config.compose import check, compose
from etude.config.constraints import Component, PositiveInt
from etude.config.validate import Part, Validator, to_plain
from etude.errors import ConfigError
from tests.config.conftest import Complaints, Write


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("algorithm.learning_rat=1", "algorithm.learning_rat: unknown key; did you mean 'learning_rate'?"),
        ("+algorithm.typo=1", "algorithm.typo: unknown key (known: name, learning_rate, "),
        ("++experiment.sed=1", "experiment.sed: unknown key; did you mean 'seed'?"),
        ("trainin.total_steps=1", "trainin: unknown key; did you mean 'training'?"),
        ("environment.zzz=[]", "environment.zzz: unknown key (known: id, num_envs, "),
        ("environment.spec.threshold=1", "environment.spec.threshold: unknown key; did you mean 'return_threshold'?"),
        ("logging.wandb.enable=true", "logging.wandb.enable: unknown key; did you mean 'enabled'?"),
        ("network.actr.hidden_dims=[8]", "network.actr: ppo has no network of this name; did you mean 'actor'?"),
        ("network.actr=mlp", "network.actr: ppo has no network of this name; did you mean 'actor'?"),
        ("network.actor.hiden_dims=[8]", "network.actor.hiden_dims: unknown key; did you mean 'hidden_dims'?"),
        (
            "network.actor.type=mpl",
            "network.actor: unknown network 'mpl'; did you mean 'mlp'? (known: batch_normed_mlp, cnn, ",
        ),
        ("buffers.rollout.type=rolout", "buffers.rollout: unknown buffer 'rolout'; did you mean 'rollout'? (known: "),
        ("buffers.extra.stps=1", "buffers.extra={'stps': 1}: needs 'type', one of dataset, hindsight, prioritized"),
        (
            "algorithm.optimizer=adm",
            "algorithm.optimizer: unknown optimizer 'adm'; did you mean 'adam'? (known: ",
        ),
        ("algorithm.optimizer.epz=1", "algorithm.optimizer.epz: unknown option of 'adamw'; did you mean 'eps'?"),
        ("algorithm.optimizer.lr=1", "algorithm.optimizer.lr: is set from elsewhere in the config, not here"),
        ("algorithm.gamma=abc", "algorithm.gamma=abc: must be a number"),
        ("algorithm.gamma=true", "algorithm.gamma=True: must be a number"),
        ("algorithm.gamma=1.5", "algorithm.gamma=1.5: must be at least 0 and at most 1"),
        ("algorithm.gamma=nan", "algorithm.gamma=nan: must be a finite number"),
        ("training.return_threshold=inf", "training.return_threshold=inf: must be a finite number"),
        ("algorithm.gamma=null", "algorithm.gamma=None: must be a number"),
        ("environment.num_envs=0", "environment.num_envs=0: must be at least 1 and at most 1,000,000"),
        ("environment.num_envs=2.5", "environment.num_envs=2.5: must be a whole number"),
        ("environment.num_envs='8'", "environment.num_envs=8: must be a whole number"),
        ("experiment.seed=-1", "experiment.seed=-1: must be at least 0"),
        ("experiment.name=5", "experiment.name=5: must be text"),
        ("experiment.tags=one", "experiment.tags=one: must be a list, such as [1, 2]"),
        ("experiment.tags=[1]", "experiment.tags[0]=1: must be text"),
        ("network.actor.hidden_dims=[64,0]", "network.actor.hidden_dims[1]=0: must be at least 1"),
        ("logging.tensorboard=1", "logging.tensorboard=1: must be true or false"),
        ("logging=5", "logging=5: must be a mapping of settings"),
        ("environment.normalize_observations=rollin", "environment.normalize_observations=rollin: must be one of off, "),
        ("environment.normalize_observations=5", "environment.normalize_observations=5: must be one of off, rolling, static"),
        ("environment.kwargs=5", "environment.kwargs=5: must be a mapping of names to values"),
        ("algorithm.learning_rate=fast", "algorithm.learning_rate=fast: must be a number or a schedule like lin_3e-4"),
        ("algorithm.learning_rate=0", "algorithm.learning_rate=0: must be above 0"),
        ("algorithm.clip_range=lin_-0.2", "algorithm.clip_range=lin_-0.2: must be above 0"),
        ("algorithm.target_kl=0", "algorithm.target_kl=0: must be above 0"),
        ("algorithm.name=pp", "unknown algorithm 'pp'; did you mean 'ppo'? (known: a2c, "),
        ("experiment.name='???'", "experiment.name: is marked ??? and needs a value"),
    ],
)
def test_a_wrong_setting_is_one_line_with_the_way_out(complaints: Complaints, word: str, message: str) -> None:
    spec = None if word.startswith("algorithm.name") else "CartPole-v1:ppo"
    words = [word] if spec else ["environment.id=CartPole-v1", word]
    (line,) = complaints(spec, words=words)
    assert line.startswith(message)


def test_all_problems_are_found_and_five_are_shown(complaints: Complaints) -> None:
    words = [f"algorithm.typo_{i}=1" for i in range(4)] + ["environment.num_envs=0", "logging.terminal=5", "a=1"]
    lines = complaints("CartPole-v1:ppo", words=words)
    assert len(lines) == 6
    assert lines[-1] == "... and 2 more"
    with pytest.raises(ConfigError) as raised:
        compose("CartPole-v1:ppo", words=words)
    assert len(raised.value.problems) == 7


def test_a_problem_in_a_file_is_shown_at_its_line(complaints: Complaints, write: Write) -> None:
    file = write(
        "bad.yaml",
        """
        # a comment
        environment:
          id: CartPole-v1
          num_envs: 0
        algorithm:
          name: ppo
          learning_rat: 1e-3
          clip_ratio: -1
        network:
          actor:
            hidden_dims: [8, x]
        """,
    )
    assert complaints(file=file) == [
        "bad.yaml:4: environment.num_envs=0: must be at least 1 and at most 1,000,000",
        "bad.yaml:8: algorithm.clip_range=-1: must be above 0",
        "bad.yaml:7: algorithm.learning_rat: unknown key; did you mean 'learning_rate'?",
        "bad.yaml:11: network.actor.hidden_dims[1]=x: must be a whole number",
    ]
    lines = complaints(file=file, words=["environment.num_envs=-1"])
    assert lines[0] == "environment.num_envs=-1: must be at least 1 and at most 1,000,000"  # the word's fault, not the file's


def test_checks_of_several_settings_are_shown_at_their_line_too(complaints: Complaints, write: Write) -> None:
    file = write("b.yaml", "algorithm:\n  batch_size: 0.3")
    (line,) = complaints("CartPole-v1:ppo", file=file)
    assert line.startswith("b.yaml:2: algorithm.batch_size=0.3: 76 does not divide the rollout")
    file = write("r.yaml", "network:\n  critc: mlp\ntraining:\n  phases:\n  - {name: a, type: onlin}")
    assert complaints("CartPole-v1:ppo", file=file) == [
        "r.yaml:2: network.critc: ppo has no network of this name; did you mean 'critic'?",
        "r.yaml:5: training.phases[0].type=onlin: must be one of online, offline, eval_only; did you mean 'online'?",
    ]


def test_a_problem_in_a_variant_or_a_base_is_shown_where_it_is_written(complaints: Complaints, write: Write) -> None:
    file = write("v.yaml", "_base: &base\n  gamma: 2\nppo:\n  <<: *base\n  n_envs: 0")
    assert complaints("CartPole-v1:ppo", file=file) == [
        "v.yaml:5: environment.num_envs=0: must be at least 1 and at most 1,000,000",
        "v.yaml:2: algorithm.gamma=2: must be at least 0 and at most 1",
    ]


def test_a_problem_in_a_preset_of_the_users_own_is_shown_in_that_file(complaints: Complaints, write: Write) -> None:
    write("configs/network/wide.yaml", "type: mlp\nhiden_dims: [8]")
    write("configs/experiment/mine.yaml", "# @package _global_\nalgorithm:\n  gama: 1")
    lines = complaints("CartPole-v1:ppo", words=["network@network.critic=wide", "+experiment=mine"])
    assert lines == [
        "configs/experiment/mine.yaml:3: algorithm.gama: unknown key; did you mean 'gamma'?",
        "configs/network/wide.yaml:2: network.critic.hiden_dims: unknown key; did you mean 'hidden_dims'?",
    ]


def test_fractional_batch_sizes(complaints: Complaints) -> None:
    def size(*words: str) -> int:
        config = compose("CartPole-v1:ppo", words=["environment.num_envs=8", "algorithm.rollout_steps=32", *words]).config
        return config.algorithm.minibatch_size(config.environment.num_envs)

    assert size("algorithm.batch_size=0.25") == 64
    assert size("algorithm.batch_size=1.0") == 256
    assert size("algorithm.batch_size=0.5") == 128
    assert size("algorithm.batch_size=64") == 64
    assert size("algorithm.batch_size=0.0001", "algorithm.normalize_advantages=off") == 1
    (line,) = complaints("CartPole-v1:ppo", words=["algorithm.batch_size=0.3"])
    assert line == "algorithm.batch_size=0.3: 76 does not divide the rollout (8 environments × 32 steps = 256); 64 does"
    assert complaints("CartPole-v1:ppo", words=["algorithm.batch_size=-0.5"]) == [
        "algorithm.batch_size=-0.5: must be above 0 and at most 1"
    ]
    assert complaints("CartPole-v1:ppo", words=["algorithm.batch_size=2.5"])


def test_numbers_convert_only_where_nothing_is_lost() -> None:
    config = compose("CartPole-v1:ppo", words=["training.total_steps=1e6", "algorithm.gamma=1"]).config
    assert (config.training.total_steps, type(config.training.total_steps)) == (1_000_000, int)
    assert (config.algorithm.gamma, type(config.algorithm.gamma)) == (1.0, float)


def test_a_bare_off_means_off(write: Write) -> None:
    file = write("off.yaml", "environment: {normalize_observations: off}\ntraining: {early_stop: off}")
    config = compose("CartPole-v1:ppo", file=file).config
    assert (config.environment.normalize_observations, config.training.early_stop) == ("off", "off")


def test_users_may_add_buffers() -> None:
    word = "buffers.second={type: rollout, steps: 32}"
    phases = "training.phases=[{name: a, buffer: second}]"
    config = compose("CartPole-v1:ppo", words=[word, phases]).config
    assert config.buffers["second"].steps == 32


def test_a_stored_config_is_judged_by_the_same_judge() -> None:
    plain = to_plain(compose("CartPole-v1:ppo").config)
    assert check(plain) == check({**plain, "_resolved": {"anything": 1}})
    with pytest.raises(ConfigError, match=r"network\.critic: is required"):
        check({**plain, "network": {"actor": plain["network"]["actor"]}})
    with pytest.raises(ConfigError, match="newer Etude"):
        check({**plain, "version": 99})


@dataclass(frozen=True)
class _Inner:
    size: PositiveInt
    kind: Literal["a", "b"] = "a"


@dataclass(frozen=True)
class _Outer:
    inner: _Inner | None = None
    pair: tuple[float, float] = (0.0, 1.0)
    names: list[str] = field(default_factory=list)
    free: dict = field(default_factory=dict)  # type: ignore[type-arg] # as users write it
    limit: int | float = 1
    part: Annotated[Any, Component("optimizer")] = None

    def __post_init__(self) -> None:
        if self.pair[0] > self.pair[1]:
            raise ValueError("pair must rise")


def _wrong(**data: Any) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        Validator().build(_Outer, data)
    return list(raised.value.problems)


def test_schemas_of_users_may_use_ordinary_types() -> None:
    built = Validator().build(_Outer, {"inner": {"size": 2}, "pair": [1, 2], "names": ["x"], "free": {"y": 1}, "limit": 0.5})
    assert built == _Outer(_Inner(2), (1.0, 2.0), ["x"], {"y": 1}, 0.5)
    assert Validator().build(_Outer, {"part": "sgd"}).part == Part("sgd", {})
    assert _wrong(inner={}) == [".inner.size: is required"[1:]]
    assert _wrong(inner={"size": 1, "kind": "c"}) == ["inner.kind=c: must be one of a, b"]
    assert _wrong(inner=5) == ["inner=5: must be a mapping with the keys size, kind"]
    assert _wrong(pair=[1]) == ["pair=[1]: must be a list of 2"]
    assert _wrong(names=[1], free=3) == ["names[0]=1: must be text", "free=3: must be a mapping"]


def test_a_schemas_own_check_is_one_of_the_problems() -> None:
    (line,) = _wrong(pair=[2, 1])
    assert line.endswith("pair must rise")

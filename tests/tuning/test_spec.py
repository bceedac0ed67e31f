"""A sweep's file: strict, with the line of what is wrong, and the files that come with Etude."""

from __future__ import annotations

from pathlib import Path

import pytest

from etude.config.validate import to_plain
from etude.errors import ConfigError, EtudeError, UserError
from etude.tuning.default_space import default_space, tuned_algorithms
from etude.tuning.places import SweepFolder
from etude.tuning.plan import Plan, canonical, literal
from etude.tuning.spec import SweepConfig, build_sweep, read_sweep

ROOT = Path(__file__).parents[2]
SHIPPED = sorted((ROOT / "configs/sweeps").glob("*.yaml"))


def sweep(**settings: object) -> SweepConfig:
    return build_sweep({"name": "s", "base": "CartPole-v1:ppo", "sweep": {"algorithm.gamma": [0.9, 0.99]}, **settings})


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("swep: {}", "a.yaml:2: swep: unknown key; did you mean 'sweep'?"),
        ("method: gird", "a.yaml:2: method=gird: must be one of grid, random, bayes, pbt; did you mean 'grid'?"),
        ("seeds: 3", "a.yaml:2: seeds=3: a list, such as [3] for one seed, or 1-5 for five"),
        ("seeds: 1-", "a.yaml:2: seeds: 1-"),
        ("objective: {metrc: x}", "a.yaml:2: objective[0].metrc: unknown key; did you mean 'metric'?"),
        ("pruner: {type: asha, reduction: 1}", "a.yaml:2: pruner: reduction=1: must be at least 2"),
        ("n_trials: 0", "a.yaml:2: n_trials=0: must be at least 1"),
        ("method: random", "n_trials: say how many trials random has"),
        ("name: ../x", "name='../x': letters"),
        ("parallel_jobs: 2\nparallel: 3", "is there as 'parallel' too"),
    ],
)
def test_a_slip_names_file_line_and_key(tmp_path: Path, line: str, problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.yaml").write_text(f"sweep: {{algorithm.gamma: [0.9]}}\n{line}\nbase: CartPole-v1:ppo\n")
    with pytest.raises(UserError) as error:
        read_sweep(Path("a.yaml"))
    assert problem in str(error.value)


def test_what_cannot_be_meant_together_is_refused() -> None:
    two = [{"metric": "a"}, {"metric": "b"}]
    for settings in (
        {"objective": two, "pruner": "median"},
        {"objective": two, "method": "bayes", "sampler": "cmaes", "n_trials": 3},
        {"tune": {}, "method": "random", "n_trials": 3},
    ):
        with pytest.raises(ConfigError):
            sweep(**settings)


def test_a_file_of_the_older_form_is_read(tmp_path: Path) -> None:
    (tmp_path / "experiments").mkdir()
    base = tmp_path / "experiments/ppo.yaml"
    base.write_text("environment: {id: CartPole-v1}\nalgorithm: {name: ppo}\n")
    (tmp_path / "ppo_sweep.yaml").write_text(
        "base_config: experiments/ppo.yaml\n"
        "sweep:\n"
        "  algorithm.lr: [1e-4, 3e-4, 1e-3]\n"
        "  algorithm.clip_ratio: [0.1, 0.2, 0.3]\n"
        "  network.actor.hidden_dims: [[64, 64], [128, 128], [256, 256]]\n"
        "parallel_jobs: 4\n"
    )
    read = read_sweep(tmp_path / "ppo_sweep.yaml")
    assert (read.name, read.parallel, read.space.size, read.base.config) == ("ppo_sweep", 4, 27, str(base))
    config = Plan(read).compose(read.space.grid()[5]).config
    assert config.algorithm.learning_rate.to_plain() == 1e-4
    assert config.network["actor"].hidden_dims == (256, 256)


def test_what_is_written_reads_back_the_same(tmp_path: Path) -> None:
    asked = sweep(method="bayes", n_trials=5, tune={}, seeds=[1, 2], words=["training.total_steps=1e5"])
    folder = SweepFolder(tmp_path, "s")
    with folder.locked():
        folder.open(asked, Plan(asked))
    assert to_plain(folder.read()) == to_plain(asked)


def test_words_win_over_the_sweep_also_by_another_spelling() -> None:
    plan = Plan(build_sweep({"base": "CartPole-v1:ppo", "sweep": {"algorithm.lr": [1e-4, 1e-3], "algorithm.gamma": [0.9]}}))
    assert plan.space.size == 2
    fixed = Plan(
        build_sweep(
            {
                "base": "CartPole-v1:ppo",
                "sweep": {"algorithm.lr": [1e-4, 1e-3], "algorithm.gamma": [0.9]},
                "words": ["algorithm.learning_rate=5e-4", "training.total_steps=1e3"],
            }
        )
    )
    assert (fixed.overruled, list(fixed.space.searched)) == (("algorithm.lr",), ["algorithm.gamma"])
    config = fixed.compose({"algorithm.gamma": 0.9}).config
    assert (config.algorithm.learning_rate.to_plain(), config.training.total_steps) == (5e-4, 1000)


def test_derived_values_see_the_base_and_the_words() -> None:
    written = {"algorithm.batch_size": {"sample_from": "environment.num_envs * algorithm.rollout_steps // 4"}, "_half": [0.5]}
    asked = build_sweep({"base": "CartPole-v1:ppo", "sweep": written, "words": ["environment.num_envs=4"]})
    plan = Plan(asked)
    settings = plan.space.complete({"_half": 0.5}, 0, 0, plan.look_up)
    assert settings["algorithm.batch_size"] == 4 * 32 // 4
    assert plan.compose(settings).config.algorithm.batch_size == 32
    assert not any(word.startswith("_half") for word in plan.job(0, 1, settings).arguments)
    with pytest.raises(UserError, match=r"there is no setting algorithm\.gama; did you mean 'algorithm\.gamma'"):
        plan.look_up("algorithm.gama")


@pytest.mark.parametrize(
    "value", [None, True, 1e-05, 3, "a b", "lin_1e-3", "it's", [1, [2, "x"]], {"type": "mlp", "hidden_dims": [8]}]
)
def test_every_value_survives_the_grammar_of_words(value: object) -> None:
    from etude.config.overrides import parse

    assert parse([f"k={literal(value)}"]).values["k"] == value


def test_keys_have_one_spelling() -> None:
    assert canonical("algorithm.lr") == canonical("+algorithm.learning_rate") == "algorithm.learning_rate"


def test_a_sweep_none_of_whose_trials_can_start_is_refused() -> None:
    plan = Plan(sweep(sweep={"algorithm.gama": [0.9, 0.99]}))
    with pytest.raises(EtudeError, match=r"algorithm\.gama"):
        plan.check(plan.space.grid())
    Plan(sweep(sweep={"algorithm.gamma": [7, 0.9]})).check([{"algorithm.gamma": 7}, {"algorithm.gamma": 0.9}])


@pytest.mark.parametrize("file", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_sweep_is_valid_and_its_first_trials_compose(file: Path, tmp_path: Path) -> None:
    read = read_sweep(file)
    plan = Plan(read)
    study = SweepFolder(tmp_path, read.name).study(read, plan, remembers=False)
    for _ in range(3):
        trial = study.ask()
        assert trial is not None
        plan.compose(trial.settings)


def test_shipped_sweeps_are_of_every_kind() -> None:
    read = [read_sweep(file) for file in SHIPPED]
    assert {each.method for each in read} == {"grid", "random", "bayes", "pbt"}
    specs = " ".join(str(each.base.spec) for each in read)
    assert all(name in specs for name in (":ppo", ":sac", ":dqn", "quadruped", ":dreamer"))


@pytest.mark.parametrize("algorithm", tuned_algorithms())
def test_every_space_of_tune_composes(algorithm: str) -> None:
    environment = "CartPole-v1" if algorithm in ("ppo", "a2c", "dqn", "reinforce", "dreamer") else "Pendulum-v1"
    plan = Plan(sweep(base=f"{environment}:{algorithm}", sweep=default_space(algorithm), method="random", n_trials=4))
    for number in range(4):
        plan.compose(plan.space.complete(plan.space.draw(0, number), 0, number, plan.look_up))

"""Gradients that are written out are those of torch: same weights, moments, rates and metrics, step by step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import pytest
import torch

from etude.components.distributions import make_head
from etude.config.compose import compose
from etude.learning.sources import Minibatches
from etude.learning.written import Written
from etude.orchestration.orchestrator import Orchestrator
from etude.training import assembly
from etude.training.remarks import remarks
from etude.workflows.ppo import PPO
from etude.workflows.written_losses import spaces_are_plain
from tests.runs_compared import assert_resumes, train

SMALL = ("environment.num_envs=4", "training.total_steps=512", "evaluation.every_steps=0")
ROLLOUT = ("algorithm.rollout_steps=16",)
PPO_SMALL = (*ROLLOUT, "algorithm.batch_size=16", "algorithm.epochs=2")
REPLAY = ("algorithm.learning_starts=32", "algorithm.train_every=4", "algorithm.gradient_steps=4", "algorithm.target_every=3",
          "algorithm.batch_size=16", "network.q.hidden_dims=[16]")  # fmt: skip
CRITICS = ("environment.num_envs=4", "algorithm.learning_starts=32", "algorithm.train_every=4", "algorithm.gradient_steps=4",
           "algorithm.batch_size=16", "network.actor.hidden_dims=[16,8]", "network.critic.hidden_dims=[16,8]")  # fmt: skip
CASES: dict[str, tuple[str, ...]] = {
    "discrete": ("CartPole-v1:ppo", *PPO_SMALL, "algorithm.entropy_coef=0.01", "algorithm.learning_rate=lin_1e-3"),
    "continuous": (
        "Pendulum-v1:ppo",
        *PPO_SMALL,
        "algorithm.target_kl=0.02",
        "algorithm.adaptive_kl=0.01",
        "algorithm.clip_value_loss=0.2",
        "algorithm.critic_learning_rate=5e-4",
        "environment.normalize_observations=rolling",
        "network.actor.activation=relu",
        "network.critic.hidden_dims=[16,8,4]",
    ),
    "decaying": (
        "Pendulum-v1:ppo",
        *PPO_SMALL,
        "algorithm.optimizer={type: adamw, weight_decay: 0.1}",
        "algorithm.entropy_coef=0.1",
        "algorithm.fixed_std=true",
        "algorithm.max_grad_norm=null",
    ),
    "a choice seen": ("FrozenLake-v1:ppo", *PPO_SMALL, "algorithm.normalize_advantages=rollout"),
    "a2c": ("CartPole-v1:a2c", *ROLLOUT, "algorithm.entropy_coef=0.01"),
    "dqn": ("CartPole-v1:dqn", *REPLAY, "algorithm.learning_rate=lin_1e-3"),
    "dqn by priority": (
        "CartPole-v1:dqn",
        *REPLAY,
        "algorithm.double=false",
        "algorithm.n_step=3",
        "algorithm.reward_scale=0.5",
        "environment.normalize_observations=static",
        "buffers.replay.type=prioritized",
    ),
    "sac": ("Pendulum-v1:sac", *CRITICS),
    "sac otherwise": (
        "Pendulum-v1:sac",
        *CRITICS,
        "algorithm.actor_q_reduction=mean",
        "algorithm.temperature=0.3",
        "algorithm.reward_scale=0.5",
        "algorithm.critics=3",
        "algorithm.max_grad_norm=1.0",
        "network.critic.activation=tanh",
        "buffers.replay.type=prioritized",
        "environment.normalize_observations=static",
    ),
    "sac of choices": ("CartPole-v1:sac", *CRITICS, "algorithm.learning_rate=lin_1e-3"),
    "sac of choices by priority": (
        "CartPole-v1:sac",
        *CRITICS,
        "algorithm.actor_q_reduction=mean",
        "algorithm.target_entropy=0.1",
        "buffers.replay.type=prioritized",
    ),
    "td3": ("Pendulum-v1:td3", *CRITICS, "algorithm.policy_delay=3"),
    "a2c by adam": ("Pendulum-v1:a2c", *ROLLOUT, "algorithm.optimizer={type: adam}", "algorithm.normalize_advantages=batch"),
}


def build(case: tuple[str, ...], compiling: str) -> Orchestrator:
    config = compose(case[0], words=(*SMALL, *case[1:], f"experiment.compile={compiling}", "experiment.device=cpu")).config
    orchestrator = assembly.build(assembly.resolve(config))
    assert orchestrator.collector is not None
    orchestrator.collector.start(orchestrator.workflow.initial_state)
    return orchestrator


def numbers(tree: Any, path: str = "") -> dict[str, torch.Tensor]:
    if isinstance(tree, torch.Tensor):
        return {path: tree.detach().double()}
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list | tuple) else ()
    return {name: value for key, each in items for name, value in numbers(each, f"{path}.{key}").items()}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_written_step_is_the_eager_one(case: tuple[str, ...]) -> None:
    eager, fast = build(case, "off"), build(case, "numpy")
    assert type(fast.workflow._executor) is Written
    for _ in range(6):
        for orchestrator in (eager, fast):
            orchestrator._run_cycle()
        one, other = eager.workflow.state_dict(), fast.workflow.state_dict()
        parts = [key for key in one if key not in ("streams", "executor")]
        for key in parts:
            left, right = numbers(one[key]), numbers(other[key])
            assert left.keys() == right.keys()
            for name, value in left.items():
                torch.testing.assert_close(right[name], value, rtol=1e-5, atol=1e-5, equal_nan=True, msg=f"{key}{name}")


def test_a_run_goes_on_in_another_way_than_it_began() -> None:
    """Moments are handed over both ways, and nothing depends on who had them."""
    case, states = CASES["continuous"], []
    for ways in (("off", "off"), ("numpy", "off"), ("off", "numpy"), ("numpy", "numpy")):
        first, second = (build(case, way) for way in ways)
        first._run_cycle()
        second.load_state_dict(first.state_dict())
        second._run_cycle()
        states.append(numbers(second.workflow.state_dict()["optimizer"]))
    for state in states[1:]:
        for name, value in states[0].items():
            torch.testing.assert_close(state[name], value, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", ["discrete", "a2c", "dqn", "sac", "td3"])
def test_a_stopped_run_goes_on_to_the_same_bits(case: str, tmp_path: Path) -> None:
    spec, *words = CASES[case]
    assert_resumes(spec, tmp_path, *SMALL, *words, "experiment.compile=numpy", "experiment.device=cpu", after=3)


def test_a_checkpoint_has_each_moment_once(tmp_path: Path) -> None:
    """They are parts of one piece of memory, of which each would be saved whole."""
    spec, *words = CASES["discrete"]
    sizes = []
    for way in ("off", "numpy"):
        run = train(spec, tmp_path / way, *SMALL, *words, f"experiment.compile={way}")
        sizes.append(sum(file.stat().st_size for file in run.checkpoints().newest_whole().path.rglob("*") if file.is_file()))
    assert sizes[1] < 1.1 * sizes[0]


class OwnLoss(PPO):
    """A loss of one's own, which nobody has written out."""

    def loss(self, batch: Any) -> Any:
        loss, metrics = super().loss(batch)
        return loss + 0.1 * self.actor(batch["observation"]).square().mean(), metrics


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("tests.learning.test_written.OwnLoss", ()),
        ("ppo", ("algorithm.accumulate=2",)),
        ("ppo", ("network.actor={type: mlp, activation: elu}",)),
        ("ppo", ("algorithm.optimizer={type: sgd}",)),
        ("ppo", ("network.actor={type: gru}", "algorithm.batch_size=16")),
        ("dqn", (*REPLAY, "algorithm.dueling=true")),
        ("dqn", (*REPLAY, "algorithm.distribution=quantile")),
    ],
)
def test_what_nobody_has_written_out_is_eager(spec: str, words: tuple[str, ...]) -> None:
    config = assembly.resolve(
        compose(
            f"CartPole-v1:{spec}",
            words=(*SMALL, *(() if spec == "dqn" else PPO_SMALL), *words, "experiment.device=cpu"),
            allow_imports=True,
        ).config
    )
    assert config.experiment.compile == "off"
    assert assembly.build(config).workflow._executor.mode == "eager"


def test_masked_actions_are_eager_too() -> None:
    """Only the spaces tell, which are known once the run is built."""
    config = assembly.resolve(compose("etude.testing.probes:probe/Masked-v0:ppo", words=(*SMALL, *PPO_SMALL)).config)
    assert assembly.build(config).workflow._executor.mode == "eager"


def test_numpy_that_can_not_be_is_said() -> None:
    asked = compose("Pendulum-v1:tqc", words=("experiment.compile=numpy", "experiment.device=cpu")).config
    resolved = assembly.resolve(asked)
    assert resolved.experiment.compile == "off"
    said = "experiment.compile=numpy is read as off: only PPO, A2C, DQN, SAC and TD3"
    assert any(said in note for note in remarks(resolved, asked))


def test_a_step_that_is_skipped_leaves_everything_as_it_was() -> None:
    fast = build((*CASES["discrete"], "training.on_nan=skip"), "numpy")
    fast._run_cycle()
    workflow: Any = fast.workflow
    before = numbers({"actor": workflow.actor.state_dict(), **workflow.state_dict()["optimizer"]})
    rows = {
        "observation": torch.full((16, 4), torch.nan),
        "sample": torch.zeros(16, dtype=torch.int64),
        **{name: torch.ones(16) for name in ("log_prob", "advantages", "returns", "values")},
    }
    table = workflow._executor.run(Minibatches(rows, torch.arange(16)[None]), 1)[""]
    assert table.values[0, table.keys.index("train/skipped")] == 1
    after = numbers({"actor": workflow.actor.state_dict(), **workflow.state_dict()["optimizer"]})
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_whether_a_loss_is_written_out_is_known_on_any_device() -> None:
    """Continuous PPO on a GPU asked its head for an array."""
    head = make_head(gymnasium.spaces.Box(-1.0, 1.0, (2,))).to("meta")
    assert not spaces_are_plain(head, gymnasium.spaces.Box(-1.0, 1.0, (3,)))

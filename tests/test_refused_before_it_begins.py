"""What can't work is refused in one line before a run exists (defect 36)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import pytest
from torch import Tensor, nn

from etude.config.compose import compose
from etude.environments.make import make_environment
from etude.errors import ConfigError, UserError
from etude.orchestration.callbacks import Callback
from etude.runs.saved_checkpoint import Checkpoint
from etude.training import assembly, session
from etude.training.remarks import size_remarks
from etude.using.stored_policy import open_policy

HERE = "tests.test_refused_before_it_begins"
SMALL = ("environment.num_envs=4", "algorithm.batch_size=16", "training.total_steps=256", "experiment.compile=off")
ROLLOUT = ("algorithm.rollout_steps=8",)
REPLAY = ("algorithm.learning_starts=16",)


class Threshold(Callback):
    """A callback with an option that must be given."""

    def __init__(self, bound: float) -> None:
        self.bound = float(bound)


class WrongSize(nn.Module):
    """A network of one output, whatever is asked for."""

    def __init__(self, observation_space: gymnasium.Space[Any], output_size: int, outputs: int = 1) -> None:
        super().__init__()
        assert observation_space.shape is not None
        self.layer = nn.Linear(observation_space.shape[0], outputs)

    def forward(self, observation: Tensor) -> Tensor:
        return self.layer(observation)


def _refusal(spec: str, *words: str, root: Path) -> str:
    own = ROLLOUT if spec.endswith("ppo") else REPLAY
    with pytest.raises(UserError) as caught:
        session.start(compose(spec, words=[*SMALL, *own, *words]), root=root, quiet=True)
    assert not list(root.iterdir())
    (line,) = str(caught.value).splitlines()
    return line


PPO = [
    (
        f"training.callbacks=[{HERE}.Threshold]",
        "training.callbacks[0] (tests.test_refused_before_it_begins.Threshold): does",
    ),
    (f"training.callbacks=[{{type:{HERE}.Threshold,bound:high}}]", "could not convert string to float: 'high'"),
    ("training.callbacks=[pathlib.Path]", "training.callbacks[0] (pathlib.Path): is no callback"),
    ("training.callbacks=[q_contours]", "q_contours draws continuous actions of two dimensions"),
    ("algorithm.optimizer={type:adam,betas:0.9}", "algorithm.optimizer: adam with {'betas': 0.9} can't be used"),
    ("algorithm.optimizer={type:sgd,momentum:-1}", "Invalid momentum value"),
    ("algorithm.optimizer={type:adam,fused:true,foreach:true}", "algorithm.optimizer: adam with"),
    ("algorithm.optimizer={type:adam,maximize:true}", "algorithm.optimizer.maximize=true: every algorithm's losses are to"),
    ("algorithm.optimizer=torch.optim.LBFGS", "algorithm.optimizer: torch.optim.LBFGS with no options can't be used"),
    ("algorithm.optimizer=torch.optim.SparseAdam", "can't be used: RuntimeError: SparseAdam does not support dense"),
    ("algorithm.optimizer=math.sin", "is no optimiser"),
    (f"network.actor.type={HERE}.WrongSize", "gives (2, 1) for two observations, where (2, 2) is needed"),
    ("network.actor.type=torch.nn.Flatten", "network.actor: torch.nn.Flatten"),
    ("network.actor.type=torch.nn.Identity", "network.actor: torch.nn.Identity has no weights that could be learnt"),
    (
        "network.actor.hidden_dims=[1099511627776]",
        "network.actor.type=mlp: this machine has no memory left for a network of this size; make its layers",
    ),
    ("buffers.rollout.type=replay", "buffers.rollout.type=replay: ppo can't learn from it; use rollout"),
    ("buffers.rollout.steps=7", "buffers.rollout.steps=7: ppo learns from algorithm.rollout_steps=8 at a time"),
    ("buffers.rollout.type=collections.deque", "is no buffer"),
    ("buffers.rollout.type=etude.buffers.base.Buffer", "'etude.buffers.base.Buffer' can't be used itself"),
    ("environment.num_envs=1099511627776", "environment.num_envs=1099511627776: must be at least 1 and at most 1,000,000"),
    ("algorithm.rollout_steps=1000000000000", "lower algorithm.rollout_steps or environment.num_envs"),
]
SAC = [
    ("buffers.replay.device=foo", "buffers.replay.device=foo: must be auto, cpu, cuda, cuda:N or mps"),
    ("buffers.replay.device=meta", "buffers.replay.device=meta: must be auto, cpu"),
    (
        "buffers.replay.leave_out=[next_observation]",
        "buffers.replay.leave_out: 'next_observation' is what sac learns from",
    ),
    ("buffers.replay.leave_out=[truncatd]", "there is no column 'truncatd'; did you mean 'truncated'?"),
    ("buffers.replay.leave_out=[nothing]", "there is no column 'nothing' (known: observation, is_first, action, reward"),
    ("buffers.replay.type=rollout", "buffers.replay"),
    ("buffers.replay.frame_stack=2", "observations of shape (3,) are no 2 frames along their first dimension"),
    ("buffers.replay.frame_stack=3", "episodes begin with a past that is neither their first frame nor zeros"),
    ("training.phases=[{name:a,type:offline,duration_updates:3}]", "phase 'a' learns, and nothing has been collected"),
]
REFUSED = [*(("CartPole-v1:ppo", *case) for case in PPO), *(("Pendulum-v1:sac", *case) for case in SAC)]


@pytest.mark.parametrize(("spec", "word", "said"), REFUSED)
def test_what_an_algorithm_cannot_use_is_refused(spec: str, word: str, said: str, tmp_path: Path) -> None:
    assert said in _refusal(spec, word, root=tmp_path)


@pytest.mark.parametrize("algorithm", ["a2c", "reinforce"])
def test_a_rollout_of_another_length_than_the_algorithm_s_is_refused(algorithm: str) -> None:
    words = ["algorithm.rollout_steps=8", "buffers.rollout.steps=3"]
    with pytest.raises(
        ConfigError, match=r"buffers.rollout.steps=3: \w+ learns from algorithm.rollout_steps=8 at a time; set that"
    ):
        compose(f"CartPole-v1:{algorithm}", words=words)
    compose(f"CartPole-v1:{algorithm}", words=["algorithm.rollout_steps=8", "buffers.rollout.steps=8"])


@pytest.mark.filterwarnings("ignore:.*render_modes")
@pytest.mark.parametrize("wrapper", ["video", "pixel_observations", "gymnasium.wrappers.ClipReward"])
def test_wrappers_that_can_t_work_are_refused(wrapper: str, tmp_path: Path) -> None:
    said = _refusal("PointReach-v0:sac", f"environment.wrappers=[{wrapper}]", root=tmp_path)
    assert "draws no pictures of itself" in said or "InvalidBound" in said


def test_an_optimiser_that_is_not_to_be_fused_is_not(tmp_path: Path) -> None:
    words = ["algorithm.optimizer={type:adamw,foreach:true}", *SMALL, *ROLLOUT]
    assert session.train(compose("CartPole-v1:ppo", words=words), root=tmp_path, quiet=True).status == "finished"


def test_an_own_network_of_the_right_size_and_optimisers_from_elsewhere_still_work(tmp_path: Path) -> None:
    words = [f"network.actor={{type:{HERE}.WrongSize,outputs:2}}", "algorithm.optimizer=torch.optim.Adagrad", *SMALL, *ROLLOUT]
    assert session.train(compose("CartPole-v1:ppo", words=words), root=tmp_path, quiet=True).status == "finished"


def test_pictures_that_take_millions_of_weights_are_remarked_upon() -> None:
    words = ["environment.wrappers=[pixel_observations]", *SMALL, *REPLAY]
    asked = assembly.resolve(compose("CartPole-v1:dqn", words=words).config)
    orchestrator = assembly.build(asked)
    (note,) = size_remarks(orchestrator.workflow)
    orchestrator.close()
    assert note.startswith("network.q has 9")
    assert note.endswith("to read pictures of (400, 600, 3); the wrapper resize makes them smaller, and learning faster")
    small = compose("CartPole-v1:dqn", words=["environment.wrappers=[pixel_observations,{id:resize,size:16}]", *words[1:]])
    orchestrator = assembly.build(assembly.resolve(small.config))
    assert size_remarks(orchestrator.workflow) == []
    orchestrator.close()


NO_MEMORY = RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: 9 bytes")


def _fails(*_: object, **__: object) -> None:
    raise NO_MEMORY


def test_a_lack_of_memory_while_a_run_is_built_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembly, "build_workflow", _fails)  # where networks are copied and moved to a device
    assert "this machine has no memory left; lower environment.num_envs" in _refusal("CartPole-v1:ppo", root=tmp_path)


def test_a_lack_of_memory_while_a_run_is_loaded_is_not_blamed_on_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [*SMALL, *ROLLOUT]
    run = session.train(compose("CartPole-v1:ppo", words=words), root=tmp_path, quiet=True).run
    policy = open_policy(run, "last")
    monkeypatch.setattr(Checkpoint, "load", _fails)
    with pytest.raises(UserError, match=r"^this machine has no memory left; lower"):
        session.reopen(run, quiet=True)
    with pytest.raises(UserError, match=r"^this machine has no memory left; lower"):
        policy.build(make_environment(policy.config.environment))
    with pytest.raises(UserError, match=r"^this machine has no memory left; lower"):
        session.start(compose("CartPole-v1:ppo", words=[*words, f"experiment.init_from={run.path}"]), root=tmp_path, quiet=True)

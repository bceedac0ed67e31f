"""Updates that one process takes on a whole batch, or two ranks on half of it each; `main` is one of the ranks."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import Generator, Tensor

from etude.compute.noise import Noise
from etude.compute.trees import map_tree
from etude.compute.world import World
from etude.config.compose import compose
from etude.orchestration.orchestrator import Orchestrator
from etude.training import assembly
from etude.workflows import ppo
from etude.workflows.base import Phase
from etude.workflows.world_models.config import LATENT
from tests.learning.toys import Toy

RANKS = 2
ENVS, STEPS, ROWS = 8, 6, 32
"""Of the union."""


def build(world: World, spec: str, *words: str) -> Orchestrator:
    common = (f"environment.num_envs={ENVS // world.size}", "experiment.device=cpu", "experiment.compile=off",
              "evaluation.every_steps=0")  # fmt: skip
    return assembly.build(assembly.resolve(compose(spec, words=(*common, *words)).config), world=world)


def share(world: World, tree: Any, dim: int = 0) -> Any:
    """This rank's share of the union's rows."""
    return map_tree(lambda tensor: tensor.chunk(world.size, dim)[world.rank], tree)


def named(tree: Any, name: str = "") -> dict[str, Tensor]:
    """The tensors of a state, by where they are."""
    if isinstance(tree, Tensor):
        return {name: tree.detach().clone()}
    items = tree.items() if isinstance(tree, Mapping) else enumerate(tree) if isinstance(tree, list | tuple) else ()
    return {key: value for part, own in items for key, value in named(own, f"{name}/{part}").items()}


def ppo_update(world: World) -> dict[str, Tensor]:
    """Two epochs of minibatches, with everything that takes statistics of the rollout or decides by what it says."""
    settings = (f"algorithm.rollout_steps={STEPS}", "algorithm.batch_size=0.5", "algorithm.epochs=2",
                "algorithm.adaptive_kl=0.01", "algorithm.target_kl=0.5", "environment.normalize_observations=rolling",
                "environment.normalize_rewards=true")  # fmt: skip
    workflow: Any = build(world, "Pendulum-v1:ppo", *settings).workflow
    generator = torch.Generator().manual_seed(1)

    def random(*shape: int) -> Tensor:
        return torch.randn(STEPS, ENVS, *shape, generator=generator)

    columns = {
        "observation": 2 * random(3) + 1,
        "next_observation": 2 * random(3) + 1,
        "reward": random() - 3,
        "sample": random(1),
    }
    columns |= {name: random() > 1.5 for name in ("terminated", "truncated")}
    columns |= {"is_first": torch.zeros(STEPS, ENVS, dtype=torch.bool), "action": columns["sample"]}
    with torch.no_grad():
        distribution = workflow.head(workflow.actor(columns["observation"].flatten(0, 1)))
        columns["log_prob"] = distribution.log_prob(columns["sample"].flatten(0, 1)).view(STEPS, ENVS) + 0.1 * random()
    buffer = workflow.context.buffers["rollout"]
    for step in range(STEPS):
        buffer.add({name: share(world, column[step]) for name, column in columns.items()})

    def minibatches(size: int, batch_size: int, epochs: int, generator: Generator) -> Iterator[Tensor]:
        ranks = RANKS // world.size  # whose rows this process has
        for places in ALREADY(size // ranks, batch_size // ranks, epochs, generator):
            yield torch.cat([places + rank * size // ranks for rank in range(ranks)])

    with mock.patch.object(ppo, "minibatches", minibatches):
        workflow.update(Phase("train", buffer="rollout"), 1)
    state = workflow.state_dict()
    state["metrics"] = {"update": state["metrics"]["update"]["sums"]}  # those of a rollout are of each rank's own
    return named(state)


ALREADY = ppo.minibatches


def sac_update(world: World) -> dict[str, Tensor]:
    """Three updates of critics, actor, temperature and targets."""
    workflow: Any = build(world, "Pendulum-v1:sac", "algorithm.max_grad_norm=1.0").workflow
    generator = torch.Generator().manual_seed(2)

    def random(*shape: int) -> Tensor:
        return torch.randn(ROWS, *shape, generator=generator)

    for _ in range(3):
        batch = {"observation": random(3), "next_observation": random(3), "sample": random(1).tanh(), "reward": random()}
        batch["discount"] = 0.99 * (random() < 1)
        noise = Noise(drawn={"policy": share(world, random(2, 1).transpose(0, 1), 1)})
        workflow._executor.once(share(world, batch), (True, True, True), noise)
    return named(workflow.state_dict())


def toy_update(world: World) -> dict[str, Tensor]:
    """Batch norm, a running scale, what is carried on and a projection."""
    toy = Toy(every=1, world=world)
    generator = torch.Generator().manual_seed(3)
    for _ in range(3):
        x = torch.randn(ROWS, 3, generator=generator)
        batch = {"x": x, "y": x.sum(-1) + 1, "latent": torch.zeros(ROWS)}
        jitter = torch.randn(ROWS, 4, generator=generator)
        noise = Noise(drawn={"jitter": share(world, jitter), "spread": torch.ones(1)})
        toy.executor.once(share(world, batch), (True, True, True), noise)
    return {name: value for name, value in toy.everything().items() if value.is_floating_point()}


def tdmpc_update(world: World) -> dict[str, Tensor]:
    """Three updates of model, critics and policy, where two of three critics are believed."""
    own = (f"network.{role}.hidden_dims=[16]" for role in ("encoder", "dynamics", "reward", "critic", "actor"))
    settings = (*own, "algorithm.size=small", "algorithm.critics=3", "algorithm.latent_dim=16", "network.critic.dropout=0")
    workflow: Any = build(world, "Pendulum-v1:tdmpc", *settings).workflow
    generator, found = torch.Generator().manual_seed(4), dict[str, Tensor]()

    def random(*shape: int) -> Tensor:
        return torch.randn(ROWS, *shape, generator=generator)

    for _ in range(3):
        batch = {"observation": random(3, 3), "next_observation": random(3, 3), "sample": random(3, 1).tanh()}
        batch |= {"reward": random(3), "terminated": random(3) > 1, "is_first": random(3) > 1}
        noise = Noise(drawn={"next_action": share(world, random(3, 1)), "action": share(world, random(4, 1))})
        noise._drawn |= {"target_critics": torch.tensor([0.1, 0.9, 0.5]), "critics": torch.tensor([0.9, 0.1, 0.5])}
        reports = workflow._executor.once(share(world, batch), (True, True, True), noise)
        found = named([dict(report.metrics) for report in reports])
    return {**found, **named(workflow.state_dict())}


def memory_update(world: World) -> dict[str, Tensor]:
    """What V measures of observations, and two updates of M on windows that hold the ends of episodes."""
    settings = ("algorithm.latent_dim=3", "algorithm.memory_size=6", "algorithm.mixtures=2", "network.vae.hidden_dims=[8]")
    workflow: Any = build(world, "CartPole-v1:world_models", *settings).workflow
    generator = torch.Generator().manual_seed(5)

    def random(*shape: int) -> Tensor:
        return torch.randn(ROWS, 5, *shape, generator=generator)

    workflow.vae.measure(share(world, 3 * random(4).flatten(0, 1) + 1))
    workflow.vae.moments.merge(world)
    for _ in range(2):
        batch = {LATENT: random(6), "action": (random() > 0).long(), "reward": random(), "terminated": random() > 1.5}
        batch["is_first"] = random() > torch.linspace(0, 3, ROWS)[:, None]  # unlike from rank to rank
        noise = Noise(drawn={"latent": share(world, random(3)).transpose(0, 1)})
        workflow._memory_executor.once(share(world, batch), (True, True), noise)
    return named({name: getattr(workflow, name).state_dict() for name in ("vae", "memory")})


UPDATES: dict[str, Callable[[World], dict[str, Tensor]]] = {
    "ppo": ppo_update,
    "sac": sac_update,
    "toy": toy_update,
    "tdmpc": tdmpc_update,
    "memory": memory_update,
}


class Notebook:
    """Takes rows and checkpoints down, and stops the run after some of them."""

    def __init__(self, orchestrator: Orchestrator, folder: Path, stop_at: int | None = None) -> None:
        self.rows: list[dict[str, float]] = []
        self.saved: list[list[str]] = []
        self._orchestrator, self._folder, self._stop_at = orchestrator, folder, stop_at
        orchestrator.attach(sink=self, write_checkpoint=self.save, run_dir=folder)

    def write(self, rows: Sequence[dict[str, float]]) -> None:
        self.rows += rows
        if len(self.rows) == self._stop_at:
            self._orchestrator.interrupt("enough")

    def save(self, parts: dict[str, Any], counters: dict[str, int], metadata: dict[str, Any], *, best: bool) -> Path:
        self.saved.append(sorted(parts))
        torch.save(parts, self._folder / "parts.pt")
        return self._folder


def training(world: World, folder: Path) -> dict[str, Any]:
    """A run with rows, evaluations and saves; and the same one stopped and resumed on the way."""
    words = ("training.total_steps=192", "algorithm.rollout_steps=8", "algorithm.batch_size=1.0", "environment.num_envs=2",
             "evaluation.every_steps=64", "evaluation.episodes=1", "environment.max_episode_steps=20",
             "environment.normalize_rewards=true", "checkpoint.every_steps=32", "logging.every_steps=32")  # fmt: skip

    def orchestrator() -> Orchestrator:
        return build(world, "CartPole-v1:ppo", *words)

    whole, half, rest = orchestrator(), orchestrator(), orchestrator()
    whole.begin()
    notes = Notebook(whole, folder)
    whole.run()
    half.begin()
    Notebook(half, folder, stop_at=2 if world.is_first else None)
    half.run()
    dist.barrier()
    rest.load_state_dict(torch.load(folder / "parts.pt", weights_only=False))
    dist.barrier()
    Notebook(rest, folder)
    rest.run()
    ends = [{key: part.state_dict() for key, part in (("", one), ("streams", one.streams))} for one in (whole, rest)]
    observation = whole.state_dict()[world.part]["collector"]["observation"]
    return {
        "rows": len(notes.rows),
        "saved": notes.saved[-1:],
        "whole": named(ends[0]),
        "resumed": named(ends[1]),
        "halfway": half.counters.as_dict(),
        "observation": observation,
        "best": whole.best.value,
    }


def main(rank: int, folder: Path) -> None:
    """Be one of the ranks, and leave what came of each update in the folder."""
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), RANKS)
    timeout = datetime.timedelta(seconds=120)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=RANKS, timeout=timeout)
    world = World(dist.group.WORLD)
    found: dict[str, Any] = {name: update(world) for name, update in UPDATES.items()}
    found["training"] = training(world, folder)
    torch.save(found, folder / f"{rank}.pt")
    dist.destroy_process_group()

"""Updates that one process takes on a whole batch, or two ranks on half of it each; run as a module it is one of the ranks."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import Generator, Tensor

from etude.compute.trees import map_tree
from etude.compute.world import ALONE, World
from etude.config.compose import compose
from etude.learning.noise import Noise
from etude.orchestration.orchestrator import Orchestrator
from etude.training import assembly
from etude.workflows import ppo
from etude.workflows.base import Phase
from tests.learning.toys import Toy

RANKS = 2
ENVS, STEPS, ROWS = 8, 6, 32
"""Of the union."""


def build(world: World, spec: str, *words: str) -> Orchestrator:
    common = (f"environment.num_envs={ENVS // world.size}", "experiment.device=cpu", "experiment.compile=off",
              "evaluation.every_steps=0", "network.actor.hidden_dims=[8]", "network.critic.hidden_dims=[8]")  # fmt: skip
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
    settings = (f"algorithm.rollout_steps={STEPS}", "algorithm.batch_size=0.5", "algorithm.epochs=2", "algorithm.adaptive_kl=0.01",
                "algorithm.target_kl=0.5", "environment.normalize_observations=rolling",
                "environment.normalize_rewards=true")  # fmt: skip
    workflow: Any = build(world, "Pendulum-v1:ppo", *settings).workflow
    generator = torch.Generator().manual_seed(1)

    def random(*shape: int) -> Tensor:
        return torch.randn(STEPS, ENVS, *shape, generator=generator)

    columns = {"observation": 2 * random(3) + 1, "next_observation": 2 * random(3) + 1, "reward": random() - 3, "sample": random(1)}
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


UPDATES: dict[str, Callable[[World], dict[str, Tensor]]] = {"ppo": ppo_update, "sac": sac_update, "toy": toy_update}


def main(rank: int, folder: Path) -> None:
    """Be one of the ranks, and leave what came of each update in the folder."""
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), RANKS)
    timeout = datetime.timedelta(seconds=60)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=RANKS, timeout=timeout)
    world = World(dist.group.WORLD)
    found = {name: update(world) for name, update in UPDATES.items()}
    torch.save(found, folder / f"{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))

"""A small update that uses everything a loss may: what is carried on, tensors of its own, noise, batch norm, a projection."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor, nn

from etude.components.critics import Follow, target_of
from etude.components.return_scale import percentiles
from etude.compute.noise import Noise
from etude.compute.world import ALONE, World
from etude.config.validate import Part
from etude.learning.execute import Executor, Table, make_executor
from etude.learning.optimizers import build_optimizer, load_optimizer_state, optimizer_state
from etude.learning.sources import Source
from etude.learning.update import Batch, Out, Stage, Update

ROWS, WIDTH = 24, 3


class Rows(Source):
    """Random rows of a table, with a column that learning writes back to."""

    def __init__(self, generator: Generator, *, unit: int = 1, writes_back: bool = False) -> None:
        first = torch.Generator().manual_seed(7)
        x = torch.randn(ROWS, WIDTH, generator=first).to(generator.device)
        self._columns = {"x": x, "y": x.sum(-1) + 0.1, "latent": torch.zeros(ROWS, device=x.device)}
        self._generator, self.unit, self.follows_learning = generator, unit, writes_back

    @property
    def columns(self) -> Mapping[str, Any]:
        return self._columns

    def draw(self, count: int) -> Tensor:
        return torch.stack(
            [torch.randint(ROWS, (8,), generator=self._generator, device=self._generator.device) for _ in range(count)]
        )

    def gather(self, columns: Mapping[str, Any], drawn: Tensor) -> Batch:
        return {name: column[drawn] for name, column in columns.items()}

    def learned(self, drawn: Tensor, per_row: Mapping[str, Tensor]) -> None:
        if self.follows_learning:
            for index, values in zip(drawn, per_row["latent"], strict=True):
                self._columns["latent"][index] = values


class Seen(NamedTuple):
    """What is carried on: a tree of every kind."""

    features: Tensor
    more: list[Any]


class Toy:
    """A model with batch norm, then a head that learns from what the model carries on, scaled by a running scale."""

    def __init__(
        self,
        mode: Any = "eager",
        *,
        every: int = 2,
        writes_back: bool = False,
        accumulate: int = 1,
        device: str = "cpu",
        optimizer: str = "adam",
        skip: Tensor | None = None,
        world: World = ALONE,
    ) -> None:
        torch.manual_seed(0)
        self.world = world
        norm = nn.BatchNorm1d(4) if accumulate == 1 else nn.LayerNorm(4)
        self.model = nn.Sequential(nn.Linear(WIDTH, 4, bias=False), norm, nn.Tanh()).to(device)
        self.head = nn.Linear(4, 1).to(device)
        self.target = target_of(self.head)
        self.scale = torch.ones((), device=device)
        self.generator = torch.Generator(device).manual_seed(3)
        rate = torch.tensor(0.05, device=device)
        optimizers = [
            build_optimizer(Part(optimizer, {}), {"all": (part.parameters(), rate)}) for part in (self.model, self.head)
        ]
        stages = [
            Stage("model", self.model_loss, optimizers[0], 1.0, accumulate=accumulate),
            Stage(
                "head",
                self.head_loss,
                optimizers[1],
                every=every,
                accumulate=accumulate,
                after_step=[self.project],
                state={"scale": self.scale},
            ),
        ]
        update = Update(stages, after=Follow([self.head], [self.target], 0.1), after_every=3, skip=skip)
        self.optimizers, self.mode = optimizers, mode
        modules = {"model": self.model, "head": self.head, "target": self.target}
        self.executor: Executor = make_executor(update, modules, mode=mode, generator=self.generator, world=world)
        self.rows = torch.Generator(device).manual_seed(5)
        self.source = Rows(self.rows, writes_back=writes_back)

    def model_loss(self, batch: Batch, noise: Noise) -> Out:
        features = self.model(batch["x"])
        jitter = noise.normal("jitter", (len(batch["x"]), 4))
        loss = (features + 0.1 * jitter).square().mean() + (features.sum(-1) - batch["y"]).square().mean()
        latent = features.mean(-1).detach() + 0.5 * batch["latent"]
        carry = {"seen": Seen(features, [{"mean": features.mean(-1)}, None])}
        return Out(loss, {"train/features": features.mean()}, carry=carry, per_row={"latent": latent})

    def head_loss(self, batch: Batch, carry: Mapping[str, Any], state: Mapping[str, Tensor], noise: Noise) -> Out:
        spread = noise.uniform("spread", (1,), -0.1, 0.1) + noise.normal("jitter", (len(batch["x"]), 4)).mean(-1)
        seen = self.world.gather(batch["y"].abs()).flatten()  # of all ranks: their own quantiles would differ
        scale = 0.9 * state["scale"] + 0.1 * percentiles(seen, 0.9)[0]
        features, (summary, _) = carry["seen"]
        wanted = (batch["y"] + spread) / scale + 0.1 * self.target(features).squeeze(-1).detach() + summary["mean"]
        loss = (self.head(features).squeeze(-1) - wanted).square().mean()
        return Out(loss, {"train/scale": scale}, state={"scale": scale})

    def project(self) -> None:
        """Towards the unit ball, and never quite there: done once more, it shows."""
        self.head.weight.data.mul_(0.5 + 0.5 / self.head.weight.data.norm())

    def run(self, count: int) -> dict[str, Table]:
        return self.executor.run(self.source, count)

    def everything(self) -> dict[str, Tensor]:
        """All that updates change."""
        parts = {"model": self.model, "head": self.head, "target": self.target}
        found = {f"{name}.{key}": value for name, part in parts.items() for key, value in part.state_dict().items()}
        for which, optimizer in enumerate(self.optimizers):
            for place, own in enumerate(optimizer.state.values()):
                found |= {f"moment {which}.{place}.{key}": value for key, value in own.items()}
        return {**found, "scale": self.scale, "latent": self.source.columns["latent"], "stream": self.rows.get_state(),
                "noise": self.generator.get_state()}  # fmt: skip

    def state(self) -> dict[str, Any]:
        """What a checkpoint of it would hold."""
        everything = {name: tensor.clone() for name, tensor in self.everything().items()}
        optimizers = [deepcopy(optimizer_state(optimizer)) for optimizer in self.optimizers]
        return {"tensors": everything, "optimizers": optimizers, "executor": self.executor.state_dict()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        tensors = state["tensors"]
        for name, part in (("model", self.model), ("head", self.head), ("target", self.target)):
            part.load_state_dict({key: tensors[f"{name}.{key}"] for key in part.state_dict()})
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            load_optimizer_state(optimizer, saved)
        self.scale.copy_(tensors["scale"])
        self.source.columns["latent"].copy_(tensors["latent"])
        self.rows.set_state(tensors["stream"])
        self.generator.set_state(tensors["noise"])
        self.executor.load_state_dict(state["executor"])

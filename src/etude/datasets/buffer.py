"""A dataset as a buffer: all of it in memory, the same for the whole run, and nothing is ever written to it.

step          0    1    2    3    4  | 5    6    7      two episodes, of 5 and 3 steps
observation   0  1  2  3  4  5       | 6  7  8  9       a row more each: step i of episode e sees row i + e
first, last   0 .. 4                 | 5 .. 7           of each step's episode
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import gymnasium
import torch
from torch import Generator, Tensor

from etude.buffers.base import Batch, Buffer, in_bytes
from etude.buffers.columns import map_columns
from etude.buffers.free_memory import free_memory
from etude.config.constraints import Bounds, PositiveInt
from etude.datasets.dataset import Dataset
from etude.datasets.episode import LENGTH, OBSERVATION, TERMINATED, whole
from etude.environments.spaces import observation_specs
from etude.errors import EtudeError, UserError
from etude.files.printable import one_line

if TYPE_CHECKING:
    from etude.config.schema import Config


@dataclass(frozen=True)
class DatasetConfig:
    """Episodes that were recorded before."""

    type: str = "dataset"
    """The registered name of the buffer."""
    dataset: str = ""
    """The dataset's name; `etude dataset list` shows what there is."""
    root: str | None = None
    """Where datasets live. Default: $ETUDE_DATASETS, or ./datasets."""
    episodes: PositiveInt | None = None
    """Learn from the first so many episodes only. Default: all."""
    best: Annotated[float, Bounds(low=0, high=1, low_open=True)] = 1.0
    """Learn from this share of the episodes only, those of the highest return. Less imitates the better ones of mixed data."""
    device: str = "auto"
    """Where the data lies: auto is where the networks live; cpu saves GPU memory and costs a copy per batch."""


class DatasetBuffer(Buffer):
    """A dataset's steps, drawn uniformly: by themselves, as windows in a row, or as what was seen before and done after."""

    Config = DatasetConfig

    def __init__(self, dataset: Dataset, options: DatasetConfig, gamma: float, device: torch.device, name: str) -> None:
        self.dataset, self.name, self.gamma, self.device = dataset, name, gamma, device
        self.columns = {}
        self._options, self._size = options, 0
        self.kept_episodes = 0
        """How many episodes of the dataset are learnt from."""

    @classmethod
    def build(cls, options: Any, config: Config, name: str) -> DatasetBuffer:
        """Open the dataset that a config names; its rows are read when the buffer is bound."""
        if not options.dataset:
            raise UserError(f"buffers.{name}.dataset: which dataset? `etude dataset list` shows them, `record` records one")
        try:
            dataset = Dataset.open(options.dataset, None if options.root is None else Path(options.root))
        except UserError as error:
            raise UserError(f"buffers.{name}.dataset: {error}") from None
        gamma = getattr(config.algorithm, "gamma", None)
        device = torch.device(config.experiment.device if options.device == "auto" else options.device)
        return cls(dataset, options, 1.0 if gamma is None else float(gamma), device, name)

    @property
    def spaces(self) -> tuple[gymnasium.Space[Any], gymnasium.Space[Any]]:
        """The spaces of what was seen and done."""
        return self.dataset.observation_space, self.dataset.action_space

    def check_fits(self, environment: Any, task: str) -> None:
        """Raise UserError unless the data could be of this environment."""
        seen, acted = self.spaces
        here = observation_specs(environment.single_observation_space)
        label = f"buffers.{self.name}.dataset={self._options.dataset}"
        way_out = f"choose the task it was recorded in ({self.dataset.manifest.task or 'unknown'}), with the same wrappers"
        if observation_specs(seen) != here:
            theirs = one_line(str(environment.single_observation_space), 120)
            raise UserError(f"{label}: observes {one_line(str(seen), 120)}, and {task} {theirs}; {way_out}")
        if acted != environment.single_action_space:
            theirs = one_line(str(environment.single_action_space), 120)
            raise UserError(f"{label}: its actions are {one_line(str(acted), 120)}, and those of {task} {theirs}; {way_out}")

    def bind(self, environment: Any) -> None:
        """Read all rows, once it is known that they fit the environment and the memory."""
        self.check_fits(environment, "the environment's")
        needed, free = self.dataset.memory, free_memory(torch.device("cpu"))
        if free is not None and needed > free:
            raise EtudeError(
                f"buffers.{self.name}: dataset '{self._options.dataset}' needs {in_bytes(needed)} of memory, and "
                f"{in_bytes(free)} are free; record a smaller one"
            )
        columns, chosen = self.dataset.load(), self._chosen()
        lengths = columns[LENGTH]
        first_step, first_row = _begins(lengths), _begins(lengths + 1)
        steps = _ranges(first_step[chosen], lengths[chosen])
        rows = _ranges(first_row[chosen], lengths[chosen] + 1)
        if len(chosen) < len(lengths):
            kept = {name: column[rows] for name, column in columns.items() if name.startswith(OBSERVATION)}
        else:
            steps, kept = slice(None), {name: column for name, column in columns.items() if name.startswith(OBSERVATION)}
        lengths = lengths[chosen]
        count, first = int(lengths.sum()), _begins(lengths)
        episode = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
        last = first + lengths - 1
        terminated, truncated = torch.zeros(count, dtype=torch.bool), torch.zeros(count, dtype=torch.bool)
        terminated[last] = columns[TERMINATED][chosen]
        truncated[last] = ~columns[TERMINATED][chosen]
        loaded = {
            "observation": whole(kept),
            "action": columns["action"][steps],
            "reward": columns["reward"][steps],
            "terminated": terminated,
            "truncated": truncated,
            "row": torch.arange(count) + episode,
            "first": first[episode],
            "last": last[episode],
        }
        self.columns = map_columns(loaded, lambda column: column.to(self.device))
        self._size, self.kept_episodes = count, len(chosen)

    def _chosen(self) -> Tensor:
        """Return the numbers of the episodes to learn from, in order."""
        returns = torch.tensor(self.dataset.manifest.returns, dtype=torch.float64)[: self._options.episodes]
        count = max(1, round(self._options.best * len(returns)))
        return returns.argsort(descending=True, stable=True)[:count].sort().values

    def notes(self) -> list[str]:
        """Say what is learnt from."""
        of_all = "" if self.kept_episodes == len(self.dataset) else f" of {len(self.dataset):,}"
        return [f"learns from dataset '{self._options.dataset}': {self.kept_episodes:,}{of_all} episodes, {self.size:,} steps"]

    def add(self, row: Mapping[str, Any]) -> None:
        """Refuse: a dataset is what it was."""
        raise UserError(f"buffers.{self.name}: a dataset is not written to; give the phase that collects another buffer")

    @property
    def ready(self) -> bool:
        """It always is."""
        return self.size > 0

    @property
    def size(self) -> int:
        """How many steps there are."""
        return self._size

    def steps_to_ready(self, num_envs: int) -> int:
        """Nothing has to be collected first."""
        return 0

    def clear(self) -> None:
        """A dataset is what it was."""

    def given_non_finite(self) -> str | None:
        """None: what isn't finite is refused when a dataset is written."""
        return None

    def sample(self, n: int, generator: Generator) -> Batch:
        """Return n steps drawn uniformly, each with what it led to and what that counts."""
        index = torch.randint(self.size, (n,), generator=generator, device=generator.device).to(self.device)
        return self.steps(self.columns, index)

    # ---- functions of tensors -------------------------------------------------------------------------------------------

    def steps(self, columns: Mapping[str, Any], index: Tensor) -> Batch:
        """Return steps by their numbers (B,), with `next_observation` and `discount`."""
        row = columns["row"][index]
        terminated = columns["terminated"][index]
        return {
            "observation": map_columns({"": columns["observation"]}, lambda column: column[row])[""],
            "next_observation": map_columns({"": columns["observation"]}, lambda column: column[row + 1])[""],
            "action": columns["action"][index],
            "reward": columns["reward"][index],
            "terminated": terminated,
            "truncated": columns["truncated"][index],
            "discount": self.gamma * (~terminated).float(),
        }

    def windows(self, columns: Mapping[str, Any], index: Tensor, length: int) -> Batch:
        """Return `length` steps in a row from each number (B,) on, across the ends of episodes: (B, length, ...)."""
        steps = index.unsqueeze(1) + torch.arange(length, device=index.device)
        return {
            "observation": map_columns({"": columns["observation"]}, lambda column: column[columns["row"][steps]])[""],
            "action": columns["action"][steps],
            "is_first": columns["first"][steps] == steps,
        }

    def chunks(self, columns: Mapping[str, Any], index: Tensor, seen: int, done: int) -> Batch:
        """Return what was seen up to steps (B,), `seen` of it, and what was done from there on, `done` actions.

        Before its episode began the first observation is repeated, and after its end the last action.
        """
        back = index.unsqueeze(1) + torch.arange(1 - seen, 1, device=index.device)
        back = torch.maximum(back, columns["first"][index].unsqueeze(1))
        ahead = index.unsqueeze(1) + torch.arange(done, device=index.device)
        ahead = torch.minimum(ahead, columns["last"][index].unsqueeze(1))
        rows = columns["row"][back]
        return {
            "observation": map_columns({"": columns["observation"]}, lambda column: column[rows])[""],
            "action": columns["action"][ahead],
        }

    # ---- state ------------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return which data it is, never the data."""
        return {"digest": self.digest}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with the same data; EtudeError where it is another by now."""
        if state["digest"] != self.digest:
            raise EtudeError(
                f"buffers.{self.name}: dataset '{self._options.dataset}' is not the one this run has learnt from until now: "
                "its episodes have changed since; put those back, or begin a new run"
            )

    @property
    def digest(self) -> str:
        """What tells the episodes that are learnt from apart from any others."""
        manifest = self.dataset.manifest
        content = [segment.sha256 for segment in manifest.segments]
        said = [content, self._options.episodes, self._options.best]
        return hashlib.sha256(json.dumps(said).encode()).hexdigest()


def _begins(lengths: Tensor) -> Tensor:
    """Where each of some stretches begins that follow one another."""
    return torch.cumsum(lengths, 0) - lengths


def _ranges(begins: Tensor, lengths: Tensor) -> Tensor:
    """Return the numbers of several stretches, one after the other."""
    return torch.arange(int(lengths.sum())) + torch.repeat_interleave(begins - _begins(lengths), lengths)


def learnt_from(buffers: Mapping[str, Buffer]) -> Sequence[DatasetBuffer]:
    """Return the datasets among some buffers."""
    return [buffer for buffer in buffers.values() if isinstance(buffer, DatasetBuffer)]

"""Named random streams that all derive from one root seed, each with a state that can be saved."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch

AGREED = ("minibatch", "evolution")
"""Streams that are the same in every process: a minibatch of all ranks' rows is the same places of each one's rollout, and the
candidates of a generation are everybody's."""


def derive_seed(root: int, *purpose: object) -> int:
    """Return a seed for `purpose` that depends on nothing else, so asking for it changes no other stream."""
    text = "/".join(str(part) for part in (root, *purpose))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def seed_global_generators(root: int) -> None:
    """Seed Python's, NumPy's and PyTorch's global generators, for code that is not ours and reads them."""
    random.seed(derive_seed(root, "python"))
    np.random.seed(derive_seed(root, "numpy") % 2**32)  # noqa: NPY002 # other people's code reads the global one
    torch.manual_seed(derive_seed(root, "torch"))


class GlobalGenerators(NamedTuple):
    """Where Python's, NumPy's and PyTorch's global generators stood at some moment."""

    python: Any
    numpy: Any
    torch: torch.Tensor

    @classmethod
    def now(cls) -> GlobalGenerators:
        """Return where they stand."""
        return cls(random.getstate(), np.random.get_state(), torch.get_rng_state())  # noqa: NPY002

    def put_back(self) -> None:
        """Let them go on from there."""
        random.setstate(self.python)
        np.random.set_state(self.numpy)  # noqa: NPY002
        torch.set_rng_state(self.torch)


@contextmanager
def global_generators_kept() -> Iterator[None]:
    """Put the global generators back afterwards: whatever runs within, an environment that reads them can't tell.

    For everything between the steps of an environment that is other people's code, or that a run on a terminal has and one
    in a pipe has not. It takes tens of microseconds: cheap for a row, too dear for a step.
    """
    before = GlobalGenerators.now()
    try:
        yield
    finally:
        before.put_back()


@contextmanager
def isolated_global_generators(seed: int) -> Iterator[None]:
    """Seed the global generators for a while and put them back: what happens within can't be noticed outside."""
    with global_generators_kept():
        seed_global_generators(seed)
        yield


class RandomStreams:
    """One generator per name (`action`, `buffer`, `minibatch` ...), made on first use; each process has its own."""

    def __init__(self, root: int, device: torch.device | str = "cpu", rank: int = 0) -> None:
        self.root, self.rank = root, rank
        self.device = torch.device(device)
        self._generators: dict[str, torch.Generator] = {}

    def __getitem__(self, name: str) -> torch.Generator:
        if name not in self._generators:
            generator = torch.Generator(device=self.device)
            generator.manual_seed(self._seed(name))
            self._generators[name] = generator
        return self._generators[name]

    def state_dict(self) -> dict[str, Any]:
        """Return the state of every stream used so far, the global generators included."""
        streams = {name: generator.get_state() for name, generator in sorted(self._generators.items())}
        state = {"streams": streams, "global": _global_state()}
        if self.device.type == "cuda":
            state["global"]["cuda"] = torch.cuda.get_rng_state(self.device)
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue every stream where it was."""
        for name, generator in self._generators.items():
            generator.manual_seed(self._seed(name))  # one not used yet when the state was saved
        for name, saved in state["streams"].items():
            self[name].set_state(saved)
        _load_global_state(state["global"])
        if self.device.type == "cuda" and "cuda" in state["global"]:  # an older checkpoint has none, nor has one of the CPU
            torch.cuda.set_rng_state(state["global"]["cuda"], self.device)

    def branch(self, number: int) -> None:
        """Continue every stream from a state of its own: another course of the same run."""
        for name, generator in self._generators.items():
            generator.manual_seed(self._seed(name, "branch", number))

    def _seed(self, name: str, *purpose: object) -> int:
        own = ("rank", self.rank) if self.rank and name not in AGREED else ()
        return derive_seed(self.root, name, *purpose, *own)


def _global_state() -> dict[str, Any]:
    version, internal, next_gauss = random.getstate()
    kind, keys, position, has_gauss, gauss = np.random.get_state()  # noqa: NPY002
    return {
        "python": [version, list(internal), next_gauss],
        "numpy": [str(kind), torch.from_numpy(np.asarray(keys).astype(np.int64)), position, has_gauss, gauss],
        "torch": torch.get_rng_state(),
    }


def _load_global_state(state: dict[str, Any]) -> None:
    version, internal, next_gauss = state["python"]
    try:
        random.setstate((version, tuple(internal), next_gauss))
    except OverflowError as error:
        raise ValueError(f"the state of Python's generator: {error}") from error
    kind, keys, *rest = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), *rest))  # noqa: NPY002
    torch.set_rng_state(state["torch"])

"""Acts as an exported policy does, from the files beside it alone: NumPy, and ONNX Runtime or PyTorch; nothing of Etude.

    policy = Policy("exports/ID")
    action = policy.act(observation)          # (N, ...) in, (N, ...) out; a dict where metadata.json has several inputs
    policy.begin()                            # before the next episode

What the policy remembers, the noise that it needs and chunks of actions are kept here. `python act.py FOLDER --serve` answers
observations on standard input with actions on standard output, which is how `etude export --replay` asks it.
"""

from __future__ import annotations

import argparse
import io
import json
import struct
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

RUNTIMES = ("onnx", "torchscript", "torch")


class Policy:
    """An exported policy in as many episodes as the observations have rows."""

    def __init__(self, folder: str | Path, runtime: str | None = None, seed: int = 0) -> None:
        self.metadata = json.loads((Path(folder) / "metadata.json").read_text())
        files = self.metadata["files"]
        chosen = runtime or next((name for name in RUNTIMES if name in files), None)
        if chosen is None or chosen not in files:
            raise SystemExit(f"{folder}: there is no file of it for {chosen or ', '.join(RUNTIMES)}")
        self._run = _loaded(Path(folder) / files[chosen]["file"], chosen, self.metadata)
        self._inputs = self.metadata["inputs"]
        self._memory, self._noise = self.metadata["memory"], self.metadata["noise"]
        self._chunk = self.metadata["chunk"]
        self._random = np.random.default_rng(seed)
        self.begin()

    def begin(self) -> None:
        """Begin new episodes in all rows."""
        self._held: dict[str, np.ndarray] = {}
        self._seen: list[dict[str, np.ndarray]] = []
        self._actions, self._done = np.empty(0), np.empty(0, np.int64)

    def act(self, observation: Any, is_first: np.ndarray | None = None) -> np.ndarray:
        """Return the actions for observations (N, ...); `is_first` (N,) says which rows begin an episode, besides `begin`."""
        names = [each["name"] for each in self._inputs]
        given = observation if isinstance(observation, Mapping) else {names[0]: observation}
        seen = {each["name"]: np.asarray(given[each["name"]], each["dtype"]) for each in self._inputs}
        rows = len(seen[names[0]])
        first = np.zeros(rows, bool) if is_first is None else np.asarray(is_first, bool)
        return self._next_of_chunk(seen, rows, first) if self._chunk else self._decide(seen, rows, first)

    def _decide(self, seen: dict[str, np.ndarray], rows: int, first: np.ndarray) -> np.ndarray:
        for each in self._memory:
            zeros = np.zeros((rows, *each["shape"]), each["dtype"])
            held = self._held.get(each["input"], zeros)
            self._held[each["input"]] = np.where(first.reshape(-1, *[1] * len(each["shape"])), zeros, held)
        outputs = self._run({**seen, **self._held, **self._drawn(rows)})
        self._held = {each["input"]: outputs[each["output"]] for each in self._memory}
        return outputs[self.metadata["action"]["name"]]

    def _next_of_chunk(self, seen: dict[str, np.ndarray], rows: int, first: np.ndarray) -> np.ndarray:
        """The next action of each row's chunk; where it is used up, or an episode begins, a new one is made first."""
        steps, actions = self._chunk["observations"], self._chunk["actions"]
        if not self._seen:
            first, self._seen = np.ones(rows, bool), [seen] * steps
        before = [*self._seen[1:], seen]
        self._seen = [{name: np.where(_wide(first, part), seen[name], part) for name, part in each.items()} for each in before]
        due = first | (self._done >= actions) if len(self._done) else np.ones(rows, bool)
        if due.any():
            stacked = {name: np.stack([each[name] for each in self._seen], 1) for name in seen}
            made = self._run({**stacked, **self._drawn(rows)})[self.metadata["action"]["name"]]
            self._actions = np.where(_wide(due, made), made, self._actions) if len(self._done) else made
            self._done = np.where(due, 0, self._done) if len(self._done) else np.zeros(rows, np.int64)
        action = self._actions[np.arange(rows), self._done]
        self._done = self._done + 1
        return action

    def _drawn(self, rows: int) -> dict[str, np.ndarray]:
        found = {}
        for each in self._noise:
            draw = self._random.standard_normal if each["kind"] == "normal" else self._random.random
            found[each["name"]] = draw((rows, *each["shape"]), np.float32)
        return found


def _wide(mask: np.ndarray, like: np.ndarray) -> np.ndarray:
    return mask.reshape(-1, *[1] * (like.ndim - 1))


def _loaded(path: Path, runtime: str, metadata: dict[str, Any]) -> Any:
    """Return a file as a function of arrays by name."""
    results = [metadata["action"]["name"], *(each["output"] for each in metadata["memory"])]
    if runtime == "onnx":
        import onnxruntime  # type: ignore[import-not-found] # an extra

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        return lambda given: dict(zip(results, session.run(results, dict(given)), strict=True))
    import torch

    torch.set_num_threads(1)
    arguments = [each["name"] for each in metadata["inputs"]] + [each["input"] for each in metadata["memory"]]
    arguments += [each["name"] for each in metadata["noise"]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        function: Any = torch.jit.load(str(path)) if runtime == "torchscript" else torch.export.load(str(path)).module()

    def run(given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        with torch.no_grad():
            made = function(*(torch.from_numpy(np.ascontiguousarray(given[name])) for name in arguments))
        parts = made if isinstance(made, tuple | list) else (made,)
        return {name: part.numpy() for name, part in zip(results, parts, strict=True)}

    return run


def serve(policy: Policy, given: BinaryIO, answers: BinaryIO) -> None:
    """Answer messages, npz files with their length before them, until there are no more."""
    while len(head := given.read(8)) == 8:
        with np.load(io.BytesIO(given.read(struct.unpack("<q", head)[0])), allow_pickle=False) as message:
            arrays = dict(message)
        first = arrays.pop("is_first")
        made = io.BytesIO()
        np.savez(made, allow_pickle=False, action=policy.act(arrays, first))
        answers.write(struct.pack("<q", made.tell()) + made.getvalue())
        answers.flush()


def main() -> None:
    """Serve, or act once on zeros."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder")
    parser.add_argument("--runtime", choices=RUNTIMES)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--serve", action="store_true")
    words = parser.parse_args()
    policy = Policy(words.folder, words.runtime, words.seed)
    if words.serve:
        serve(policy, sys.stdin.buffer, sys.stdout.buffer)
        return
    steps = int(bool(policy.metadata["chunk"]))  # which an input of several observations has before the rest
    inputs = policy.metadata["inputs"]
    print(policy.act({each["name"]: np.zeros((1, *each["shape"][steps:]), each["dtype"]) for each in inputs}))


if __name__ == "__main__":
    main()

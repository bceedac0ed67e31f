"""Whether an exported file earns what the policy earns: it acts in a process of its own that knows nothing of Etude."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from etude.acting.policy import ActResult, Mode, Policy, State
from etude.config.schema import Config
from etude.deploy.export import RUNNER
from etude.deploy.metadata import read_metadata
from etude.environments.spaces import first_value
from etude.environments.vector import Observation, VectorEnvironment
from etude.errors import EtudeError
from etude.using.evaluate import measure
from etude.using.stored_policy import OpenPolicy

_SURELY = 3.0
"""Standard errors: episodes of one policy differ by less."""
_ALIKE = 1e-3
"""Of the return: what rounding alone may do to it."""
_WITHOUT_ETUDE = """
import runpy, sys
sys.modules["etude"] = None
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@dataclass(frozen=True)
class Replay:
    """Returns of the same episodes, of the policy and of its file."""

    runtime: str
    own: float
    exported: float
    episodes: int
    allowed: float
    """How far apart the means may be."""

    @property
    def is_alike(self) -> bool:
        """Whether they may be of one policy."""
        return abs(self.own - self.exported) <= self.allowed


def replay(opened: OpenPolicy, folder: Path, episodes: int) -> Replay:
    """Evaluate a policy and its file on the same episodes."""
    metadata = read_metadata(folder)
    runtime = next((name for name in ("onnx", "torchscript", "torch") if name in metadata.files), None)
    if runtime is None:
        raise EtudeError(f"{folder}: there is no file that can be replayed")
    mode: Any = metadata.acts
    own = measure(opened, episodes, mode=mode)[mode].returns
    with _serving(folder, runtime) as process:
        config = opened.config
        exported = measure(_Exported(folder.name, config, process=process), episodes, mode=mode)[mode].returns
    apart = exported - own
    error = float(apart.std(ddof=1)) / len(apart) ** 0.5 if len(apart) > 1 else 0.0
    mean = float(own.mean())
    return Replay(runtime, mean, float(exported.mean()), len(own), max(_ALIKE * max(1.0, abs(mean)), _SURELY * error))


@dataclass(frozen=True, kw_only=True)
class _Exported(OpenPolicy):
    process: subprocess.Popen[bytes]

    def __init__(self, name: str, config: Config, *, process: subprocess.Popen[bytes]) -> None:
        super().__init__(name, config)
        object.__setattr__(self, "process", process)

    def build(self, environment: VectorEnvironment) -> Policy:
        """Return what acts by the other process."""
        return _Asking(self.process, first_value(environment.single_action_space))


class _Asking(Policy):
    """Sends what is seen to the process, and does what it answers."""

    def __init__(self, process: subprocess.Popen[bytes], first: Any) -> None:
        self._process, self._first = process, first

    def act(self, observation: Observation, state: State, is_first: Tensor, *, mode: Mode, generator: Generator) -> ActResult:
        """Return the file's action. Actions of ours count from 0, the file's as the task does."""
        given, answers = self._process.stdin, self._process.stdout
        assert given is not None
        assert answers is not None
        parts = observation if isinstance(observation, dict) else {"observation": observation}
        arrays: dict[str, np.ndarray] = {name: part.numpy() for name, part in parts.items()}
        message = io.BytesIO()
        np.savez(message, allow_pickle=False, is_first=is_first.numpy(), **arrays)
        try:
            given.write(struct.pack("<q", message.tell()) + message.getvalue())
            given.flush()
            (length,) = struct.unpack("<q", answers.read(8))
        except (OSError, struct.error):
            raise EtudeError(f"the process that replays has ended: {_last_words(self._process)}") from None
        with np.load(io.BytesIO(answers.read(length)), allow_pickle=False) as answer:
            action = answer["action"]
        return ActResult(torch.from_numpy(action - self._first if np.any(self._first) else action))

    def state_dict(self) -> dict[str, Any]:
        """Nothing of it is here."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Nothing of it is here."""


@contextmanager
def _serving(folder: Path, runtime: str) -> Iterator[subprocess.Popen[bytes]]:
    words = ["-c", _WITHOUT_ETUDE, str(folder.absolute() / RUNNER), str(folder.absolute()), "--serve", "--runtime", runtime]
    # -P: the modules beside the script are none of its own.
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-P", *words], cwd=folder, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        try:
            yield process
        finally:
            process.kill()


def _last_words(process: subprocess.Popen[bytes]) -> str:
    _, said = process.communicate(timeout=60)
    lines = said.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"it said nothing (code {process.returncode})"

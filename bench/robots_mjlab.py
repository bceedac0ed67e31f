"""mjlab's own Go1 task, learnt by rsl_rl's runner: one JSON line with its speed. Run by a python that has mjlab 1.6.

python bench/robots_mjlab.py --num-envs 4096 --iterations 30 --warm-up 10
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
from abc import ABCMeta
from collections.abc import Sequence
from dataclasses import asdict
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from measurement import versions
from robots_clock import Clock, summary

TASK = "Mjlab-Velocity-Flat-Unitree-Go1"
ONLY_FOR_LOOKING = (
    "wandb", "viser", "mjviser", "trimesh", "mediapy", "imageio_ffmpeg", "onnx", "onnxscript", "git", "scipy", "torchrunx",
    "tqdm", "tyro", "OpenGL", "torchvision",
)  # fmt: skip
"""What mjlab imports for viewers, videos, logs, exports, command lines and rough terrain: nothing of it runs here."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Train and print what it took."""
    options = _parser().parse_args(arguments)
    prepare_imports()
    sys.stdout, answer = sys.stderr, sys.stdout  # mjlab prints its tables
    answer.write(json.dumps(measure(options)) + "\n")
    return 0


def prepare_imports() -> None:
    """Let mjlab be imported without a display and without what only looking needs."""
    os.environ.setdefault("MUJOCO_GL", "disable")
    os.environ.setdefault("MJLAB_WARP_QUIET", "1")
    sys.meta_path.append(_Absent())
    sys.modules["torch.utils.tensorboard"] = _Nothing("torch.utils.tensorboard")  # there, but fails without tensorboard


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Do what mjlab's train script does, without its log directory."""
    import mjlab.tasks  # noqa: F401 # registers the tasks
    import torch
    from mjlab.envs import ManagerBasedRlEnv
    from mjlab.rl import RslRlVecEnvWrapper
    from mjlab.tasks.registry import load_env_cfg, load_rl_cfg, load_runner_cls
    from mjlab.utils.torch import configure_torch_backends

    device = options.device or ("cuda:0" if torch.cuda.is_available() else "cpu")
    configure_torch_backends()
    task, learner = load_env_cfg(TASK), load_rl_cfg(TASK)
    task.scene.num_envs, task.seed, learner.seed = options.num_envs, options.seed, options.seed
    environment = RslRlVecEnvWrapper(ManagerBasedRlEnv(cfg=task, device=device), clip_actions=learner.clip_actions)
    runner_class = load_runner_cls(TASK)
    assert runner_class is not None
    runner = runner_class(environment, asdict(learner), None, device)
    clock = Clock(device)
    _tick_after_iterations(runner, clock)
    runner.learn(num_learning_iterations=options.warm_up + options.iterations, init_at_random_ep_len=True)
    steps = options.num_envs * learner.num_steps_per_env
    return {
        "side": "mjlab",
        "robots": options.num_envs,
        **summary(clock.marks, options.warm_up, steps),
        "versions": versions("mjlab", "rsl-rl-lib", "mujoco", "mujoco-warp", "warp-lang", "torch"),
        "device": torch.cuda.get_device_name() if device.startswith("cuda") else "cpu",
    }


def _tick_after_iterations(runner: Any, clock: Clock) -> None:
    """Note the clock where the runner reports an iteration; how it splits into collecting and learning is its own word."""
    report = runner.logger.log

    def log(*arguments: Any, **values: Any) -> None:
        report(*arguments, **values)
        clock.tick(values["collect_time"], values["learn_time"])

    runner.logger.log = log


class _Absent:
    """Finds modules that are not installed and not needed: whatever is asked of them is there, and does nothing."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Offer an empty module for a package of the list."""
        return ModuleSpec(name, self, is_package=True) if name.partition(".")[0] in ONLY_FOR_LOOKING else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Make it."""
        return _Nothing(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to run."""


def _anything(name: str) -> Any:
    """Return a class that takes any arguments and has any attribute: another one like it."""
    if name.startswith("__"):
        raise AttributeError(name)
    return _Anything(name, (), {"__init__": lambda self, *arguments, **options: None})


class _Anything(ABCMeta):  # mixed in with abstract classes
    def __getattr__(cls, name: str) -> Any:
        return _anything(name)


class _Nothing(ModuleType):
    def __getattr__(self, name: str) -> Any:
        return _anything(name)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-envs", type=int, default=4096)
    parser.add_argument("--iterations", type=int, default=30, help="iterations that are timed")
    parser.add_argument("--warm-up", type=int, default=10, help="iterations before them")
    parser.add_argument("--device", help="default: the first GPU, if there is one")
    parser.add_argument("--seed", type=int, default=1)
    return parser


if __name__ == "__main__":
    assert importlib.util.find_spec("mjlab"), "mjlab is not on this python's path"
    sys.exit(main())

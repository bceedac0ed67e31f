"""Which sides are measured on which task."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import tasks
from tasks import PPOTask, ReplayTask, SteppingTask, Task


@dataclass(frozen=True)
class Side:
    """One contender: a module of `sides` and what it is asked to do."""

    name: str
    """Etude's own begin with `etude`."""
    label: str
    module: str
    options: dict[str, Any] = field(default_factory=dict)
    peers: bool = False
    """Whether it needs the peers' python."""
    threads: Literal["one", "all", "better"] = "one"
    """CPU threads for its tensors or its simulator; `better` measures one and all, and the faster counts."""

    @property
    def ours(self) -> bool:
        """Whether it is Etude."""
        return self.name.startswith("etude")

    def thread_counts(self, cpus: int) -> tuple[int, ...]:
        """Return the thread counts to measure it with."""
        wanted = {"one": (1,), "all": (cpus,), "better": (1, cpus)}[self.threads]
        return tuple(dict.fromkeys(wanted))


@dataclass(frozen=True)
class Bench:
    """A task and those who do it, in the order in which they take turns."""

    name: str
    group: str
    unit: str
    task: Task
    sides: tuple[Side, ...]

    def with_sides(self, names: Iterable[str]) -> Bench:
        """Return the bench with only the sides named."""
        wanted = set(names)
        return replace(self, sides=tuple(side for side in self.sides if side.name in wanted))


_COMPILED = Side("etude-compiled", "Etude, compiled", "etude_ppo", {"mode": "on"})
_NUMPY = Side("etude-numpy", "Etude, NumPy", "etude_ppo", {"mode": "numpy"})
_EAGER = Side("etude-eager", "Etude, eager", "etude_ppo", {"mode": "off"})
_PLAIN = Side("plain", "plain PyTorch loop", "plain_ppo")
_SB3 = Side("sb3", "Stable-Baselines3", "stable_baselines_ppo", {"library": "sb3"}, peers=True, threads="better")
_SBX = Side("sbx", "SBX (JAX)", "stable_baselines_ppo", {"library": "sbx"}, peers=True, threads="better")
_NATIVE = Side("etude-native", "Etude, native", "etude_stepping", {"environment": {"backend": "native"}}, threads="all")
_GYMNASIUM = Side("etude-gymnasium", "Etude, Gymnasium's classes", "etude_stepping", {"environment": {"backend": "gymnasium"}})
_WORKERS = Side("etude-workers", "Etude, 2 workers", "etude_stepping", {"environment": {"backend": "gymnasium", "workers": 2}})
_SYNC = Side("sync", "Gymnasium SyncVectorEnv", "gymnasium_stepping", {"is_async": False})
_ASYNC = Side("async", "Gymnasium AsyncVectorEnv", "gymnasium_stepping", {"is_async": True})
_BARE = Side("bare", "its own package, one after the other", "bare_stepping")
_ALE = Side("ale", "ALE's AtariVectorEnv", "ale_stepping", threads="all")
_ENVPOOL = Side("envpool", "EnvPool", "envpool_stepping", peers=True, threads="all")
_PHYSICS = Side("mujoco-batch", "mujoco.batch alone (a ceiling)", "mujoco_batch_stepping", threads="all")


def _ppo(name: str, task: PPOTask) -> Bench:
    return Bench(name, "ppo", "env steps/s", task, (_COMPILED, _NUMPY, _EAGER, _PLAIN, _SB3, _SBX))


def _replay(name: str, task: ReplayTask) -> Bench:
    ours = [replace(_COMPILED, module="etude_replay", threads="better"), replace(_EAGER, module="etude_replay")]
    if task.algorithm == "dqn":
        ours.insert(1, replace(_NUMPY, module="etude_replay"))
    theirs = (replace(side, module="stable_baselines_replay") for side in (_SB3, _SBX))
    return Bench(name, "replay", "env steps/s", task, (*ours, *theirs))


def _collect(name: str, task: PPOTask) -> Bench:
    return Bench(name, "collect", "env steps/s", task, (replace(_EAGER, name="etude", label="Etude"), _PLAIN, _SB3, _SBX))


def _step(name: str, task: SteppingTask, *more: Side) -> Bench:
    return Bench(name, "envs", "env steps/s", task, (_NATIVE, _GYMNASIUM, _SYNC, _ENVPOOL, *more))


def _family(name: str, task: SteppingTask, *ours: Side) -> tuple[Bench, Bench]:
    """Eight copies, and one, where whatever surrounds a step weighs most."""
    sides = (*ours, _BARE)
    one = replace(task, num_envs=1)
    return Bench(name, "envs", "env steps/s", task, sides), Bench(f"{name}-1", "envs", "env steps/s", one, sides)


def _loader(strategy: str, label: str, ours: bool = False) -> Side:
    return Side("etude" if ours else strategy, label, "loaders", {"strategy": strategy})


BENCHES = (
    _ppo("ppo-cartpole", tasks.PPO_CARTPOLE),
    _ppo("ppo-halfcheetah", tasks.PPO_HALFCHEETAH),
    _replay("dqn-cartpole", tasks.DQN_CARTPOLE),
    _replay("sac-halfcheetah", tasks.SAC_HALFCHEETAH),
    _replay("td3-halfcheetah", tasks.TD3_HALFCHEETAH),
    _step("step-cartpole", tasks.STEP_CARTPOLE),
    _step("step-halfcheetah", tasks.STEP_HALFCHEETAH, _PHYSICS, _WORKERS, _ASYNC),
    *_family("dmc-cheetah", tasks.STEP_DMC_CHEETAH, replace(_NATIVE, threads="one"), _GYMNASIUM),
    *_family("dmc-cartpole", tasks.STEP_DMC_CARTPOLE, replace(_NATIVE, threads="one"), _GYMNASIUM),
    *_family("minigrid", tasks.STEP_MINIGRID, _GYMNASIUM),
    Bench(
        "atari-pong",
        "envs",
        "env steps/s",
        tasks.STEP_PONG,
        (replace(_NATIVE, name="etude", label="Etude"), replace(_GYMNASIUM, name="etude-exact", label="Etude, exact"), _ALE),
    ),
    _collect("collect-cartpole", tasks.COLLECT_CARTPOLE),
    _collect("collect-halfcheetah", tasks.COLLECT_HALFCHEETAH),
    Bench(
        "loaders",
        "loaders",
        "rows/s",
        tasks.LOADERS,
        (
            _loader("permutation", "Etude, index permutation", ours=True),
            _loader("numpy-permutation", "NumPy permutation, as SB3's buffer"),
            _loader("data-loader-by-batch", "torch DataLoader, whole batches"),
            _loader("data-loader", "torch DataLoader, rows collated"),
        ),
    ),
)
GROUPS = tuple(dict.fromkeys(bench.group for bench in BENCHES))
CHOICES = ("all", *GROUPS, *(bench.name for bench in BENCHES))


def choose(names: Iterable[str], *, quick: bool) -> list[Bench]:
    """Return the benches that `names` mean: all, a group, or a bench; in quick sizes if asked."""
    wanted = set(names) or {"all"}
    unknown = wanted.difference(CHOICES)
    if unknown:
        raise ValueError(f"no bench or group '{sorted(unknown)[0]}'; there are: {', '.join(CHOICES)}")
    chosen = [bench for bench in BENCHES if wanted & {"all", bench.group, bench.name}]
    return [replace(bench, task=tasks.quick(bench.task)) for bench in chosen] if quick else chosen

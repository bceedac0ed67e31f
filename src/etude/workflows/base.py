"""The workflow contract: an algorithm is `act` and `learn`; everything else has a default."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import proxy

import gymnasium
import torch
from torch import Generator, Tensor, nn

from etude.acting.actor import Actor
from etude.acting.policy import ActResult as ActResult
from etude.acting.policy import Acts, ArrayTwin, Policy
from etude.acting.policy import Mode as Mode
from etude.acting.policy import State as State
from etude.components.networks.modes import evaluating, mode_dependent
from etude.components.networks.spec import NetworkSpec as NetworkSpec
from etude.compute.accelerate import REPAYS_COMPILING, WRITTEN_REPAYS_COMPILING, is_captured, is_compiled
from etude.compute.accelerate import Mode as ExecutionMode
from etude.compute.captured import Captured
from etude.compute.kept_code import key_of
from etude.compute.trees import storable
from etude.compute.weak_methods import weakly
from etude.compute.world import ALONE, World
from etude.config.algorithm import AlgorithmSettings
from etude.config.constraints import PositiveInt
from etude.config.hooks import hook as hook
from etude.config.schedules import Moment, Schedule, Stretch
from etude.config.validate import to_plain
from etude.environments.vector import Observation
from etude.errors import UserError
from etude.learning.compiled import Keeping
from etude.learning.execute import Before, Executor, Table, make_executor
from etude.learning.update import Update
from etude.workflows.hooks import HookResult as HookResult
from etude.workflows.hooks import LeftAmidError as LeftAmidError
from etude.workflows.hooks import Phase as Phase
from etude.workflows.metrics import Metrics, MetricSums
from etude.workflows.own_policy import WorkflowPolicy, remembered, remembering
from etude.workflows.part_state import has_state, load_state, state_of

if TYPE_CHECKING:
    from etude.buffers.base import Batch, Buffer, ColumnSpecs
    from etude.compute.random_streams import RandomStreams
    from etude.config.schema import Config
    from etude.workflows.collector import Collector


USUAL_BATCH = 256
"""Transitions per gradient step of an algorithm that does not say."""


@dataclass(frozen=True)
class AlgorithmConfig(AlgorithmSettings):
    """Settings every algorithm may have; extend it with your own."""

    name: str = ""
    """The registered name of the algorithm, or its import path."""
    batch_size: PositiveInt = USUAL_BATCH
    """Transitions per gradient step, where they are sampled."""
    rollout_steps: PositiveInt = 128
    """Vector steps per rollout, where experience is used once and dropped."""


class Components(SimpleNamespace):
    """The parts a workflow works with, by role: `components.actor`."""

    def __getattr__(self, role: str) -> Any:
        if role.startswith("__"):  # Python's own, which asks whether there is one
            raise AttributeError(role)
        raise UserError(f"there is no component '{role}'; there are: {', '.join(sorted(vars(self))) or 'none'}")


@dataclass(frozen=True)
class Context:
    """Everything a workflow is given; nothing in it can be rebound."""

    config: Config
    device: torch.device
    observation_space: gymnasium.Space[Any]
    action_space: gymnasium.Space[Any]
    num_envs: int
    streams: RandomStreams
    components: Components = field(default_factory=Components)
    buffers: Mapping[str, Buffer] = field(default_factory=dict)
    mode: ExecutionMode = "eager"
    """How updates run: eager, compiled, or captured as a CUDA graph."""
    collector: Collector | None = None
    """None where a policy is loaded without an environment to train in."""
    world: World = ALONE
    """The processes that train together. `num_envs` and batches are this one's share."""
    action_repeat: int = 1
    """Environment steps per decision, where there is no collector to ask."""


class Workflow(Acts):
    """An algorithm. It never loops over training, saves, logs, evaluates or reads the clock."""

    Config: ClassVar[type] = AlgorithmConfig
    """The dataclass that declares this algorithm's hyper-parameters, `name` among them."""
    evaluation_mode: ClassVar[Mode] = "greedy"
    """How this algorithm's policies are measured unless the user says otherwise."""
    default_num_envs: ClassVar[int | None] = None
    """How many copies of an environment it learns from unless the user or a preset says otherwise."""

    settings: Any
    """The algorithm's settings, a `Config`."""
    learns_from: ClassVar[type] = object
    """The buffers that its updates can read, as their common class; the default takes any."""
    supports_ranks: ClassVar[bool] = False
    """Whether several processes may train it together: all that it learns by goes through the executor or the world."""
    supports_samplers: ClassVar[bool] = False
    """Whether other processes may collect for it: acting reads nothing but what `acting_state` says."""
    of_rank: ClassVar[tuple[str, ...]] = ()
    """Attributes whose state differs from process to process, such as what each environment's rewards add up to."""
    compiles_on_gpu: ClassVar[bool] = False
    """Whether long runs on a GPU are compiled by themselves, and not only captured: where that halves the time of an update."""
    fixed_schedules: ClassVar[tuple[str, ...]] = ()
    """Scheduled hyper-parameters that can't be changed while it trains, because something is built by whether they move."""
    holds_others: ClassVar[tuple[str, ...]] = ()
    """Attributes that only hold parts which other attributes are, and are no state of their own."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Let the policies of any algorithm remember what they were made of, so that each can be saved by itself."""
        super().__init_subclass__(**options)
        if "policy" in vars(cls):
            cls.policy = remembering(cls.policy)  # type: ignore[method-assign] # it takes the same

    def __init__(self) -> None:
        self.metrics = MetricSums()
        self._hyper: dict[str, Tensor] = {}
        self._hyper_written: dict[str, float] = {}
        self._schedules: dict[str, Schedule] = {}
        self._mode_dependent: list[nn.Module] | None = None
        self._explorer: Actor | None = None
        self._executor: Executor

    # ---- what the config needs to know ------------------------------------------------------------------------------

    @classmethod
    def default_networks(cls) -> dict[str, Any]:
        """Return the settings of the network of each role, unless the user says otherwise."""
        return {}

    @classmethod
    def default_buffers(cls) -> dict[str, Any]:
        """Return the named buffers this algorithm uses, as {name: config}."""
        return {"rollout": {"type": "rollout"}}

    @classmethod
    def default_phases(cls, config: Config) -> Sequence[Mapping[str, Any]]:
        """Return the curriculum used when the user writes none: collect a rollout (or one step), learn, repeat."""
        collect = {"collect": {"count": config.algorithm.rollout_steps or 1}}
        return [{"name": "train", "hooks": [collect, "update"]}]

    @classmethod
    def gradient_steps(cls, config: Config) -> int:
        """Return how many gradient steps the whole run takes, to judge whether compiling pays; 0 if it can't compile."""
        return 0

    @classmethod
    def repays_compiling(cls, config: Config) -> int:
        """Return from how many gradient steps on a run gains time by compiling, which it then does by itself."""
        return WRITTEN_REPAYS_COMPILING if cls.is_written(config) else REPAYS_COMPILING

    @classmethod
    def is_written(cls, config: Config) -> bool:
        """Return whether its updates are written out in NumPy too, as far as settings tell."""
        return False

    @classmethod
    def require_ranks(cls, name: str) -> None:
        """Refuse to be trained by several processes, where that is not supported."""
        if not cls.supports_ranks:
            raise UserError(f"algorithm.name={name}: can't be trained by several processes; use one")

    @classmethod
    def remarks(cls, config: Config) -> list[str]:
        """Return what a user would want to know about settings that do less than they say."""
        return []

    @classmethod
    def roles(
        cls, config: Config, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]
    ) -> dict[str, NetworkSpec]:
        """Return what the network of each role reads and puts out, and how it begins; all else is for the user to choose."""
        return {}

    @classmethod
    def extra_columns(
        cls, config: Config, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]
    ) -> ColumnSpecs:
        """Return the columns that `act` adds to each transition, as {name: (shape, type)}, if they are large: latents.

        A replay counts them in what it says it will take, and in what `max_bytes` allows.
        """
        return {}

    @classmethod  # every space will do unless an algorithm says otherwise
    def check_spaces(cls, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]) -> None:
        """Raise UserError if this algorithm can't work with these spaces; by default any will do."""

    # ---- what an algorithm is -----------------------------------------------------------------------------------------

    def initialize(self, context: Context) -> None:
        """Bind the settings, and the components by name: `self.actor`."""
        self.context, self.settings = context, context.config.algorithm
        self.metrics.skips_non_finite = context.config.logging.nan == "skip"
        if context.world.size > 1:
            self.require_ranks(self.settings.name)
        specified = self.roles(context.config, context.observation_space, context.action_space)
        for role in {**vars(context.components), **specified}:
            setattr(self, role, getattr(context.components, role))
        self.now = Moment(0, context.config.training.total_steps)

    @abstractmethod
    def learn(self, batch: Batch) -> Metrics:
        """Take one gradient step on a batch."""

    # ---- hooks ----------------------------------------------------------------------------------------------------------

    @hook(collects=True, counts_steps=True)
    def collect(self, phase: Phase, count: int) -> HookResult:
        """Take `count` vector steps into the phase's buffer."""
        collector = self.context.collector
        assert collector is not None, "collecting needs an environment"
        self.set_schedules(phase)
        with evaluating(self._switched()):
            decisions = collector.collect(self.explorer(), self.buffer(phase), count)
        return HookResult(decisions=decisions, env_steps=decisions * collector.environment.action_repeat)

    @hook
    def update(self, phase: Phase, count: int) -> HookResult:
        """Take up to `count` gradient steps on batches from the phase's buffer, while it is ready.

        A rollout is one batch (T, N, ...) and is used once; from anything else `batch_size` rows are drawn each time.
        """
        buffer = self.buffer(phase)
        before = self.scheduled_before(phase)
        batch_size = int(self.settings.batch_size or USUAL_BATCH)
        steps = 0
        while steps < count and buffer.ready:
            if before is not None:
                before(steps)
            batch = buffer.draw(batch_size, self.context.streams["buffer"])
            self.metrics.add(_named(self.learn(batch)))
            steps += 1
        return HookResult(updates=steps)

    def policy(self) -> Policy:
        """Return what leaves the lab: by default this workflow's own `act`, frozen."""
        return remembered(WorkflowPolicy(self), self)

    def media(self, generator: Generator) -> Mapping[str, Tensor]:
        """Return what is worth seeing of what was learnt, by name: videos (T, H, W, 3) and pictures (H, W, 3), of bytes.

        Called now and then at rows (`logging.media_every_steps`). It may look at everything and change nothing: random numbers
        are the generator's, and a replay is looked at by `peek`.
        """
        return {}

    def executor(self, update: Update) -> Executor:
        """Return what takes these updates, in the way that the config chooses."""
        stages = [stage.mapped(partial(weakly, self)) for stage in update.stages]
        update = replace(update, stages=stages, skip_non_finite=self.context.config.training.on_nan == "skip")
        modules = {name: part for name, part in vars(self).items() if isinstance(part, nn.Module)}
        asks = any("noise" in stage.takes() for stage in update.stages)
        generator = self.context.streams["noise"] if asks else None
        world = self.context.world
        mode, key = self.context.mode, self.code_key(self.context.config)
        keeping = None
        if is_compiled(mode) and key is not None and all(map(_is_known, modules.values())):
            keeping = Keeping(key, weakly(self, self._read_by_losses))
        return make_executor(update, modules, mode=mode, generator=generator, world=world, keeping=keeping)

    @classmethod
    def code_key(cls, config: Config) -> str | None:
        """Return the key under which this machine keeps compiled updates of a config; None for code that is not Etude's own."""
        if not cls.__module__.startswith("etude."):
            return None
        experiment = config.experiment
        device, threads = experiment.device, experiment.threads or 1
        plain = to_plain({"algorithm": config.algorithm, "network": dict(config.network), "environment": config.environment})
        return key_of([cls.__qualname__, plain, device, threads, experiment.tf32, config.training.on_nan])

    def _read_by_losses(self) -> dict[str, Tensor]:
        """Return the tensors of this algorithm that are neither weights nor moments, by name."""
        own = {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}
        nested = {
            f"{name}.{key}": value for name, part in vars(self).items() if isinstance(part, dict) for key, value in part.items()
        }
        return {**own, **{name: value for name, value in nested.items() if isinstance(value, Tensor)}}

    def accelerated(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of tensors as the config chooses to run such functions: captured where updates are."""
        return Captured(function) if is_captured(self.context.mode) else function

    @property
    def compiles(self) -> bool:
        """Whether this run compiles what it computes often."""
        return is_compiled(self.context.mode)

    def scheduled_before(self, phase: Phase) -> Before | None:
        """Set scheduled values for the updates at hand; where these move from one to the next, return what sets each one's."""
        self.set_schedules(phase)
        return (lambda taken: self.set_schedules(phase.after(updates=taken))) if self.moves_by_update() else None

    def note(self, tables: Mapping[str, Table]) -> None:
        """Add the metrics of updates to those of the next row, one update after the other."""
        for stage, table in tables.items():
            self.metrics.add_rows(table.values, table.keys, group=stage or "update")

    def explorer(self) -> Actor:
        """Return what explores as this workflow says, captured where updates are."""
        if self._explorer is None:
            mode = self.context.mode
            captured, stream = is_captured(mode), self.context.streams["action"]
            self._explorer = Actor(proxy(self), "explore", stream, captured=captured, compiles=self.compiles)
        return self._explorer

    # ---- acting beside the learner ------------------------------------------------------------------------------------

    def acting_state(self) -> dict[str, Any]:
        """Return all that acting reads and learning changes, for processes that act with it (`environment.samplers`)."""
        held = [[buffer.size, getattr(buffer, "capacity", 0)] for buffer in self.context.buffers.values()]
        now = storable([*self.now])
        return {"policy": self.policy().state_dict(), "scheduled": dict(self._hyper), "now": now, "held": held}

    def load_acting_state(self, state: Mapping[str, Any], decisions: int) -> None:
        """Act as the workflow does whose state this is, from so many decisions of the run on."""
        self.policy().load_state_dict(state["policy"])
        for name, value in state["scheduled"].items():
            self.scheduled(name).copy_(value)
        *counts, stretch = state["now"]
        self.now = Moment._make([*counts, stretch and Stretch._make(stretch)])

    # ---- support for hooks ------------------------------------------------------------------------------------------------

    def buffer(self, phase: Phase) -> Buffer:
        """Return the buffer a phase names, or the only one there is."""
        buffers = self.context.buffers
        name = next(iter(buffers)) if phase.buffer is None and len(buffers) == 1 else phase.buffer
        if name is None or name not in buffers:
            raise UserError(f"phase '{phase.name}' names buffer '{name}'; there are: {', '.join(buffers)}")
        return buffers[name]

    def scheduled(self, name: str) -> Tensor:
        """Return the tensor that holds a scheduled hyper-parameter, such as the learning rate; made on first use."""
        if name not in self._hyper:
            self._schedules[name] = self._schedule(name)
            self._hyper[name] = torch.tensor(self._schedules[name].start, device=self.context.device)
        return self._hyper[name]

    def set_schedules(self, phase: Phase) -> None:
        """Write the value of every scheduled hyper-parameter in use: a pure function of how far the run is."""
        self.now = phase.now
        for name, tensor in self._hyper.items():
            value = self._schedules[name].at(self.now)
            if self._hyper_written.get(name) != value:  # most stay what they are, and a write to a GPU costs ten microseconds
                tensor.fill_(value)
                self._hyper_written[name] = value
        for buffer in self.context.buffers.values():
            buffer.set_schedules(self.now)

    def moves_by_update(self) -> bool:
        """Whether a scheduled value moves from one update to the next, in the phase that schedules were last set for."""
        owners = [self._schedules, *(buffer.schedules for buffer in self.context.buffers.values())]
        return any(schedule.moves_by_update(self.now) for schedules in owners for schedule in schedules.values())

    def live_settings(self) -> list[str]:
        """Return the scheduled hyper-parameters that may be changed while it trains; another one is built into something."""
        return [name for name in self._schedules if name not in self.fixed_schedules]

    def change_settings(self, config: Config) -> None:
        """Go on by the schedules of another config, which differs in `live_settings` alone."""
        self.context = replace(self.context, config=config)
        self.settings = config.algorithm
        self._schedules = {name: self._schedule(name) for name in self._schedules}

    def hyper_parameters(self) -> dict[str, float]:
        """Return the current value of each scheduled hyper-parameter, for the log."""
        return {name: float(tensor.to("cpu")) for name, tensor in self._hyper.items()}

    def _switched(self) -> list[nn.Module]:
        """Return what in its networks is in evaluation mode while it collects; looked for once."""
        if self._mode_dependent is None:
            self._mode_dependent = mode_dependent(*(part for part in vars(self).values() if isinstance(part, nn.Module)))
        return self._mode_dependent

    def _schedule(self, name: str) -> Schedule:
        return Schedule.parse(getattr(self.context.config.algorithm, name))

    # ---- state ------------------------------------------------------------------------------------------------------------

    def stateful_parts(self) -> dict[str, Any]:
        """Return the attributes that are part of a checkpoint: modules, optimisers, tensors, anything with a state_dict."""
        skipped = ("context", *self.holds_others)
        parts = {name: value for name, value in vars(self).items() if name not in skipped and has_state(value)}
        return dict(sorted(parts.items()))

    def state_dict(self) -> dict[str, Any]:
        """Return the state of every stateful part; extend it for counters of your own."""
        state = {name: state_of(part) for name, part in self.stateful_parts().items()}
        return {**state, "_hyper": dict(self._hyper)}

    def rank_state_dict(self) -> dict[str, Any]:
        """Return the state of what is this process's own."""
        own = (*self.of_rank, "metrics")
        return {name: state_of(part) for name, part in self.stateful_parts().items() if name in own}

    def load_rank_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what is this process's own."""
        for name, saved in state.items():
            load_state(getattr(self, name), saved)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore every stateful part in place."""
        if "_updates" in state:  # of before, when algorithms counted updates themselves
            state = {**state, "_executor": {"taken": state["_updates"]}}
        for name, part in self.stateful_parts().items():
            if name in state or name != "_executor":  # those that had nothing to count have saved nothing
                load_state(part, state[name])
        self._hyper_written.clear()
        for name, value in state["_hyper"].items():
            self.scheduled(name).copy_(value)


def _is_known(part: nn.Module) -> bool:
    """Whether all of a network is Etude's or torch's, whose code is part of the key."""
    return all(type(module).__module__.startswith(("etude.", "torch.")) for module in part.modules())


def _named(metrics: Metrics) -> Metrics:
    """Give metrics without a namespace the one of training."""
    return {name if "/" in name else f"train/{name}": value for name, value in metrics.items()}


class PolicyWorkflow(Workflow):
    """An algorithm that acts as its policy does, `_policy`, which it makes when it is initialised."""

    _policy: Any
    """A `Policy`, of the algorithm's own kind."""

    def initial_state(self, n: int) -> State:
        """Return the policy's state at the start of n episodes."""
        return self._policy.initial_state(n)

    def act(self, observation: Observation, state: State, is_first: Tensor, *, mode: Mode, generator: Generator) -> ActResult:
        """Act as the policy does."""
        return self._policy.act(observation, state, is_first, mode=mode, generator=generator)

    def array_twin(self) -> ArrayTwin | None:
        """That of the policy."""
        return self._policy.array_twin()

    @property
    def capturable(self) -> bool:
        """Where the policy's is."""
        return self._policy.capturable

    def policy(self) -> Policy:
        """Return the policy: normaliser, networks and head, all that acting needs."""
        return self._policy

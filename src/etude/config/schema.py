"""Every setting of a run, with its type, its default and what it does.

These dataclasses are the single source of truth: YAML and the command line only override them. Settings of an algorithm,
network or buffer are declared beside its code and found through the registry.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from etude.config.constraints import Bounds, Component, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from etude.config.robots import RobotConfig
from etude.config.space_settings import Space

SCHEMA_VERSION = 2


@dataclass(frozen=True)
class ExperimentConfig:
    """Who this run is."""

    name: str | None = None
    """A name for people; the run's id is made from it. Default: environment and algorithm."""
    project: str | None = None
    """What the run belongs to. Default: the config file's name, or the environment."""
    group: str | None = None
    """Runs that belong together, such as the seeds of one experiment."""
    tags: tuple[str, ...] = ()
    """Words to find the run by."""
    init_from: str | None = None
    """Begin with the networks of another run: RUN, RUN:CHECKPOINT, a path, or wandb:ENTITY/PROJECT/NAME:VERSION."""
    seed: NonNegativeInt = 1
    """The root of every random stream: initial weights, actions, minibatches, environments, evaluation."""
    device: str = "auto"
    """Where networks live: cpu, cuda, cuda:1, mps, or auto (cuda, then mps, then cpu). Of a list, such as cuda:0,cuda:1,
    each process of a machine takes its own; auto and cuda give every process a GPU, in turn."""
    processes: PositiveInt = 1
    """Processes that train the run together, each with environment.num_envs copies and batches of its own (distributed.md)."""
    memory_fraction: Annotated[float, Bounds(low=0, high=1, low_open=True)] | None = None
    """The share of the GPU's memory this run may take, for GPUs that are shared. Default: no limit, and only what is needed."""
    threads: PositiveInt | None = None
    """CPU threads for tensor work. More than one pays only for large networks and idle cores. Default: 1."""
    compile: Literal["auto", "on", "off", "capture", "numpy"] = "auto"
    """Run updates compiled (on), which on CUDA are captured as graphs too; capture does that alone; numpy: by gradients that
    are written out, for small networks on the CPU. auto: capture on CUDA, and compiled if the run is long enough to repay it:
    on the CPU, and for world models on CUDA; else in NumPy on the CPU, where that can be."""
    tf32: bool = False
    """On a GPU: round the factors of matrix products to 10 bits, which makes large networks several times as fast."""
    deterministic: bool = False
    """Refuse operations whose result can differ between two runs; the run fails where it meets one."""


@dataclass(frozen=True)
class EnvironmentSpec:
    """Facts about the task: for people, for early stopping, and to be held to."""

    description: str = ""
    """What the agent has to do."""
    return_threshold: float | None = None
    """The mean return at which the task counts as solved. Default: what Gymnasium registers, if anything."""
    action_labels: tuple[str, ...] = ()
    """A word for each discrete action, in order."""
    observation_labels: tuple[str, ...] = ()
    """A word for each observation entry, in order."""
    observation_space: Space | None = None
    """What the learner is given, wrappers included: {type: box, shape: [4]}. What is said is checked before the run begins."""
    action_space: Space | None = None
    """What the learner gives, likewise: {type: discrete, n: 2}."""
    reward_range: tuple[float | None, float | None] | None = None
    """The lowest and the highest reward of one step of the task itself, null for no bound; `etude check` holds it to that."""
    metadata: dict[str, Any] = field(default_factory=dict)
    """Anything else worth knowing about the task, by name: its source, a paper, units."""

    def __post_init__(self) -> None:
        """A range goes upwards."""
        low, high = self.reward_range or (None, None)
        if low is not None and high is not None and low > high:
            raise ValueError(f"reward_range=[{low:g}, {high:g}]: the lowest reward comes first")


@dataclass(frozen=True)
class EnvironmentConfig:
    """The task, and how many copies of it run side by side."""

    id: str = ""
    """An id, such as CartPole-v1, dmc/cheetah-run or ALE/Pong-v5 (`etude envs` lists them); `module:Name-v0` imports the
    module first."""
    num_envs: Annotated[int, Bounds(low=1, high=1_000_000)] = 8
    """Copies stepped together. More copies give steadier gradients and fewer updates for the same steps."""
    backend: Literal["auto", "gymnasium", "native", "torch", "envpool"] = "auto"
    """native: many copies in one call, for the tasks that have it; gymnasium: its own classes; auto: native where it exists;
    torch: as tensors where the learner is (`environment.device`), for tasks that are written so; envpool: that package's copies
    of the task."""
    exact: bool = False
    """Choose the class whose state can be captured over a faster one whose state can't (Atari)."""
    workers: NonNegativeInt = 0
    """Processes that step the copies, for environments of 50 µs and more a step; 0 steps them in this process."""
    samplers: NonNegativeInt = 0
    """Processes that step the copies and act in them with the weights of one rollout before, while this one learns: for slow
    environments (distributed.md). 0 collects in this process."""
    free_running: bool = False
    """Let samplers run up to two rollouts ahead with the newest weights they have. Faster where times vary, and not exact."""
    worker_timeout_s: PositiveFloat = 60.0
    """Give a worker up after this long without an answer."""
    kwargs: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of the environment itself."""
    max_episode_steps: PositiveInt | None = None
    """Cut episodes after this many steps (a truncation, not a termination). Default: as registered."""
    normalize_observations: Literal["off", "rolling", "static"] = "off"
    """rolling: by running mean and variance; static: finite bounds to [0, 1]; off: as they come."""
    normalize_rewards: bool = False
    """Divide rewards by the running standard deviation of the discounted return. Ignored with static observations."""
    wrappers: tuple[Annotated[Any, Component("wrapper", key="id")], ...] = ()
    """What stands between the task and the learner, nearest to the task first: [{id: grayscale}, {id: stack, count: 4}].
    See wrappers.md."""
    spec: EnvironmentSpec = EnvironmentSpec()
    """Facts about the task."""
    device: str = "auto"
    """Where robots are simulated and tasks of tensors stepped: auto (as experiment.device), cpu or cuda:N; of a list each
    process of a machine takes its own."""
    robot: RobotConfig | None = None
    """A task for a robot, in place of an environment that is found by its id."""

    def __post_init__(self) -> None:
        """Normalising is the algorithm's affair, also where it is listed among the wrappers."""
        named = {str(getattr(chosen, "id", "")): chosen for chosen in self.wrappers}
        names = [name for name in ("normalize_observations", "normalize_rewards") if name in named]
        if not names:
            return
        wrappers = tuple(chosen for chosen in self.wrappers if getattr(chosen, "id", "") not in names)
        if self.wrappers[: len(wrappers)] != wrappers:
            raise ValueError(
                f"wrappers: {' and '.join(names)} must come last: it is what the algorithm is given that is normalised"
            )
        if "normalize_observations" in names:
            mode = named["normalize_observations"].mode
            if self.normalize_observations not in ("off", mode):
                raise ValueError(
                    f"normalize_observations={self.normalize_observations} and the wrapper normalize_observations with "
                    f"mode={mode} can't both be meant; leave one out"
                )
            object.__setattr__(self, "normalize_observations", mode)
        if "normalize_rewards" in names:
            object.__setattr__(self, "normalize_rewards", True)
        object.__setattr__(self, "wrappers", wrappers)


@dataclass(frozen=True)
class TrainingConfig:
    """How long to train, in which phases, and when to stop early."""

    total_steps: PositiveInt = 100_000
    """The budget in environment steps, over all copies together."""
    iterations: PositiveInt | None = None
    """The budget in passes of collecting and learning; total_steps is then what they take. A resume goes on to this total."""
    phases: tuple[dict[str, Any], ...] = ()
    """The curriculum: which hooks run, for how long. Default: the algorithm's own single phase."""
    early_stop: Literal["off", "eval", "train"] = "off"
    """Stop once the mean return of evaluations (eval) or of the last 100 training episodes (train) reaches the threshold."""
    return_threshold: float | None = None
    """The threshold for early_stop. Default: environment.spec.return_threshold."""
    on_nan: Literal["stop", "skip", "rollback"] = "stop"
    """What to do when weights become NaN or infinite: stop; skip the gradient steps that would make them so; or rollback to
    the last save and go on with other random numbers, three times at most."""
    keep_paths: NonNegativeInt = 0
    """How many of the last whole episodes to keep, for `run.last_paths()`: of all copies, or of the first N. They are in
    every checkpoint, and need a time limit."""
    callbacks: tuple[Annotated[Any, Component("callback")], ...] = ()
    """Your own callbacks: [{type: my_module.MyCallback, option: value}]."""


@dataclass(frozen=True)
class EvaluationConfig:
    """How the policy is measured while it trains, on separate environments."""

    every_steps: NonNegativeInt | None = None
    """Environment steps between evaluations; 0 turns them off. Default: a tenth of the budget, or more in a short run:
    all evaluations together act at most half as often as it has environment steps, if episodes last as long as they may."""
    every_updates: NonNegativeInt | None = None
    """Gradient steps between evaluations in phases that don't collect; 0 turns them off there. Default: a tenth of theirs."""
    warmup_steps: NonNegativeInt = 0
    """No evaluation up to and including this step."""
    episodes: PositiveInt = 10
    """Finished episodes per evaluation."""
    num_envs: PositiveInt | None = None
    """Copies to evaluate on. Default: as many as episodes, at most 16."""
    mode: Literal["auto", "greedy", "sample", "both"] = "auto"
    """greedy: the most likely action; sample: as in training; both: one after the other; auto: the algorithm's choice."""
    timeout_s: PositiveFloat | None = None
    """Give up on an evaluation after this many seconds; what has finished by then is reported. Makes a run depend on
    the clock."""


@dataclass(frozen=True)
class CheckpointConfig:
    """When the run is saved, and what is kept."""

    every_steps: NonNegativeInt | None = None
    """Environment steps between saves; 0 saves only at the start and the end. Default: a tenth of the budget."""
    every_updates: NonNegativeInt | None = None
    """Gradient steps between saves in phases that don't collect; 0 saves there by time alone. Default: a tenth of theirs."""
    every_minutes: PositiveFloat | None = 5.0
    """Save as well when this much time has passed since the last save. Saving never changes a run."""
    keep: PositiveInt = 3
    """How many full checkpoints to keep, besides the best policies."""
    keep_best: PositiveInt = 1
    """How many of the best policies to keep."""
    monitor: str = "eval/return_mean"
    """The metric of evaluations that decides which policies are the best."""
    monitor_mode: Literal["max", "min"] = "max"
    """Whether the highest value of it is the best, or the lowest."""


@dataclass(frozen=True)
class WandbConfig:
    """Weights & Biases, if you use it."""

    enabled: bool = False
    """Send metrics there."""
    project: str | None = None
    """Its project. Default: experiment.project."""
    entity: str | None = None
    """The user or team that owns it."""
    tags: tuple[str, ...] = ()
    """Tags there, besides experiment.tags."""
    mode: Literal["online", "offline"] = "offline"
    """offline writes to the run directory, for `wandb sync` later."""
    artifacts: Literal["none", "policy", "checkpoint"] = "policy"
    """What of the run is kept there when a sitting ends: the report and the best policy (policy), the last full checkpoint
    besides (checkpoint), which training can go on from elsewhere, or nothing."""


@dataclass(frozen=True)
class AlertsConfig:
    """Limits of the most usual alerts (monitoring.md), averaged over ten rows, after a run's first tenth, and only while its
    returns are in the lower half of what it has reached. null turns one off. A file of rules goes before them."""

    kl_above: PositiveFloat | None = 0.05
    """train/approx_kl: the policy moves further in a rollout than the data supports."""
    kl_below: NonNegativeFloat | None = None
    """train/approx_kl: the policy hardly moves (0.001, say). Off by default: one that has solved its task rests too."""
    clip_fraction_above: PositiveFloat | None = 0.5
    """train/clip_fraction: most of the data no longer counts."""
    clip_fraction_below: NonNegativeFloat | None = None
    """train/clip_fraction: clipping hardly acts (0.05, say). Off by default, for the same reason."""
    explained_variance_below: float | None = -0.2
    """train/explained_variance: the critic is worse than a constant."""


@dataclass(frozen=True)
class LoggingConfig:
    """Where metrics go. metrics.jsonl and metrics.csv are always written."""

    every_steps: PositiveInt | None = None
    """Environment steps between rows of metrics. Default: a two-hundredth of the budget."""
    every_updates: PositiveInt = 100
    """Gradient steps between rows in phases that don't collect."""
    media_every_steps: NonNegativeInt | None = None
    """Environment steps between the videos and pictures that an algorithm makes of what it learnt; they come with the first row
    from then on. Default: after every evaluation; 0: none."""
    report: bool = True
    """Write report.md and report.html into the run when a sitting ends; `etude report` writes them at any time."""
    terminal: bool = True
    """Show progress while training."""
    tensorboard: bool = False
    """Write TensorBoard event files to the run's logs/ (extra: tensorboard)."""
    wandb: WandbConfig = WandbConfig()
    """Weights & Biases (extra: wandb)."""
    sinks: tuple[Annotated[Any, Component("sink")], ...] = ()
    """Loggers of your own, or of a package: [{type: my_module.MySink, option: value}] (loggers.md)."""
    alerts: AlertsConfig = AlertsConfig()
    """Ranges of metrics outside of which an alert is raised."""
    rules: str | None = None
    """A YAML file of rules: how metrics are shown, their ranges, and alerts (monitoring.md). The run keeps a copy."""
    strict: bool = False
    """Save and stop the run at its first alert. Otherwise alerts are told, and training goes on."""
    webhook: str | None = None
    """Where alerts are posted as JSON: a URL, or env:NAME for the one in that environment variable, which is never written
    down. Default: that of $ETUDE_ALERT_WEBHOOK, if it is set."""
    email: str | None = None
    """Whom to write an e-mail about alerts, through the server that $ETUDE_SMTP names (smtp://USER:PASSWORD@HOST:PORT)."""
    histograms_every_updates: NonNegativeInt = 0
    """Gradient steps between histograms of weights and gradients, at the first row from then on; 0: none."""
    nan: Literal["keep", "skip"] = "keep"
    """What a NaN or an infinity among the values that a row averages does: keep makes the mean NaN; skip leaves it out."""


@dataclass(frozen=True)
class Config:
    """One run, complete."""

    version: int = SCHEMA_VERSION
    """The version of this schema; older files are migrated, newer ones refused."""
    experiment: ExperimentConfig = ExperimentConfig()
    """Who this run is."""
    environment: EnvironmentConfig = EnvironmentConfig()
    """The task."""
    algorithm: Annotated[Any, Component("algorithm", key="name")] = None
    """The algorithm by name, and its hyper-parameters."""
    network: dict[str, Annotated[Any, Component("network")]] = field(default_factory=dict)
    """A network for each role the algorithm has, such as actor and critic."""
    buffers: dict[str, Annotated[Any, Component("buffer")]] = field(default_factory=dict)
    """Named stores of experience; a phase chooses one."""
    training: TrainingConfig = TrainingConfig()
    """How long to train."""
    evaluation: EvaluationConfig = EvaluationConfig()
    """How the policy is measured."""
    checkpoint: CheckpointConfig = CheckpointConfig()
    """When the run is saved."""
    logging: LoggingConfig = LoggingConfig()
    """Where metrics go."""

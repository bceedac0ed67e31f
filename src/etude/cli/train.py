"""`etude train`: start a run."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from etude.cli.options import at_least, exclusive, said_once
from etude.cli.output import note
from etude.cli.parameters import PauseAt, Quiet, RunsFolder, Spec, Words
from etude.cli.places import find_run, runs_root
from etude.cli.processes import found_processes, is_follower, is_to_be_launched, launch, one_at_a_time
from etude.cli.starting import starting

if TYPE_CHECKING:
    from etude.config.schema import Config

_FLAGS = {
    "environment.num_envs": "--num-envs",
    "training.total_steps": "--total-steps",
    "training.iterations": "--iterations",
    "experiment.compile": "--compile",
    "experiment.name": "--name",
    "experiment.group": "--group",
    "experiment.init_from": "--init-from",
    "experiment.processes": "--processes",
}
DEBUG_ROLLOUT = 256
"""Steps before the first update of a run with --debug, where its own rollouts or its warm-up are longer."""
DEBUG_HISTOGRAMS = 10
"""Updates between histograms of weights and gradients of such a run."""
_ONE_PROCESS = {
    "experiment.compile": "off",
    "environment.workers": "0",
    "experiment.processes": "1",
    "environment.samplers": "0",
}


def train(
    spec: Spec = None,
    /,
    *overrides: Words,
    config: Annotated[Path | None, Parameter(alias="-c")] = None,
    from_run: str | None = None,
    init_from: Annotated[str | None, Parameter(alias="--init-from-run")] = None,
    experiment: Annotated[str | None, Parameter(alias="--exp-name")] = None,
    universe: str | None = None,
    domain: str | None = None,
    task: str | None = None,
    algorithm: str | None = None,
    auto_resume: bool = False,
    seed: str | None = None,
    parallel: int | None = None,
    processes: int | None = None,
    num_envs: int | None = None,
    total_steps: Annotated[float | None, Parameter(alias=["--max-timesteps", "--total-timesteps"])] = None,
    iterations: Annotated[int | None, Parameter(alias="--max-iterations")] = None,
    name: str | None = None,
    group: str | None = None,
    runs: RunsFolder = None,
    debug: bool = False,
    profile: int | None = None,
    pause_at: PauseAt = None,
    wandb_sweep: bool = False,
    compile: Annotated[bool | None, Parameter(negative="--no-compile")] = None,
    print_config: bool = False,
    trust: bool = False,
    quiet: Quiet = False,
) -> int:
    """Train an agent, from a laptop's first CartPole to the last robot.

    The config is composed from the environment's preset, the algorithm's defaults, a file and key=value words, in that
    order; `--print-config` shows the result without training.

    Parameters
    ----------
    spec
        What to train, such as CartPole-v1:ppo: any Gymnasium id, and an algorithm or a variant of the preset; or an experiment
        by its name, such as quadruped_flat_ppo (`etude experiments` lists them).
    overrides
        Settings, such as algorithm.gamma=0.98 or network.actor.hidden_dims=[128,128].
    config
        A YAML or JSON file of settings.
    from_run
        Start a new run with the settings of an earlier one.
    init_from
        Begin with the networks of an earlier run, RUN or RUN:CHECKPOINT (experiment.init_from).
    experiment
        An experiment by its name (+experiment=NAME).
    universe
        Name the environment in parts instead: gym, dm_control or atari, ...
    domain
        ... such as HalfCheetah, or cheetah ...
    task
        ... and v5, or run: the same as HalfCheetah-v5, and dmc/cheetah-run.
    algorithm
        The algorithm, or a variant of the preset, where it does not stand after a colon.
    auto_resume
        Continue the newest run with these very settings if it has not finished; for jobs that may be pre-empted.
    seed
        The root of every random stream (experiment.seed). Several (1,2,3 or 1-5) make a group of runs, side by side.
    parallel
        How many of several seeds run at once. Default: as many as there are cores.
    processes
        Processes that train the run together, each with copies and batches of its own (experiment.processes).
    num_envs
        Copies of the environment (environment.num_envs).
    total_steps
        The budget in environment steps (training.total_steps); 1e6 is fine.
    iterations
        The budget in passes of collecting and learning instead (training.iterations).
    name
        A name for the run (experiment.name).
    group
        A group of runs it belongs to (experiment.group).
    debug
        Fail fast: one process, one environment, eager, short rollouts; every output, gradient and weight checked for NaN, and
        their histograms kept. The run goes to ./debug, and `etude debug` shows what it found.
    profile
        Profile this many cycles; logs/trace.json and logs/profile.txt in the run hold the result.
    wandb_sweep
        Take settings from the Weights & Biases sweep whose agent started this; words of the command line win. So by itself
        where WANDB_SWEEP_ID is set.
    compile
        Compile updates, or not, whatever the length of the run (experiment.compile).
    print_config
        Print the complete config and stop; no run is made.
    trust
        Honour import paths in a config that came with somebody else's run.
    """
    quiet = quiet or is_follower()
    with ExitStack() as begun:
        title = next((str(each) for each in (spec, experiment, from_run, config) if each is not None), "train")
        tell = begun.enter_context(starting(title, quiet=quiet, plain=not print_config))
        from etude.config.compose import compose
        from etude.config.overrides import quote
        from etude.config.universe import spec_of
        from etude.errors import UserError
        from etude.training.seed_group import parse_seeds

        words = list(overrides)
        if spec is not None and "=" in spec and ":" not in spec.split("=")[0]:
            words, spec = [spec, *words], None
        if experiment is not None:
            words.insert(0, f"+experiment={experiment}")
        spec = spec_of(spec, universe=universe, domain=domain, task=task, algorithm=algorithm)
        at_least(1, parallel=parallel, profile=profile, processes=processes, pause_at=pause_at)
        exclusive({"--total-steps": total_steps, "--iterations": iterations})
        exclusive({"--debug": debug, "--compile": compile or None})
        exclusive({"--debug": debug, "--processes": None if processes == 1 else processes})
        exclusive({"--auto-resume": auto_resume, "--debug": debug})
        exclusive({"--auto-resume": auto_resume, "--profile": profile})
        sweeps = wandb_sweep or bool(os.environ.get("WANDB_SWEEP_ID"))
        exclusive({"--wandb-sweep": sweeps, "--from-run": from_run})
        exclusive({"--wandb-sweep": sweeps, "--auto-resume": auto_resume})
        if trust and from_run is None and not auto_resume:
            raise UserError("--trust is for the settings of somebody else's run: it goes with --from-run or --auto-resume")
        flags = {
            "experiment.processes": processes,
            "environment.num_envs": num_envs,
            "training.total_steps": total_steps,
            "training.iterations": iterations,
            "experiment.compile": None if compile is None else "on" if compile else "off",
            "experiment.name": None if name is None else quote(name),
            "experiment.group": None if group is None else quote(group),
            "experiment.init_from": None if init_from is None else quote(init_from),
        }
        said_once({key: _FLAGS[key] for key, value in flags.items() if value is not None}, words)
        debugging = debug or debugger_attached()
        if debugging:
            if debug:
                _check_debugged(words)
            else:
                note("a debugger is attached: one process, one environment, nothing compiled")
            flags |= _ONE_PROCESS
            runs = runs or (Path("debug") if debug else None)
        words += [f"{key}={value}" for key, value in flags.items() if value is not None]
        words += found_processes(words)
        _check_budget(words)
        seeds = [] if seed is None else parse_seeds(seed)
        if sweeps and len(seeds) > 1:
            raise UserError(f"--wandb-sweep trains one run, and --seed {seed} names {len(seeds)}")
        if sweeps and not print_config:
            from etude.tuning.wandb_sweep import sweep_words

            taken = [*words, *(f"experiment.seed={each}" for each in seeds)]
            words = [*sweep_words(taken, tell), *words]
        if seeds:
            said_once({"experiment.seed": "--seed"}, words)
        if len(seeds) < 2 and parallel is not None:
            raise UserError(f"--parallel {parallel} is of several seeds: name them, such as --seed 1-5")
        if len(seeds) == 1 or (seeds and print_config):
            words.append(f"experiment.seed={seeds[0]}")
        tell("loading torch")  # algorithms bring it, and they know what can be set
        base, allow_imports = None, True
        if from_run is not None:
            if spec is not None or config is not None:
                raise UserError("--from-run brings its own environment and algorithm; leave out ENV:ALGO and --config")
            base, allow_imports = _stored(from_run, runs, trust)
        composition = compose(spec, file=config, words=words, base=base, allow_imports=allow_imports)
        if debug or (debugging and num_envs is None):
            words += soon_learning(composition.config, words) if debug else one_environment(composition.config)
            composition = compose(spec, file=config, words=words, base=base, allow_imports=allow_imports)
        if print_config:
            from etude.cli.config import print_yaml

            begun.close()
            print_yaml(composition)
            if len(seeds) > 1:
                note(f"of seed {seeds[0]}; the others differ in experiment.seed alone")
            return 0
        root = runs_root(runs)
        if len(seeds) > 1:
            one_at_a_time(f"--seed {seed}")
            options = {"--config": config, "--from-run": from_run, "--profile": profile, "--pause-at": pause_at}
            switches = {"--auto-resume": auto_resume, "--debug": debug, "--trust": trust}
            # The group goes to each seed by its flag.
            words = [word for word in words if word.partition("=")[0] != "experiment.group"]
            arguments = [
                *([] if spec is None else [spec]),
                *words,
                *(f"{key}={value}" for key, value in options.items() if value),
            ]
            arguments += [switch for switch, on in switches.items() if on]
            from etude.cli.seeds import train_group

            begun.close()
            return train_group(composition.config, root, arguments, seeds, parallel, auto_resume, quiet)
        from etude.training import assembly, session
        from etude.training.together import come_together

        resolved = assembly.resolve(composition.config)
        if is_to_be_launched(resolved):
            begun.close()
            return launch(resolved)
        together = come_together(resolved)
        if auto_resume and (earlier := session.find_unfinished(composition, root, together)) is not None:
            if earlier.status == "finished":
                note(f"run {earlier.id} with these settings is finished already")
                return 0
            note(f"goes on with run {earlier.id} ({earlier.status})")
            training = session.reopen(earlier, trusted=trust, quiet=quiet, tell=tell, together=together)
        else:
            options = {"command": sys.argv, "debug": debug, "profile": profile or 0}
            training = session.start(composition, root=root, quiet=quiet, tell=tell, together=together, **options)
        if pause_at is not None:
            from etude.training.pausing import pause_at as pause

            pause(training, pause_at)
    training.listens_to_keys = True
    return exit_code(training.finish().status)


def one_environment(config: Config) -> list[str]:
    """Return the words for a single environment that gathers as much for each update as all of them did."""
    words = ["environment.num_envs=1"]
    steps = config.algorithm.rollout_steps
    return words if steps is None else [*words, f"algorithm.rollout_steps={steps * config.environment.num_envs}"]


def soon_learning(config: Config, words: list[str]) -> list[str]:
    """Return the words for a single environment and a first update soon: whoever looks for a fault does not wait for it."""
    algorithm, said = config.algorithm, {word.partition("=")[0] for word in words}
    small = {"environment.num_envs": 1, "logging.histograms_every_updates": DEBUG_HISTOGRAMS}
    if algorithm.rollout_steps is not None:
        rows = algorithm.rollout_steps * config.environment.num_envs
        copies = config.environment.num_envs if "environment.num_envs" in said else 1
        steps = small["algorithm.rollout_steps"] = max(1, min(rows, DEBUG_ROLLOUT) // copies)
        batch = algorithm.batch_size
        if steps * copies < rows and isinstance(batch, int) and steps * copies % batch:
            small["algorithm.batch_size"] = steps * copies
    if isinstance(algorithm.learning_starts, int):
        small["algorithm.learning_starts"] = min(algorithm.learning_starts, DEBUG_ROLLOUT)
    return [f"{key}={value}" for key, value in small.items() if key not in said]


def debugger_attached() -> bool:
    """Whether somebody steps through this process: pdb, debugpy, or a tool of sys.monitoring."""
    monitoring = getattr(sys, "monitoring", None)  # Python 3.12 and later
    monitored = monitoring is not None and monitoring.get_tool(monitoring.DEBUGGER_ID) is not None
    traced = sys.gettrace() is not None and "coverage" not in sys.modules
    return traced or "debugpy" in sys.modules or monitored


def _check_debugged(words: list[str]) -> None:
    """Refuse what --debug would silently undo."""
    from etude.errors import UserError

    for word in words:
        key, _, value = word.partition("=")
        if _ONE_PROCESS.get(key, value) != value:
            raise UserError(f"--debug trains in one process and compiles nothing: leave out {word}")


def _check_budget(words: list[str]) -> None:
    from etude.errors import UserError

    budgets = [word for word in words if word.partition("=")[0] in ("training.total_steps", "training.iterations")]
    if len({word.partition("=")[0] for word in budgets}) > 1:
        raise UserError(f"{' and '.join(budgets)}: choose one budget")


def exit_code(status: str) -> int:
    """Return 130 for a run that was interrupted and saved, else 0."""
    from etude.cli import INTERRUPTED

    return INTERRUPTED if status == "interrupted" else 0


def _stored(selector: str, runs: Path | None, trusted: bool) -> tuple[dict[str, object], bool]:
    from etude.config.validate import to_plain
    from etude.runs.trust import is_own
    from etude.training.session import load_config

    run = find_run(selector, runs).run
    return to_plain(load_config(run, trusted=trusted)), trusted or is_own(run.path)

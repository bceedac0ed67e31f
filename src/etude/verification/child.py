"""The process that runs a run again. Executed as a script, with the run's own code on the path.

That code may hold another Etude than the one that compares, so this file uses nothing but what training itself offers, and
imports no other file of its package. It reads a request and writes one JSON object a line to a pipe.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import fields, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from etude.config.compose import Composition, check
from etude.config.hashing import config_hash
from etude.config.validate import to_plain
from etude.errors import EtudeError, UserError
from etude.orchestration.callbacks import Callback, Progress
from etude.runs import provenance
from etude.runs.run import Run

try:
    from etude.training import assembly, session
except ImportError:  # an older Etude, before these had their own room
    assembly, session = import_module("etude.assembly"), import_module("etude.session")

POSITION = ("env_steps", "updates", "cycles")
STOP = "SIGVERIFY"


class Pipe:
    """Where the comparing process listens. When it is gone, so are we: the write fails."""

    def __init__(self, descriptor: int) -> None:
        self._file = os.fdopen(descriptor, "w", encoding="utf-8")

    def say(self, **event: Any) -> None:
        """Write one line."""
        self._file.write(json.dumps(event) + "\n")
        self._file.flush()


class Watch(Callback):
    """Reports each row, keeps the checkpoint that will be compared, and ends a run that goes on for too long."""

    def __init__(self, orchestrator: Any, request: dict[str, Any], pipe: Pipe) -> None:
        self.orchestrator, self.pipe = orchestrator, pipe
        self.keep_at, self.kept, self.end = request["keep_at"], Path(request["kept"]), request["end"]
        self.stopping = False

    def on_row(self, progress: Progress, row: Any) -> None:
        """Report the row; one past the end of the stored run is enough."""
        self.pipe.say(row=dict(row))
        if position(progress.counters) > self.end:
            self.stopping = True
            self.orchestrator.interrupt(STOP)
        elif self.stopping and self.orchestrator.stop_reason:
            # It stops here by itself, with a last row and an evaluation that a stop from outside would leave out.
            self.stopping = False
            self.orchestrator.interrupt("")

    def on_checkpoint(self, progress: Progress, path: Path) -> None:
        """Keep the checkpoint that stands where the stored one does; retention may delete the original."""
        if position(progress.counters) == self.keep_at and (path / "shared").is_dir():
            shutil.rmtree(self.kept, ignore_errors=True)
            shutil.copytree(path, self.kept / path.name, copy_function=os.link)


class WatchCycles(Watch):
    """Also stops, or saves and goes on, at a cycle boundary that the run was stopped or saved at."""

    def __init__(self, orchestrator: Any, request: dict[str, Any], pipe: Pipe) -> None:
        super().__init__(orchestrator, request, pipe)
        self.stop_at = request["stop_at"]
        self.owes_evaluation = request["owes_evaluation"]
        self.saving = False

    def on_cycle(self, progress: Progress) -> None:
        """Ask for a save, or for a stop, if this is the place."""
        here = position(progress.counters)
        self.saving = here == self.keep_at
        reached = all(now >= goal for now, goal in zip(here, self.stop_at, strict=True))
        # Where the budget is spent it ends by itself, with a last row and an evaluation.
        self.stopping = self.stopping or (reached and progress.counters["env_steps"] < progress.total_steps)
        if self.saving and self.owes_evaluation:  # as a stop within that evaluation does
            self.stopping = True
            self.orchestrator.interrupt(STOP, hurry=True)
        elif self.saving or self.stopping:
            self.orchestrator.interrupt(STOP)

    def on_checkpoint(self, progress: Progress, path: Path) -> None:
        """Go on after a save that was only for comparing."""
        super().on_checkpoint(progress, path)
        if self.saving and not self.stopping:
            self.saving = False
            self.orchestrator.interrupt("")  # nothing asks to stop any more


def position(counters: Any) -> list[int]:
    """Return which cycle boundary this is."""
    return [counters[name] for name in POSITION]


def run_again(request: dict[str, Any], pipe: Pipe) -> None:
    """Train from the beginning, or go on with what an earlier process left, as far as is asked."""
    hashed = None
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        if request["resume"] is None:
            config = assembly.resolve(check(request["settings"], allow_imports=request["allow_imports"]))
            hashed = config_hash(config)
            quiet = replace(
                config, logging=replace(config.logging, tensorboard=False, wandb=replace(config.logging.wandb, enabled=False))
            )
            composition = Composition(quiet, to_plain(quiet))
            use_stored_robot(quiet, Run(Path(request["stored"])))
            training = session.start(composition, root=Path(request["root"]), quiet=True, stream=nowhere)
        else:
            run = Run.open(Path(request["resume"]))
            trusted = request["allow_imports"]
            training = session.reopen(run, words=request["words"], trusted=trusted, quiet=True, stream=nowhere)
        facts = {"mode": assembly.execution_mode(training.config), "config_hash": hashed, "run": str(training.run.path)}
        pipe.say(begun={**facts, "fingerprint": provenance.fingerprint(), "borrowed": borrowed_modules(request["moved"])})
        watching = WatchCycles if request["stop_at"] is not None else Watch
        watch = watching(training.orchestrator, request, pipe)
        training.orchestrator.add_callback(watch)
        training.finish()
    pipe.say(
        ended={
            "position": position(training.orchestrator.counters.as_dict()),
            "finished": training.orchestrator.scheduler.is_finished and not request["owes_evaluation"],
            "stopped": watch.stopping,
            "borrowed": borrowed_modules(request["moved"]),
        }
    )


def use_stored_robot(config: Any, stored: Run) -> None:
    """Let a user's robot be the one that is stored with the run, where this Etude stores them."""
    if getattr(config.environment, "robot", None) is not None:
        use_robot_of = getattr(import_module("etude.training.stored_config"), "use_robot_of", None)
        if use_robot_of is not None:
            use_robot_of(stored, config)


def borrowed_modules(moved: list[str] | None) -> list[str]:
    """Modules that came from the user's repository although the worktree that stands for it has them too."""
    if moved is None:
        return []
    repository, worktree = moved
    found = []
    for name, module in list(sys.modules.items()):
        file = Path(getattr(module, "__file__", None) or "/")
        theirs = file.is_relative_to(repository) and not file.is_relative_to(worktree) and file != Path(__file__)
        if theirs and (Path(worktree) / file.relative_to(repository)).exists():
            found.append(name)
    return sorted(found)


# ---- eager and compiled -----------------------------------------------------------------------------------------------------


def compare_modes(request: dict[str, Any], pipe: Pipe) -> None:
    """Take one gradient step from a stored checkpoint, eager and as the run does or compiled; report how far apart they end."""
    from etude.runs.saved_checkpoint import Checkpoint

    config = assembly.resolve(check(request["settings"], allow_imports=request["allow_imports"]))
    state = Checkpoint.open(Path(request["checkpoint"])).load()
    stepped = {}
    for compiling in ("off", "numpy" if config.experiment.compile == "numpy" else "on"):
        own = _one_step(replace(config, experiment=replace(config.experiment, compile=compiling)))
        mode = assembly.execution_mode(own)
        stepped[mode] = _numbers(_after_one_update(own, state))
        pipe.say(begun={"mode": mode})
    if len(stepped) == 1:
        raise UserError("updates can't be compiled here: there is no C++ compiler (c++, g++ or clang++)")
    (eager, compiled), (_, mode) = stepped.values(), stepped
    differences = {name: _difference(name, eager, compiled) for name in eager}
    worst = max(differences, key=lambda name: differences[name])
    pipe.say(modes={"mode": mode, "tensors": len(eager), "largest": differences[worst], "where": worst})


def _one_step(config: Any) -> Any:
    """The same config with room for one more update of a single gradient step, and nothing else to do."""
    algorithm = config.algorithm
    if "epochs" in {field.name for field in fields(algorithm)}:
        algorithm = replace(algorithm, epochs=1, batch_size=1.0)
    return replace(
        config,
        algorithm=algorithm,
        evaluation=replace(config.evaluation, every_steps=0, every_updates=None),
        training=replace(config.training, total_steps=2 * config.training.total_steps + 10**6, early_stop="off"),
    )


class _StopAfterUpdate(Callback):
    def __init__(self, orchestrator: Any) -> None:
        self.orchestrator, self.before = orchestrator, orchestrator.counters.updates

    def on_cycle(self, progress: Progress) -> None:
        if progress.counters["updates"] > self.before:
            self.orchestrator.interrupt(STOP)


def _after_one_update(config: Any, state: dict[str, Any]) -> Any:
    orchestrator = assembly.build(config)
    try:
        orchestrator.load_state_dict(state)
        orchestrator.add_callback(_StopAfterUpdate(orchestrator))
        before = orchestrator.counters.updates
        orchestrator.run()
        if orchestrator.counters.updates == before:
            raise UserError(f"{config.algorithm.name} takes no gradient steps: there is nothing to compile")
        return orchestrator.workflow.state_dict()
    finally:
        orchestrator.close()


def _numbers(tree: Any, path: str = "") -> dict[str, Any]:
    import torch

    if isinstance(tree, torch.Tensor):
        return {path: tree.detach().cpu().double().flatten()} if tree.is_floating_point() and tree.numel() else {}
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list | tuple) else ()
    return {name: tensor for key, value in items for name, tensor in _numbers(value, f"{path}.{key}".lstrip(".")).items()}


def _difference(name: str, eager: dict[str, Any], compiled: dict[str, Any]) -> float:
    """How far a tensor is off, relative to its largest value, and a mean gradient to what divides it."""
    one, other = eager[name], compiled[name]
    scale = max(float(one.abs().max()), float(other.abs().max()))
    if name.endswith(".exp_avg") and f"{name}_sq" in eager:  # what has been learnt has gradients that are all rounding
        scale = max(scale, float(eager[f"{name}_sq"].max()) ** 0.5)
    if name.startswith("metrics"):
        scale = max(1.0, scale)  # a loss may well be 0, and its rounding is not an error
    return float((one - other).abs().max()) / scale if scale else 0.0


def main() -> int:
    """Do what the request file asks; a clear error is reported to the comparing process, any other shows its traceback."""
    request, pipe = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), Pipe(int(sys.argv[2]))
    try:
        {"run": run_again, "modes": compare_modes}[request["task"]](request, pipe)
    except EtudeError as error:
        pipe.say(error={"message": str(error), "exit_code": error.exit_code})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

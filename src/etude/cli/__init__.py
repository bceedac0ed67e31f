"""The `etude` command. One file a verb; heavy imports happen inside the verb that needs them."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError, Parameter

from etude import __version__
from etude.cli import stored_code
from etude.cli.output import OutputClosedError, forget_stdout, note
from etude.cli.parent import end_with_parent
from etude.cli.streams import prepare_streams
from etude.errors import EtudeError
from etude.files.printable import printable

INTERRUPTED = 130

app = App(
    name="etude",
    help="A reinforcement-learning laboratory: train, resume exactly, evaluate, and keep every run.",
    version=__version__,
    default_parameter=Parameter(negative=()),
    suppress_keyboard_interrupt=False,  # `run` says it, and returns its code
)
app.command("etude.cli.train:train", name="train", help="Train an agent: etude train CartPole-v1:ppo [key=value ...]")
app.command("etude.cli.resume:resume", name="resume", help="Continue a run exactly where it stopped.")
app.command(
    "etude.cli.control:control",
    name="control",
    help="Ask a run that trains to save, evaluate, pause or stop; change settings.",
)
app.command("etude.cli.launch:app", name="launch", help="Train on a cluster, another machine or a cloud.")
app.command(
    "etude.cli.modes:app", name="run", help="Train here, in debug mode, dry, or on a cluster: other names of the above."
)
for _cloud in ("gce", "ec2"):
    app.command(f"etude.cli.launch.clouds:{_cloud}", name=f"launch_{_cloud}", show=False)
app.command("etude.cli.evaluate:evaluate", name="evaluate", help="Measure a run's policy on fresh episodes.")
app.command("etude.cli.play:play", name="play", help="Watch a run's policy play, in a window or in a video.")
app.command("etude.cli.view:view", name="view", help="Look at a robot from all sides: MuJoCo's viewer, or a browser.")
app.command("etude.cli.inspect:inspect", name="inspect", help="Look into a run step by step, in the browser or as a table.")
app.command("etude.cli.trials:trials", name="trials", help="Put a run's robot through scripted commands.")
app.command("etude.cli.export_policy:export", name="export", help="Write a run's policy into files that run without Etude.")
app.command("etude.cli.publish:publish", name="publish", help="Make a run's policy a folder or a repository for others.")
app.command("etude.cli.dataset:app", name="dataset", help="Record, list, show and convert datasets of episodes.")
app.command("etude.cli.debug:debug", name="debug", help="Show what a run with --debug found when it met a NaN.")
app.command("etude.cli.verify:verify", name="verify", help="Prove that a run reproduces, bit for bit.")
app.command("etude.cli.sweep:app", name="sweep", help="Search over settings: a grid, at random or by Optuna; resumable.")
app.command("etude.cli.tune:tune", name="tune", help="Find good settings for ENV:ALGO, and what they cost.")
app.command("etude.cli.runs:app", name="runs", help="Find, show and compare runs.")
app.command("etude.cli.report:report", name="report", help="Write the report of a run, or of a group of runs.")
app.command("etude.cli.wandb:app", name="wandb", help="W&B: a dashboard, and policies and checkpoints to and from it.")
app.command("etude.cli.mcp:mcp", name="mcp", help="Serve runs to a language model (Model Context Protocol).")
app.command("etude.cli.ui:ui", name="ui", help="Show runs in the browser: tables, curves, videos; start and stop them.")
app.command("etude.cli.config:config", name="config", help="Print the complete config of ENV:ALGO.")
app.command("etude.cli.envs:envs", name="envs", help="List environments and their tuned variants.")
app.command("etude.cli.experiments:experiments", name="experiments", help="List experiments by their names.")
app.command("etude.cli.robots:app", name="robots", help="List robots of this machine, say what is known of each; learn motors.")
app.command("etude.cli.doctor:doctor", name="doctor", help="Say what works on this machine, and what would help.")
app.command("etude.cli.bench:bench", name="bench", help="Measure how fast a training goes on this machine.")
app.command("etude.cli.smoke:app", name="smoke", help="Try everything briefly: every environment, preset and config.")
app.command("etude.cli.check:check", name="check", help="Check an environment of your own, and say what is wrong with it.")
app.command("etude.cli.algorithms:algorithms", name="algorithms", help="List algorithms.")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line: exit code 0 done, 1 failed, 2 a wrong request, 130 interrupted and saved."""
    prepare_streams()
    end_with_parent()
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code; a user's slip is one clear message, never a traceback."""
    stored_code.arguments.set(tuple(arguments))
    try:
        code = app(list(arguments), exit_on_error=False, print_error=False, result_action="return_value")
        return code if isinstance(code, int) else 0
    except CycloptsError as error:
        return _fail(_usage(error, arguments), 2)
    except EtudeError as error:
        return _fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        return _fail("interrupted", INTERRUPTED)
    except OutputClosedError:
        forget_stdout()
        return 1
    except OSError as error:
        from etude.runs.disk_failure import disk_way_out, in_words

        way_out = disk_way_out(error)
        if way_out is None:
            raise  # ours to fix: the traceback says where
        return _fail(f"{in_words(error)}; {way_out}", 1)


def _usage(error: CycloptsError, arguments: Sequence[str]) -> str:
    verb = next((word for word in arguments if not word.startswith("-")), "")
    known = verb in {name for name in app if not name.startswith("-")}
    text = " ".join(str(error).split())
    return f"{text} (see `etude {verb} --help`)" if known else f"{text} (see `etude --help`)"


def _fail(message: str, code: int) -> int:
    for line in printable(message).splitlines():
        note(f"etude: {line}")
    return code

"""Which sinks a run has besides its record and the console: those that its config asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from etude.config.migrate import flat
from etude.config.registry import sinks as sink_registry
from etude.config.schema import Config
from etude.config.validate import Part, to_plain
from etude.errors import EtudeError, UserError
from etude.runs.run import Run
from etude.telemetry.alert_delivery import smtp_server, webhook_url
from etude.telemetry.alerts import Alerts
from etude.telemetry.background import BackgroundSink
from etude.telemetry.plug_in import LateSink, SinkRun
from etude.telemetry.sinks import Sink


def check_sinks(config: Config) -> None:
    """A missing package is an error before the run exists, not in its middle."""
    for wanted, package in ((config.logging.tensorboard, "tensorboard"), (config.logging.wandb.enabled, "wandb")):
        if wanted and find_spec(package) is None:
            raise UserError(f"logging.{package} needs a package that is not installed: pip install 'etude[{package}]'")
    for index, part in enumerate(config.logging.sinks):
        check = getattr(sink_registry.resolve(part.type), "check", None)
        if check is not None:
            try:
                check()
            except EtudeError as error:
                raise UserError(f"logging.sinks[{index}] ({part.type}): {error}") from error
    webhook_url(config.logging.webhook)
    smtp_server(config.logging.email)


def optional_sinks(
    config: Config, run: Run, past: Sequence[Mapping[str, float]], alerts: Alerts, step_key: str = "env_steps"
) -> list[Sink]:
    """Return the sinks that the config asks for; one that can't be opened is an alert, and left out."""

    def tensorboard() -> Sink:
        from etude.telemetry.tensorboard import TensorBoardSink

        after_past = int(past[-1][step_key]) + 1 if past else None
        known = hyper_parameters(flat(to_plain(config)))
        return TensorBoardSink(run.logs / "tensorboard", purge_step=after_past, axis=step_key, hyper_parameters=known)

    def wandb() -> Sink:
        from etude.telemetry.wandb import WandbSink

        options, experiment = config.logging.wandb, config.experiment
        sink = WandbSink(
            project=options.project or experiment.project or "etude",
            entity=options.entity,
            tags=[*experiment.tags, *options.tags],
            name=run.id,
            config=to_plain(config),
            run_dir=run.path,
            mode=options.mode,
            axis=step_key,
            rows_before=len(past),
            group=experiment.group,
            artifacts=options.artifacts,
        )
        # Across a network: it may hang for as long as it likes, the training does not.
        return BackgroundSink(sink)

    wanted: dict[str, tuple[bool, Callable[[], Sink]]] = {
        "logging.tensorboard": (config.logging.tensorboard, tensorboard),
        "logging.wandb": (config.logging.wandb.enabled, wandb),
    }
    sinks: list[Sink] = []
    for name, (is_on, make) in wanted.items():
        if not is_on:
            continue
        try:
            sinks.append(make())
        except Exception as error:  # noqa: BLE001 - whatever is wrong with it, the run is worth more
            alerts.tell(name, f"{name} could not be opened and is off for this run: {str(error) or type(error).__name__}")
    experiment = config.experiment
    known = SinkRun(
        id=run.id,
        directory=run.path,
        project=experiment.project or "etude",
        group=experiment.group,
        tags=experiment.tags,
        config=to_plain(config),
        rows_before=len(past),
        axis=step_key,
    )
    return [*sinks, *(_plugged_in(part, index, known) for index, part in enumerate(config.logging.sinks))]


def hyper_parameters(settings: Mapping[str, Any]) -> dict[str, bool | float | str]:
    """Return what tells runs apart in a table of them: single values of the algorithm, its parts, the task and the seed."""
    telling = ("algorithm.", "network.", "buffers.", "environment.num_envs", "environment.id", "training.total_steps")
    chosen = {name: value for name, value in settings.items() if name.startswith((*telling, "experiment.seed"))}
    return {name: value for name, value in chosen.items() if isinstance(value, bool | int | float | str)}


def _plugged_in(part: Any, index: int, known: SinkRun) -> Sink:
    """A sink of the user's; it is made in its own thread, and may fail or hang there as it likes."""

    def make() -> Sink:
        cls = sink_registry.resolve(part.type)
        return cls(known, **part.options) if isinstance(part, Part) else cls(known, part)

    return BackgroundSink(LateSink(f"logging.sinks[{index}] ({part.type})", make))

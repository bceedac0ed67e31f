"""Which sinks a run has besides its record and the console: those that its config asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec

from etude.config.schema import AlertsConfig, Config
from etude.config.validate import to_plain
from etude.errors import UserError
from etude.runs.run import Run
from etude.telemetry.alerts import Alerts
from etude.telemetry.metric_alerts import Rule
from etude.telemetry.sinks import Sink


def check_sinks(config: Config) -> None:
    """A missing package is an error before the run exists, not in its middle."""
    for wanted, package in ((config.logging.tensorboard, "tensorboard"), (config.logging.wandb.enabled, "wandb")):
        if wanted and find_spec(package) is None:
            raise UserError(f"logging.{package} needs a package that is not installed: pip install 'etude[{package}]'")


def alert_rules(options: AlertsConfig) -> list[Rule]:
    """Return what is watched, with the limits that the config sets."""
    return [
        Rule(
            "train/approx_kl",
            options.kl_below,
            options.kl_above,
            too_low="the policy hardly moves; a higher algorithm.learning_rate or more algorithm.epochs would move it",
            too_high="the policy moves too far each rollout; lower algorithm.learning_rate or algorithm.epochs, "
            "or set algorithm.target_kl",
        ),
        Rule(
            "train/clip_fraction",
            options.clip_fraction_below,
            options.clip_fraction_above,
            too_low="clipping hardly acts; steps could be larger",
            too_high="most of each rollout is clipped away; lower algorithm.learning_rate or algorithm.epochs",
        ),
        Rule(
            "train/explained_variance",
            options.explained_variance_below,
            too_low="the critic predicts worse than a constant would; try a higher critic learning rate or normalised rewards",
        ),
    ]


def optional_sinks(config: Config, run: Run, past: Sequence[Mapping[str, float]], alerts: Alerts) -> list[Sink]:
    """Return the sinks that the config asks for; one that can't be opened is an alert, and left out."""

    def tensorboard() -> Sink:
        from etude.telemetry.tensorboard import TensorBoardSink

        after_past = int(past[-1]["env_steps"]) + 1 if past else None
        return TensorBoardSink(run.logs / "tensorboard", purge_step=after_past)

    def wandb() -> Sink:
        from etude.telemetry.background import BackgroundSink
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
            rows_before=len(past),
            group=experiment.group,
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
    return sinks

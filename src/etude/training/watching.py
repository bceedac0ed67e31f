"""What watches a run in one sitting: the monitor of its rows, whom it tells of alerts, and the rules that it goes by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from etude.compute.random_streams import global_generators_kept
from etude.config.schema import AlertsConfig, Config
from etude.errors import NonFiniteError, NonFiniteFoundError
from etude.files.atomic import write_bytes_atomic
from etude.files.regular import own_folder, read_bytes, read_own_bytes
from etude.orchestration.callbacks import Callback, Progress, Row
from etude.orchestration.orchestrator import Orchestrator
from etude.runs import trust
from etude.runs.run import Run
from etude.telemetry.alert_delivery import Delivery, Email, Webhook, smtp_server, webhook_url
from etude.telemetry.alert_log import AlertLog, Transition
from etude.telemetry.alerts import Alerts
from etude.telemetry.console import Console
from etude.telemetry.jsonl import read_rows
from etude.telemetry.metric_rules import Rules, default_rules, parse_rules, read_rules
from etude.telemetry.monitor import Monitor, told
from etude.training.assembly import return_threshold

BROKEN = "non_finite"
_TOLD_ANYWAY = (BROKEN,)
"""Who ends or rolls back a run says why, in more words."""


class Watching(Callback):
    """Keeps the alerts of a run for one sitting; they end a training only where `logging.strict` says so."""

    def __init__(
        self,
        run: Run,
        config: Config,
        orchestrator: Orchestrator,
        console: Console,
        alerts: Alerts,
        past: Sequence[Mapping[str, float]],
    ) -> None:
        self._run, self._orchestrator, self._console, self._alerts = run, orchestrator, console, alerts
        self._log = AlertLog(run.path)
        self._deliveries: list[Delivery] = []
        with alerts.about("logging.rules", "the run goes on with the usual rules"):
            self.rules = default_rules()
            self.rules = run_rules(run, config)
        with alerts.about("alerts elsewhere", "alerts are told here alone"):
            self._deliveries = _deliveries(run, config, partial(alerts.tell, "alerts elsewhere"))
        collector = orchestrator.collector
        self.monitor = Monitor(
            self.rules,
            threshold=None if collector is None else return_threshold(config, collector.environment),
            listeners=[self._say, self._keep, *self._deliveries],
            on_failure=partial(alerts.tell, "alerts"),
            strict=config.logging.strict,
        )
        self._broken_at: dict[str, int] | None = None
        self._go_on(past, orchestrator.counters.as_dict())
        orchestrator.alerts = self.monitor
        console.watch(self.monitor)

    def on_row(self, progress: Progress, row: Row) -> str | None:
        """End the run at its first alert, where that is wished. Where there is a row, weights were seen to be finite."""
        if BROKEN in self.monitor.active and (self._broken_at is None or _is_past(progress.counters, self._broken_at)):
            self.monitor.clear_alert(BROKEN)
        return self.monitor.reason_to_stop

    def on_exception(self, progress: Progress, error: BaseException) -> None:
        """Raise an alert where numbers are to blame."""
        if isinstance(error, NonFiniteError | NonFiniteFoundError) and self.rules.alerts[BROKEN].enabled:
            self._broken_at = dict(progress.counters)
            self._raise_broken(str(error).partition(";")[0], progress.counters)

    def rolled_back(self, reason: str) -> None:
        """The run has gone back to a save: forget what came after it, but for why."""
        rows = read_rows(self._run.metrics_path) if self._run.metrics_path.exists() else []
        counters = self._orchestrator.counters.as_dict()
        self._go_on(rows, counters)
        if self.rules.alerts[BROKEN].enabled:
            self._raise_broken(reason, counters)

    def close(self) -> None:
        """Let what waits go out, for a few seconds."""
        for delivery in self._deliveries:
            delivery.close()

    def _go_on(self, past: Sequence[Mapping[str, float]], counters: Mapping[str, int]) -> None:
        known: list[Transition] = []
        with self._alerts.about("alerts.jsonl", "alerts of earlier sittings are not in it"):
            known = self._log.go_on_from(counters)
        self.monitor.go_on(past, known)
        self._orchestrator.recent.clear()
        self._orchestrator.recent.extend(dict(row) for row in past)

    def _raise_broken(self, reason: str, counters: Mapping[str, int]) -> None:
        self.monitor.send_alert(BROKEN, reason, tip=self.rules.alerts[BROKEN].tip, counters=counters)

    def _keep(self, line: Transition) -> None:
        with self._alerts.about("alerts.jsonl", "tried again with the next alert"):
            self._log.write(line)

    def _say(self, line: Transition) -> None:
        if line["id"] not in _TOLD_ANYWAY:
            with global_generators_kept():
                self._console.message(told(line, self.rules.table.step_key))


def rules_with(options: AlertsConfig) -> Rules:
    """Return our rules, with the limits that the config sets."""
    rules = default_rules()
    rules = rules.with_metric("train/approx_kl", min=options.kl_below, max=options.kl_above)
    rules = rules.with_metric("train/clip_fraction", min=options.clip_fraction_below, max=options.clip_fraction_above)
    return rules.with_metric("train/explained_variance", min=options.explained_variance_below)


def check_rules(config: Config) -> None:
    """A wrong file of rules is an error before the run exists."""
    if config.logging.rules is not None:
        read_rules(Path(config.logging.rules), rules_with(config.logging.alerts))


def keep_rules(run_directory: Path, config: Config) -> None:
    """Copy the user's file into the run, which is what every sitting goes by."""
    if config.logging.rules is not None:
        write_bytes_atomic(own_folder(run_directory / "logs") / _COPY, read_own_bytes(Path(config.logging.rules)))


def run_rules(run: Run, config: Config) -> Rules:
    """Return the rules of a run: ours, the limits of its config, and its copy of the user's file."""
    rules = rules_with(config.logging.alerts)
    if config.logging.rules is None:
        return rules
    return parse_rules(read_bytes(run.logs / _COPY), f"logs/{_COPY}", rules)


def _deliveries(run: Run, config: Config, on_failure: Callable[[str], None]) -> list[Delivery]:
    facts = {"run": run.id, "environment": config.environment.id, "algorithm": config.algorithm.name}
    # The settings of somebody else's run must not choose whom this machine writes to.
    options = config.logging if trust.is_own(run.path) else None
    url = webhook_url(None if options is None else options.webhook)
    found = [] if url is None else [Delivery("webhook", Webhook(url, facts), on_failure)]
    if options is not None and (server := smtp_server(options.email)) is not None and options.email is not None:
        found.append(Delivery("e-mail", Email(server, options.email, facts), on_failure))
    return found


def _is_past(counters: Mapping[str, int], broken_at: Mapping[str, int]) -> bool:
    return all(counters[name] >= broken_at[name] for name in ("env_steps", "updates"))


_COPY = "rules.yaml"

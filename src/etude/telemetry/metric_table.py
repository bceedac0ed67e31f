"""The table of metrics: grouped by namespace, each with its value, how it moved, its curve, and a mark if it has an alert."""

from __future__ import annotations

import math
from collections.abc import Mapping

from rich.text import Text

from etude.telemetry import readable
from etude.telemetry.history import History, MetricHistory
from etude.telemetry.metric_rules import Rules
from etude.telemetry.monitor import Alert
from etude.telemetry.names import join, split
from etude.telemetry.sparkline import sparkline

MARK = "!"
CURVE_WIDTH = 32
MIN_CURVE_WIDTH = 8
BEST_WIDTH = 15

FIRST_NAMESPACES = ("collect", "eval", "train")
LAST_NAMESPACES = ("hp",)
HIDDEN_NAMESPACES = ("", "time", "system")


def table_lines(history: History, width: int, height: int, rules: Rules, active: Mapping[str, Alert]) -> list[Text]:
    """Return a line for each metric that the rules show, the most important ones where there is no room for all."""
    alerts: dict[str, list[str]] = {}
    for alert in active.values():
        alerts.setdefault(alert.metric, []).append(alert.id)
    names = [name for name in history.metrics if _is_shown(name, rules)]
    # A best return is shown beside the mean it belongs to.
    names = [name for name in names if name.replace("return_best", "return_mean") not in names or "_best" not in name]
    priority = {name: place for place, name in reversed([*enumerate(rules.table.key_priority)])}

    def importance(name: str) -> tuple[bool, int, str]:
        return (name not in alerts, priority.get(name, len(priority)), name)

    def place(name: str) -> tuple[int, str, int, str]:
        namespace = split(name)[0]
        if namespace in FIRST_NAMESPACES:
            group = FIRST_NAMESPACES.index(namespace)
        else:
            group = len(FIRST_NAMESPACES) + (namespace in LAST_NAMESPACES)
        return (group, namespace, priority.get(name, len(priority)), name)

    names.sort(key=importance)
    left_out = 0 if len(names) <= height else len(names) - max(0, height - 1)
    shown = sorted(names[: len(names) - left_out], key=place)
    # Measured over all names, so that columns stay put when the terminal grows or shrinks in height.
    namespace_width = max((len(split(name)[0]) for name in names), default=0)
    name_width = min(max((len(split(name)[1]) for name in names), default=0), 24)
    fixed = namespace_width + name_width + 24
    has_best = width - fixed >= CURVE_WIDTH // 2 + BEST_WIDTH
    curve_width = min(CURVE_WIDTH, width - fixed - (BEST_WIDTH if has_best else 0))
    lines = []
    for index, name in enumerate(shown):
        namespace, rest = split(name)
        first = index == 0 or split(shown[index - 1])[0] != namespace
        metric, rule = history.metrics[name], rules.of(name)
        line = Text.assemble((f"{namespace if first else '':<{namespace_width}} ", "bold"), f"{rest:<{name_width}}")
        line.truncate(namespace_width + 1 + name_width, overflow="ellipsis")
        line.append(MARK if name in alerts else " ", style="bold yellow")
        style = "bold red" if not math.isfinite(metric.last) else "bold" if rule.bold else ""
        line.append(f"{_value(metric.last, rule.precision):>10} ", style=style)
        line.append_text(_change(metric, rule.precision, rule.better))
        if curve_width >= MIN_CURVE_WIDTH:
            color = "cyan" if rule.better == "higher" else "bright_black"
            line.append(f"{sparkline(metric.values, curve_width):<{curve_width}}", style=color)
        if name in alerts:
            line.append(f"  {' '.join(alerts[name])}", style="yellow")
        elif has_best and rest == "return_mean":
            line.append_text(_best(history, namespace, metric))
        line.rstrip()
        if rule.highlight:
            line.stylize("on blue")
        lines.append(line)
    if left_out and height > 0:
        lines.append(Text(f"+{left_out} more in metrics.jsonl", style="dim"))
    return lines


def _is_shown(name: str, rules: Rules) -> bool:
    wish = rules.of(name).show_in_table
    return split(name)[0] not in HIDDEN_NAMESPACES if wish is None else wish


def _value(value: float, precision: int | None, digits: int = 4) -> str:
    if precision is not None and math.isfinite(value) and abs(value) < 1e9:
        return f"{value:,.{precision}f}"
    return readable.number(value, digits)


def _change(metric: MetricHistory, precision: int | None, better: str | None) -> Text:
    change = math.nan if metric.previous is None else metric.last - metric.previous
    if not math.isfinite(change):
        return Text(" " * 11)
    if change == 0:
        return Text(f"{'→':<11}", style="bright_black")
    is_good = (change > 0) == (better == "higher")
    return Text(
        f"{'↑' if change > 0 else '↓'} {_value(abs(change), precision, digits=3):<9}",
        style="bright_black" if better is None else "green" if is_good else "red",
    )


def _best(history: History, namespace: str, metric: MetricHistory) -> Text:
    best = history.latest.get(join(namespace, "return_best"), metric.best)
    if not math.isfinite(best):
        return Text()
    reached = metric.last >= best
    return Text(f"  {'★' if reached else ' '} best {readable.number(best)}", style="green" if reached else "bright_black")

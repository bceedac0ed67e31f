"""The picture of a running training: progress, where the time goes, and every metric with its curve."""

from __future__ import annotations

import math

from rich.text import Text

from etude.telemetry import readable
from etude.telemetry.history import History, MetricHistory
from etude.telemetry.names import join, split
from etude.telemetry.plain_lines import percent, speed, title
from etude.telemetry.run_header import RunHeader
from etude.telemetry.sparkline import sparkline

MAX_WIDTH = 110  # beyond this the eye loses the line between a name and its value
CURVE_WIDTH = 32
MIN_CURVE_WIDTH = 8
BEST_WIDTH = 15
MIN_BAR_WIDTH = 8

SHARE_COLORS = {"collect": "cyan", "update": "magenta", "evaluate": "green", "save": "yellow", "log": "blue"}
FIRST_NAMESPACES = ("collect", "eval", "train")
LAST_NAMESPACES = ("hp",)
HIDDEN_NAMESPACES = ("", "time", "system")

# What a short terminal shows first; everything else follows in alphabetical order.
IMPORTANCE = (
    "collect/return_mean",
    "eval/return_mean",
    "train/policy_loss",
    "train/value_loss",
    "train/entropy",
    "train/approx_kl",
    "train/explained_variance",
    "train/clip_fraction",
    "train/grad_norm",
    "collect/length_mean",
    "hp/learning_rate",
    "eval/length_mean",
    "collect/return_std",
    "eval/return_std",
    "eval/return_min",
    "eval/return_max",
)


def draw(header: RunHeader, history: History, width: int, height: int) -> list[Text]:
    """Return the lines of the view, none wider than `width` and no more than `height`."""
    width = min(width, MAX_WIDTH)
    environment, _, rest = title(header).partition(" · ")
    lines = [Text.assemble((environment, "bold"), " · ", rest), _progress(header, history, width)]
    shares = _time_shares(history, width)
    if shares and height > 4:
        lines.append(shares)
    if history.metrics and height > len(lines) + 8:
        lines.append(Text())
    lines += _metrics(history, width, height - len(lines))
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines[:height]


def _progress(header: RunHeader, history: History, width: int) -> Text:
    latest = history.latest
    progress = header.progress(latest)
    done = " · ".join(
        f"{int(latest.get(counter, 0)):,}" + (f" / {total:,}" if total else "") + f" {counter.removeprefix('env_')}"
        for counter, total in header.totals.items()
    )
    facts = [done] if progress is None else [f"{percent(progress):>4}", done]
    # In the order in which a narrow terminal keeps them.
    for name, shown in (
        ("time/eta_s", lambda seconds: f"eta {readable.duration(seconds)}"),
        (speed(latest), readable.rate),
        ("time/elapsed_s", lambda seconds: f"{readable.duration(seconds)} elapsed"),
    ):
        if name in latest:
            fact = shown(latest[name])
            if len("  ".join([*facts, fact])) + MIN_BAR_WIDTH + 1 <= width:
                facts.append(fact)
    text = "  ".join(facts)
    bar_width = width - len(text) - 1
    if progress is None or bar_width < MIN_BAR_WIDTH:
        return Text(text)
    filled = math.floor(progress * bar_width)
    return Text.assemble(("━" * filled, "green"), ("─" * (bar_width - filled), "dim"), " ", text)


def _time_shares(history: History, width: int) -> Text | None:
    prefix = "time/share/"
    shares = {name.removeprefix(prefix): share for name, share in history.latest.items() if name.startswith(prefix)}
    if not shares:
        return None
    line = Text("time  ", style="dim")
    largest = max(shares, key=lambda hook: shares[hook])
    for hook, share in sorted(shares.items(), key=lambda item: -item[1]):
        color = SHARE_COLORS.get(hook, "white")
        label = f"{hook} {share:.0%} "
        blocks = "▇" * round(share * 20)
        # Largest first and none skipped: what is missing on a narrow terminal is smaller than what is shown.
        if share < 0.005 or len(line) + len(label) + len(blocks) > width:
            break
        line.append(label, style="bold not dim" if hook == largest else "not dim")
        line.append(blocks, style=f"not dim {color}")
        line.append("  " if blocks else " ")
    line.rstrip()
    return line


def _metrics(history: History, width: int, height: int) -> list[Text]:
    names = [name for name in history.metrics if split(name)[0] not in HIDDEN_NAMESPACES]
    # A best return is shown beside the mean it belongs to.
    names = [name for name in names if name.replace("return_best", "return_mean") not in names or "_best" not in name]
    names.sort(key=_importance)
    left_out = 0 if len(names) <= height else len(names) - max(0, height - 1)
    shown = sorted(names[: len(names) - left_out], key=_place)
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
        metric = history.metrics[name]
        line = Text.assemble((f"{namespace if first else '':<{namespace_width}} ", "bold"), f"{rest:<{name_width}}")
        line.truncate(namespace_width + 1 + name_width, overflow="ellipsis")
        line.append(f" {_value(name, metric.last):>10} ", style="" if math.isfinite(metric.last) else "bold red")
        line.append_text(_change(name, metric))
        if curve_width >= MIN_CURVE_WIDTH:
            color = "cyan" if _more_is_better(name) else "bright_black"
            line.append(f"{sparkline(metric.values, curve_width):<{curve_width}}", style=color)
        if has_best and rest == "return_mean":
            line.append_text(_best(history, namespace, metric))
        line.rstrip()
        lines.append(line)
    if left_out and height > 0:
        lines.append(Text(f"+{left_out} more in metrics.jsonl", style="dim"))
    return lines


def _importance(name: str) -> tuple[int, str]:
    return (IMPORTANCE.index(name) if name in IMPORTANCE else len(IMPORTANCE), name)


def _place(name: str) -> tuple[int, str, tuple[int, str]]:
    namespace = split(name)[0]
    if namespace in FIRST_NAMESPACES:
        group = FIRST_NAMESPACES.index(namespace)
    else:
        group = len(FIRST_NAMESPACES) + (namespace in LAST_NAMESPACES)
    return (group, namespace, _importance(name))


def _more_is_better(name: str) -> bool:
    quantity = split(name)[1]
    return quantity.startswith(("return", "success")) and not quantity.endswith("_std")


def _value(name: str, value: float, digits: int = 4) -> str:
    if name.endswith("episodes") and math.isfinite(value):
        return f"{value:,.0f}"
    return readable.number(value, digits)


def _change(name: str, metric: MetricHistory) -> Text:
    change = math.nan if metric.previous is None else metric.last - metric.previous
    if not math.isfinite(change):
        return Text(" " * 11)
    if change == 0:
        return Text(f"{'→':<11}", style="bright_black")
    good = "green" if change > 0 else "red"
    return Text(
        f"{'↑' if change > 0 else '↓'} {_value(name, abs(change), digits=3):<9}",
        style=good if _more_is_better(name) else "bright_black",
    )


def _best(history: History, namespace: str, metric: MetricHistory) -> Text:
    best = history.latest.get(join(namespace, "return_best"), metric.best)
    if not math.isfinite(best):
        return Text()
    reached = metric.last >= best
    return Text(f"  {'★' if reached else ' '} best {readable.number(best)}", style="green" if reached else "bright_black")

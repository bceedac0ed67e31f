"""The picture of a running training: progress, where the time goes, and every metric with its curve."""

from __future__ import annotations

import math
from collections.abc import Mapping

from rich.text import Text

from etude.telemetry import readable
from etude.telemetry.history import History
from etude.telemetry.metric_rules import Rules, default_rules
from etude.telemetry.metric_table import MARK, table_lines
from etude.telemetry.monitor import Alert
from etude.telemetry.plain_lines import percent, speed, title
from etude.telemetry.run_header import RunHeader

MAX_WIDTH = 110  # beyond this the eye loses the line between a name and its value
MIN_BAR_WIDTH = 8

SHARE_COLORS = {"collect": "cyan", "update": "magenta", "evaluate": "green", "save": "yellow", "log": "blue"}
_NO_ALERTS: Mapping[str, Alert] = {}


def draw(
    header: RunHeader,
    history: History,
    width: int,
    height: int,
    *,
    rules: Rules | None = None,
    active: Mapping[str, Alert] = _NO_ALERTS,
) -> list[Text]:
    """Return the lines of the view, none wider than `width` and no more than `height`."""
    width = min(width, MAX_WIDTH)
    environment, _, rest = title(header).partition(" · ")
    lines = [Text.assemble((environment, "bold"), " · ", rest), _progress(header, history, width)]
    shares = _time_shares(history, width)
    if shares and height > 4:
        lines.append(shares)
    if active and height > 3:
        lines.append(Text(f"{MARK} {' · '.join(active)}", style="bold yellow"))
    if history.metrics and height > len(lines) + 8:
        lines.append(Text())
    lines += table_lines(history, width, height - len(lines), default_rules() if rules is None else rules, active)
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

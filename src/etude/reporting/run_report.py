"""The report of one run: what it was, what came of it, and how to have it again."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from etude.comparison.curves import curve
from etude.reporting.document import (
    Block,
    Bullets,
    Charts,
    Code,
    Document,
    Folded,
    Inline,
    Link,
    Media,
    MediaFile,
    Mono,
    Paragraph,
    Section,
    Shares,
    Table,
)
from etude.reporting.run_curves import axis_of, return_chart, small_charts, spread
from etude.reporting.run_material import VIDEOS, Material
from etude.runs.places import command
from etude.runs.thresholds import first_reached
from etude.telemetry.alert_log import active_in
from etude.telemetry.readable import duration, number, rate
from etude.telemetry.sparkline import sparkline

_MOST_MEDIA = 12
_MOST_EVALUATIONS = 20
_MOST_ALERTS = 50
_SAID_ABOVE = ("environment.id", "environment.spec.", "algorithm.name", "experiment.", "version")
_SELECTED = (
    *("eval/return_mean", "eval/return_std", "eval/return_min", "eval/return_max", "eval/length_mean"),
    *("collect/return_mean", "collect/return_std", "collect/length_mean"),
    *("train/loss", "train/policy_loss", "train/value_loss", "train/q_loss", "train/entropy", "train/approx_kl"),
    *("train/clip_fraction", "train/explained_variance", "train/grad_norm", "hp/learning_rate"),
    *("time/steps_per_second", "system/memory_mib", "system/gpu_memory_mib"),
)


def run_report(material: Material, *, folder: Path, now: datetime) -> Document:
    """Return the report; `folder` is where it is going to lie, for links."""
    facts = material.facts
    title = f"{facts.environment or '?'} · {facts.algorithm or '?'} · seed {facts.seed}"
    status = f"{facts.status}: {material.stop_reason}" if material.stop_reason else facts.status
    lines: list[tuple[str, Inline]] = [
        ("run", Mono(facts.id)),
        ("status", status),
        ("began", _moment(facts.created)),
        ("trained for", "-" if facts.elapsed_s is None else duration(facts.elapsed_s)),
        ("directory", Mono(str(material.run.path.absolute()))),
        ("report written", f"{now:%Y-%m-%d %H:%M:%S %Z}".strip()),
    ]
    lines += [("group", facts.group)] if facts.group else []
    lines += [("tags", ", ".join(facts.tags))] if facts.tags else []
    sections = [
        Section("Summary", [Bullets(_summary(material))]),
        Section("Curves", _curves(material)),
        Section("Environment and settings", _settings(material)),
        Section("Where the time went", _time(material)),
        Section("Metrics", _metrics(material)),
        Section("Alerts", _alerts(material)),
        Section("Evaluations", _evaluations(material)),
        Section("Videos and pictures", _media(material, folder)),
        Section("Checkpoints", _checkpoints(material)),
        Section("Provenance", _provenance(material)),
        Section("How to reproduce it", _reproduce(material)),
        Section("What could not be read", _problems(material)),
    ]
    return Document(title, lines, [section for section in sections if section.blocks])


def _summary(material: Material) -> list[tuple[str, Inline]]:
    facts, rows = material.facts, material.sample.rows
    steps = f"{facts.env_steps or 0:,}" + (f" of {facts.total_steps:,}" if facts.total_steps else "")
    counted = (("updates", facts.updates), ("episodes", facts.episodes))
    items: list[tuple[str, Inline]] = [("environment steps", steps)]
    items += [(name, f"{count:,}") for name, count in counted if count is not None]
    if facts.elapsed_s and facts.env_steps:
        items.append(("speed", f"{rate(facts.env_steps / facts.elapsed_s)} over the whole run"))
    if facts.best is not None:
        at = "" if facts.best_step is None else f" at {facts.best_step:,} steps"
        lowest = ", the lowest" if facts.best_mode == "min" else ""
        items.append(("best", f"{number(facts.best)}{at} ({facts.best_metric}{lowest})"))
    for metric, label in (("eval/return_mean", "last evaluation"), ("collect/return_mean", "last training episodes")):
        if (last := facts.metrics.get(metric)) is not None:
            at_step = next((row["env_steps"] for row in reversed(rows) if metric in row and "env_steps" in row), None)
            items.append((label, f"return {number(last)}" + ("" if at_step is None else f" at {int(at_step):,} steps")))
    items += _threshold(material)
    full = sum(each.kind == "full" for each in material.checkpoints)
    items.append(("checkpoints", f"{len(material.checkpoints)}, {full} of them full" if material.checkpoints else "none"))
    videos = sum(path.suffix.lower() in VIDEOS for path in material.media)
    items.append(("videos and pictures", f"{videos} and {len(material.media) - videos}"))
    if not material.sample.is_whole:
        items.append(("rows", "the metrics file is large: curves show an even sample of its rows"))
    return items


def _threshold(material: Material) -> list[tuple[str, Inline]]:
    threshold, rows = material.threshold, material.sample.rows
    if threshold is None:
        return []
    metric = next((name for name in ("eval/return_mean", "collect/return_mean") if any(name in row for row in rows)), None)
    if metric is None:
        return []
    reached = first_reached(rows, metric, threshold)
    what = f"{number(threshold)} ({metric})"
    if reached is None:
        return [("threshold", f"{what}: not reached")]
    return [("threshold", f"{what}: reached after {reached.env_steps:,} steps and {duration(reached.seconds)}")]


def _curves(material: Material) -> list[Block]:
    returns = return_chart(material)
    charts = [*([] if returns is None else [returns]), *small_charts(material)]
    return [Charts(charts)] if charts else [Paragraph("The run has no metrics yet.")]


def _settings(material: Material) -> list[Block]:
    config = material.facts.config
    listed: list[tuple[str, Inline]] = []
    for label, key in (
        ("environment", "environment.id"),
        ("task", "environment.spec.description"),
        ("copies", "environment.num_envs"),
        ("algorithm", "algorithm.name"),
        ("budget in steps", "training.total_steps"),
        ("seed", "experiment.seed"),
        ("device", "experiment.device"),
        ("updates run", "_resolved.mode"),
        ("environment class", "_resolved.backend"),
        ("evaluated", "evaluation.mode"),
    ):
        value = config.get(key)
        if value not in (None, ""):
            listed.append((label, _value(value)))
    blocks: list[Block] = [Bullets(listed)] if listed else []
    asked = [(Mono(key), Mono(_value(value))) for key, value in material.asked.items() if not key.startswith(_SAID_ABOVE)]
    if asked:
        blocks += [Paragraph("Set by the user or the preset; everything else is at its default:")]
        blocks += [Table(("setting", "value"), asked)]
    if material.config_text:
        blocks.append(Folded("The full config (resolved.yaml)", [Code(material.config_text, "yaml")]))
    return blocks


def _time(material: Material) -> list[Block]:
    prefix = "time/share/"
    shares = {name.removeprefix(prefix): value for name, value in material.facts.metrics.items() if name.startswith(prefix)}
    ordered = sorted(((name, value) for name, value in shares.items() if 0 <= value <= 1), key=lambda part: -part[1])
    if not ordered:
        return []
    rest = 1.0 - sum(value for _, value in ordered)
    return [Shares([*ordered, *([("the rest", rest)] if rest > 0.0005 else [])])]


def _metrics(material: Material) -> list[Block]:
    rows, last = material.sample.rows, material.facts.metrics
    selected = [(Mono(name), number(last[name])) for name in _SELECTED if name in last]
    if not last:
        return []
    axis, _ = axis_of(rows)
    everything: list[Sequence[Inline]] = []
    for name, value in last.items():
        line = curve(rows, name, axis)
        ends = spread(line)
        low, high = ("-", "-") if ends is None else map(number, ends)
        everything.append((Mono(name), number(value), low, high, Mono(sparkline([float(y) for y in line.y], 24))))
    table = Table(("metric", "last", "lowest", "highest", "over time"), everything, frozenset({1, 2, 3}))
    shown: list[Block] = [Table(("metric", "last"), selected, frozenset({1}))] if selected else []
    return [*shown, Folded(f"All {len(everything)} metrics", [table])]


def _alerts(material: Material) -> list[Block]:
    if not material.alerts:
        return [Paragraph("None was raised.")]
    still = active_in(list(material.alerts))
    raised: dict[str, list[Any]] = {}
    for each in material.alerts:
        if each["state"] == "raised":
            raised.setdefault(each["id"], []).append(each)
    rows: list[Sequence[Inline]] = []
    for name, times in sorted(raised.items(), key=lambda item: -len(item[1])):
        first, latest = times[0], times[-1]
        state = "still active at the end" if name in still else "cleared"
        rows.append((Mono(name), str(len(times)), f"{first['env_steps']:,}", f"{latest['env_steps']:,}", state,
                     "; ".join(text for text in (latest["message"], latest["tip"]) if text)))  # fmt: skip
    head = ("alert", "times", "first at step", "last at step", "state", "what it said")
    return [Table(head, rows[:_MOST_ALERTS], frozenset({1, 2, 3}))]


def _evaluations(material: Material) -> list[Block]:
    blocks: list[Block] = []
    asked = [_evaluation(each) for each in material.evaluations[-_MOST_EVALUATIONS:]]
    if asked:
        head = ("checkpoint", "return", "± std", "lowest", "highest", "episodes", "actions", "measured")
        blocks += [Paragraph("On request (etude evaluate):"), Table(head, asked, frozenset({1, 2, 3, 4, 5}))]
    trained = [row for row in material.sample.rows if "eval/return_mean" in row]
    if trained:
        names = ("eval/return_mean", "eval/return_std", "eval/return_min", "eval/return_max", "eval/length_mean")
        rows = [[f"{int(row.get('env_steps', 0)):,}", *(_cell(row.get(name)) for name in names)] for row in trained]
        table = Table(("step", "return", "± std", "lowest", "highest", "length"), rows[-200:], frozenset(range(6)))
        blocks.append(Folded(f"During training: {len(trained)}", [table]))
    return blocks


def _evaluation(record: Mapping[str, Any]) -> Sequence[Inline]:
    numbers = [_cell(record.get(key)) for key in ("return_mean", "return_std", "return_min", "return_max")]
    episodes = record.get("episodes")
    counted = f"{episodes:,}" if isinstance(episodes, int) else "-"
    checkpoint, mode, created = (str(record.get(key)) for key in ("checkpoint", "mode", "created"))
    return (Mono(checkpoint), *numbers, counted, mode, _moment(created))


def _media(material: Material, folder: Path) -> list[Block]:
    if not material.media:
        return []
    shown = material.media[-_MOST_MEDIA:]
    here = folder.absolute()
    files = [MediaFile(os.path.relpath(p.absolute(), here), p.name, p.suffix.lower() in VIDEOS) for p in shown]
    more = len(material.media) - len(shown)
    note: list[Block] = [Paragraph(f"The newest {len(shown)}; {more} more lie in videos/.")] if more else []
    return [*note, Media(files)]


def _checkpoints(material: Material) -> list[Block]:
    rows: list[Sequence[Inline]] = []
    for each in material.checkpoints:
        marks = " ".join(mark for mark, holds in (("best", each.is_best), ("last", each.is_last)) if holds)
        steps, updates = (f"{each.counters.get(name, 0):,}" for name in ("env_steps", "updates"))
        rows.append((Mono(each.name), steps, updates, each.kind, f"{each.size / 2**20:,.2f} MiB", marks))
    return [Table(("checkpoint", "steps", "updates", "holds", "size", ""), rows, frozenset({1, 2, 4}))] if rows else []


def _provenance(material: Material) -> list[Block]:
    git, machine, facts = material.git, material.machine, material.facts
    items: list[tuple[str, Inline]] = []
    if facts.commit:
        changed = ", with changes of its own" if git.get("dirty") else ""
        items.append(("code", f"commit {facts.commit[:12]} on {git.get('branch') or 'no branch'}{changed}"))
    torch = machine.get("torch")
    cpu = machine.get("cpu")
    packages = machine.get("packages")
    etude = packages.get("etude") if isinstance(packages, dict) else None
    gpus = found if isinstance(found := machine.get("gpus"), list) else []
    for label, value in (
        ("Etude", etude),
        ("Python", str(machine.get("python") or "").partition(" ")[0]),
        ("torch", torch.get("version") if isinstance(torch, dict) else None),
        ("system", machine.get("os")),
        ("CPU", cpu.get("model") if isinstance(cpu, dict) else None),
        ("GPU", ", ".join(str(each.get("name")) for each in gpus if isinstance(each, dict))),
        ("config hash", facts.config_hash),
        ("initial weights from", facts.config.get("experiment.init_from")),
    ):
        if value:
            items.append((label, str(value)))
    return [Bullets(items)] if items else []


def _reproduce(material: Material) -> list[Block]:
    facts, path = material.facts, material.run.path
    again = f"etude {shlex.join(material.command[1:])}" if len(material.command) > 1 else command("train --from-run", path)
    lines = ["# restore its exact code", command("runs checkout", path)] if facts.commit else []
    lines += ["# train it again", again]
    lines += ["# prove that it reproduces", command("verify", path)]
    if facts.status not in ("finished", "running"):
        lines += ["# go on with it", command("resume", path)]
    if material.checkpoints:
        best = any(each.is_best for each in material.checkpoints)
        lines += ["# measure it", command("evaluate", path, *(["--checkpoint", "best"] if best else []), "--episodes", "100")]
    return [Code("\n".join(lines), "bash")]


def _problems(material: Material) -> list[Block]:
    return [Bullets([("", problem) for problem in material.problems])] if material.problems else []


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _cell(value: Any) -> str:
    return number(value) if isinstance(value, int | float) and not isinstance(value, bool) else "-"


def _moment(iso: str | None) -> str:
    try:
        return f"{datetime.fromisoformat(iso or '').astimezone():%Y-%m-%d %H:%M:%S %Z}".strip()
    except (ValueError, OverflowError):
        return iso or "-"


def report_link(path: Path, folder: Path) -> Inline:
    """Return a run's id, as a link to its report where it has one."""
    page = path / "report.html"
    is_there = page.is_file() and not page.is_symlink()
    return Link(path.name, os.path.relpath(page.absolute(), folder.absolute())) if is_there else Mono(path.name)

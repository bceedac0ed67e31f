"""The card of a published policy: what a hub shows of it, and how it is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from etude.reporting.escaping import markdown, markdown_block, markdown_code

RESULT_TYPE = "mean_reward"
"""What hubs call the return of an episode."""


@dataclass(frozen=True)
class Card:
    """All that a card says."""

    environment: str
    algorithm: str
    run: str
    seed: int
    env_steps: int
    checkpoint: str
    version: str
    """Of Etude."""
    settings: dict[str, Any]
    """Of the algorithm and its networks."""
    evaluation: dict[str, Any] | None = None
    """As in evaluation.json; None if it was left out."""
    repository: str | None = None
    """OWNER/NAME; None for a folder."""
    license: str | None = None
    has_video: bool = False
    has_onnx: bool = False
    notes: Sequence[str] = field(default_factory=tuple)
    """What else a reader should know."""


def front_matter(card: Card) -> dict[str, Any]:
    """Return what hubs read, with the evaluation as a model index."""
    found: dict[str, Any] = {"library_name": "etude", "pipeline_tag": "reinforcement-learning"}
    if card.license:
        found["license"] = card.license
    found["tags"] = ["reinforcement-learning", "deep-reinforcement-learning", "etude", card.environment, card.algorithm]
    if card.evaluation is not None:
        mean, std = card.evaluation["return_mean"], card.evaluation["return_std"]
        result = {
            "task": {"type": "reinforcement-learning", "name": "reinforcement-learning"},
            "dataset": {"name": card.environment, "type": card.environment},
            "metrics": [{"type": RESULT_TYPE, "value": f"{mean:.2f} +/- {std:.2f}", "name": RESULT_TYPE, "verified": False}],
        }
        found["model-index"] = [{"name": f"{card.algorithm}-{card.environment}", "results": [result]}]
    return found


def to_markdown(card: Card) -> str:
    """Return README.md."""
    head = yaml.safe_dump(front_matter(card), sort_keys=False, allow_unicode=True)
    return "\n\n".join([f"---\n{head}---", *_body(card)]) + "\n"


def _body(card: Card) -> list[str]:
    parts = [f"# {markdown(card.algorithm)} in {markdown(card.environment)}"]
    parts.append(
        f"A policy that Etude {card.version} has trained: {markdown_code(card.algorithm)} in "
        f"{markdown_code(card.environment)}, seed {card.seed}, {card.env_steps:,} environment steps."
    )
    if card.evaluation is not None:
        parts.append(_evaluation(card.evaluation))
    if card.has_video:
        parts.append("[An episode of it](replay.mp4)")
    parts.append("## Use it")
    where = f"hub:{card.repository}" if card.repository else "FOLDER"
    parts.append(markdown_block(f"etude evaluate {where} --episodes 100\netude play {where}", "bash"))
    lines = ["import etude", "", f'policy, environment = etude.load_policy("{where}")']
    parts.append(markdown_block("\n".join(lines), "python"))
    parts.append("Loading executes nothing of it: weights are safetensors, settings are YAML and JSON.")
    if card.has_onnx:
        parts.append(
            "Without Etude: `onnx/policy.onnx` takes observations as the task gives them and returns actions in its units; "
            "`onnx/metadata.json` says what each number means."
        )
    parts += [f"- {markdown(note)}" for note in card.notes]
    parts.append("## Settings")
    parts.append(markdown_block(yaml.safe_dump(card.settings, sort_keys=False, allow_unicode=True).rstrip(), "yaml"))
    parts.append(
        f"All of them are in `resolved.yaml`. Run {markdown_code(card.run)}, checkpoint {markdown_code(card.checkpoint)}."
    )
    return parts


def _evaluation(found: dict[str, Any]) -> str:
    interval = found.get("return_ci95")
    within = f", mean within [{interval[0]:.2f}, {interval[1]:.2f}] at 95%" if interval else ""
    return (
        f"Return **{found['return_mean']:.2f} ± {found['return_std']:.2f}** over {len(found['returns'])} fresh episodes "
        f"({found['mode']}, seed {found['seed']}){within}. Every one of them is in `evaluation.json`."
    )

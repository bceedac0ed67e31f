"""The reference of rules and alerts is made from the rules, and what they advise exists."""

from __future__ import annotations

import re
from pathlib import Path

from etude.telemetry.metric_rules import default_rules
from etude.telemetry.trends import TRENDS
from tools.reference.metrics import refresh

DOCS = Path(__file__).parents[2] / "docs"


def test_the_generated_reference_is_fresh() -> None:
    text = (DOCS / "metrics.md").read_text(encoding="utf-8")
    assert refresh(text) == text, "docs/metrics.md is stale; refresh it: make docs"


def test_every_setting_and_page_that_a_tip_names_exists() -> None:
    rules = default_rules()
    tips = [tip for rule in rules.metrics.values() for tip in (rule.tip, rule.tip_low, rule.tip_high)]
    tips += [rule.tip for rule in rules.alerts.values()]
    known = (DOCS / "configuration.md").read_text(encoding="utf-8")
    known += "".join(page.read_text(encoding="utf-8") for page in DOCS.glob("*.md") if page.name != "metrics.md")
    sections = "algorithm|buffers|checkpoint|environment|evaluation|experiment|logging|network|training"
    for setting in {found for tip in tips for found in re.findall(rf"\b(?:{sections})\.\w+(?:\.\w+)*", tip)}:
        assert f"`{setting}`" in known or f"`{setting}=" in known, setting
    for page in {found for tip in tips for found in re.findall(r"docs/[\w-]+\.md", tip)}:
        assert (DOCS.parent / page).exists(), page
    assert set(TRENDS) | {"nan", "non_finite"} == set(rules.alerts)

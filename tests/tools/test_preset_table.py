"""The table of presets: every preset once, as it is now, with what was recorded for exactly these settings."""

from __future__ import annotations

from pathlib import Path

from etude.config.environment_presets import environment_presets, family_presets, variants
from tools.reference.presets import recorded_returns, refresh, render_families, render_table

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "presets.md"
RESULTS = """
| Command | Environment steps | Return of each seed (1, 2) | Minutes |
|---|---|---|---|
| `CartPole-v1:ppo` (a remark) | 100,000 | 500, 482 | 1 |
| `CartPole-v1:a2c` | 5 | 17 | 1 |
| `Pendulum-v1:ppo algorithm.gamma=0.5` | 200,000 | −1 | 1 |
| the same, seed 3 | 200,000 | 3 | 1 |
| `Pendulum-v1:sac` | 20,000 | −146 | 1 |
| the same, seed 3 | 20,000 | −150 | 1 |
| the same with an MLP | 20,000 | −9 | 1 |

## Not there yet

| Command | Environment steps | Return of each seed |
|---|---|---|
| `CartPole-v1:dqn` | 100,000 | 9 |
"""


def test_the_generated_table_is_fresh() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert refresh(text, DOCS / "results") == text, (
        "docs/presets.md is stale: python -m tools.reference.presets docs/presets.md"
    )


def test_every_preset_has_one_row() -> None:
    rows = render_table(DOCS / "results").splitlines()[2:]
    specs = [f"`{name}:{variant}`" for name, preset in environment_presets().items() for variant in variants(preset)]
    assert [row.split("|")[1].strip() for row in rows] == specs


def test_only_a_run_of_exactly_a_presets_settings_and_budget_counts_as_its_result(tmp_path: Path) -> None:
    tmp_path.joinpath("some.md").write_text(RESULTS, encoding="utf-8")
    assert recorded_returns(tmp_path) == {
        ("CartPole-v1:ppo", 100_000): "[500, 482](results/some.md)",
        ("CartPole-v1:a2c", 5): "[17](results/some.md)",
        ("Pendulum-v1:sac", 20_000): "[−146](results/some.md); [seed 3: −150](results/some.md)",
    }
    rows = {row.split("|")[1].strip(): row.split("|")[-2].strip() for row in render_table(tmp_path).splitlines()[2:]}
    assert rows["`CartPole-v1:ppo`"] == "[500, 482](results/some.md)"
    assert rows["`CartPole-v1:a2c`"] == rows["`CartPole-v1:dqn`"] == rows["`Pendulum-v1:ppo`"] == ""


def test_every_variant_of_a_family_has_one_row() -> None:
    rows = [[cell.strip().strip("`") for cell in row.split("|")[1:3]] for row in render_families().splitlines()[2:]]
    assert rows == [[name, variant] for name, preset in family_presets().items() for variant in variants(preset)]

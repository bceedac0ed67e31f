"""EVL-03: the page says of every algorithm how it is measured, and says it right."""

from __future__ import annotations

import re

from etude.config.compose import compose
from etude.config.registry import algorithms
from etude.training import assembly
from etude.training.evaluation import evaluation_modes
from etude.workflows.base import Workflow
from tests.docs.pages import ROOT

ROW = re.compile(r"^\| `(\w+)` \| `(greedy|sample)` \| \w", re.MULTILINE)


def test_the_default_of_every_algorithm_is_documented() -> None:
    documented = dict(ROW.findall((ROOT / "docs/metrics.md").read_text(encoding="utf-8")))
    assert documented == {name: algorithms.resolve(name).evaluation_mode for name in algorithms.builtin_names()}
    assert Workflow.evaluation_mode == "greedy", "as the page says of one's own"


def test_a_run_is_measured_so() -> None:
    for spec, mode in (("CartPole-v1:ppo", "greedy"), ("Pendulum-v1:sql", "sample"), ("CartPole-v1:random", "sample")):
        config = assembly.resolve(compose(spec).config)
        assert evaluation_modes(config) == (mode,)

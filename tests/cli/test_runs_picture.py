from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

from etude.cli.runs.picture import main
from tests.runs.run_trees import make_run


def test_a_table_of_runs_becomes_a_picture_that_stands_alone(tmp_path: Path) -> None:
    root, out = tmp_path / "runs", tmp_path / "runs-list.svg"
    make_run(root, "first", best=123.4, tags=["paper"])
    main([str(root), str(out)])
    text = out.read_text(encoding="utf-8")
    ElementTree.fromstring(text)
    assert "<script" not in text
    assert "url(http" not in text
    assert "123.4" in text
    assert "paper" in text

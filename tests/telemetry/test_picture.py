from __future__ import annotations

import xml.etree.ElementTree as ElementTree

from etude.telemetry.jsonl import JsonlSink
from etude.telemetry.picture import main


def test_a_run_becomes_a_picture_without_scripts(tmp_path, rows):
    sink = JsonlSink(tmp_path / "metrics.jsonl")
    sink.write(rows)
    sink.close()
    out = tmp_path / "live-view.svg"
    main([str(tmp_path), str(out), "--at", "0.6", "--spec", "CartPole-v1:ppo"])
    text = out.read_text(encoding="utf-8")
    ElementTree.fromstring(text)
    assert "<script" not in text
    shown = text.replace("&#160;", " ")
    assert "59,392 / 99,328 steps" in shown
    assert "explained_variance" in shown

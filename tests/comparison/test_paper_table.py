"""Tables for papers: they compile, whatever a run is called."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.comparison.paper_table import latex, latex_escape, markdown, markdown_escape
from etude.comparison.results import compare
from tests.comparison.synthetic import two_setups, write_run

NASTY = r"50% & more_#1 {x} $y$ ~^ \input{/etc/passwd} <é> | → 中"


def cells(row: str) -> list[str]:
    return re.split(r"(?<!\\)&", row.removesuffix(r"\\").strip())


def test_the_latex_table_has_the_structure_that_booktabs_wants(tmp_path: Path) -> None:
    text = latex(compare(two_setups(tmp_path), metrics=["eval/return_mean", "train/entropy"]))
    columns = re.search(r"\\begin\{tabular\}\{(\w+)\}", text)
    assert columns is not None
    body = text.partition(r"\midrule")[2].partition(r"\bottomrule")[0].strip().splitlines()
    assert len(body) == 2
    assert all(line.endswith(r"\\") and len(cells(line)) == len(columns[1]) == 7 for line in body)
    assert re.findall(r"\\(begin|end)\{(\w+)\}", text) == [
        *(("begin", "table"), ("begin", "tabular")),
        *(("end", "tabular"), ("end", "table")),
    ]
    for rule in ("toprule", "midrule", "bottomrule", "cmidrule"):
        assert f"\\{rule}" in text
    assert r"$110.0 \pm 10.00\ [" in text
    assert r"eval/return\_mean" in text
    assert r"95\%" in text


def test_every_special_character_is_escaped(tmp_path: Path) -> None:
    text = latex(compare([write_run(tmp_path, "a", settings={"algorithm.gamma": NASTY})], by="algorithm.gamma"))
    assert r"50\% \& more\_\#1 \{x\} \$y\$ \textasciitilde{}\textasciicircum{}" in text
    assert r"\textbackslash{}input\{/etc/passwd\}" in text
    assert r"\textless{}é\textgreater{} \textbar{} $\rightarrow$ [U+4E2D]" in text


@given(st.text())
def test_escaped_text_holds_no_command_but_ours(text: str) -> None:
    escaped = latex_escape(text)
    known = (
        r"\\(?:textbackslash|textasciitilde|textasciicircum|textless|textgreater|textbar|textperiodcentered|ldots|char34)\{\}"
    )
    rest = re.sub(known + r"|\\[{}$&#_%]|\$\\(?:rightarrow|times|pm)\$|\$-\$", "", escaped)
    assert not set(rest) & set('\\{}$&#_%~^<>|"\n')


@given(st.text())
def test_markdown_cells_stay_cells(text: str) -> None:
    assert not re.search(r"(?<!\\)(?:\\\\)*\|", markdown_escape(text))
    assert "\n" not in markdown_escape(text)


def test_numbers_are_set_as_mathematics(tmp_path: Path) -> None:
    tiny = write_run(tmp_path, "a", returns=[0, 0, 0, -2.5e-5], metrics={"big/one": [0, 0, 0, 1234567.0]})
    text = latex(compare([tiny], metrics=["eval/return_mean", "big/one"]))
    assert r"$-2.500 \times 10^{-5}$" in text
    assert r"$1{,}234{,}567$" in text


def test_the_markdown_table_is_one(tmp_path: Path) -> None:
    lines = markdown(compare(two_setups(tmp_path))).splitlines()
    assert lines[0] == r"| Method | Seeds | Steps | eval/return\_mean mean | eval/return\_mean IQM |"
    assert lines[1] == "| --- | ---: | ---: | ---: | ---: |"
    assert lines[2].startswith(r"| gamma=0.98 | 3 | 4,000 | 110.0 ± 10.00 \[")
    assert "95% stratified bootstrap" in lines[-1]


@pytest.mark.parametrize("table", [latex, markdown])
def test_runs_without_a_value_have_a_dash_and_are_counted(tmp_path: Path, table) -> None:
    paths = [
        write_run(tmp_path, "a", returns=[float("nan")] * 4),
        write_run(tmp_path, "b", settings={"algorithm.gamma": 0.1}, metrics={"train/kl": [1, 1, 1, 1]}),
    ]
    text = table(compare(paths))
    assert "0 of 1" in text
    assert "--" in text
    assert "nan" not in text

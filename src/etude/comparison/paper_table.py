"""A comparison as a table for a paper: LaTeX or Markdown."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence

from etude.comparison.results import Comparison, Result
from etude.comparison.text import seeds, steps
from etude.runs.statistics import Estimate
from etude.telemetry.readable import number

_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "_": r"\_",
    "%": r"\%",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    # As a bare character it is a command to some languages of babel.
    '"': r"\char34{}",
    "→": r"$\rightarrow$",
    "×": r"$\times$",
    "±": r"$\pm$",
    "−": r"$-$",
    "–": "--",
    "—": "---",
    "…": r"\ldots{}",
    "·": r"\textperiodcentered{}",
}
_LETTERS = "ßæøåœłÆØÅŒŁ"
_ACCENTS = "\u0300\u0301\u0302\u0303\u0304\u0306\u0307\u0308\u030a\u030b\u030c\u0327"
_MARKDOWN = r"\`*_{}[]<>#|~"


def latex(comparison: Comparison) -> str:
    """Return a table for LaTeX with the package booktabs; every special character is escaped."""
    columns = "l" + "rr" + "rr" * len(comparison.metrics)
    names = [latex_escape(metric) for metric in comparison.metrics]
    spans = [rf"\cmidrule(lr){{{4 + 2 * n}-{5 + 2 * n}}}" for n in range(len(names))]
    first = " & ".join(["", "", "", *(rf"\multicolumn{{2}}{{c}}{{{name}}}" for name in names)])
    second = " & ".join(["Method", "Seeds", "Steps", *["Mean", "IQM"] * len(names)])
    lines = [
        r"% needs \usepackage{booktabs}",
        r"\begin{table}",
        r"  \centering",
        rf"  \caption{{{latex_escape(_caption(comparison))}}}",
        rf"  \begin{{tabular}}{{{columns}}}",
        r"    \toprule",
        rf"    {first} \\",
        f"    {' '.join(spans)}",
        rf"    {second} \\",
        r"    \midrule",
        *(rf"    {' & '.join(row)} \\" for row in _rows(comparison, latex_escape, _latex_value)),
        r"    \bottomrule",
        r"  \end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def markdown(comparison: Comparison) -> str:
    """Return a Markdown table with its caption below."""
    names = [markdown_escape(metric) for metric in comparison.metrics]
    heading = ["Method", "Seeds", "Steps", *(f"{name} {measure}" for name in names for measure in ("mean", "IQM"))]
    rows = [heading, ["---", *["---:"] * (len(heading) - 1)], *_rows(comparison, markdown_escape, _markdown_value)]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"{table}\n\n{markdown_escape(_caption(comparison))}\n"


def latex_escape(text: str) -> str:
    """Return text that LaTeX sets as it is; a character it has no letter for is spelled as its code."""
    return "".join(_LATEX.get(character) or _plain(character) for character in _one_line(text))


def markdown_escape(text: str) -> str:
    """Return text that Markdown shows as it is, within a table too."""
    return "".join(f"\\{character}" if character in _MARKDOWN else character for character in _one_line(text))


def _rows(
    comparison: Comparison, escape: Callable[[str], str], show: Callable[[Estimate, float | None], str]
) -> list[list[str]]:
    by_metric = [comparison.of(metric) for metric in comparison.metrics]
    rows = []
    for position, group in enumerate(comparison.groups):
        cells = [escape(group.label), escape(_seed_count(by_metric, position)), escape(steps(group))]
        for results in by_metric:
            summary = results[position].summary
            cells.append(show(summary.mean, summary.std) if summary else "--")
            cells.append(show(summary.iqm, None) if summary else "--")
        rows.append(cells)
    return rows


def _seed_count(by_metric: Sequence[Sequence[Result]], position: int) -> str:
    """Return how many runs count, and of how many where some have no value."""
    members = len(by_metric[0][position].group.members)
    summaries = [found[position].summary for found in by_metric]
    counts = {summary.count if summary else 0 for summary in summaries}
    return str(members) if counts == {members} else f"{min(counts)} of {members}"


def _caption(comparison: Comparison) -> str:
    taken = "at each run's end" if comparison.limit is None else f"at {comparison.limit:,.0f} {comparison.axis}"
    groups = {seeds(group) for group in comparison.groups}
    which = f" {groups.pop()}" if len(groups) == 1 else ""
    return (
        f"Mean ± standard deviation over seeds{which} and interquartile mean, {taken}, "
        "with 95% stratified bootstrap percentile confidence intervals in brackets."
    )


def _latex_value(found: Estimate, std: float | None) -> str:
    text = _latex_number(found.value)
    if std is not None:
        text += rf" \pm {_latex_number(std)}"
    if found.interval:
        text += rf"\ [{_latex_number(found.interval.low)}, {_latex_number(found.interval.high)}]"
    return f"${text}$"


def _latex_number(value: float) -> str:
    text = number(value)
    mantissa, e, exponent = text.partition("e")
    # In mathematics a comma is followed by a space unless it stands in braces.
    return rf"{mantissa} \times 10^{{{int(exponent)}}}" if e else text.replace(",", "{,}")


def _markdown_value(found: Estimate, std: float | None) -> str:
    text = number(found.value) + (f" ± {number(std)}" if std is not None else "")
    if found.interval:
        text += f" \\[{number(found.interval.low)}, {number(found.interval.high)}\\]"
    return text


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def _plain(character: str) -> str:
    if character.isascii():
        return character if character.isprintable() else "?"
    # Every LaTeX has these letters and puts these accents on plain ones; what else it can set depends on its fonts.
    base, *marks = unicodedata.normalize("NFD", character)
    is_accented = ord(character) < 0x180 and base.isascii() and base.isalpha() and set(marks) <= set(_ACCENTS)
    return character if is_accented or character in _LETTERS else f"[U+{ord(character):04X}]"

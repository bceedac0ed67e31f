"""docs/faults.md promises nothing that no test checks."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "faults.md"


def table_rows() -> list[list[str]]:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("|") and not line.startswith("|---")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if not line.endswith("| Test |")]


def test_every_fault_has_an_answer_a_way_out_and_a_test_that_exists() -> None:
    rows = table_rows()
    assert len(rows) > 30
    for row in rows:
        fault, answer, way_out, tests = row
        assert fault, row
        assert answer, row
        assert way_out, row
        named = re.findall(r"`([\w/.]+)`", tests)
        assert named, row
        for name in named:
            assert (TESTS / name).is_file(), f"{fault}: tests/{name} does not exist"
            assert "def test_" in (TESTS / name).read_text(), name


def test_every_test_of_faults_is_on_the_page() -> None:
    named = {name for row in table_rows() for name in re.findall(r"`faults/([\w.]+)`", row[3])}
    here = {path.name for path in Path(__file__).parent.glob("test_*.py")} - {Path(__file__).name}
    assert here == named


def test_the_line_that_is_shown_is_the_line_that_is_said() -> None:
    from etude.runs import checkpoint, disk_failure

    shown = PAGE.read_text()
    for part in ("could not be saved in", "earlier checkpoints are untouched"):
        assert part in shown
        assert part in Path(str(checkpoint.__file__)).read_text()
    assert "; make room, then `etude resume" in shown
    assert '"make room"' in Path(str(disk_failure.__file__)).read_text()

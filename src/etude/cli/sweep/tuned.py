"""The end of `etude tune`: what was found, against the defaults and against seconds, and the files to use it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etude.cli.sweep.view import short_names, shown_values
from etude.runs.places import runs_option

if TYPE_CHECKING:
    from etude.tuning.places import SweepFolder


def finish(folder: SweepFolder) -> list[str]:
    """Write the preset, the front and the report, and return what to say of them."""
    from etude.errors import MissingPackageError
    from etude.files.atomic import write_bytes_atomic, write_text_atomic
    from etude.tuning.page import page
    from etude.tuning.pictures import draw_all
    from etude.tuning.report import make_report, text_lines
    from etude.tuning.tuned_report import best_preset, tuned_lines

    report = make_report(folder, top=5)
    names = short_names([*report.plan.space.searched, *report.plan.space.derived])
    target = folder.path / "report"
    target.mkdir(parents=True, exist_ok=True)
    preset = best_preset(report)
    write_text_atomic(target / "preset.yaml", preset)
    lines = tuned_lines(report, lambda settings: shown_values(settings, names))
    try:
        pictures = draw_all(report, names)
    except MissingPackageError:
        pictures = {}
    for title, picture in pictures.items():
        write_bytes_atomic(target / f"{title.lower().replace(' ', '-')}.png", picture)
    text = [*lines, "", *text_lines(report, names)]
    write_text_atomic(target / "report.html", page(f"Tuning {folder.name}", text, pictures, {"preset.yaml": preset}))
    return [
        *lines,
        f"train it: etude train --config {target / 'preset.yaml'}{runs_option(folder.root)}",
        f"more of it: {target / 'report.html'}",
    ]

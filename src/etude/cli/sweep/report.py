"""`etude sweep report NAME`: what came of a sweep."""

from __future__ import annotations

from pathlib import Path

from etude.cli.options import at_least
from etude.cli.output import emit_json, note, say
from etude.cli.parameters import AsJson, RunsFolder
from etude.cli.places import existing_runs_root
from etude.cli.sweep.resume import SweepName
from etude.cli.sweep.view import short_names


def report(
    name: SweepName,
    /,
    *,
    top: int = 5,
    threshold: float | None = None,
    out: Path | None = None,
    pictures: bool = True,
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> int:
    """Show a sweep's best trials and what mattered, and write them: a page that stands alone, pictures, and config files.

    It can be asked at any time, also while the sweep runs.

    Parameters
    ----------
    top
        How many of the best; each is written as a config file that `etude train --config` takes.
    threshold
        Add a column: the seconds until the objective first reached this.
    out
        The folder to write to. Default: report in the sweep's own.
    pictures
        Draw history, importances, slices and parallel coordinates (extra: plots).
    """
    from etude.errors import MissingPackageError, UserError
    from etude.files.atomic import write_bytes_atomic, write_text_atomic
    from etude.tuning.page import page
    from etude.tuning.pictures import draw_all
    from etude.tuning.places import SweepFolder
    from etude.tuning.report import export_best, make_report, text_lines

    at_least(1, top=top)
    folder = SweepFolder(existing_runs_root(runs), name)
    found = make_report(folder, top=top, threshold=threshold)
    names = short_names([*found.plan.space.searched, *found.plan.space.derived])
    target = out or folder.path / "report"
    try:
        target.mkdir(parents=True, exist_ok=True)
        files = export_best(found, target / "best")
        lines = text_lines(found, names)
        drawn: dict[str, bytes] = {}
        if pictures:
            try:
                drawn = draw_all(found, names)
            except MissingPackageError as error:
                note(str(error))
        for title, picture in drawn.items():
            write_bytes_atomic(target / f"{title.lower().replace(' ', '-')}.png", picture)
        texts = {str(path.relative_to(target)): path.read_text(encoding="utf-8") for path in files}
        write_text_atomic(target / "report.html", page(f"Sweep {name}", lines, drawn, texts))
    except OSError as error:
        raise UserError(f"{target}: {error.strerror or error}") from None
    if as_json:
        best = [
            {
                "trial": ranked.trial.number,
                "objective": ranked.trial.result,
                "settings": ranked.trial.settings,
                "seconds_to_threshold": ranked.seconds_to_threshold,
                **ranked.trial.facts,
            }
            for ranked in found.best
        ]
        emit_json({"name": name, "best": best, "importances": found.importances, "files": [str(path) for path in files]})
        return 0
    for line in lines:
        say(line)
    note(f"wrote {target / 'report.html'} and {len(files)} config file{'s' * (len(files) != 1)} in {target / 'best'}")
    return 0

"""Writes reports: into a run's directory, or wherever somebody wants them."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from etude.errors import EtudeError
from etude.files.atomic import write_text_atomic
from etude.reporting.document import Document
from etude.reporting.html import to_html
from etude.reporting.markdown import to_markdown
from etude.reporting.run_material import read_material
from etude.reporting.run_report import run_report


class ReportError(EtudeError):
    """A report could not be written, for whatever reason."""


def write_run_report(path: Path, folder: Path | None = None) -> tuple[Path, Path]:
    """Write report.md and report.html of the run at `path` into it, or into another folder; returns both files.

    Whatever goes wrong is a ReportError of one line: a training that is over must not fail by it.
    """
    folder = path if folder is None else folder
    try:
        document = run_report(read_material(path), folder=folder, now=datetime.now().astimezone())
        return write_document(document, folder, "report")
    except EtudeError:
        raise
    except Exception as error:
        raise ReportError(f"the report could not be written: {type(error).__name__}: {error}") from error


def write_document(document: Document, folder: Path, stem: str) -> tuple[Path, Path]:
    """Write a document twice, as STEM.md and as STEM.html."""
    folder.mkdir(parents=True, exist_ok=True)
    text, page = folder / f"{stem}.md", folder / f"{stem}.html"
    try:
        write_text_atomic(text, to_markdown(document))
        write_text_atomic(page, to_html(document))
    except OSError as error:
        raise ReportError(f"{error.filename or folder}: the report can't be written: {error.strerror or error}") from error
    return text, page

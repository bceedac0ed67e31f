"""Files of a run for the browser: videos and pictures in ranges, the end of its log, and its report in a sandbox."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from etude.files.printable import printable
from etude.ui.confined import open_below

REPORT = "report.html"
FOLDERS = ("videos",)
_KINDS = {
    ".mp4": "video/mp4",
    ".webm": "video/webm",
    ".gif": "image/gif",
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
}
# A report may be a stranger's: its page has an origin of its own, reaches nothing, and can't read ours.
_REPORT_POLICY = (
    "sandbox allow-scripts; default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; "
    "media-src data:; font-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_MEDIA_POLICY = "sandbox; default-src 'none'; frame-ancestors 'none'"
_LARGEST_REPORT = 64 * 2**20
_LOG_END = 64 * 1024
_PIECE = 256 * 1024


def kind_of(name: str) -> str | None:
    """Return the media type of a file that is shown, by its name; None for all others."""
    return _KINDS.get(Path(name).suffix.lower())


def medium(request: Request, run_directory: Path, folder: str, name: str) -> Response:
    """Answer with a video or a picture, or the range of it that was asked for."""
    kind = kind_of(name)
    if folder not in FOLDERS or kind is None:
        raise HTTPException(404, "there is no such file")
    descriptor = _opened(run_directory, folder, name)
    status = os.fstat(descriptor)
    etag = f'"{status.st_ino:x}-{status.st_size:x}-{status.st_mtime_ns:x}"'
    headers = {"accept-ranges": "bytes", "etag": etag, "content-security-policy": _MEDIA_POLICY}
    if request.headers.get("if-none-match") == etag:
        os.close(descriptor)
        return Response(status_code=304, headers={"etag": etag})
    wanted = request.headers.get("range") if request.headers.get("if-range", etag) == etag else None
    part = _range(wanted, status.st_size)
    if part is None:
        os.close(descriptor)
        raise HTTPException(416, "the file has no such part", {"content-range": f"bytes */{status.st_size}"})
    start, end = part
    headers["content-length"] = str(end - start)
    if wanted is not None:
        headers["content-range"] = f"bytes {start}-{end - 1}/{status.st_size}"
    if request.method == "HEAD":
        os.close(descriptor)
        return Response(status_code=206 if wanted else 200, headers=headers, media_type=kind)
    # Opened here: a page that is gone before the first piece leaves a file that is closed with it, and no descriptor.
    return StreamingResponse(_pieces(open(descriptor, "rb"), start, end), 206 if wanted else 200, headers, kind)


def report(run_directory: Path) -> Response:
    """Answer with the run's report."""
    descriptor = _opened(run_directory, REPORT)
    with open(descriptor, "rb") as file:
        if os.fstat(file.fileno()).st_size > _LARGEST_REPORT:
            raise HTTPException(413, "the report is too large")
        data = file.read(_LARGEST_REPORT)
    return Response(data, media_type="text/html; charset=utf-8", headers={"content-security-policy": _REPORT_POLICY})


def log_end(run_directory: Path) -> Response:
    """Answer with the last lines of run.log."""
    with open(_opened(run_directory, "run.log"), "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _LOG_END))
        text = file.read(_LOG_END).decode(errors="replace")
    whole = text if size <= _LOG_END else text.partition("\n")[2]
    return PlainTextResponse(printable(whole))


def _opened(run_directory: Path, *parts: str) -> int:
    try:
        return open_below(run_directory, *parts)
    except (OSError, ValueError):
        raise HTTPException(404, "there is no such file") from None


def _range(text: str | None, size: int) -> tuple[int, int] | None:
    """Return the first byte and the one after the last; None where the file has no such part."""
    if text is None:
        return 0, size
    found = re.fullmatch(r"bytes=(\d{0,18})-(\d{0,18})", text, re.ASCII)
    if found is None or found[0] == "bytes=-":
        return None
    if not found[1]:
        last = min(int(found[2]), size)
        return (size - last, size) if last else None
    start = int(found[1])
    end = min(int(found[2]) + 1, size) if found[2] else size
    return (start, end) if start < end else None


def _pieces(file: BinaryIO, start: int, end: int) -> Iterator[bytes]:
    with file:
        file.seek(start)
        while start < end:
            piece = file.read(min(_PIECE, end - start))
            if not piece:
                return
            start += len(piece)
            yield piece

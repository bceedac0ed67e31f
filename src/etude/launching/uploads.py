"""Runs kept in a bucket or a shared folder, for machines whose disks vanish with them."""

from __future__ import annotations

import re

from etude.errors import UserError

Commands = list[list[str]]


def check_upload(url: str, kinds: tuple[str, ...]) -> str:
    """Return where runs are kept, without a slash at its end: gs://BUCKET/FOLDER, s3://BUCKET/FOLDER or a shared folder."""
    kind = next((kind for kind in kinds if url.startswith(kind)), None)
    if (
        kind is None
        or not re.fullmatch(r"[\w./+=@-]+", url.removeprefix(kind), re.ASCII)
        or not url.removeprefix(kind).strip("/")
    ):
        examples = " or ".join(
            {"gs://": "gs://BUCKET/FOLDER", "s3://": "s3://BUCKET/FOLDER", "/": "/SHARED/FOLDER"}[k] for k in kinds
        )
        raise UserError(f"--upload {url}: {examples}, of letters, digits and . _ - + = @")
    return url.rstrip("/")


def store(runs: str, url: str) -> Commands:
    """Return what copies runs there: checkpoints first, all else after them, so that rows are never older than a checkpoint."""
    if url.startswith("gs://"):
        rsync = ["gcloud", "storage", "rsync", "--recursive", "--ignore-symlinks"]
        first, rest = r"^(?!.*/checkpoints/[^.]).*$", r"(^|/)\..*|.*/checkpoints/.*|^@.*"
        return [[*rsync, f"--exclude={first}", runs, url], [*rsync, f"--exclude={rest}", runs, url]]
    if url.startswith("s3://"):
        sync = ["aws", "s3", "sync", "--no-follow-symlinks", "--only-show-errors"]
        first = ["--exclude", "*", "--include", "*/checkpoints/*", "--exclude", "*/checkpoints/.*"]
        rest = ["--exclude", "*/checkpoints/*", "--exclude", ".*", "--exclude", "@*"]
        return [[*sync, *first, runs, url], [*sync, *rest, runs, url]]
    rsync = ["rsync", "-rlt", "--mkpath"]
    first = ["--exclude=/*/checkpoints/.*", "--include=/*/", "--include=/*/checkpoints/***", "--exclude=*"]
    rest = ["--exclude=/.*", "--exclude=/@*", "--exclude=/*/checkpoints/"]
    return [[*rsync, *first, f"{runs}/", f"{url}/"], [*rsync, *rest, f"{runs}/", f"{url}/"]]


def restore(url: str, runs: str) -> Commands:
    """Return what brings them back; where there is nothing yet, it does nothing or fails, and neither matters."""
    if url.startswith("gs://"):
        return [["gcloud", "storage", "rsync", "--recursive", url, runs]]
    if url.startswith("s3://"):
        return [["aws", "s3", "sync", "--only-show-errors", url, runs]]
    return [["rsync", "-rlt", f"{url}/", f"{runs}/"]]

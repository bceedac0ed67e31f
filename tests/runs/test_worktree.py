"""A run's code comes back exactly, beside the user's own, which does not change by a byte."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from etude.errors import EtudeError, UserError
from etude.runs import source_state
from etude.runs.stored_code import is_inside, read_stored_code
from etude.runs.trust import is_own_code, sign
from etude.runs.worktree import Restored, default_place, find_repository, remove, restore
from tests.runs.repositories import edit_note, files_of, git, make_repository, make_run, whole_state, write

FILES = {"train.py": "RATE = 1\n", "package/part.py": "x = 1\n" * 20, "old.py": "", ".gitignore": "ignored/\n"}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "code", FILES)


@pytest.fixture
def busy(repository: Path) -> Path:
    """A repository in the middle of somebody's work."""
    write(
        repository, {"train.py": "RATE = 2\n", "new.py": "y = 1\n", "staged.py": "z = 1\n", "ignored/data": "1", "tool": "#!"}
    )
    (repository / "tool").chmod(0o755)
    (repository / "old.py").unlink()
    git(repository, "add", "staged.py")
    return repository


def checked_out(run: Path, repository: Path, to: Path | None = None) -> Restored:
    code = read_stored_code(run)
    assert code is not None
    return restore(code, find_repository(code, cwd=repository), to or default_place(run))


def test_the_code_comes_back_as_it_was_and_the_users_tree_stays_as_it_is(busy: Path) -> None:
    run = make_run(busy / "runs", busy)
    then = files_of(busy)
    write(busy, {"train.py": "RATE = 3\n", "later.py": "", "new.py": "y = 2\n"})
    git(busy, "stash", "push", "-q", "staged.py")
    git(busy, "checkout", "-q", "-b", "other")
    before = whole_state(busy, leave_out=("runs",))
    restored = checked_out(run, busy)
    assert whole_state(busy, leave_out=("runs",)) == before
    assert files_of(restored.path) == {name: data for name, data in then.items() if not name.startswith(("runs/", "ignored/"))}
    assert os.access(restored.path / "tool", os.X_OK)
    assert restored.notes == ()
    assert git(restored.path, "rev-parse", "HEAD") == git(busy, "rev-parse", "main")
    assert "worktrees" not in git(busy, "status", "--porcelain", "-uall")


def test_removing_it_leaves_nothing(busy: Path) -> None:
    run = make_run(busy / "runs", busy)
    before = whole_state(busy)
    restored = checked_out(run, busy)
    remove(restored.path, busy)
    assert whole_state(busy) == before
    assert not (busy / ".git" / "worktrees").exists()


def test_asking_twice_gives_the_same_place_and_says_so(busy: Path) -> None:
    run = make_run(busy / "runs", busy)
    first = checked_out(run, busy)
    again = checked_out(run, busy)
    assert (again.path, again.existed, again.notes) == (first.path, True, ("it was there already",))
    (first.path / "train.py").write_text("RATE = 9\n")
    assert checked_out(run, busy).notes == ("it was there already; files in it were changed since",)


def test_a_changed_worktree_is_removed_only_by_force(busy: Path) -> None:
    run = make_run(busy / "runs", busy)
    restored = checked_out(run, busy)
    write(restored.path, {"__pycache__/train.pyc": "cached"})
    (restored.path / "notes.txt").write_text("hours of work")
    with pytest.raises(UserError, match="changed since it was made; --force"):
        remove(restored.path, busy)
    remove(restored.path, busy, force=True)
    assert not restored.path.exists()


def test_what_etude_did_not_make_is_neither_overwritten_nor_removed(busy: Path, tmp_path: Path) -> None:
    run = make_run(tmp_path / "runs", busy)
    write(tmp_path / "mine", {"thesis.tex": "..."})
    with pytest.raises(UserError, match="is there already"):
        checked_out(run, busy, tmp_path / "mine")
    git(busy, "worktree", "add", "-q", "--detach", str(tmp_path / "tree"))
    for folder in (tmp_path / "mine", tmp_path / "tree", busy):
        with pytest.raises(UserError, match="left alone"):
            remove(folder, busy, force=True)
    assert (tmp_path / "mine" / "thesis.tex").exists()


def test_a_worktree_deleted_by_hand_can_be_made_again(busy: Path, tmp_path: Path) -> None:
    import shutil

    run = make_run(tmp_path / "runs", busy)
    shutil.rmtree(checked_out(run, busy).path)
    assert (checked_out(run, busy).path / "train.py").read_text() == "RATE = 2\n"


def test_a_folder_that_claims_to_be_a_worktree_is_not_believed(busy: Path, tmp_path: Path) -> None:
    """Git run inside a stranger's folder obeys the config there; so nothing is asked of it."""
    run = make_run(tmp_path / "runs", busy)
    place = default_place(run)
    hostile = tmp_path / "runs" / "hostile"
    make_repository(hostile, {"a": ""})
    git(hostile, "config", "core.fsmonitor", f"touch {tmp_path / 'pwned'}")
    write(place, {".git": f"gitdir: {hostile / '.git'}\n"})
    with pytest.raises(UserError, match="is there already"):
        checked_out(run, busy)
    with pytest.raises(UserError, match="left alone"):
        remove(place, busy)
    assert not (tmp_path / "pwned").exists()


def test_hooks_and_redirections_do_not_run(busy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path / "runs", busy)
    write(busy, {".git/hooks/post-checkout": f"#!/bin/sh\ntouch {tmp_path / 'hooked'}\n"})
    (busy / ".git" / "hooks" / "post-checkout").chmod(0o755)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(busy / "index"))
    restored = checked_out(run, busy)
    assert (restored.path / "new.py").exists()
    assert not (tmp_path / "hooked").exists()


@pytest.mark.parametrize("name", ["../escaped", "/tmp/escaped", ".git/config", "a/.GIT/hooks/x", "git~1/x", ".git. /x", "a\\b"])
def test_a_path_that_leads_out_or_into_git_is_no_path(name: str) -> None:
    assert not is_inside(name)


def test_ordinary_paths_are_paths() -> None:
    assert all(is_inside(name) for name in ("a.py", "a/b c/ä.py", ".gitignore", ".github/x", "gits/x", "..a/b"))


def test_untracked_files_of_a_stranger_can_not_leave_the_worktree(repository: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    for number, (name, make) in enumerate(
        {
            "link": lambda path: path.symlink_to("/etc/passwd"),
            ".git": lambda path: path.write_text("gitdir: /elsewhere"),
            "pipe": lambda path: os.mkfifo(path),
            "train.py": lambda path: path.write_text("overwritten"),
        }.items()
    ):
        run = make_run(tmp_path / f"runs{number}", repository)
        (run / "provenance" / "untracked").mkdir()
        make(run / "provenance" / "untracked" / name)
        with pytest.raises(EtudeError, match=name):
            checked_out(run, repository)
        assert not default_place(run).exists(), "a failure leaves nothing behind"
    assert "worktrees" not in git(repository, "worktree", "list")


def test_a_link_that_the_patch_brings_is_not_written_through(repository: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (repository / "door").symlink_to(outside)
    git(repository, "add", "door")
    run = make_run(tmp_path / "runs", repository)
    write(run / "provenance" / "untracked" / "door", {"planted.py": "1"})
    with pytest.raises(EtudeError, match="written through door"):
        checked_out(run, repository)
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("target", ["../escaped.py", ".git/hooks/post-checkout", "door/planted.py"])
def test_a_patch_of_a_stranger_can_not_leave_the_worktree(target: str, repository: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (repository / "door").symlink_to(tmp_path / "outside")
    git(repository, "add", "door")
    git(repository, "commit", "-q", "-m", "A link")
    run = make_run(tmp_path / "runs", repository)
    lines = (f"diff --git a/{target} b/{target}", "new file mode 100755", "--- /dev/null", f"+++ b/{target}", "@@ -0,0 +1 @@")
    (run / "provenance" / "changes.patch").write_text("\n".join((*lines, "+#!/bin/sh", "")))
    edit_note(run, patch="changes.patch")
    before = whole_state(repository)
    with pytest.raises(EtudeError, match="does not apply"):
        checked_out(run, repository)
    assert whole_state(repository) == before
    assert not list(tmp_path.rglob("escaped.py")) + list((tmp_path / "outside").iterdir())


def test_a_patch_that_is_a_link_is_not_followed(repository: Path, tmp_path: Path) -> None:
    run = make_run(tmp_path / "runs", repository)
    (run / "provenance" / "changes.patch").symlink_to("/etc/passwd")
    edit_note(run, patch="changes.patch")
    with pytest.raises(EtudeError, match="not a plain file"):
        checked_out(run, repository)


@pytest.mark.parametrize("commit", ["--upload-pack=evil", "HEAD", "main", 7])
def test_only_a_commit_is_a_commit(commit: object, repository: Path, tmp_path: Path) -> None:
    run = make_run(tmp_path / "runs", repository)
    edit_note(run, commit=commit)
    with pytest.raises(EtudeError, match="is not a commit"):
        checked_out(run, repository)


def test_a_missing_commit_says_how_to_get_it(repository: Path, tmp_path: Path) -> None:
    write(repository, {"more.py": ""})
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "More")
    run = make_run(tmp_path / "runs", repository)
    other = make_repository(tmp_path / "other", {"a": ""})
    with pytest.raises(UserError, match=r"other does not have; `git fetch origin [0-9a-f]{40}`.*--repo"):
        checked_out(run, other)
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{repository}", "shallow")
    write(repository, {"most.py": ""})
    edit_note(run, commit=git(repository, "rev-parse", "HEAD~1").strip())
    with pytest.raises(UserError, match="--unshallow"):
        checked_out(run, tmp_path / "shallow")
    with pytest.raises(UserError, match=r"this folder is not in a git repository.*--repo"):
        checked_out(run, tmp_path)


def test_what_was_left_out_is_said(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_state, "MAX_FILE", 10)
    write(repository, {"big.bin": "#" * 11, ".env": "KEY=1"})
    restored = checked_out(make_run(tmp_path / "runs", repository), repository)
    (note,) = restored.notes
    assert note.startswith("2 untracked files were not kept with the run: ")
    assert "big.bin (11 bytes, more than 10)" in note
    assert ".env (named like a secret)" in note


def test_the_stored_code_is_ones_own_until_somebody_changes_it(busy: Path, tmp_path: Path) -> None:
    run = make_run(tmp_path / "runs", busy)
    assert is_own_code(run)
    (run / "config.yaml").write_text("another: setting\n")
    assert is_own_code(run), "settings have a signature of their own"
    copy = run / "provenance" / "untracked" / "new.py"
    kept = copy.read_text()
    copy.write_text("import os")
    assert not is_own_code(run)
    sign(run)
    assert not is_own_code(run), "signing anew must not make somebody's code one's own"
    copy.write_text(kept)
    assert is_own_code(run)
    (copy.parent / "extra.py").write_text("")
    assert not is_own_code(run)

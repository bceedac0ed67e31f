"""Policies to a hub and back, by the real `huggingface_hub`, against a hub that listens on this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import etude
from etude.cli import run as command
from etude.errors import EtudeError, UserError
from etude.publishing.hub_upload import upload
from etude.publishing.publication import Publication
from etude.runs import trust
from etude.runs.run import Run
from etude.training.hub_models import download
from tests.faults.tiny_run import TRAIN
from tests.publishing.conftest import TOKEN
from tests.publishing.hub_server import Hub, Repository

pytest.importorskip("huggingface_hub", reason="needs the extra `hub`")


@pytest.fixture
def published(hub: Hub, publication: Publication) -> Repository:
    assert upload(publication.folder, "me/policy", private=True) == f"{hub.address}/me/policy"
    return hub.repositories["me/policy"]


def test_what_is_published_comes_back_as_the_same_policy(
    published: Repository, publication: Publication, hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert published.private
    assert hub.tokens == {f"Bearer {TOKEN}"}
    assert published.files == {name: (publication.folder / name).read_bytes() for name in publication.files}
    path = download("me/policy")
    assert path == tmp_path / "cache" / "hub" / "me--policy" / published.commit
    assert not trust.is_own(path)
    assert not (path / "README.md").exists()  # what a run does not need is not fetched
    found = etude.evaluate("hub:me/policy", 4)
    assert found.returns.tolist() == json.loads(published.files["evaluation.json"])["returns"]
    asked = len(hub.asked)
    policy, environment = etude.load_policy(f"hub:me/policy@{published.commit}")
    environment.close()
    assert policy.state_dict()
    assert len(hub.asked) == asked  # a commit that is here is not asked for
    assert command(["evaluate", "hub:me/policy", "--episodes", "2"]) == 0
    assert "return" in capsys.readouterr().out
    assert command([*TRAIN, "--init-from", "hub:me/policy", "--runs", str(tmp_path / "runs")]) == 0


def test_publishing_again_leaves_nothing_of_the_earlier_policy(published: Repository, publication: Publication) -> None:
    published.files["checkpoints/000099-1-1/manifest.json"] = b"{}"
    upload(publication.folder, "me/policy", private=True)
    assert set(published.files) == set(publication.files)


HOSTILE = (
    "../outside.json",
    "checkpoints/../../evil.json",
    "provenance/robot/../../../evil",
    "/etc/evil",
    "setup.py",
    "x/.git/hooks/run",
)


def test_a_hostile_repository_runs_nothing_and_writes_nothing_elsewhere(
    published: Repository, tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = tmp_path / "ran"
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "here" / "evil.py").write_text(f"open({str(ran)!r}, 'w')\n")
    for name in HOSTILE:
        published.files[name] = b"open('ran', 'w')"
    settings = published.files["resolved.yaml"].decode().replace("id: CartPole-v1", "id: evil:CartPole-v1")
    published.files["resolved.yaml"] = settings.encode()
    record = json.loads(published.files["run.json"])
    del record["resolved_sha256"], record["checksum"]
    published.files["run.json"] = json.dumps(record).encode()
    before = _everything(tmp_path, but=tmp_path / "cache")
    path = download("me/policy")
    with pytest.raises(UserError, match="--trust"):
        etude.load_policy("hub:me/policy")
    assert _everything(tmp_path, but=tmp_path / "cache") == before
    assert not ran.exists()
    brought = {found.relative_to(path).as_posix() for found in path.rglob("*") if found.is_file()}
    assert brought <= set(published.files) - set(HOSTILE)
    assert not any("evil" in name or "outside" in name for name in hub.asked if "resolve" in name)


def _everything(folder: Path, but: Path) -> dict[str, bytes]:
    def inside(place: Path) -> Iterator[Path]:
        for path in place.iterdir():
            if path != but:
                yield from inside(path) if path.is_dir() else [path]

    return {str(path): path.read_bytes() for path in inside(folder)}


def test_weights_that_were_changed_on_the_way_are_refused(published: Repository) -> None:
    name = next(name for name in published.files if name.endswith("tensors.safetensors"))
    data = bytearray(published.files[name])
    data[-1] ^= 1
    published.files[name] = bytes(data)
    with pytest.raises(EtudeError, match="damaged"):
        etude.load_policy("hub:me/policy")


def test_what_is_no_policy_or_too_large_is_one_line_and_leaves_nothing(published: Repository, tmp_path: Path, hub: Hub) -> None:
    published.listed = {"checkpoints/000001-1-1/policy/tensors.safetensors": 2**40}
    with pytest.raises(UserError, match="more than 8 GiB"):
        download("me/policy")
    published.listed = {}
    del published.files["run.json"]
    with pytest.raises(UserError, match=r"holds no policy of Etude's"):
        download("me/policy")
    with pytest.raises(EtudeError, match="hub:me/none: can't be fetched"):
        download("me/none")
    for name in ("policy", "../policy", "me/policy/more", "me/..", "me/policy@../x"):
        with pytest.raises(UserError, match=r"OWNER/NAME|no revision"):
            download(name)
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


def test_a_published_folder_is_a_run(publication: Publication) -> None:
    """Without any hub, and twice: what is evaluated is what was published."""
    stored = json.loads((publication.folder / "evaluation.json").read_text())
    np.testing.assert_array_equal(etude.evaluate(publication.folder, 4).returns, stored["returns"])
    (checkpoint,) = Run.open(publication.folder).checkpoints().list()
    checkpoint.verify()
    assert checkpoint.kind == "policy"


def test_a_slip_is_one_line(
    trained: Run, hub: Hub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, said in (
        (["--private"], "--private is of a repository: name one with --repo"),
        (["--repo", "only-a-name"], "--repo only-a-name: a repository is named OWNER/NAME"),
        (["--episodes", "0"], "--episodes 0: must be at least 1"),
    ):
        assert command(["publish", str(trained.path), *words]) == 2
        assert said in capsys.readouterr().err
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    assert command(["publish", str(trained.path), "--repo", "me/policy"]) == 2
    assert "--repo needs a token" in capsys.readouterr().err
    assert hub.asked == []

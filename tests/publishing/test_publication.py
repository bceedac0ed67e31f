"""What is in a publication, and what is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from etude.cli import run as command
from etude.errors import EtudeError, UserError
from etude.publishing.card import front_matter
from etude.publishing.publication import Publication, make_publication
from etude.publishing.scrub import REMOVED, clean, clean_text, refuse_leaks
from etude.runs.run import Run
from etude.using.stored_policy import open_policy
from tests.deploy.conftest import needs_onnx
from tests.publishing.conftest import TOKEN


def test_the_card_has_the_evaluation_as_a_model_index(publication: Publication) -> None:
    text = (publication.folder / "README.md").read_text()
    head = yaml.safe_load(text.split("---")[1])
    assert head == front_matter(publication.card)
    assert {"CartPole-v1", "ppo", "reinforcement-learning"} <= set(head["tags"])
    stored = json.loads((publication.folder / "evaluation.json").read_text())
    (result,) = head["model-index"][0]["results"]
    assert result["metrics"][0]["value"] == f"{stored['return_mean']:.2f} +/- {stored['return_std']:.2f}"
    assert 'etude.load_policy("hub:me/policy")' in text


def test_a_hub_accepts_the_cards_schema(publication: Publication) -> None:
    hub = pytest.importorskip("huggingface_hub", reason="needs the extra `hub`")
    card = hub.ModelCard.load(publication.folder / "README.md")
    assert card.data.library_name == "etude"
    (result,) = card.data.eval_results
    assert (result.task_type, result.dataset_type, result.metric_type) == (
        "reinforcement-learning",
        "CartPole-v1",
        "mean_reward",
    )


def test_a_publication_says_nothing_of_this_machine(publication: Publication, trained: Run) -> None:
    record = json.loads((publication.folder / "run.json").read_text())
    assert not {"host", "pid", "pid_started"} & set(record)
    assert record["id"] == trained.id
    everything = b"".join((publication.folder / name).read_bytes() for name in publication.files)
    assert str(trained.path.parent).encode() not in everything
    assert not (publication.folder / "provenance").exists()


@needs_onnx
def test_the_command_writes_all_of_it_and_sends_nothing_when_dry(
    trained: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [
        "publish",
        str(trained.path),
        "--repo",
        "me/policy",
        "--dry",
        "--episodes",
        "2",
        "--license",
        "apache-2.0",
        "--json",
    ]
    assert command(words) == 0
    printed = capsys.readouterr()
    report = json.loads(printed.out)
    assert "--dry: nothing was sent to me/policy" in printed.err
    assert report["address"] is None
    names = set(report["files"])
    assert {"README.md", "run.json", "resolved.yaml", "evaluation.json", "onnx/policy.onnx", "onnx/metadata.json"} <= names
    assert ("replay.mp4" in names) != any("no video" in line for line in report["notes"])
    assert "license: apache-2.0" in (Path(report["folder"]) / "README.md").read_text()
    assert command(words) == 2
    assert "is there already" in capsys.readouterr().err


SECRETS = {
    "hugging face": TOKEN,
    "forge": "ghp_" + "a1B2" * 9,
    "api": "sk-" + "abcd1234" * 4,
    "cloud": "AKIA" + "ABCD1234" * 2,
    "chat": "xoxb-1234567890-abcdef",
    "key": "-----BEGIN RSA PRIVATE KEY-----",
    "address": "user:pass1234",
}


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
def test_secrets_are_taken_out_and_what_holds_one_is_not_published(secret: str, tmp_path: Path) -> None:
    text = (
        f"see https://{secret}@example.org"
        if "@" not in secret and ":" in secret and "BEGIN" not in secret
        else f"x {secret} y"
    )
    assert secret not in clean_text(text)
    assert REMOVED in clean_text(text)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "notes.bin").write_bytes(b"\0\1" + text.encode())
    with pytest.raises(EtudeError, match=r"a/notes\.bin: holds .*; nothing was published"):
        refuse_leaks(tmp_path)


def test_settings_lose_secrets_and_folders_and_keep_the_rest(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MY_API_KEY", "correct horse battery")
    settings = {
        "logging": {"webhook": "anything", "note": "correct horse battery staple"},
        "buffers": {"root": "/home/someone/data/sets", "files": ["~/robots/dog.xml", "relative/name"]},
        "environment": {"id": "ALE/Pong-v5", "rate": 1e-3, "token_count": 5},
        "address": "https://example.org/a/b",
    }
    assert clean(settings) == {
        "logging": {"webhook": REMOVED, "note": f"{REMOVED} staple"},
        "buffers": {"root": "sets", "files": ["dog.xml", "relative/name"]},
        "environment": {"id": "ALE/Pong-v5", "rate": 1e-3, "token_count": 5},
        "address": "https://example.org/a/b",
    }
    (tmp_path / "weights").write_bytes(f"{Path.home()}/secret/place".encode())
    with pytest.raises(EtudeError, match="the name of a folder of this machine"):
        refuse_leaks(tmp_path)


def test_a_publication_with_a_secret_leaves_nothing_behind(
    trained: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etude.publishing.publication.clean", lambda value: value)
    monkeypatch.setenv("A_SECRET", "CartPole-v1")  # as every file has it
    with pytest.raises(EtudeError, match="the value of a secret variable"):
        make_publication(open_policy(trained), tmp_path / "out", leave_out=("evaluation", "onnx", "replay"))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_there_is_not_written_over(publication: Publication, trained: Run) -> None:
    with pytest.raises(UserError, match="is there already"):
        make_publication(open_policy(trained), publication.folder)


def test_the_video_is_trusted_as_the_policy_was(trained: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    monkeypatch.setattr("etude.publishing.publication.play", lambda *words, trust, **others: asked.append(trust))
    for trust in (False, True):
        make_publication(open_policy(trained), tmp_path / str(trust), leave_out=("evaluation", "onnx"), trust=trust)
    assert asked == [False, True]

"""One tiny run, published once, and a hub that listens here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from etude.publishing.publication import Publication, make_publication
from etude.runs.run import Run
from etude.using.stored_policy import open_policy
from tests.faults.tiny_run import only_run, train
from tests.publishing.hub_server import Hub, serving

TOKEN = "hf_" + "abcdefghij" * 3


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    root = tmp_path_factory.mktemp("to-publish")
    assert train(root) == 0
    return only_run(root)


@pytest.fixture(scope="session")
def publication(trained: Run, tmp_path_factory: pytest.TempPathFactory) -> Publication:
    """With an evaluation alone: the rest has tests of its own."""
    folder = tmp_path_factory.mktemp("published") / "policy"
    return make_publication(open_policy(trained), folder, episodes=4, leave_out=("onnx", "replay"), repository="me/policy")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    pytest.importorskip("huggingface_hub", reason="needs the extra `hub`")
    with serving() as served:
        monkeypatch.setenv("HF_ENDPOINT", served.address)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.setenv("ETUDE_CACHE", str(tmp_path / "cache"))
        yield served

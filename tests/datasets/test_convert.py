"""Other formats, both ways."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces

from etude.datasets.arrays import FlatArrays
from etude.datasets.convert import read_foreign, write_foreign
from etude.errors import UserError
from tests.datasets.episodes import same, seen, write

PARTS = spaces.Dict({"arm": spaces.Box(-1.0, 1.0, (2,)), "hand": spaces.Box(-1.0, 1.0, (1,))})


@pytest.mark.parametrize("observation", [spaces.Box(-10.0, 10.0, (3,)), PARTS], ids=["box", "dict"])
@pytest.mark.parametrize("name", ["data.npz", "data.hdf5"])
def test_files_keep_everything(tmp_path: Path, name: str, observation: spaces.Space) -> None:
    if name.endswith("hdf5"):
        pytest.importorskip("h5py")
    dataset = write(tmp_path, observation=observation)
    write_foreign(dataset, str(tmp_path / name))
    back, notes = read_foreign(str(tmp_path / name), "back", tmp_path)
    assert all(same(ours, theirs) for ours, theirs in zip(dataset.episodes(), back.episodes(), strict=True))
    assert len(notes) == 1
    assert "guessed" in notes[0]
    assert back.manifest.origin.source == name
    assert len(back.manifest.origin.sha256 or "") == 64
    with pytest.raises(UserError, match="is there already"):
        read_foreign(str(tmp_path / name), "back", tmp_path)


@pytest.mark.parametrize("observation", [spaces.Box(-10.0, 10.0, (3,)), PARTS], ids=["box", "dict"])
def test_minari_keeps_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, observation: spaces.Space) -> None:
    pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    dataset = write(tmp_path, observation=observation)
    write_foreign(dataset, "minari:etude/test-v0")
    back, _ = read_foreign("minari:etude/test-v0", "back", tmp_path)
    assert all(same(ours, theirs) for ours, theirs in zip(dataset.episodes(), back.episodes(), strict=True))
    assert (back.observation_space, back.action_space) == (dataset.observation_space, dataset.action_space)
    with pytest.raises(UserError, match="there is none in"):
        read_foreign("minari:etude/none-v0", "none", tmp_path)
    for name in ("../etude", "etude/../../x"):
        with pytest.raises(UserError):
            read_foreign(f"minari:{name}", "none", tmp_path)


def test_episodes_are_cut_where_they_ended() -> None:
    count = 7
    found = {
        "observations": np.arange(count, dtype=np.float64)[:, None],
        "actions": np.zeros((count, 1), np.float32),
        "rewards": np.ones(count),
        "terminals": np.array([0, 0, 1, 0, 0, 0, 0]),
        "timeouts": np.array([0, 0, 0, 0, 1, 0, 0]),
    }
    arrays = FlatArrays.of(found, "file")
    episodes = list(arrays.episodes(*arrays.guessed_spaces()))
    # Without next_observations the last step of what did not terminate leads nobody knows where.
    told = [(len(each), each.terminated, lost) for each, lost in episodes]
    assert told == [(3, True, False), (1, False, True), (1, False, True)]
    assert seen(episodes[1][0]).flatten().tolist() == [3, 4]
    found["next_observations"] = found["observations"] + 1
    found["next_observations"][5] = 50  # what follows begins elsewhere
    arrays = FlatArrays.of(found, "file")
    episodes = list(arrays.episodes(*arrays.guessed_spaces()))
    assert [len(each) for each, _ in episodes] == [3, 2, 1, 1]
    assert seen(episodes[2][0]).flatten().tolist() == [5, 50]
    assert not any(lost for _, lost in episodes)


def test_what_is_missing_is_named() -> None:
    with pytest.raises(UserError, match="has no 'actions'; it has observations"):
        FlatArrays.of({"observations": np.zeros((2, 1))}, "file")
    short = {"observations": np.zeros((3, 1)), "actions": np.zeros((2, 1)), "rewards": np.zeros(2), "terminals": np.zeros(2)}
    with pytest.raises(UserError, match="observations has 3 rows, and rewards 2"):
        FlatArrays.of(short, "file")

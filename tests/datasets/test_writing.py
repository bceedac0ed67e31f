"""What was added is on the disk, whatever happens next, and is read back bit for bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium import spaces

from etude.datasets import writer as writing_module
from etude.datasets.dataset import Dataset
from etude.datasets.places import SEGMENTS, folder_of, names
from etude.datasets.statistics import statistics
from etude.datasets.writer import writing
from etude.errors import UserError
from tests.datasets.episodes import DONE, SEEN, episode, manifest, same, seen, write

PICTURES = spaces.Dict({"camera": spaces.Box(0, 255, (4, 4, 3), np.uint8), "arm": spaces.Box(-1.0, 1.0, (2,))})


@pytest.mark.parametrize("observation", [SEEN, PICTURES])
def test_episodes_come_back_as_they_were(tmp_path: Path, observation: spaces.Space) -> None:
    dataset = write(tmp_path, observation=observation)
    wanted = [episode(steps, seed, terminated=seed % 2 == 0, observation=observation) for seed, steps in enumerate((5, 3, 7))]
    found = list(dataset.episodes())
    assert len(found) == len(dataset) == 3
    assert all(same(ours, theirs) for ours, theirs in zip(found, wanted, strict=True))
    assert [each.seed for each in found] == [0, 1, 2]
    assert dataset.manifest.returns == pytest.approx([each.total for each in wanted])
    assert dataset.observation_space == observation


@pytest.mark.parametrize("segment_bytes", [1, 900, 2**22])
def test_a_dataset_is_the_same_however_it_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, segment_bytes: int
) -> None:
    monkeypatch.setattr(writing_module, "SEGMENT_BYTES", segment_bytes)
    wanted = [episode(4 + seed, seed) for seed in range(6)]
    for name, cuts in (("whole", [6]), ("cut", [1, 2, 3])):
        done = 0
        for count in cuts:
            with writing(folder_of(name, tmp_path), manifest()) as writer:
                for each in wanted[done : done + count]:
                    writer.add(each)
            done += count
    whole, cut = (Dataset.open(name, tmp_path) for name in ("whole", "cut"))
    assert whole.manifest.segments == cut.manifest.segments
    assert len(whole.manifest.segments) == {1: 6, 900: 2, 2**22: 1}[segment_bytes]
    for dataset in (whole, cut):
        on_disk = {path.name for path in (dataset.folder / SEGMENTS).iterdir()}
        assert on_disk == {segment.file for segment in dataset.manifest.segments}


def test_what_a_killed_writer_left_is_removed_and_nothing_finished_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = write(tmp_path)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(writing_module, "write_manifest", killed)
        with pytest.raises(KeyboardInterrupt), writing(dataset.folder, dataset.manifest) as writer:
            writer.add(episode(2, 9))
    assert len(list((dataset.folder / SEGMENTS).iterdir())) == 2
    assert [len(each) for each in Dataset(dataset.folder).episodes()] == [5, 3, 7]
    with writing(dataset.folder, dataset.manifest) as writer:
        writer.add(episode(2, 9))
    assert [len(each) for each in Dataset(dataset.folder).episodes()] == [5, 3, 7, 2]
    assert len(list((dataset.folder / SEGMENTS).iterdir())) == 1


def test_columns_are_one_after_the_other(tmp_path: Path) -> None:
    dataset = write(tmp_path)
    columns = dataset.load()
    assert columns["observation"].shape == (15 + 3, 3)
    assert columns["action"].shape == (15, 2)
    assert columns["length"].tolist() == [5, 3, 7]
    assert columns["terminated"].tolist() == [True, False, True]
    assert dataset.memory == sum(columns[name].nbytes for name in ("observation", "action", "reward"))
    assert torch.equal(columns["observation"][6:10], seen(episode(3, 1)))


def test_episodes_of_another_kind_are_refused(tmp_path: Path) -> None:
    folder = write(tmp_path).folder
    with pytest.raises(UserError, match="another action_space"), writing(folder, manifest(SEEN, spaces.Discrete(2))):
        pass
    with pytest.raises(UserError, match=r"source=, not other.*another --name"), writing(folder, manifest(source="other")):
        pass
    with writing(folder, manifest()) as writer:
        good = episode(4)
        for bad, said in (
            (replace(good, action=good.action[:, :1]), r"action has rows \[1\]"),
            (replace(good, reward=good.reward[:3]), "5 rows of observation, not 4"),
            (replace(good, observation=seen(good).double()), "float64"),
            (replace(good, reward=good.reward * torch.nan), "a NaN or an infinity in reward"),
        ):
            with pytest.raises(UserError, match=said):
                writer.add(bad)
    assert len(Dataset(folder)) == 3


def test_one_process_writes_at_a_time(tmp_path: Path) -> None:
    folder = write(tmp_path).folder
    with writing(folder, manifest()), pytest.raises(UserError, match="in use by process"), writing(folder, manifest()):
        pass


def test_statistics_are_those_of_all_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing_module, "SEGMENT_BYTES", 1)
    dataset = write(tmp_path)
    told, columns = statistics(dataset), dataset.load()
    for name in ("observation", "action"):
        assert told["columns"][name]["mean"] == pytest.approx(columns[name].mean(0).tolist(), rel=1e-5)
        assert told["columns"][name]["std"] == pytest.approx(columns[name].std(0, correction=0).tolist(), rel=1e-5)
    assert told["terminated"] == 2
    assert told["length"] == pytest.approx({"mean": 5.0, "std": (8 / 3) ** 0.5, "min": 3, "max": 7})


def test_names_are_found_below_the_root(tmp_path: Path) -> None:
    write(tmp_path, "b", 2)
    write(tmp_path, "hopper/expert-v0", 2)
    assert names(tmp_path) == ["b", "hopper/expert-v0"]
    with pytest.raises(UserError, match="did you mean 'hopper/expert-v0'"):
        Dataset.open("hopper/expert", tmp_path)
    assert DONE.shape == (2,)

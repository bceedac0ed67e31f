"""A dataset as a buffer: which rows belong to a step, a window and a chunk, and that it stays the data it was."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from gymnasium import spaces

from etude.datasets.buffer import DatasetBuffer, DatasetConfig
from etude.datasets.dataset import Dataset
from etude.datasets.writer import writing
from etude.environments.unplayed import Unplayed
from etude.errors import EtudeError, UserError
from tests.datasets.episodes import DONE, SEEN, episode, seen, write


def bound(root: Path, **options: Any) -> DatasetBuffer:
    dataset = Dataset.open("some/data", root)
    buffer = DatasetBuffer(dataset, DatasetConfig(dataset="some/data", **options), 0.5, torch.device("cpu"), "data")
    buffer.bind(Unplayed(SEEN, DONE))
    return buffer


def test_a_step_leads_to_what_came_next_also_at_the_end(tmp_path: Path) -> None:
    write(tmp_path)  # episodes of 5, 3 and 7 steps; the second is cut by a time limit
    buffer = bound(tmp_path)
    steps = buffer.steps(buffer.columns, torch.tensor([0, 4, 5, 7, 14]))
    first, second, third = (seen(episode(count, seed)) for seed, count in enumerate((5, 3, 7)))
    assert torch.equal(steps["observation"], torch.stack([first[0], first[4], second[0], second[2], third[6]]))
    assert torch.equal(steps["next_observation"], torch.stack([first[1], first[5], second[1], second[3], third[7]]))
    assert steps["terminated"].tolist() == [False, True, False, False, True]
    assert steps["truncated"].tolist() == [False, False, False, True, False]
    assert steps["discount"].tolist() == [0.5, 0, 0.5, 0.5, 0]


def test_windows_go_on_across_ends_and_say_where(tmp_path: Path) -> None:
    write(tmp_path)
    buffer = bound(tmp_path)
    windows = buffer.windows(buffer.columns, torch.tensor([3]), 4)
    assert windows["is_first"].tolist() == [[False, False, True, False]]
    first, second = seen(episode(5, 0)), seen(episode(3, 1))
    assert torch.equal(windows["observation"][0], torch.stack([first[3], first[4], second[0], second[1]]))
    assert torch.equal(windows["action"][0], buffer.columns["action"][3:7])


def test_chunks_repeat_what_is_at_the_ends_of_their_episode(tmp_path: Path) -> None:
    write(tmp_path)
    buffer = bound(tmp_path)
    chunks = buffer.chunks(buffer.columns, torch.tensor([5, 7]), 3, 4)
    second = episode(3, 1)
    assert torch.equal(chunks["observation"], seen(second)[torch.tensor([[0, 0, 0], [0, 1, 2]])])
    assert torch.equal(chunks["action"], second.action[torch.tensor([[0, 1, 2, 2], [2, 2, 2, 2]])])


def test_the_best_or_the_first_episodes_alone(tmp_path: Path) -> None:
    dataset = write(tmp_path)
    returns = dataset.manifest.returns
    best = max(range(3), key=lambda index: returns[index])
    buffer = bound(tmp_path, best=0.34)
    assert buffer.kept_episodes == 1
    assert torch.equal(buffer.columns["action"], episode((5, 3, 7)[best], best).action)
    rows = buffer.columns["row"].tolist()
    assert rows == list(range((5, 3, 7)[best]))
    assert bound(tmp_path, episodes=2).size == 8
    assert "1 of 3 episodes" in buffer.notes()[0]


def test_other_data_is_no_resume(tmp_path: Path) -> None:
    dataset = write(tmp_path)
    buffer = bound(tmp_path)
    state = buffer.state_dict()
    bound(tmp_path).load_state_dict(state)
    for other in (bound(tmp_path, best=0.34),):
        with pytest.raises(EtudeError, match="its episodes have changed since"):
            other.load_state_dict(state)
    with writing(dataset.folder, dataset.manifest) as writer:
        writer.add(episode(2))
    with pytest.raises(EtudeError, match="its episodes have changed since"):
        bound(tmp_path).load_state_dict(state)


def test_what_does_not_fit_is_said_before_anything_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path)
    buffer = bound(tmp_path)
    with pytest.raises(UserError, match=r"observes Box.*choose the task it was recorded in \(Task-v0\)"):
        buffer.bind(Unplayed(spaces.Box(-1, 1, (4,)), DONE))
    with pytest.raises(UserError, match="its actions are"):
        buffer.bind(Unplayed(SEEN, spaces.Box(-2, 2, (2,))))
    with pytest.raises(UserError, match="is not written to"):
        buffer.add({})
    monkeypatch.setattr("etude.datasets.buffer.free_memory", lambda device: 10)
    with pytest.raises(EtudeError, match="10 bytes are free"):
        bound(tmp_path)
    config: Any = SimpleNamespace()
    with pytest.raises(UserError, match="which dataset"):
        DatasetBuffer.build(DatasetConfig(), config, "data")

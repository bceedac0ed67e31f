"""A viewer that follows a run shows its newest policy, and outlives whatever happens to the run's files."""

from __future__ import annotations

import shutil
from pathlib import Path

from etude.runs.run import Run
from etude.runs.saved_checkpoint import Checkpoint
from etude.viewing.show import Show

Told = tuple[Show, list[str]]


def save_next(run: Run, steps: int) -> Checkpoint:
    """Save another checkpoint with the policy of the last one, as a training would."""
    store = run.checkpoints(keep=10)
    last = store.find("last")
    counters = {**last.counters, "env_steps": steps}
    return store.save(last.load(), counters=counters, metadata={}, best=False)


def policy_of(show: Show) -> object:
    return show.live.performer._player.policy  # type: ignore[attr-defined]


def test_a_newer_checkpoint_acts_and_the_episode_goes_on(run_show: Told, trained: Run) -> None:
    show, told = run_show
    for _ in range(3):
        show.live.step()
    before = policy_of(show)
    show.look()
    assert policy_of(show) is before
    newer = save_next(trained, 5000)
    show.look()
    assert show.checkpoints is not None
    assert show.checkpoints.shown.name == newer.name
    assert policy_of(show) is not before
    assert any("5,000 steps" in line for line in told)
    assert show.live.steps == 3
    show.live.step()
    assert show.live.steps == 4


def test_one_that_is_not_whole_yet_is_taken_when_it_is(run_show: Told, trained: Run) -> None:
    show, told = run_show
    assert show.checkpoints is not None
    before, name = policy_of(show), show.checkpoints.shown.name
    newer = save_next(trained, 6000)
    (tensors,) = (newer.path / "policy").glob("*.safetensors")
    whole = tensors.read_bytes()
    tensors.write_bytes(whole[: len(whole) // 2])
    show.look()
    show.look()
    assert policy_of(show) is before
    assert show.checkpoints.shown.name == name
    assert len([line for line in told if "can't be loaded" in line]) == 1
    tensors.write_bytes(whole)
    show.look()
    assert show.checkpoints.shown.name == newer.name
    assert show.checkpoints.problem is None


def test_one_whose_manifest_is_cut_off_is_passed_over(run_show: Told, trained: Run) -> None:
    show, _ = run_show
    newer = save_next(trained, 7000)
    manifest = newer.path / "manifest.json"
    text = manifest.read_text()
    manifest.write_text(text[:40])
    show.look()
    assert show.checkpoints is not None
    assert show.checkpoints.shown.name != newer.name
    manifest.write_text(text)
    show.look()
    assert show.checkpoints.shown.name == newer.name


def test_what_is_deleted_goes_on_acting(run_show: Told, trained: Run) -> None:
    show, _ = run_show
    assert show.checkpoints is not None
    shutil.rmtree(show.checkpoints.shown.path)
    show.look()
    show.live.step()
    shutil.rmtree(trained.path)
    show.look()
    show.live.step()
    assert show.status == "gone"
    assert show.live.steps == 2
    show.press("b")  # there is none before it
    assert show.checkpoints.list() == ()


def test_the_end_of_the_run_is_told_once(run_show: Told, trained: Run) -> None:
    show, told = run_show
    trained.update_status(status="running")
    show.look()
    trained.update_status(status="finished")
    show.look()
    show.look()
    assert [line for line in told if "finished" in line] == [f"run {trained.id}: finished"]


def test_another_checkpoint_can_be_chosen_and_followed_again(run_show: Told, trained: Run) -> None:
    show, _ = run_show
    assert show.checkpoints is not None
    first = show.checkpoints.shown.name
    newer = save_next(trained, 9000)
    show.look()
    show.press("b")
    assert not show.checkpoints.follows
    assert show.checkpoints.shown.name == first
    save_next(trained, 9500)
    show.look()
    assert show.checkpoints.shown.name == first
    show.press("n")
    assert show.checkpoints.shown.name == newer.name
    show.follow()
    assert show.checkpoints.shown.counters["env_steps"] == 9500
    show.choose("000099-1-1")
    assert "no longer there" in str(show.checkpoints.problem)


def test_a_policy_of_another_shape_is_refused_in_a_line(run_show: Told, trained: Run, tmp_path: Path) -> None:
    show, told = run_show
    before = policy_of(show)
    store = trained.checkpoints(keep=10)
    state = store.find("last").load()
    state["policy"] = {"nothing": 1}
    store.save(state, counters={**store.find("last").counters, "env_steps": 9900}, metadata={})
    show.look()
    assert policy_of(show) is before
    assert any("does not fit" in line for line in told)

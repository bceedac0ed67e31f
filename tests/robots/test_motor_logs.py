"""Motors' logs are read as they are, and what is wrong with one is a clear line; a network is learnt from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etude.cli import run as command
from etude.errors import UserError
from etude.robots.motors.logs import read_logs

STEPS = 600


def quantities(joints: int = 2, steps: int = STEPS) -> dict[str, np.ndarray]:
    """What a motor with friction did that was 10 ms late, (T, J) each."""
    generator = np.random.default_rng(0)
    time = np.arange(steps)[:, None] * 0.005
    target = np.sin(2 * np.pi * (1 + generator.random(joints)) * time + generator.random(joints))
    position = 0.8 * np.sin(2 * np.pi * 1.3 * time + np.arange(joints))
    velocity = np.gradient(position, 0.005, axis=0)
    late = np.maximum(np.arange(steps) - 2, 0)
    torque = 20 * (target - position)[late] - 0.5 * velocity[late] - 2 * np.tanh(velocity / 0.5)
    return {"target": target, "position": position, "velocity": velocity, "torque": torque}


def write_csv(path: Path, names: tuple[str, ...] = ("hip", "knee"), **changes: Any) -> Path:
    values = quantities(len(names))
    time = changes.pop("time", np.arange(STEPS) * 0.005)
    columns = {
        "time": time,
        **{f"{joint}_{key}": value[:, i] for key, value in values.items() for i, joint in enumerate(names)},
    }
    columns |= changes
    table = np.stack([np.broadcast_to(np.asarray(column, float), STEPS) for column in columns.values()], 1)
    np.savetxt(path, table, delimiter=",", header=",".join(columns), comments="")
    return path


def test_csv_and_npz_tell_the_same(tmp_path: Path) -> None:
    plain = read_logs([write_csv(tmp_path / "log.csv")])
    arrays = {**quantities(), "time": np.arange(STEPS) * 0.005, "joints": np.array(["hip", "knee"])}
    np.savez(tmp_path / "log.npz", **arrays)  # type: ignore[arg-type] # arrays by name
    packed = read_logs([tmp_path / "log.npz"])
    assert plain.step == packed.step == 0.005
    assert plain.joints == packed.joints == ("hip", "knee")
    assert plain.remarks == ()
    for one, other in zip(plain.stretches, packed.stretches, strict=True):
        np.testing.assert_allclose(one.torque, other.torque)
        np.testing.assert_allclose(one.target, other.target)
    assert read_logs([tmp_path / "log.csv"], joints="k.*").joints == ("knee",)


def test_a_log_of_one_motor_needs_no_name_and_other_words_are_understood(tmp_path: Path) -> None:
    values = quantities(1)
    names = {"q_des": "target", "pos": "position", "dq": "velocity", "tau": "torque"}
    table = np.column_stack([np.arange(STEPS) * 0.005, *(values[name][:, 0] for name in names.values())])
    np.savetxt(tmp_path / "knee.csv", table, delimiter=",", header="time," + ",".join(names), comments="")
    logs = read_logs([tmp_path / "knee.csv"])
    assert logs.joints == ("knee",)
    np.testing.assert_allclose(logs.stretches[0].torque, values["torque"][:, 0])


def test_gaps_cut_a_log_and_uneven_samples_are_put_onto_a_grid(tmp_path: Path) -> None:
    time = np.arange(STEPS) * 0.005
    cut = time + (np.arange(STEPS) >= 200) * 1.0
    logs = read_logs([write_csv(tmp_path / "cut.csv", time=cut)])
    assert sorted(map(len, logs.stretches)) == [200, 200, 400, 400]
    assert logs.remarks == ("cut.csv: 1 gaps",)
    uneven = time + 0.001 * np.sin(np.arange(STEPS))
    logs = read_logs([write_csv(tmp_path / "uneven.csv", time=uneven)], step=0.01)
    assert "put onto a grid of 10 ms" in logs.remarks[0]
    assert abs(len(logs.stretches[0]) - STEPS // 2) <= 1
    position = np.interp(np.arange(10) * 0.01 + uneven[0], uneven, quantities()["position"][:, 0])
    np.testing.assert_allclose(logs.stretches[0].position[:10], position, atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"time": np.zeros(STEPS)}, "time goes back, or stands still, after row 1"),
        ({"hip_torque": np.where(np.arange(STEPS) == 4, np.nan, 1.0)}, "hip_torque is no number in row 5"),
        ({"ankle_target": 0.0}, "joint 'ankle' has no column ankle_position"),
    ],
)
def test_a_bad_log_is_one_clear_line(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        read_logs([write_csv(tmp_path / "log.csv", **changes)])


def test_what_is_no_log_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "words.csv").write_text("time,hip_target\n1,x\n")
    (tmp_path / "other.csv").write_text("seconds,a\n1,2\n")
    (tmp_path / "nothing.csv").write_text("time,a\n1,2\n2,3\n")
    (tmp_path / "broken.npz").write_bytes(b"no zip")
    np.savez(tmp_path / "few.npz", time=np.arange(3.0))
    for name, said in {
        "absent.csv": "there is no such log",
        "log.txt": "there is no such log",
        "words.csv": "is no table of numbers",
        "other.csv": "there is no column `time`",
        "nothing.csv": "no column is called target",
        "broken.npz": "is no npz file",
        "few.npz": "there is no array `target`",
    }.items():
        with pytest.raises(UserError, match=said):
            read_logs([tmp_path / name])
    with pytest.raises(UserError, match=r"--joints 'toe': .* has no such joint \(it has hip, knee\)"):
        read_logs([write_csv(tmp_path / "log.csv")], joints="toe")


def test_the_command_learns_a_motor_and_says_how_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, out = write_csv(tmp_path / "log.csv"), tmp_path / "motor"
    words = ["robots", "actuator", str(log), "--out", str(out), "--updates", "400", "--batch-size", "256"]
    assert command([*words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["held_out"]["network"] < 0.5 * told["held_out"]["ideal"] < told["held_out"]["torque"]
    assert told["ideal"]["stiffness"] == pytest.approx(20, rel=0.3)
    assert set(told["joints"]) == {"hip", "knee"}
    described = json.loads((tmp_path / "motor.json").read_text())
    assert described["history"] == [0, 1, 2]
    assert described["measured"] == told["held_out"]
    assert command(words) == 2
    assert "motor.json is there already" in capsys.readouterr().err
    again = ["robots", "actuator", str(log), "--out", str(tmp_path / "again"), "--updates", "20", "--stiffness", "20"]
    assert command([*again, "--damping", "0.5"]) == 0
    printed = capsys.readouterr()
    assert "held out: torques of" in printed.out
    assert "stiffness 20.0, damping 0.50" in printed.out
    assert "20 of 20 updates" in printed.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--history", "1,2"], "must have 0"),
        (["--history", "0,0"], "has a step twice"),
        (["--history", "now"], "whole numbers from 0"),
        (["--hidden", "0"], "whole numbers from 1"),
        (["--held-out", "1"], "above 0 and below 1"),
        (["--stiffness", "3"], "give both"),
        (["--updates", "0"], "at least 1"),
        (["--step", "0"], "above 0"),
        (["--out", "absent/motor"], "there is no folder absent"),
        (["--step", "1"], "samples to learn from"),
    ],
)
def test_options_that_can_not_be_are_refused(
    tmp_path: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    log = write_csv(tmp_path / "log.csv")
    out = [] if "--out" in words else ["--out", str(tmp_path / "motor")]
    assert command(["robots", "actuator", str(log), *out, *words]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "motor.json").exists()

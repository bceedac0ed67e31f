"""`etude launch gce`, `ec2` and `ray`: exact cluster files and commands, and money only with consent."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from etude.cli import run as etude
from etude.launching import ray_tasks, uploads
from tests.launching.conftest import HOSTILE, Stubs, assert_no_secret, dry_files

TRAIN = ("train", "CartPole-v1:ppo", "training.total_steps=600")
GCE = ("gce", "--project", "my-lab-42", "--upload", "gs://bucket/runs")
EC2 = ("ec2", "--upload", "s3://bucket/runs")
ROOT = Path(__file__).parents[2]


def _cluster(work: Path) -> dict[str, Any]:
    (path,) = work.glob("runs/.launch/*/cluster.yaml")
    return yaml.safe_load(path.read_text())


@pytest.mark.parametrize("cloud", [GCE, EC2])
def test_money_is_spent_only_with_consent(
    cloud: tuple[str, ...], stubs: Stubs, work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stubs.add("ray", "done\n")
    words = ["launch", *cloud, "--unchecked", "--max-workers", "3", *TRAIN, "--seed", "1-4"]
    assert etude([*words, "--dry"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"# cost: \w+: 1 head \S+ and 0 to 3 workers \S+ in us-west", shown)
    assert etude(words) == 2, "nobody is at the terminal"
    said = capsys.readouterr().err
    assert "and 0 to 3 workers" in said
    assert "add --yes" in said
    assert stubs.calls("ray") == []
    assert not list(work.iterdir())
    assert etude([*words, "--yes"]) == 0
    for path, text in dry_files(shown).items():
        assert Path(path).read_text() == text
    (folder,) = (work / "runs" / ".launch").iterdir()
    up, execute = stubs.calls("ray")
    assert up == ["up", "--yes", f"{folder}/cluster.yaml"]
    assert execute[:2] == ["exec", f"{folder}/cluster.yaml"]
    assert f"--submission-id {folder.name}.1 -- ~/etude-env/bin/python -m etude.launching.ray_tasks" in execute[2]
    assert_no_secret(work)


@pytest.mark.parametrize(("answer", "code"), [("n\n", 2), ("\n", 2), ("y\n", 0)])
def test_at_a_terminal_it_asks(answer: str, code: int, stubs: Stubs, work: Path) -> None:
    stubs.add("ray", "done\n")
    terminal, end = pty.openpty()
    words = [sys.executable, "-m", "etude", "launch", *EC2, "--unchecked", *TRAIN]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    process = subprocess.Popen(words, cwd=work, env=environment, stdin=end, stdout=subprocess.DEVNULL, stderr=end)
    os.close(end)
    said = b""
    while b"go on? [y/N]" not in said:
        said += os.read(terminal, 1024)
    os.write(terminal, answer.encode())
    assert process.wait(60) == code
    os.close(terminal)
    assert b"ec2: 1 head m6i.large and 0 to 1 workers m6i.2xlarge" in said
    assert bool(stubs.calls("ray")) == (code == 0)


def test_the_cluster_of_gce_is_what_was_asked(stubs: Stubs, work: Path) -> None:
    stubs.add("ray")
    options = ["--gpus", "2", "--accelerator", "nvidia-tesla-t4", "--spot", "--min-workers", "1", "--max-workers", "5",
               "--machine", "n1-standard-16", "--idle-minutes", "3", "--setup", "sudo apt-get install -y libegl1"]  # fmt: skip
    assert etude(["launch", *GCE, "--unchecked", "--yes", *options, *TRAIN, "--seed", "1-9"]) == 0
    cluster = _cluster(work)
    worker = cluster["available_node_types"]["worker"]
    assert (worker["min_workers"], worker["max_workers"], cluster["max_workers"]) == (1, 5, 5)
    assert worker["resources"] == {"CPU": 16, "GPU": 2}
    assert worker["node_config"]["machineType"] == "n1-standard-16"
    assert worker["node_config"]["scheduling"] == {"preemptible": True, "onHostMaintenance": "TERMINATE"}
    assert worker["node_config"]["guestAccelerators"][0]["acceleratorCount"] == 2
    assert cluster["available_node_types"]["head"]["resources"] == {"CPU": 0}, "the head trains nothing"
    assert cluster["provider"] == {
        "type": "gcp", "region": "us-west1", "availability_zone": "us-west1-b", "project_id": "my-lab-42",
    }  # fmt: skip
    assert cluster["idle_timeout_minutes"] == 3
    assert cluster["setup_commands"][-1] == "sudo apt-get install -y libegl1"
    assert cluster["file_mounts"]["~/etude-code"] == str(work)
    assert "/runs" in cluster["rsync_exclude"]
    (tasks,) = work.glob("runs/.launch/*/mounted/tasks.json")
    stored = json.loads(tasks.read_text())
    assert (stored["cpus"], stored["gpus"], len(stored["tasks"])) == (1, 2, 9)
    first = stored["tasks"][0]
    assert [command[-1] for command in first["store"]] == [f"gs://bucket/runs/{tasks.parts[-3]}/0"] * 2
    assert first["words"][-1] == "--trust", "the next machine has another key, and the run is still the user's"


def test_the_cluster_of_ec2_is_of_ec2(stubs: Stubs, work: Path) -> None:
    stubs.add("ray")
    profile = "arn:aws:iam::123456789012:instance-profile/etude"
    options = ["--spot", "--instance-profile", profile, "--image", "ami-0abc", "--zone", "us-west-2b"]
    assert etude(["launch", *EC2, "--unchecked", "--yes", *options, *TRAIN]) == 0
    cluster = _cluster(work)
    assert cluster["provider"]["type"] == "aws"
    assert cluster["provider"]["availability_zone"] == "us-west-2b"
    node = cluster["available_node_types"]["worker"]["node_config"]
    assert node["InstanceMarketOptions"] == {"MarketType": "spot"}
    assert node["IamInstanceProfile"] == {"Arn": profile}
    assert node["ImageId"] == "ami-0abc"
    assert "InstanceMarketOptions" not in cluster["available_node_types"]["head"]["node_config"], "a head is not taken away"


@pytest.mark.optional
@pytest.mark.parametrize("cloud", [GCE, EC2, (*GCE, "--gpus", "1", "--accelerator", "nvidia-l4", "--spot"), (*EC2, "--spot")])
def test_rays_own_schema_accepts_the_cluster(cloud: tuple[str, ...], stubs: Stubs, work: Path) -> None:
    util = pytest.importorskip("ray.autoscaler._private.util")
    stubs.add("ray")
    assert etude(["launch", *cloud, "--unchecked", "--yes", *TRAIN]) == 0
    cluster = _cluster(work)
    jsonschema = pytest.importorskip("jsonschema")
    autoscaler = pytest.importorskip("ray.autoscaler")
    schema = json.loads((Path(autoscaler.__file__).parent / "ray-schema.json").read_text())
    jsonschema.validate(cluster, schema)
    with pytest.raises(jsonschema.ValidationError, match="max_workerz"):
        jsonschema.validate({**cluster, "max_workerz": 1}, schema)
    filled = util.prepare_config(cluster)
    util.validate_config(filled)
    assert filled["available_node_types"]["worker"]["max_workers"] == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["gce", "--upload", "gs://b/x"], "--project"),
        (["gce", "--project", "p q", "--upload", "gs://b/x"], "--project 'p q'"),
        (["gce", "--project", "my-lab-42"], "--upload gs://BUCKET/FOLDER"),
        (["gce", "--project", "my-lab-42", "--upload", "s3://b/x"], "--upload s3://b/x: gs://BUCKET/FOLDER"),
        (["gce", "--project", "my-lab-42", "--upload", "gs://b/$(x)"], "--upload"),
        ([*GCE, "--gpus", "1"], "--accelerator nvidia-tesla-t4"),
        ([*GCE, "--accelerator", "nvidia-l4"], "--gpus 1"),
        ([*GCE, "--machine", "n1;rm"], "--machine 'n1;rm'"),
        ([*GCE, "--machine", "f1-micro"], "its cores can't be told"),
        ([*GCE, "--min-workers", "3", "--max-workers", "2"], "--min-workers 3 and --max-workers 2"),
        ([*GCE, "--setup", "a\nb"], "--setup: one line each"),
        (["ec2"], "--upload s3://BUCKET/FOLDER"),
        ([*EC2, "--image", "ubuntu"], "--image ubuntu"),
        ([*EC2, "--instance-profile", "x"], "--instance-profile"),
        (["ray", "--address", "h:8265; x"], "--address"),
        (["ray", "--remote", "$(x)"], "--remote"),
    ],
)
def test_slips_are_one_line(words: list[str], said: str, work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert etude(["launch", *words, "--unchecked", "--dry", *TRAIN]) == 2
    errors = capsys.readouterr().err
    assert said in errors
    assert len(errors.splitlines()) == 1


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["resume", "@last"], "launch the `train` words again"),
        ([*TRAIN, "--from-run", "@last"], "--from-run @last"),
        ([*TRAIN, "--init-from", "@last"], "--init-from @last"),
        ([*TRAIN, "--config", "/etc/x.yaml"], "only this folder is copied"),
        ([*TRAIN, "--config", "../x.yaml"], "only this folder is copied"),
    ],
)
def test_what_only_this_machine_has_is_not_launched_elsewhere(
    command: list[str], said: str, work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert etude(["launch", "ray", "--unchecked", "--dry", *command]) == 2
    assert said in capsys.readouterr().err


def test_ray_gets_words_that_no_shell_reads(stubs: Stubs, work: Path) -> None:
    # Ray hands the entry point to a shell, quoted for another system: the user's words must not be part of it.
    stubs.add("ray", "submitted\n")
    words = [*TRAIN, *(f"--name={name}" for name in ["".join(HOSTILE)])]
    assert etude(["launch", "ray", "--unchecked", "--address", "http://h:8265", "--cpus", "2", "--job-name", "it", *words]) == 0
    (call,) = stubs.calls("ray")
    assert call[:6] == ["job", "submit", "--address", "http://h:8265", "--no-wait", "--submission-id"]
    assert call[6:9] == ["it.1", "--working-dir", str(work)]
    assert call[11:] == ["--", "python", "-m", "etude.launching.ray_tasks"]
    environment = json.loads(call[10])
    assert environment["excludes"] == ["/runs"]
    tasks = json.loads(environment["env_vars"]["ETUDE_TASKS"])
    assert tasks["tasks"][0]["words"] == [*words, "--auto-resume"]
    assert tasks["cpus"] == 2


def test_states_of_ray_and_a_second_launch(stubs: Stubs, work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stubs.add("ray", "Status for job 'it.1': RUNNING\netude task 1: exit code 0\n")
    launch = ["launch", "ray", "--unchecked", "--job-name", "it", *TRAIN, "--seed", "1-3"]
    assert etude(launch) == 0
    capsys.readouterr()
    assert etude(["launch", "status", "--json"]) == 0
    states = [task["state"] for task in json.loads(capsys.readouterr().out)["tasks"]]
    assert states == ["running", "finished", "running"]
    assert etude(launch) == 2
    stubs.add("ray", "Job 'it.1' FAILED\netude task 0: exit code 1\netude task 1: exit code 0\n")
    assert etude(["launch", "status", "--json"]) == 0
    states = [task["state"] for task in json.loads(capsys.readouterr().out)["tasks"]]
    assert states == ["failed (1)", "finished", "gone"]
    assert etude(launch) == 0
    assert "it.2" in stubs.calls("ray")[-1], "Ray takes no id twice"
    assert etude(["launch", "cancel", "it"]) == 0
    assert stubs.calls("ray")[-1] == ["job", "stop", "it.2"]


def test_cancelling_a_cloud_gives_its_machines_back(stubs: Stubs, work: Path) -> None:
    stubs.add("ray")
    assert etude(["launch", *EC2, "--unchecked", "--yes", "--job-name", "it", *TRAIN]) == 0
    assert etude(["launch", "cancel", "it"]) == 0
    stop, down = stubs.calls("ray")[-2:]
    assert stop[2].endswith("job stop --address http://127.0.0.1:8265 it.1")
    assert down == ["down", "--yes", f"{work}/runs/.launch/it/cluster.yaml"]
    stubs.add("aws")
    assert etude(["launch", "sync", "it"]) == 0
    assert stubs.calls("aws") == [["s3", "sync", "--only-show-errors", "s3://bucket/runs/it/0", f"{work}/runs"]]


@pytest.mark.skipif(shutil.which("rsync") is None, reason="rsync is not installed here")
def test_a_task_is_restored_run_and_stored(stubs: Stubs, tmp_path: Path) -> None:
    """As on a machine that takes over from one that died: what is kept elsewhere comes first, and goes there in the end."""
    store, runs = tmp_path / "store", tmp_path / "runs"
    (store / "earlier").mkdir(parents=True)
    (store / "earlier" / "run.json").write_text("{}")
    (stubs.folder / "etude.py").write_text(
        "import pathlib, sys\nruns = pathlib.Path(sys.argv[-1].removeprefix('--runs='))\n"
        "assert (runs / 'earlier' / 'run.json').exists()\n"
        "for name in ('1', '.2.tmp'):\n"
        "    (runs / 'mine' / 'checkpoints' / name).mkdir(parents=True, exist_ok=True)\n"
        "(runs / 'mine' / 'checkpoints' / '1' / 'x').write_text('1')\n"
        "(runs / 'mine' / 'metrics.jsonl').write_text('{}')\n"
        "sys.exit(int(sys.argv[2]))\n"
    )
    commands = {"store": uploads.store(str(runs), str(store)), "restore": uploads.restore(str(store), str(runs))}
    task = {"words": ["train", "7"], "folder": str(stubs.folder), "runs": str(runs), "every_s": 60.0, **commands}
    assert ray_tasks.run_task(0, task) == 7
    assert (store / "mine" / "checkpoints" / "1" / "x").read_text() == "1"
    assert (store / "mine" / "metrics.jsonl").exists()
    assert not (store / "mine" / "checkpoints" / ".2.tmp").exists(), "half a checkpoint is none"
    task |= {"store": [["false"]], "words": ["train", "0"]}
    assert ray_tasks.run_task(0, task) == 1, "a run that is kept nowhere is no success"

"""GCE and EC2: a cluster file for Ray's own cluster launcher, and the job that is submitted on its head."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import yaml

from etude.errors import UserError
from etude.launching.job import Job
from etude.launching.launcher import Launch, launch_folder, record_file
from etude.launching.plan import Command, File, Plan, captured
from etude.launching.ray_job import identity_of, next_identity, ray_tasks, sync_plan, task_states
from etude.launching.task_script import verbatim
from etude.launching.uploads import check_upload

RAY_VERSION = "2.60.0"
"""On the machines; as in the extra `ray`."""
_PYTHON = "~/etude-env/bin/python"
_RAY = "~/etude-env/bin/ray"
_ON_HEAD = "--address http://127.0.0.1:8265"
_HEAD, _WORKER = "head", "worker"


@dataclass(frozen=True)
class CloudLauncher:
    """What the two clouds share: sizes of the cluster, setting up its machines, submitting on its head."""

    backend: ClassVar[str] = ""
    upload_kinds: ClassVar[tuple[str, ...]] = ()
    packages: ClassVar[tuple[str, ...]] = ()
    """What Ray needs on the head to start and stop machines of this cloud."""

    upload: str
    """The bucket that keeps runs: machines vanish, and their disks with them."""
    region: str
    zone: str
    machine: str
    head_machine: str
    min_workers: int
    max_workers: int
    source: str | None
    """A checkout of Etude to be copied and installed; None installs the release of this version."""
    version: str
    """Of Etude, here and there."""
    image: str | None = None
    disk_gb: int = 100
    spot: bool = False
    idle_minutes: int = 10
    setup: tuple[str, ...] = ()
    code: bool = True

    def start(self, job: Job) -> Plan:
        """Return the cluster file, the tasks, and what starts the cluster and submits them."""
        self._check(job)
        folder = launch_folder(job.runs, job.name)
        identity = next_identity(job)
        cluster = File(folder / "cluster.yaml", self.cluster_yaml(job))
        there = "~/etude-code" if self.code else ""
        tasks = ray_tasks(job, folder=there, runs="~/etude-runs", upload=self.upload)
        submit = f"{_RAY} job submit {_ON_HEAD} --no-wait --submission-id {identity} -- {_PYTHON} -m etude.launching.ray_tasks"
        commands = (
            Command(("ray", "up", "--yes", str(cluster.path))),
            Command(("ray", "exec", str(cluster.path), f"{submit} ~/etude-launch/tasks.json")),
        )
        files = (record_file(self, job), cluster, File(folder / "mounted" / "tasks.json", json.dumps(tasks, indent=1) + "\n"))
        where = f"etude launch cancel {job.name}"
        hints = (f"how they stand: etude launch status {job.name}", f"stop, and give every machine back: {where}")
        return Plan((), files, commands, self.costs(), hints, identity)

    def costs(self) -> tuple[str, ...]:
        """Return which machines are started, and how many at least and at most."""
        kind = " spot" if self.spot else ""
        return (
            f"{self.backend}: 1 head {self.head_machine} and {self.min_workers} to {self.max_workers}{kind} workers "
            f"{self._described_worker()} in {self.zone}",
            f"workers are given back after {self.idle_minutes} idle minutes; the head costs until you cancel the launch",
        )

    def cluster_yaml(self, job: Job) -> str:
        """Return the cluster in Ray's own schema."""
        folder = launch_folder(job.runs, job.name)
        mounts = {"~/etude-launch": str(folder / "mounted")}
        mounts |= {"~/etude-code": str(job.folder)} if self.code else {}
        mounts |= {"~/etude-src": self.source} if self.source is not None else {}
        etude = "-c ~/etude-src/constraints.txt ~/etude-src" if self.source is not None else f"etude=={self.version}"
        wanted = [f"ray[default]=={RAY_VERSION}", *self.packages]
        runs = [f"/{job.runs.relative_to(job.folder)}"] if job.runs.is_relative_to(job.folder) else []
        cluster = {
            "cluster_name": job.name.lower().replace(".", "-").replace("_", "-"),
            "max_workers": self.max_workers,
            "idle_timeout_minutes": self.idle_minutes,
            "provider": self._provider(),
            "auth": {"ssh_user": "ubuntu"},
            "available_node_types": {
                _HEAD: {"resources": {"CPU": 0}, "node_config": self._node(self.head_machine, worker=False)},
                _WORKER: {
                    "min_workers": self.min_workers,
                    "max_workers": self.max_workers,
                    "resources": self._worker_resources(),
                    "node_config": self._node(self.machine, worker=True),
                },
            },
            "head_node_type": _HEAD,
            "file_mounts": mounts,
            "rsync_exclude": ["**/.git", "**/.venv", "**/__pycache__", "**/.env*", *runs],
            "rsync_filter": [".gitignore"],
            "setup_commands": [
                "python3 -m pip install --user --quiet uv",
                "~/.local/bin/uv venv --quiet --allow-existing --python 3.12 ~/etude-env",
                f"~/.local/bin/uv pip install --quiet --python {_PYTHON} {shlex.join(wanted)} {etude}",
                *verbatim(self.setup, "--setup"),
            ],
            "head_start_ray_commands": [
                f"{_RAY} stop",
                f"{_RAY} start --head --port=6379 --object-manager-port=8076 --autoscaling-config=~/ray_bootstrap_config.yaml",
            ],
            "worker_start_ray_commands": [
                f"{_RAY} stop",
                f"{_RAY} start --address=$RAY_HEAD_IP:6379 --object-manager-port=8076",
            ],
        }
        return yaml.safe_dump(cluster, sort_keys=False, allow_unicode=True, width=120)

    def states(self, launch: Launch) -> dict[int, str]:
        """Ask Ray on the head of the cluster."""
        said, log = (captured(self._on_head(launch, verb)) for verb in ("status", "logs"))
        return task_states(said, log, len(launch.tasks))

    def cancel(self, launch: Launch) -> Plan:
        """Return what stops the job and gives every machine back."""
        down = Command(("ray", "down", "--yes", str(launch.path / "cluster.yaml")))
        return Plan(commands=(self._on_head(launch, "stop"), down))

    def logs(self, launch: Launch, task: int | None, *, follow: bool) -> Plan:
        """Return a look at the job's log, in which all tasks speak."""
        return Plan(commands=(self._on_head(launch, "logs", *(["--follow"] if follow else [])),))

    def sync(self, launch: Launch) -> Plan:
        """Return what brings runs here from the bucket."""
        return sync_plan(launch, self.upload, "")

    def _on_head(self, launch: Launch, verb: str, *options: str) -> Command:
        words = " ".join([_RAY, "job", verb, _ON_HEAD, *options, identity_of(launch)])
        return Command(("ray", "exec", str(launch.path / "cluster.yaml"), words))

    def _check(self, job: Job) -> None:
        check_upload(self.upload, self.upload_kinds)
        if self.min_workers > self.max_workers:
            raise UserError(f"--min-workers {self.min_workers} and --max-workers {self.max_workers}: choose at least as many")
        for option, text in {
            "region": self.region,
            "zone": self.zone,
            "machine": self.machine,
            "head-machine": self.head_machine,
        }.items():
            if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", text):
                raise UserError(f"--{option} {text!r}: lower-case letters, digits, dots and dashes")

    def _described_worker(self) -> str:
        return self.machine

    def _provider(self) -> dict[str, Any]:
        raise NotImplementedError

    def _node(self, machine: str, *, worker: bool) -> dict[str, Any]:
        raise NotImplementedError

    def _worker_resources(self) -> dict[str, Any]:
        return {}


@dataclass(frozen=True)
class GceLauncher(CloudLauncher):
    """Google Compute Engine."""

    backend: ClassVar[str] = "gce"
    upload_kinds: ClassVar[tuple[str, ...]] = ("gs://",)
    packages: ClassVar[tuple[str, ...]] = ("google-api-python-client",)

    project: str = ""
    accelerator: str | None = None
    gpus: int = 0

    def _check(self, job: Job) -> None:
        super()._check(job)
        if not re.fullmatch(r"[a-z][a-z0-9-]{4,28}[a-z0-9]", self.project):
            raise UserError(f"--project {self.project!r}: the id of a Google Cloud project, such as my-lab-42")
        if self.accelerator is not None and not re.fullmatch(r"[a-z0-9-]+", self.accelerator):
            raise UserError(f"--accelerator {self.accelerator!r}: such as nvidia-tesla-t4")
        if self.gpus and self.accelerator is None:
            raise UserError(f"--gpus {self.gpus}: say which, such as --accelerator nvidia-tesla-t4")
        if self.accelerator is not None and not self.gpus:
            raise UserError(f"--accelerator {self.accelerator}: say how many for each task, such as --gpus 1")

    def _described_worker(self) -> str:
        return f"{self.machine} with {self.gpus} {self.accelerator}" if self.accelerator else self.machine

    def _provider(self) -> dict[str, Any]:
        return {"type": "gcp", "region": self.region, "availability_zone": self.zone, "project_id": self.project}

    def _node(self, machine: str, *, worker: bool) -> dict[str, Any]:
        family = "common-cu128-ubuntu-2204-py310" if worker and self.gpus else "common-cpu"
        image = self.image or f"projects/deeplearning-platform-release/global/images/family/{family}"
        node: dict[str, Any] = {
            "machineType": machine,
            "disks": [
                {
                    "boot": True,
                    "autoDelete": True,
                    "type": "PERSISTENT",
                    "initializeParams": {"diskSizeGb": self.disk_gb, "sourceImage": image},
                }
            ],
        }
        if not worker:
            return node
        # The account that Ray makes for its head; without one, workers could not reach the bucket.
        email = f"ray-autoscaler-sa-v1@{self.project}.iam.gserviceaccount.com"
        node["serviceAccounts"] = [{"email": email, "scopes": ["https://www.googleapis.com/auth/cloud-platform"]}]
        scheduling: dict[str, Any] = {"preemptible": True} if self.spot else {}
        if self.accelerator is not None:
            place = f"projects/{self.project}/zones/{self.zone}/acceleratorTypes/{self.accelerator}"
            node["guestAccelerators"] = [{"acceleratorType": place, "acceleratorCount": self.gpus}]
            node["metadata"] = {"items": [{"key": "install-nvidia-driver", "value": "True"}]}
            scheduling["onHostMaintenance"] = "TERMINATE"
        return node | ({"scheduling": scheduling} if scheduling else {})

    def _worker_resources(self) -> dict[str, Any]:
        cores = re.search(r"-(\d+)$", self.machine)
        if cores is None:
            raise UserError(f"--machine {self.machine}: its cores can't be told from its name; take one such as n2-standard-8")
        return {"CPU": int(cores[1])} | ({"GPU": self.gpus} if self.gpus else {})


@dataclass(frozen=True)
class Ec2Launcher(CloudLauncher):
    """Amazon EC2. Ray knows the cores and GPUs of its machine types."""

    backend: ClassVar[str] = "ec2"
    upload_kinds: ClassVar[tuple[str, ...]] = ("s3://",)
    packages: ClassVar[tuple[str, ...]] = ("boto3", "awscli")

    instance_profile: str | None = None
    """The ARN of an instance profile whose role may use the bucket."""

    def _check(self, job: Job) -> None:
        super()._check(job)
        if self.image is not None and not re.fullmatch(r"ami-[0-9a-f]+", self.image):
            raise UserError(f"--image {self.image}: an image of EC2, ami-...")
        if self.instance_profile is not None and not re.fullmatch(r"arn:[\w:/+=,.@-]+", self.instance_profile, re.ASCII):
            raise UserError(f"--instance-profile {self.instance_profile!r}: an ARN, arn:aws:iam::NUMBER:instance-profile/NAME")

    def _provider(self) -> dict[str, Any]:
        # Given back, a machine is terminated: one that is only stopped still costs its disk.
        return {"type": "aws", "region": self.region, "availability_zone": self.zone, "cache_stopped_nodes": False}

    def _node(self, machine: str, *, worker: bool) -> dict[str, Any]:
        node: dict[str, Any] = {"InstanceType": machine}
        node |= {} if self.image is None else {"ImageId": self.image}
        disk = {"VolumeSize": self.disk_gb, "VolumeType": "gp3"}
        node["BlockDeviceMappings"] = [{"DeviceName": "/dev/sda1", "Ebs": disk}]
        if worker and self.instance_profile is not None:
            node["IamInstanceProfile"] = {"Arn": self.instance_profile}
        if worker and self.spot:
            node["InstanceMarketOptions"] = {"MarketType": "spot"}
        return node


def checkout() -> str | None:
    """Return the checkout that this Etude runs from, or None where it is installed."""
    root = Path(__file__).resolve().parents[3]
    return str(root) if (root / "pyproject.toml").is_file() and (root / "constraints.txt").is_file() else None

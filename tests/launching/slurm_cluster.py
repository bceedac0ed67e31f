"""A SLURM cluster of one machine in a folder: the real slurmctld and slurmd, without systemd, munge or a database."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

NEEDED = ("slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "scancel")
READY_S = 60.0


def missing() -> list[str]:
    """What of SLURM is not installed here."""
    return [name for name in NEEDED if shutil.which(name, path=_path()) is None]


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


class Cluster:
    """Partition `low` can be pre-empted and requeued by partition `high`, on the same cores."""

    def __init__(self, folder: Path, *, cpus: int, kill_wait_s: int = 30, grace_s: int = 0) -> None:
        self.folder, self.cpus = folder, cpus
        self.environment = {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": _path()}
        self._processes: list[subprocess.Popen[bytes]] = []
        for name in ("state", "spool", "log"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        host = socket.gethostname().split(".")[0]
        controller_port, node_port = _free_port(), _free_port()
        (folder / "slurm.conf").write_text(
            "\n".join(
                [
                    "ClusterName=here",
                    f"SlurmctldHost={host}(127.0.0.1)",
                    f"SlurmUser={getpass.getuser()}",
                    f"SlurmdUser={getpass.getuser()}",
                    f"SlurmctldPort={controller_port}",
                    f"SlurmdPort={node_port}",
                    "AuthType=auth/none",
                    "CredType=cred/none",
                    "ProctrackType=proctrack/linuxproc",
                    "TaskPlugin=task/none",
                    "MpiDefault=none",
                    "SelectType=select/cons_tres",
                    "SelectTypeParameters=CR_Core",
                    "SchedulerType=sched/backfill",
                    "SchedulerParameters=sched_interval=2,batch_sched_delay=0,bf_interval=2,default_queue_depth=1000",
                    "PreemptType=preempt/partition_prio",
                    "PreemptMode=REQUEUE",
                    f"KillWait={kill_wait_s}",
                    "ReturnToService=2",
                    "MinJobAge=300",
                    "RebootProgram=/bin/false",
                    f"StateSaveLocation={folder}/state",
                    f"SlurmdSpoolDir={folder}/spool",
                    f"SlurmctldPidFile={folder}/slurmctld.pid",
                    f"SlurmdPidFile={folder}/slurmd.pid",
                    f"SlurmctldLogFile={folder}/log/slurmctld.log",
                    f"SlurmdLogFile={folder}/log/slurmd.log",
                    # FORCE_SHARE is not: a core is one job's. More sockets than the machine has, so that jobs run side by side.
                    f"NodeName={host} NodeAddr=127.0.0.1 Sockets={cpus} CoresPerSocket=1 ThreadsPerCore=1 RealMemory=2000",
                    f"PartitionName=low Nodes={host} Default=YES MaxTime=INFINITE State=UP PriorityTier=1"
                    f" PreemptMode=REQUEUE GraceTime={grace_s}",
                    f"PartitionName=high Nodes={host} MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF",
                    "SlurmdParameters=config_overrides",
                    "",
                ]
            )
        )
        (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")

    def run(self, *words: str, check: bool = True) -> str:
        """Run one of SLURM's commands against this cluster and return what it printed."""
        environment = os.environ | self.environment
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        assert not check or done.returncode == 0, f"{words}: {done.stdout}{done.stderr}\n{self.logs()}"
        return done.stdout

    def logs(self) -> str:
        """The last of what the daemons wrote."""
        found = sorted((self.folder / "log").glob("*.log"))
        return "\n".join("\n".join(path.read_text(errors="replace").splitlines()[-30:]) for path in found)

    def start(self) -> None:
        environment = os.environ | self.environment
        for name in ("slurmctld", "slurmd"):
            words = [shutil.which(name, path=_path()) or name, "-D"]
            with (self.folder / "log" / f"{name}.out").open("wb") as output:
                self._processes.append(subprocess.Popen(words, env=environment, stdout=output, stderr=output))
        deadline = time.monotonic() + READY_S
        while "idle" not in self.run("sinfo", "-h", "-o", "%t", check=False):
            assert time.monotonic() < deadline, f"the cluster did not become ready\n{self.logs()}"
            assert all(process.poll() is None for process in self._processes), self.logs()
            time.sleep(0.2)

    def stop(self) -> None:
        with contextlib.suppress(AssertionError):
            self.run("scancel", "--user", getpass.getuser(), check=False)
        for process in reversed(self._processes):
            process.send_signal(signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextlib.contextmanager
def slurm_cluster(folder: Path, **options: int) -> Iterator[Cluster]:
    """A running cluster, gone afterwards."""
    cluster = Cluster(folder, **options)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]

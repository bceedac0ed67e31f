"""The real sshd on a port of its own, with keys of its own, for one folder."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

NEEDED = ("sshd", "ssh", "ssh-keygen", "rsync", "flock")
READY_S = 30.0
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def missing() -> list[str]:
    """What of ssh is not installed here."""
    return [name for name in NEEDED if shutil.which(name, path=_PATH) is None]


class Server:
    """An ssh server, to be stopped and started again; `config` is what a client needs to know of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "client"
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
        shutil.copy(folder / "user.pub", folder / "authorized")
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            self.port = taken.getsockname()[1]
        settings = [
            f"Port {self.port}", "ListenAddress 127.0.0.1", f"HostKey {folder}/host", f"AuthorizedKeysFile {folder}/authorized",
            "StrictModes no", "UsePAM no", "PasswordAuthentication no", f"PidFile {folder}/pid", "PermitRootLogin yes",
        ]  # fmt: skip
        (folder / "server").write_text("\n".join([*settings, ""]))
        client = [
            "Host box", "HostName 127.0.0.1", f"Port {self.port}", f"User {getpass.getuser()}", f"IdentityFile {folder}/user",
            "IdentitiesOnly yes", "StrictHostKeyChecking no", f"UserKnownHostsFile {folder}/known", "LogLevel ERROR",
        ]  # fmt: skip
        self.config.write_text("\n".join([*client, ""]))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        program = shutil.which("sshd", path=_PATH) or "sshd"
        # A session of its own: stopping it stops what it has started, as a machine's network going away would.
        self._process = subprocess.Popen(
            [program, "-D", "-e", "-f", str(self.folder / "server")],
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        deadline = time.monotonic() + READY_S
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            assert time.monotonic() < deadline, "sshd did not become ready"
            time.sleep(0.05)

    def stop(self) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

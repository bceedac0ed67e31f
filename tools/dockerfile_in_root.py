"""Run a Dockerfile's steps in a folder that holds a root file system, where there is no Docker: needs root, unshare and chroot.

    mmdebstrap --variant=minbase bookworm /tmp/root
    python -m tools.dockerfile_in_root docker/Dockerfile /tmp/root -- etude train CartPole-v1:ppo training.total_steps=2000

FROM is what the folder already is. RUN, COPY, ENV, ARG, WORKDIR and USER are carried out as they stand; what follows `--` is
then run as the image's user, in its folder and environment. Layers, caches, registries and limits of resources are Docker's
own, and not tried by this.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

_NOTED = ("CMD", "ENTRYPOINT", "EXPOSE", "LABEL", "VOLUME", "STOPSIGNAL")
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass
class Image:
    """What the steps so far have come to."""

    root: Path
    context: Path
    given: Mapping[str, str]
    binds: tuple[tuple[str, str], ...] = ()
    arguments: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": _DEFAULT_PATH})
    folder: str = "/"
    user: str = "root"

    def do(self, step: str, rest: str) -> None:
        """Carry out one instruction."""
        if step == "ARG":
            name, equals, value = rest.partition("=")
            if name in self.given or equals:
                self.arguments[name] = self.given.get(name, self._filled(value))
        elif step == "ENV":
            self.environment |= {key: self._filled(value) for key, _, value in (w.partition("=") for w in shlex.split(rest))}
        elif step == "RUN":
            self.run(["/bin/sh", "-c", rest], user=self.user, environment={**self.arguments, **self.environment})
        elif step == "COPY":
            self._copy([self._filled(word) for word in shlex.split(rest)])
        elif step == "WORKDIR":
            self.folder = os.path.join(self.folder, self._filled(rest))
            (self.root / self.folder.lstrip("/")).mkdir(parents=True, exist_ok=True)
        elif step == "USER":
            self.user = self._filled(rest)
        elif step != "FROM" and step not in _NOTED:
            raise SystemExit(f"{step}: not an instruction that this can carry out")

    def run(self, words: list[str], *, user: str, environment: Mapping[str, str]) -> None:
        """Run a command in the root, with /proc, /dev and the binds that were asked for."""
        mounts = [("/dev", "/dev"), ("/etc/resolv.conf", "/etc/resolv.conf"), *self.binds]
        lines = ["set -e"]
        for source, target in mounts:
            place = shlex.quote(f"{self.root}{target}")
            make = (
                f"mkdir -p {place}"
                if Path(source).is_dir()
                else f"mkdir -p {shlex.quote(str(Path(f'{self.root}{target}').parent))}; touch {place}"
            )
            lines.append(f"{make}; mount --rbind {shlex.quote(source)} {place}")
        lines.append(f"mount -t proc proc {shlex.quote(f'{self.root}/proc')}")
        inside = f"cd {shlex.quote(self.folder)} && exec {shlex.join(words)}"
        variables = [f"{key}={value}" for key, value in environment.items()]
        account = [] if user == "root" else [f"--userspec={user}:{user}"]
        lines.append(
            shlex.join(["exec", "chroot", *account, str(self.root), "/usr/bin/env", "-i", *variables, "/bin/sh", "-c", inside])
        )
        isolated = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "/bin/sh", "-c", "\n".join(lines)]
        done = subprocess.run(isolated, stdin=subprocess.DEVNULL, check=False)
        if done.returncode:
            raise SystemExit(f"exit code {done.returncode}: {shlex.join(words)}")

    def _copy(self, words: list[str]) -> None:
        if any(word.startswith("--") for word in words):
            raise SystemExit(f"COPY {' '.join(words)}: options are not carried out")
        *sources, target = words
        place = self.root / os.path.join(self.folder, target).lstrip("/")
        ignored = _ignored(self.context)

        def left_out(_: str, names: list[str]) -> list[str]:
            return [name for name in names if ignored(name)]

        for source in sources:
            found = self.context / source
            if found.is_dir():
                shutil.copytree(found, place, dirs_exist_ok=True, ignore=left_out)
            else:
                place.mkdir(parents=True, exist_ok=True)
                shutil.copy(found, place / found.name if target.endswith("/") or len(sources) > 1 else place)

    def _filled(self, text: str) -> str:
        known = {**self.arguments, **self.environment}
        return re.sub(r"\$\{(\w+)\}|\$(\w+)", lambda found: known.get(found[1] or found[2], ""), text)


def _ignored(context: Path) -> Callable[[str], bool]:
    """Return whether a name below what is copied is left out: the `**/NAME` lines of .dockerignore."""
    lines = (context / ".dockerignore").read_text().splitlines() if (context / ".dockerignore").exists() else []
    patterns = [line.removeprefix("**/") for line in lines if line.startswith("**/")]
    return lambda name: any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


def steps(dockerfile: str) -> Iterator[tuple[str, str]]:
    """Return the instructions of a Dockerfile with what follows them, comments and line breaks resolved."""
    lines = [line for line in dockerfile.splitlines() if not line.lstrip().startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        if line.strip():
            step, _, rest = line.strip().partition(" ")
            yield step.upper(), rest.strip()


def main(arguments: list[str] | None = None) -> None:
    """Build, then run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dockerfile", type=Path)
    parser.add_argument("root", type=Path)
    parser.add_argument("--context", type=Path, default=Path.cwd())
    parser.add_argument("--build-arg", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument(
        "--bind", action="append", default=[], metavar="HERE:THERE", help="a file or folder to be seen in the root"
    )
    parser.add_argument("--only-command", action="store_true", help="the root has been built already")
    words = sys.argv[1:] if arguments is None else arguments
    split = words.index("--") if "--" in words else len(words)
    chosen, command = parser.parse_args(words[:split]), words[split + 1 :]
    given = dict(word.split("=", 1) for word in chosen.build_arg)
    binds = tuple((here, there) for here, _, there in (word.partition(":") for word in chosen.bind))
    image = Image(chosen.root.resolve(), chosen.context.resolve(), given, binds)
    last: list[str] = []
    for step, rest in steps(chosen.dockerfile.read_text(encoding="utf-8")):
        if step == "CMD":
            last = json.loads(rest)
        if chosen.only_command and step in ("RUN", "COPY"):
            continue
        print(f"{step} {rest}", file=sys.stderr, flush=True)
        image.do(step, rest)
    image.run(command or last, user=image.user, environment=image.environment)


if __name__ == "__main__":
    main()

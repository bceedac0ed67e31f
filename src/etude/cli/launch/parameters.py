"""Parameters that every backend shares. None has the name of an option of the verbs that are launched (a test looks)."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

Words = Annotated[
    str,
    Parameter(
        name="COMMAND",
        allow_leading_hyphen=True,
        help="What to run, as after `etude`: train ENV:ALGO ..., resume RUN ... or sweep ....",
    ),
]
Each = Annotated[
    list[str] | None,
    Parameter(help="A setting with a task for each value: algorithm.gamma=0.9,0.99. May be repeated; all are combined."),
]
Cpus = Annotated[int | None, Parameter(help="Cores of each task.")]
Gpus = Annotated[int, Parameter(help="GPUs of each task.")]
Memory = Annotated[str | None, Parameter(help="Memory of each task, such as 8G.")]
Time = Annotated[str | None, Parameter(help="The time limit of each task, such as 4h or 1-12:00:00.")]
AtOnce = Annotated[int | None, Parameter(help="At most this many tasks at a time.")]
JobName = Annotated[
    str | None,
    Parameter(help="Default: what is trained and a mark of the words; the same words are the same launch, and go on."),
]
Setup = Annotated[
    list[str] | None,
    Parameter(
        allow_leading_hyphen=True, help="A shell line to run before, verbatim, such as 'module load cuda'. May be repeated."
    ),
]
Python = Annotated[str | None, Parameter(help="The Python that has Etude, there.")]
Dry = Annotated[bool, Parameter(name=["--dry", "--dry-run"], help="Print every file and command, and do nothing.")]
Yes = Annotated[bool, Parameter(name=["--yes", "-y"], help="Spend money without being asked.")]
Unchecked = Annotated[bool, Parameter(help="Don't compose the settings here first, such as where their packages are missing.")]

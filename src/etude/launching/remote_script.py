"""The script that runs the tasks of a launch on a machine of its own: started once, it needs nobody to stay connected."""

from __future__ import annotations

import shlex

from etude.launching.job import Job
from etude.launching.task_script import check_words, task_table, verbatim

_HEAD = r"""#!/bin/bash
# The tasks of one launch. `job.sh start` starts them detached; status, stop and pack are asked from elsewhere.
here=$(cd -- "$(dirname -- "$0")" && pwd) || exit 1
alive() { ! flock -n -s "$here/lock" true; }  # held by every process of the launch, until the last has ended
"""

_VERBS = r"""
case "$1" in
check)
  for tool in flock setsid xargs; do
    command -v "$tool" > /dev/null || { echo "$tool is missing here" >&2; exit 1; }
  done
  prepare && exec "${etude[@]}" --version ;;
start)
  if alive; then echo "it runs already" >&2; exit 3; fi
  setsid nohup bash "$here/job.sh" all >> "$here/logs/all.log" 2>&1 < /dev/null &
  until alive || ! kill -0 $! 2> /dev/null; do sleep 0.1; done
  echo "process $!"
  exit ;;
all)
  exec 9> "$here/lock"
  flock -w 10 9 || { echo "it runs already" >&2; exit 3; }  # whoever only asks holds it for a moment
  echo $$ > "$here/pid"
  rm -f "$here"/exit/*
  at_once || exit 1
  seq 0 $((count - 1)) | xargs -P "$many" -I{} --process-slot-var=ETUDE_SLOT bash "$here/job.sh" task {}
  exit ;;
status)
  if alive; then echo alive; fi
  for file in "$here"/exit/*; do [ ! -e "$file" ] || echo "${file##*/} $(cat "$file")"; done
  exit ;;
stop)
  # The whole group, once: each training saves itself, and what waits is not begun.
  if alive; then kill -TERM -- "-$(cat "$here/pid")"; fi
  exit ;;
pack)
  shopt -s nullglob
  [ "$2" = logs ] || cd "$here/runs" || exit 1
  case "$2" in
  checkpoints) found=(*/checkpoints); rules=(--exclude='*/checkpoints/.*') ;;
  rest) found=([!@]*); rules=(--exclude='*/checkpoints') ;;
  logs) cd "$here/logs" && found=(*); rules=() ;;
  esac
  if [ ${#found[@]} = 0 ]; then exec tar -cf - -T /dev/null; fi
  tar -cf - "${rules[@]}" -- "${found[@]}"
  [ $? -le 1 ]  # 1: a file changed while it was read, as files of living runs do
  exit ;;
task) number=$2 ;;
*) echo "check, start, status, stop or pack" >&2; exit 2 ;;
esac

exec >> "$here/logs/$number.log" 2>&1
: > "$here/exit/$number"
gpus
prepare || { echo 1 > "$here/exit/$number"; exit 0; }
"""
_TAIL = r"""
trap : TERM  # the training hears it too; this shell stays to note how it ended
"$@" "--runs=$here/runs" < /dev/null
code=$?
echo "$code" > "$here/exit/$number"
"""


def remote_script(job: Job, *, python: str, setup: tuple[str, ...]) -> str:
    """Return the script of all tasks."""
    etude = (python, "-m", "etude")
    tasks = [(*etude, *task) for task in job.tasks]
    check_words(tasks)
    gpus = job.resources.gpus
    prepare = ["prepare() {", '  cd "$here/code" || return 1', *verbatim(setup, "--setup"), "}"]
    if job.at_once is not None:
        many = f"many={job.at_once}"
    elif gpus:
        few = f'{{ echo "fewer than {gpus} GPUs here" >&2; false; }}'
        many = f'many=$(($(nvidia-smi -L | wc -l) / {gpus})); [ "$many" -ge 1 ] || {few}'
    else:
        many = "many=$(nproc)"
    each = ", ".join(f"$((ETUDE_SLOT * {gpus} + {index}))" for index in range(gpus)).replace(" ", "")
    visible = f'export CUDA_VISIBLE_DEVICES="{each}"' if gpus else ":"
    facts = [f"count={len(tasks)}", f"etude=({shlex.join(etude)})", f"at_once() {{ {many}; }}", f"gpus() {{ {visible}; }}"]
    return "\n".join([_HEAD + "\n".join(facts), *prepare]) + _VERBS + "\n".join(task_table(tasks, '"$number"')) + _TAIL

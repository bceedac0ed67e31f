"""Demonstrations of an agent, recorded, imitated without the task, and handed over as files that run without Etude."""

import sys
from pathlib import Path

import etude
from etude.deploy.export import export_policy
from etude.using.record_dataset import record
from etude.using.stored_policy import open_policy

if __name__ == "__main__":
    teacher = etude.train("CartPole-v1:ppo", "training.total_steps=50_000", *sys.argv[1:])
    root = Path("datasets")
    demonstrations = record(open_policy(teacher), "cartpole/teacher", root, episodes=20)
    print(len(demonstrations), "episodes")

    data = ("buffers.data.dataset=cartpole/teacher", f"buffers.data.root={root}", "evaluation.every_updates=0")
    student = etude.train("CartPole-v1:bc", *data, "algorithm.updates=2000", "evaluation.every_steps=0")
    for name, run in (("teacher", teacher), ("student", student)):
        print(name, run.evaluate(50).returns.mean())

    done = export_policy(open_policy(student, device="cpu"), ["torchscript"], Path("exports") / student.id)
    print({name: written.max_difference for name, written in done.metadata.files.items()}, done.problems)

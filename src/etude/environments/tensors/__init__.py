"""Tasks as batched torch tensors: many copies on whatever device the learner is on, without the host in between.

A task is written once (`etude.environments.tensors.task.TensorTask`) and known by a name; `etude.environments.tensors.vector`
steps N copies of it, `etude.environments.tensors.env` one copy as Gymnasium has it, for whoever wants that or looks at it.
"""

from __future__ import annotations

from etude.compute.draws import integers, normal, uniform
from etude.environments.tensors.registered import register_task
from etude.environments.tensors.task import Advanced, TensorTask

__all__ = ["Advanced", "TensorTask", "integers", "normal", "register_task", "uniform"]

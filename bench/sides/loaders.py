"""Ways to hand a rollout out in shuffled minibatches."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from measurement import answer, point, steady, versions
from tasks import LoaderTask, loader_task


def measure(request: dict[str, Any]) -> dict[str, Any]:
    """Touch every row of every epoch once, by one strategy."""
    import torch

    task = loader_task(request["task"])
    torch.set_num_threads(request["threads"])
    generator = torch.Generator().manual_seed(task.seed)
    columns = {str(i): torch.randn(task.rows, width, generator=generator) for i, width in enumerate(task.widths)}
    epoch = STRATEGIES[request["strategy"]](columns, task, generator)
    points = [point(0)]
    while len(points) <= task.warmup_epochs + 1 or points[-1].at - points[task.warmup_epochs].at < task.min_seconds:
        rows = sum(len(batch) for batch in epoch())
        assert rows == task.rows, f"{rows} of {task.rows} rows were handed out"
        points.append(point(points[-1].units + rows))
    return {
        **steady(points, task.warmup_epochs * task.rows),
        "resolved": {"strategy": request["strategy"], "columns": len(columns)},
        "versions": versions("etude", "torch"),
    }


Epoch = Callable[[], Iterable[Any]]


def _permutation(columns: dict[str, Any], task: LoaderTask, generator: Any) -> Epoch:
    """Etude's: one permutation an epoch, one gather per column and batch."""
    from etude.buffers.rollout import minibatches, take

    def epoch() -> Iterable[Any]:
        for index in minibatches(task.rows, task.batch_size, 1, generator):
            yield take(columns, index)["0"]

    return epoch


def _data_loader(columns: dict[str, Any], task: LoaderTask, generator: Any) -> Epoch:
    """torch's DataLoader as in its tutorial: rows one by one, collated."""
    from torch.utils.data import DataLoader, TensorDataset

    loader = DataLoader(TensorDataset(*columns.values()), task.batch_size, shuffle=True, generator=generator)
    return lambda: (batch[0] for batch in loader)


def _data_loader_by_batch(columns: dict[str, Any], task: LoaderTask, generator: Any) -> Epoch:
    """torch's DataLoader at its best here: whole batches are indexed at once, nothing is collated."""
    from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

    data = TensorDataset(*columns.values())
    sampler = BatchSampler(RandomSampler(data, generator=generator), task.batch_size, drop_last=False)
    loader = DataLoader(data, sampler=sampler, batch_size=None)
    return lambda: (batch[0] for batch in loader)


def _numpy_permutation(columns: dict[str, Any], task: LoaderTask, generator: Any) -> Epoch:
    """As Stable-Baselines3's rollout buffer: NumPy indexing, then tensors."""
    import numpy as np
    import torch

    arrays = [column.numpy() for column in columns.values()]
    numbers = np.random.default_rng(task.seed)

    def epoch() -> Iterable[Any]:
        order = numbers.permutation(task.rows)
        for start in range(0, task.rows, task.batch_size):
            index = order[start : start + task.batch_size]
            batch = [torch.as_tensor(array[index]) for array in arrays]
            yield batch[0]

    return epoch


STRATEGIES: dict[str, Callable[[dict[str, Any], LoaderTask, Any], Epoch]] = {
    "permutation": _permutation,
    "numpy-permutation": _numpy_permutation,
    "data-loader": _data_loader,
    "data-loader-by-batch": _data_loader_by_batch,
}


if __name__ == "__main__":
    answer(measure)

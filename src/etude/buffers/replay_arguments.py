"""What a replay is made with: from its settings and the algorithm's, and what of that does not go together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from etude.buffers.hindsight import Hindsight
from etude.buffers.new_first import NewFirst
from etude.buffers.places import Bounds, Places, Prioritized, Priority, Uniform
from etude.buffers.replay_config import device_of, own_view, settings_of
from etude.config.schema import Config
from etude.errors import UserError


def arguments_of(options: Any, config: Config, name: str) -> dict[str, Any]:
    """Return how to make the buffer that its options describe; the algorithm's own settings fill what they leave open."""
    algorithm = config.algorithm
    n_step = options.n_step or algorithm.n_step
    gamma = algorithm.gamma
    if gamma is None and n_step > 1:
        raise UserError(f"buffers.{name}.n_step={n_step}: {algorithm.name} has no gamma to discount rewards with")
    first_batch = max(1, int(algorithm.batch_size or 1))
    starts = next((size for size in (options.min_size, algorithm.learning_starts) if size is not None), None)
    wanted = first_batch if starts is None else -(-starts // config.experiment.processes)  # of all processes together
    return {
        "capacity": options.capacity,
        "num_envs": config.environment.num_envs,
        "min_size": max(1, wanted),
        "n_step": n_step,
        "gamma": 1.0 if gamma is None else float(gamma),
        "name": name,
        "device": device_of(options, config.experiment.device, name),
        "strict": options.on_low_memory == "strict",
        "leave_out": options.leave_out,
        "frame_stack": options.frame_stack,
        "sequence": options.sequence or algorithm.sequence,
        "rewritten": tuple(dict.fromkeys((*algorithm.rewritten, *options.rewritten))),
        "max_bytes": options.max_bytes,
        "storage": options.storage,
        "folder": options.folder,
        "online": options.online,
        "priority": settings_of(Priority, options, "priority"),
        "hindsight": settings_of(Hindsight, options, "hindsight"),
        "view": None if options.view is None else own_view(options.view, f"buffers.{name}.view"),
    }


def check_capacity(capacity: int, num_envs: int, min_size: int, name: str) -> None:
    """Raise UserError where a replay has no room for a step, or for what learning starts at."""
    if capacity < num_envs:
        raise UserError(f"buffers.{name}.capacity={capacity}: must hold at least one step of all {num_envs} environments")
    held = capacity // num_envs * num_envs
    if min_size > held:
        raise UserError(
            f"buffers.{name}.capacity={capacity}: holds {held} transitions, and learning starts at {min_size} "
            f"(buffers.{name}.min_size, or the algorithm's learning_starts)"
        )


def check_left_out(name: str, leave_out: Sequence[str], needs: Mapping[str, Sequence[str]]) -> None:
    """Raise UserError where a column is left out that something needs."""
    for what, columns in needs.items():
        for column in columns:
            if column in leave_out:
                raise UserError(f"buffers.{name}.leave_out: '{column}' is needed" + (f" for {what}" if what else ""))


def check_goals(name: str, sequence: int | None, stacked: int | None) -> None:
    """Raise UserError where hindsight is asked for and something that does not go with it."""
    if sequence is not None:
        raise UserError(
            f"buffers.{name}.sequence={sequence}: not with hindsight: a window goes on across episodes, each of "
            "which has a goal of its own; set one of them to null"
        )
    if stacked is not None:
        raise UserError(
            f"buffers.{name}.frame_stack={stacked}: not with hindsight: tasks with goals have observations "
            "of several parts, which are no frames; set one of them to null"
        )


def places_of(bounds: Bounds, priority: Priority | None, *, newest: int | None, name: str) -> Places:
    """Return what says which transitions are drawn; `newest` is how many steps a window has that is drawn as it is new."""
    if newest is None:
        return Uniform(bounds) if priority is None else Prioritized(bounds, priority)
    if priority is not None:
        raise UserError(
            f"buffers.{name}.online=true: not with priorities: what is drawn because it is new was not drawn by its "
            "priority, and has no weight; set one of them to null"
        )
    return NewFirst(bounds, newest)

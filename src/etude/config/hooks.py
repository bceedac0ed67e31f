"""What a phase may name: the methods of an algorithm that are marked as hooks.

@hook                                   # it learns, or does anything else between two steps of the environment
def update_critic(self, phase, count): ...

@hook(collects=True)                    # it steps the environment, so the budget holds for it
def collect_episode(self, phase, count): ...

@hook(takes_long=True)                  # one of it takes seconds: it is asked for one at a time, and may be left amid it
def dream(self, phase, count): ...
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, overload

Method = TypeVar("Method", bound=Callable[..., Any])
_MARK = "_etude_hook"


class Hook(NamedTuple):
    """What a mark says."""

    collects: bool = False
    """Whether it steps the training environment: budgets, durations in steps and offline phases go by it."""
    counts_steps: bool = False
    """Whether its count is one of vector steps: it is asked for no more than the budget has room for, and for many cycles at
    once where nothing comes between them."""
    takes_long: bool = False
    """Whether one of it takes seconds: it is asked for one at a time, so that whoever wants to stop waits for no more."""


@overload
def hook(method: Method, /) -> Method: ...
@overload
def hook(*, collects: bool = False, counts_steps: bool = False, takes_long: bool = False) -> Callable[[Method], Method]: ...
def hook(method: Any = None, /, *, collects: bool = False, counts_steps: bool = False, takes_long: bool = False) -> Any:
    """Mark a method `(self, phase, count) -> HookResult` as one that phases may name; overrides of it need no mark."""

    def mark(found: Any) -> Any:
        setattr(found, _MARK, Hook(collects, counts_steps, takes_long))
        return found

    return mark if method is None else mark(method)


def hooks_of(workflow: type) -> dict[str, Hook]:
    """Return the hooks of an algorithm, each with what the nearest mark says."""
    found: dict[str, Hook] = {}
    for cls in reversed(workflow.__mro__):
        found |= {name: mark for name, value in vars(cls).items() if (mark := getattr(value, _MARK, None)) is not None}
    return dict(sorted(found.items()))

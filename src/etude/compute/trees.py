"""Nested dicts, lists, tuples and named tuples of tensors: the few functions that everybody needs of them.

None stands for "nothing" and stays None. Everything else is a tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

Tree = Any
"""A tensor, None, or a dict, list, tuple or named tuple of trees."""


def map_tree(function: Callable[..., Any], tree: Tree, *others: Tree) -> Tree:
    """Return the tree with each tensor replaced by what `function` makes of it, and of those in the same place of others."""
    if isinstance(tree, Tensor):
        return function(tree, *others)
    if tree is None:
        return None
    if isinstance(tree, Mapping):
        return {key: map_tree(function, value, *(other[key] for other in others)) for key, value in tree.items()}
    if isinstance(tree, tuple | list):
        items = [map_tree(function, *each) for each in zip(tree, *others, strict=True)]
        return type(tree)(*items) if hasattr(tree, "_fields") else type(tree)(items)
    raise TypeError(f"a {type(tree).__name__} is neither a tensor nor a dict, list or tuple of them")


def leaves(tree: Tree) -> Iterator[Tensor]:
    """Yield every tensor, in order."""
    if isinstance(tree, Tensor):
        yield tree
    elif tree is not None:
        for value in tree.values() if isinstance(tree, Mapping) else tree:
            yield from leaves(value)


def first_leaf(tree: Tree) -> Tensor:
    """Return the first tensor."""
    return next(leaves(tree))


def copy_(target: Tree, source: Tree) -> None:
    """Write a tree's values into another of the same form, in place."""
    map_tree(lambda into, value: into.copy_(value), target, source)


def at(tree: Tree, index: Any) -> Tree:
    """Return `tensor[index]` of every tensor."""
    return map_tree(lambda tensor: tensor[index], tree)


def joined(trees: Sequence[Tree], dim: int = 0) -> Tree:
    """Return the trees' tensors, each place's one after the other."""
    if len(trees) == 1:
        return trees[0]
    return map_tree(lambda *tensors: torch.cat(tensors, dim), *trees)


def storable(tree: Any) -> Any:
    """Return the tree as a checkpoint holds it: named tuples as tuples. Leaves may be other values than tensors too."""
    if isinstance(tree, Mapping):
        return {key: storable(value) for key, value in tree.items()}
    if isinstance(tree, tuple | list):
        items = [storable(value) for value in tree]
        return items if isinstance(tree, list) else tuple(items)
    return tree


def restored(tree: Any, device: torch.device, example: Any = None) -> Any:
    """Return a tree out of a checkpoint on a device, with named tuples where the example has them."""
    if isinstance(tree, Mapping):
        inside = example if isinstance(example, Mapping) else {}
        return {key: restored(value, device, inside.get(key)) for key, value in tree.items()}
    if isinstance(tree, tuple | list):
        alike = isinstance(example, tuple | list) and len(example) == len(tree)
        items = [restored(value, device, example[k] if alike else None) for k, value in enumerate(tree)]
        return type(example)(*items) if alike and hasattr(example, "_fields") else type(tree)(items)
    return tree.to(device) if isinstance(tree, Tensor) else tree

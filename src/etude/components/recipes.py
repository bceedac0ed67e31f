"""How a component was made, kept with it: whoever has saved its weights can make it again.

The one place that makes components of a kind notes a recipe on each. Nothing in a recipe changes when the component learns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import gymnasium

Made = TypeVar("Made")
_NAME = "etude_recipe"
"""Long, for it stands among the attributes of users' own classes."""


@dataclass(frozen=True)
class Recipe:
    """What a component was made of; `etude.saved_components.kinds` makes one again."""

    kind: str
    """network, policy, encoder ..."""
    settings: Any = None
    """Its settings where it was chosen by name: the name and the options."""
    spaces: Mapping[str, gymnasium.Space[Any]] = field(default_factory=dict)
    parts: Mapping[str, Recipe] = field(default_factory=dict)
    """What is made before it and goes into it."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """All else: sizes, seeds, words."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Recipe:
        # A target network is a copy of a trained one, made alike.
        return self


def remember(made: Made, recipe: Recipe | None) -> Made:
    """Note how a component was made, and return it; None says that it isn't known."""
    setattr(made, _NAME, recipe)
    return made


def recipe_of(made: object) -> Recipe | None:
    """Return how a component was made, if it is known."""
    recipe = getattr(made, _NAME, None)
    return recipe if isinstance(recipe, Recipe) else None


def recipe_with_parts(kind: str, parts: Mapping[str, Any] | Sequence[Any], **rest: Any) -> Recipe | None:
    """Return the recipe of what is made of other components; None where it isn't known how one of these was made."""
    named = dict(parts) if isinstance(parts, Mapping) else {str(index): part for index, part in enumerate(parts)}
    recipes = {name: recipe for name, part in named.items() if (recipe := recipe_of(part)) is not None}
    return Recipe(kind, parts=recipes, **rest) if len(recipes) == len(named) else None

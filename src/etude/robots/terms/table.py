"""Terms by name: what a config may choose from, and what each choice accepts."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, cast, get_type_hints

import torch
from torch import Tensor

from etude.config.registry import import_own, is_import_path
from etude.config.validate import Validator
from etude.errors import UserError, did_you_mean
from etude.robots.state import State

Term = Callable[..., Tensor]


def options_of(given: Any, where: str) -> dict[str, Any]:
    """Return a term's options as a mapping; nothing stands for none, anything else is an error."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise UserError(f"{where}={given}: must be a mapping of options, such as {{}}")
    return dict(given)


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def check_values(values: Any, shape: tuple[int, ...], where: str, dtype: torch.dtype | None = None) -> None:
    """Refuse what a term returned if it is no tensor of this shape (-1: any size)."""
    found = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
    asked = f"({shape[0]},)" if len(shape) == 1 else f"({shape[0]}, {'k' if shape[1] == -1 else shape[1]})"
    fits = isinstance(found, tuple) and len(found) == len(shape)
    if not (fits and all(want in (-1, size) for want, size in zip(shape, found, strict=True))):
        raise UserError(f"{where}: returned {found}, and must return {asked}: a row for each robot")
    if dtype is not None and values.dtype != dtype:
        raise UserError(f"{where}: returned {values.dtype}, and must return {asked} of {dtype}")


def own_term(path: str, where: str, kind: str) -> Term:
    """Import a function of the user's: it takes a state first, and everything else has a default."""
    term: Any = import_own(path, f"{where}: {kind}")
    if not callable(term) or isinstance(term, type):
        raise UserError(f"{where}: is no function of a state")
    parameters = list(inspect.signature(term).parameters.values())
    if not parameters or parameters[0].name != "state" or parameters[0].kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD:
        raise UserError(f"{where}: its first parameter must be `state`, as in def {term.__name__}(state)")
    for other in parameters[1:]:
        if other.default is other.empty:
            raise UserError(f"{where}: its parameter `{other.name}` needs a default, which a task may then change")
    return cast("Term", term)


def own_values(path: str, where: str, state: State, shape: tuple[int, ...]) -> Term:
    """Import a function of the user's that returns so many numbers of each robot; -1 stands for any number."""
    term = own_term(path, where, "function")
    check_values(term(state), shape, where)
    return term


class Table:
    """The terms of one kind."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.terms: dict[str, Term] = {}
        self.for_feet: dict[str, int | None] = {}
        """How many feet a robot must have for a term; None: any."""

    def add(self, term: Term) -> Term:
        """Decorate a function of a state to offer it under its own name; its docstring is its formula."""
        self.terms[term.__name__] = term
        return term

    def add_for_feet(self, exactly: int | None = None) -> Callable[[Term], Term]:
        """Decorate a term of robots with feet, or with exactly so many."""

        def add(term: Term) -> Term:
            self.for_feet[term.__name__] = exactly
            return self.add(term)

        return add

    def add_read(self, name: str, place: str, formula: str, *, of_feet: bool = False) -> None:
        """Offer a part of the state, by its dotted name there, as it is."""
        if of_feet:
            self.for_feet[name] = None
        parts = place.split(".")

        def term(state: State) -> Tensor:
            value: Any = state
            for part in parts:
                value = getattr(value, part)
            return value

        term.__name__, term.__doc__ = name, formula
        self.add(term)

    def find(self, name: str, where: str) -> Term:
        """Return a term, or a user's own function by its import path; an unknown name is an error that lists what there is."""
        if name not in self.terms and is_import_path(name):
            return own_term(name, f"{where}.{name}", self.kind)
        if name not in self.terms:
            near = did_you_mean(name, self.terms) or f" (there are {', '.join(sorted(self.terms))})"
            raise UserError(f"{where}.{name}: unknown {self.kind}{near}")
        return self.terms[name]

    def bind(self, name: str, options: Mapping[str, Any], where: str, *, feet: int | None = None) -> Callable[[State], Tensor]:
        """Return the term with its options fixed; options that it does not have, or feet that a robot lacks, are errors."""
        term = self.find(name, where)
        if feet is not None:
            self._check_feet(name, feet, where)
        known = [key for key in inspect.signature(term).parameters if key != "state"]
        for key in options:
            if key not in known:
                near = did_you_mean(key, known) or f" (known: {', '.join(known) or 'none'})"
                raise UserError(f"{where}.{name}.{key}: unknown option{near}")
        if name in self.terms:  # whose types say what is allowed
            types, validator = get_type_hints(term, include_extras=True), Validator()
            fixed = {key: validator.value(types[key], value, f"{where}.{name}.{key}") for key, value in options.items()}
        else:
            fixed = {key: self._own_value(term, key, value, f"{where}.{name}") for key, value in options.items()}

        def bound(state: State) -> Tensor:
            return term(state, **fixed)

        return bound

    def _check_feet(self, name: str, feet: int, where: str) -> None:
        if name not in self.for_feet:
            return
        exactly = self.for_feet[name]
        if feet == 0:
            raise UserError(f"{where}.{name}: is of feet, and this robot has none (its YAML names them as `feet`)")
        if exactly is not None and feet != exactly:
            raise UserError(f"{where}.{name}: is of robots with {exactly} feet, and this one has {feet}")

    @staticmethod
    def _own_value(term: Term, key: str, value: Any, where: str) -> Any:
        default = inspect.signature(term).parameters[key].default
        if isinstance(default, int | float | None) and not _is_number(value):
            raise UserError(f"{where}.{key}={value}: must be a number")
        return tuple(value) if isinstance(value, list) else value

    def describe(self) -> dict[str, str]:
        """Return each term with its formula."""
        return {name: " ".join((term.__doc__ or "").split()) for name, term in sorted(self.terms.items())}

"""Values that follow from others: `algorithm.rollout_steps * environment.num_envs // 4`, `2 ** randint(5, 9)`.

An expression is arithmetic and nothing else: it is walked as a syntax tree, never run as code. What it draws comes from a
generator that is given, so the same trial has the same values whenever it is asked.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from etude.errors import UserError, did_you_mean

_LONGEST = 500
_LARGEST = 1e18
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "ceil": math.ceil,
    "exp": math.exp,
    "float": float,
    "floor": math.floor,
    "int": int,
    "log": math.log,
    "log10": math.log10,
    "log2": math.log2,
    "max": max,
    "min": min,
    "round": round,
    "sqrt": math.sqrt,
}
_DRAWS: dict[str, Callable[..., Any]] = {
    "choice": lambda random, values: random.choice(values),
    "loguniform": lambda random, low, high: math.exp(random.uniform(math.log(low), math.log(high))),
    "normal": lambda random, mean, std: random.gauss(mean, std),
    "randint": lambda random, low, high: random.randint(low, high),
    "uniform": lambda random, low, high: random.uniform(low, high),
}
_KNOWN = sorted([*_FUNCTIONS, *_DRAWS])


class Expression:
    """One expression, checked when it is made."""

    def __init__(self, text: str) -> None:
        self.text = text
        if len(text) > _LONGEST:
            raise UserError(f"an expression of {len(text)} characters; at most {_LONGEST}")
        try:
            self._tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise UserError(f"'{text}' can't be read as an expression, such as 2 * algorithm.batch_size") from None
        self.names = tuple(dict.fromkeys(_names(self._tree, text)))
        """The dotted keys it refers to."""

    def evaluate(self, look_up: Callable[[str], Any], random: Random) -> Any:
        """Return its value; `look_up` knows the value of every dotted key, and draws come from `random`."""
        try:
            return self._value(self._tree, look_up, random)
        except (ArithmeticError, ValueError, TypeError, IndexError) as error:
            raise UserError(f"'{self.text}': {error}") from None

    def _value(self, node: ast.expr, look_up: Callable[[str], Any], random: Random) -> Any:
        def value(inner: ast.expr) -> Any:
            return self._value(inner, look_up, random)

        match node:
            case ast.Constant():
                return node.value
            case ast.Name() | ast.Attribute():
                return look_up(_dotted(node) or "")
            case ast.List() | ast.Tuple():
                return [value(item) for item in node.elts]
            case ast.Subscript():
                return value(node.value)[_number(value(node.slice))]
            case ast.BinOp():
                return _compute(_ARITHMETIC[type(node.op)], value(node.left), value(node.right))
            case ast.UnaryOp(op=ast.Not()):
                return not value(node.operand)
            case ast.UnaryOp():
                operand = _number(value(node.operand))
                return -operand if isinstance(node.op, ast.USub) else operand
            case ast.BoolOp():
                wanted = isinstance(node.op, ast.Or)
                return next((found for item in node.values if bool(found := value(item)) is wanted), not wanted)
            case ast.IfExp():
                return value(node.body if value(node.test) else node.orelse)
            case ast.Compare():
                sides = [value(side) for side in (node.left, *node.comparators)]
                pairs = zip(node.ops, sides, sides[1:], strict=False)
                return all(_COMPARISONS[type(op)](left, right) for op, left, right in pairs)
            case ast.Call(func=ast.Name(id=name)):
                arguments = [value(argument) for argument in node.args]
                found = _DRAWS[name](random, *arguments) if name in _DRAWS else _FUNCTIONS[name](*arguments)
                return found if isinstance(found, str | bool | list) or found is None else _number(found)
        raise AssertionError(f"{ast.dump(node)} was let through")


def _names(node: ast.expr, text: str) -> Iterator[str]:
    """The keys in a tree; whatever is not arithmetic is an error."""
    match node:
        case ast.Constant(value=bool() | int() | float() | str() | None):
            return
        case ast.Name() | ast.Attribute() if (key := _dotted(node)) is not None:
            yield key
            return
        case ast.Call(func=ast.Name(id=name), keywords=[]) if name in _KNOWN:
            inner = node.args
        case ast.Call(func=ast.Name(id=name)):
            raise UserError(f"'{text}': no function {name}{did_you_mean(name, _KNOWN)} (known: {', '.join(_KNOWN)})")
        case ast.List() | ast.Tuple():
            inner = node.elts
        case ast.Subscript():
            inner = [node.value, node.slice]
        case ast.BinOp() if type(node.op) in _ARITHMETIC:
            inner = [node.left, node.right]
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() | ast.Not()):
            inner = [node.operand]
        case ast.BoolOp():
            inner = node.values
        case ast.IfExp():
            inner = [node.test, node.body, node.orelse]
        case ast.Compare() if all(type(op) in _COMPARISONS for op in node.ops):
            inner = [node.left, *node.comparators]
        case _:
            raise UserError(f"'{text}': only keys, numbers, arithmetic and the functions {', '.join(_KNOWN)}")
    for each in inner:
        yield from _names(each, text)


def _dotted(node: ast.expr) -> str | None:
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else None


def _compute(operation: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    left, right = _number(left), _number(right)
    if operation is operator.pow and (abs(right) > 1000 or (abs(left) > 1 and abs(right) * math.log10(abs(left)) > 18)):
        raise ValueError("the power is too large")
    return _number(operation(left, right))


def _number(value: Any) -> Any:
    """The value, if it is a number of a reasonable size."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is not a number")
    if not abs(value) <= _LARGEST:
        raise ValueError("the number is too large")
    return value

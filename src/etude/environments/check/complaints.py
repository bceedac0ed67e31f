"""What an environment says about its arguments, in one line."""

from __future__ import annotations


def complaint(problem: BaseException) -> str:
    """Return what was said, without the frame that Gymnasium puts around it."""
    said = first_line(problem).split(" was raised from the environment creator", 1)[0]
    if "unexpected keyword argument" in said:
        return said.split(")", 1)[-1].strip()
    return f"refused them: {type(problem).__name__}: {said}"


def first_line(problem: BaseException) -> str:
    """Return the first line of an exception's text, or its type where it has none."""
    return str(problem).strip().splitlines()[0] if str(problem).strip() else type(problem).__name__

"""Errors about traced tensors, which have no values."""

from __future__ import annotations

from typing import NoReturn

from rlx.support.caller import caller_place
from rlx.support.errors import Error

_HINT = (
    "rlx.ops.where chooses elementwise, rlx.ops.if_ and while_ branch on a scalar, a Python value that the trace may "
    "depend on is a static argument, and inside of `with rlx.eager():` tensors have values"
)


def no_value(tensor: object, consequence: str = "") -> Error:
    """Return the error for code that needs the value of a tensor while it is traced."""
    message = f"{tensor!r} has no value while it is traced{consequence}"
    return Error(message, location=caller_place(), hint=_HINT)


class NumElements(int):
    """A number of elements. Calling it, as in PyTorch, raises a helpful error."""

    def __call__(self, axis: int | None = None) -> NoReturn:
        instead = "x.shape" if axis is None else f"x.shape[{axis}]"
        raise TypeError(f"size is the number of elements, no function; did you mean {instead}?")

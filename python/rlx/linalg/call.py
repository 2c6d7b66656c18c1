"""Functions of tensors that are not methods of graphs under the same name."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from rlx.ir.graph.builder import Builder
from rlx.ops import manual, signatures, surface

P = ParamSpec("P")
R = TypeVar("R")


def of_tensors(function: Callable[Concatenate[Builder, P], R]) -> Callable[P, R]:
    """Decorate `function(b, …)` as a function of `rlx.linalg`, which finds the builder in its arguments.

    Wrong arguments raise the errors that methods of graphs raise, at the caller's line.
    """
    name = f"rlx.linalg.{function.__name__}"
    method = surface.helper_method(function.__name__, function)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return method(surface.builder_for(name, (*args, *kwargs.values())), *args, **kwargs)

    shown: Any = call
    signature = signatures.without_self(signatures.of_helper(function))
    shown.__signature__, shown.__doc__ = signature, manual.of_helper(function, signature)
    return call

"""The op cards of all tensor ops, in one file or folder per family. Importing this package registers all of them.

Every op is also a function of this module that takes tensors: `rlx.ops.softmax(x, axis=-1)` is
`x.builder.softmax(x, axis=-1)`.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from functools import cache
from inspect import Signature
from typing import Any

from rlx.ir.graph.builder import Builder
from rlx.ops import signatures, surface
from rlx.parts import FUNCTIONS
from rlx.support.answers import answers
from rlx.support.submodules import import_all


def _signature(name: str) -> Signature:
    return signatures.without_self(inspect.signature(getattr(Builder, name)))


@cache
def _function(name: str) -> Callable[..., Any]:
    def function(*args: Any, **kwargs: Any) -> Any:
        builder = surface.builder_for(f"rlx.ops.{name}", (*args, *kwargs.values()))
        return getattr(builder, name)(*args, **kwargs)

    function.__name__ = function.__qualname__ = name  # pickle looks up the function in this module by name
    function.__doc__ = getattr(Builder, name).__doc__
    function.__signature__ = _signature(name)  # pyright: ignore[reportFunctionMemberAccess]
    return function


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(f"module 'rlx.ops' has no attribute '{name}'")
    if name not in surface.methods():
        raise answers().name_problem("rlx.ops", name, surface.methods())
    globals()[name] = _function(name)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted(surface.methods())


import_all(__name__)
importlib.import_module(FUNCTIONS)
import_all(FUNCTIONS)
surface.install()
# Some family modules share their name with an op. In this namespace the name refers to the op.
for _name in surface.methods().keys() & globals().keys():
    globals()[_name] = _function(_name)
surface.as_module(_function("fft"))

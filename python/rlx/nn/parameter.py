"""Declarations of the tensors of a module: parameters, which are trained, and buffers, which are not."""

# Users may pass values that the annotations do not allow.
# pyright: reportUnnecessaryIsInstance=false

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from rlx.ir.calls import Answered
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.typing import DTypeLike
from rlx.ir.python_values import type_description
from rlx.ir.shape import Shape, ShapeLike
from rlx.nn import init
from rlx.nn.init import Initializer
from rlx.support.answers import answers
from rlx.support.caller import caller_place
from rlx.support.errors import Error, ShapeError
from rlx.support.guards import is_array
from rlx.support.short import short_repr


class Parameter(Answered):
    """A weight of a module: `self.scale = rlx.nn.Parameter((16,), init=rlx.nn.init.ones)`.

    In `forward`, and in the functions that it calls, `self.scale` is the tensor.

    Args:
        shape: Static sizes.
        init: The initialiser: a function of a key and a shape, see `rlx.nn.init`.
        dtype: Element type; f32 by default.
    """

    def __init__(self, shape: ShapeLike, init: Initializer = init.zeros, dtype: DTypeLike | None = None):
        if _has_values(shape):
            raise Error(
                f"a parameter is declared by its shape, got {type_description(shape)}",
                location=caller_place(),
                hint="rlx.nn.Parameter((3, 4), init=rlx.nn.init.normal(0.02)); init=lambda key, shape: array for given values",
            )
        self.shape = Shape(shape, dtype)
        if not self.shape.is_static:
            place = caller_place()
            raise ShapeError(f"a parameter has sizes that are known, got {self.shape}", location=place)
        if not callable(init):
            raise Error(
                f"init is a function of a key and a shape, got {short_repr(init)}",
                location=caller_place(),
                hint="rlx.nn.init.constant(0.5) gives one for a number",
            )
        self.init = init

    def value(self, seed: int, name: str) -> np.ndarray:
        """Return the initial values for a seed.

        Raises:
            Error: The initialiser returns a different shape.
        """
        values = np.asarray(self.init(init.key_of(seed, name), self.shape.static))
        if values.shape != self.shape.static:
            raise Error(f"the initialiser of '{name}' gave {list(values.shape)} for {self.shape}")
        return values.astype(self.shape.dtype.numpy)

    def __getattr__(self, name: str) -> Any:
        raise answers().attribute_problem(f"a {type(self).__name__}", name, "parameters", vars(self))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.shape}>"


def _has_values(shape: object) -> bool:
    """Whether an argument is a tensor or an array of values, and not a shape."""
    return isinstance(shape, Tensor) or (is_array(shape) and shape.ndim != 1)


class ParameterName(str):
    """The name of a parameter in `Module.parameters()`.

    Attribute access raises an error that shows how to get the parameter.
    """

    __slots__ = ()

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        raise self._problem(name)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise self._problem(name)

    def _problem(self, name: str) -> AttributeError:
        return AttributeError(
            f"{str(self)!r} is the name of a parameter and has no '{name}'; instead: for name, parameter in "
            "module.parameters().items()"
        )


class Buffer(Parameter):
    """A tensor of a module that is not trained, for example a running mean.

    `self.update(name, value)` changes it in training.

    Args:
        shape: Static sizes.
        start: The initial value of all elements.
        dtype: Element type; f32 by default.
    """

    def __init__(self, shape: ShapeLike, start: float = 0.0, dtype: DTypeLike | None = None):
        super().__init__(shape, init.constant(start), dtype)
        self.start = start

"""Activations as modules, for places that want one; `rlx.ops.relu` and the like do as well, as `Sequential` takes functions."""

from __future__ import annotations

from typing import Any

from rlx.ir.graph.builder import Tensor
from rlx.ir.location import caller_location, describe
from rlx.nn.module import Module, expect
from rlx.support.errors import Error
from rlx.support.short import shown


class Activation(Module):
    """An elementwise function by its name in `rlx.ops`.

    Args:
        kind: Such as `"gelu"`; with `options` of that function.
        options: Its keyword arguments.
    """

    def __init__(self, kind: str, **options: Any):
        self.kind, self.options = kind, options

    def forward(self, x: Tensor) -> Tensor:
        expect(x, "", floats=False)
        return getattr(x.builder, self.kind)(x, **self.options)


class ReLU(Activation):
    """`max(x, 0)`."""

    def __init__(self) -> None:
        super().__init__("relu")


class GELU(Activation):
    """`x·Φ(x)`; with `approximate="tanh"` by its usual formula."""

    def __init__(self, approximate: str = "none"):
        if not isinstance(approximate, str) or approximate not in ("none", "tanh"):
            message = f"GELU: approximate must be 'none' or 'tanh', got {shown(approximate)}"
            raise Error(message, location=describe(caller_location()))
        super().__init__("gelu_approx" if approximate == "tanh" else "gelu")


class SiLU(Activation):
    """`x·sigmoid(x)`."""

    def __init__(self) -> None:
        super().__init__("silu")


class Sigmoid(Activation):
    """`1/(1 + exp(-x))`."""

    def __init__(self) -> None:
        super().__init__("sigmoid")


class Tanh(Activation):
    """The hyperbolic tangent."""

    def __init__(self) -> None:
        super().__init__("tanh")


class Softmax(Activation):
    """Exponentials over their sum along an axis."""

    def __init__(self, axis: int = -1):
        super().__init__("softmax", axis=axis)

"""Activations as modules. `Sequential` also accepts functions such as `rlx.ops.relu`."""

# Users may pass values that the annotations do not allow.
# pyright: reportUnnecessaryIsInstance=false

from __future__ import annotations

from rlx.ir.graph.builder import Tensor
from rlx.nn.module import Module, expect
from rlx.support.caller import caller_place
from rlx.support.errors import Error
from rlx.support.short import short_repr


class Activation(Module):
    """An elementwise function by its name in `rlx.ops`.

    Args:
        kind: The name, for example `"gelu"`.
        options: Keyword arguments of that function.
    """

    def __init__(self, kind: str, **options: object):
        self.kind, self.options = kind, options

    def forward(self, x: Tensor) -> Tensor:
        expect(x, "", floats=False)
        return getattr(x.builder, self.kind)(x, **self.options)


class ReLU(Activation):
    """`max(x, 0)`."""

    def __init__(self) -> None:
        super().__init__("relu")


class GELU(Activation):
    """`x·Φ(x)`; with `approximate="tanh"` the tanh approximation."""

    def __init__(self, approximate: str = "none"):
        if not isinstance(approximate, str) or approximate not in ("none", "tanh"):
            message = f"GELU: approximate must be 'none' or 'tanh', got {short_repr(approximate)}"
            raise Error(message, location=caller_place())
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
    """Softmax along an axis."""

    def __init__(self, axis: int = -1):
        super().__init__("softmax", axis=axis)

"""The cards of all tensor ops, one file for each family; importing this registers them.

Every op is also a function here, taking tensors: `rlx.ops.softmax(x, axis=-1)` is `x.builder.softmax(x, axis=-1)`.
"""

from __future__ import annotations

from typing import Any

from rlx.ir.builder import Builder, Tensor
from rlx.ir.errors import Error
from rlx.ops import (
    activation,
    attention,
    backward,
    checkpoint,
    complex,
    contraction,
    control,
    convolution,
    convolution_transpose,
    cumulative,
    custom,
    elementwise,
    fake_quant,
    fft,
    function,
    fused,
    image,
    index,
    leaf,
    linear_algebra,
    loss,
    norm,
    order,
    padding,
    pool,
    quant,
    quant_compute,
    random,
    recurrent,
    reduce,
    rope,
    scatter,
    shape,
    spectral,
    surface,
)

surface.install()

# A file may be called as one of its ops is: here the name is the op's.
for _name in surface.methods().keys() & globals().keys():
    del globals()[_name]


def _builder_of(values: Any) -> Builder | None:
    for value in values:
        if isinstance(value, Tensor):
            return value.builder
        if isinstance(value, (list, tuple)):
            found = _builder_of(value)
            if found is not None:
                return found
    return None


def __getattr__(name: str) -> Any:
    if name.startswith("_") or name not in surface.methods():
        raise AttributeError(f"module 'rlx.ops' has no op '{name}'")

    def function(*args: Any, **kwargs: Any) -> Any:
        builder = _builder_of((*args, *kwargs.values()))
        if builder is None:
            raise Error(f"rlx.ops.{name} takes tensors of a graph; none was given")
        return getattr(builder, name)(*args, **kwargs)

    function.__name__ = name
    function.__doc__ = getattr(Builder, name).__doc__
    globals()[name] = function
    return function


def __dir__() -> list[str]:
    return sorted(surface.methods())


__all__ = [  # noqa: F822, RUF100
    "activation",
    "attention",
    "backward",
    "checkpoint",
    "complex",
    "contraction",
    "control",
    "convolution",
    "convolution_transpose",
    "cumulative",
    "custom",
    "elementwise",
    "fake_quant",
    "fft",
    "function",
    "fused",
    "image",
    "index",
    "leaf",
    "linear_algebra",
    "loss",
    "norm",
    "order",
    "padding",
    "pool",
    "quant",
    "quant_compute",
    "random",
    "recurrent",
    "reduce",
    "rope",
    "scatter",
    "shape",
    "spectral",
]

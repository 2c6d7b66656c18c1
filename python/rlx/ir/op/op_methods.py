"""Methods that ops add to `Builder` and `Tensor`: installed at run time, declared in the generated stub of this file."""

from __future__ import annotations


class OpMethods:
    """The methods of `Builder` that emit ops. The class itself is empty; see `rlx.ops.surface.install`."""


class TensorMethods:
    """The operators and methods of `Tensor` that emit ops. The class itself is empty; see `rlx.ops.operators`."""

    __slots__ = ()

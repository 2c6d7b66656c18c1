"""`Fusion`: a pass that makes one fused op of others, and tests of values that fusions use."""

from __future__ import annotations

from typing import ClassVar

from rlx import mlir
from rlx.ir.dim import Dim
from rlx.ir.shape import shape_of
from rlx.passes.base import Pass
from rlx.passes.pattern import Pattern, rewrite


class Fusion(Pass):
    """A pass that applies patterns; `rlx-fuse` runs all such passes.

    Attributes:
        makes: The name of the op that it makes, without prefix.
        patterns: The patterns that make it.
    """

    makes: ClassVar[str]
    patterns: ClassVar[tuple[Pattern, ...]]

    def run(self, module: mlir.Module) -> None:
        rewrite(module, self.patterns, self.name)


def is_vector(value: mlir.Value, size: Dim) -> bool:
    """Whether a value is a vector of so many elements, as a bias or a scale is."""
    return shape_of(value).dims == (size,)


def is_parameter(value: mlir.Value) -> bool:
    """Whether a value is a parameter. Back ends compute what depends only on parameters once, when they load."""
    if not isinstance(value, mlir.ir.BlockArgument):
        return False
    owner = value.owner.owner
    attributes = owner.operation.attributes
    if "arg_attrs" not in attributes:
        return False
    kind = attributes["arg_attrs"][value.arg_number]
    return "rlx.kind" in kind and kind["rlx.kind"].value == "param"

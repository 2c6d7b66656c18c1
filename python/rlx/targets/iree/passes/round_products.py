"""`rlx-iree-round-products`: makes every CPU round a product before adding to it.

IREE allows LLVM to contract a multiplication and an addition to one instruction, which rounds once, on CPUs with this
instruction. Results then differ between CPUs, and a·a - b·b is not 0 for a = b. No flag disables this. Quirk:
`contracted-products`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.passes.base import Pass
from rlx.targets.iree.passes.base import every


@dataclass(frozen=True)
class RoundProducts(Pass, name="rlx-iree-round-products"):
    """Round elementwise products before anything is added to them, for IREE.

    A product of x and y becomes `fma(x, y, -0)`. LLVM converts this back to a multiplication that it must not contract.
    Products that are summed in their own loop (of matrices, in convolutions) are unchanged: the compiler may choose the order
    and the roundings of these sums.
    """

    def run(self, module: mlir.Module) -> None:
        for op in every(module, lambda op: op.name in _RULES and _is_elementwise(op)):
            with op.location, mlir.ir.InsertionPoint(op):
                op.results[0].replace_all_uses_with(_RULES[op.name](*op.operands))
            op.erase()


def _is_elementwise(op: Any) -> bool:
    """Whether an op is in the body of an elementwise loop."""
    loop = op.parent
    while loop is not None and not loop.name.startswith("linalg."):
        loop = loop.parent
    return (
        loop is not None and loop.name == "linalg.generic" and "reduction" not in str(loop.attributes["iterator_types"])
    )


def _product(x: Any, y: Any) -> Any:
    zero = mlir.dialect("arith").constant(x.type, mlir.ir.FloatAttr.get(x.type, -0.0))
    return mlir.dialect("math").fma(x, y, zero)


def _complex_product(x: Any, y: Any) -> Any:
    arith, complex_ = mlir.dialect("arith"), mlir.dialect("complex")
    (a, b), (c, d) = ((complex_.re(z), complex_.im(z)) for z in (x, y))
    real = arith.subf(_product(a, c), _product(b, d))
    imaginary = arith.addf(_product(b, c), _product(a, d))
    return complex_.create_(x.type, real, imaginary)


_RULES: dict[str, Callable[[Any, Any], Any]] = {"arith.mulf": _product, "complex.mul": _complex_product}

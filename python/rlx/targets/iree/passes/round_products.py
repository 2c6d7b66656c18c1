"""`rlx-iree-round-products`: a product that is added to something is rounded before, on every CPU.

IREE lets LLVM make one instruction of a multiplication and an addition, which rounds once, where a CPU has such an
instruction: the same program then gives other numbers on other CPUs, and a·a - b·b is not 0 where a is b. No flag keeps it
from doing so. Quirk: `contracted-products`.
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
    """Have elementwise products rounded before anything is added to them, for IREE.

    A product of x and y becomes `fma(x, y, -0)`, of which LLVM makes a multiplication again, without leave to contract it.
    Products that are summed up in their own loop (of matrices, in convolutions) stay: the order of the sum, and how often it
    is rounded, are the compiler's choice.
    """

    def run(self, module: Any) -> None:
        for op in every(module, lambda op: op.name in _RULES and _is_elementwise(op)):
            with op.location, mlir.ir.InsertionPoint(op):
                op.results[0].replace_all_uses_with(_RULES[op.name](*op.operands))
            op.erase()


def _is_elementwise(op: Any) -> bool:
    """Whether an op stands in the body of an elementwise loop."""
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

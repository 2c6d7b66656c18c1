"""Products of tensors."""

from __future__ import annotations

from typing import Any

from rlx import mlir
from rlx.importers.stablehlo.rules import imports
from rlx.ir.dtype import i32
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.promotion import promote
from rlx.ir.shape import Shape


@imports("dot_general")
def dot_general(g: Graph, a: Tensor, b: Tensor, *, dot_dimension_numbers: Any, results: list[Shape]) -> Tensor:
    numbers = mlir.stablehlo().DotDimensionNumbers(dot_dimension_numbers)
    return _product(
        g,
        (a, b),
        (numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions),
        (numbers.lhs_batching_dimensions, numbers.rhs_batching_dimensions),
        results[0],
    )


@imports("dot")
def dot(g: Graph, a: Tensor, b: Tensor, *, results: list[Shape]) -> Tensor:
    return _product(g, (a, b), ([a.shape.rank - 1], [0]), ([], []), results[0])


@imports("einsum", "unary_einsum")
def einsum(g: Graph, *xs: Tensor, einsum_config: str, results: list[Shape]) -> Tensor:
    return g.cast(g.einsum(einsum_config, *xs), results[0].dtype)


def _product(g: Graph, factors: Any, contracting: Any, batch: Any, result: Shape) -> Tensor:
    """The product in the wider one of the factors' and the result's dtype: i8·i8 may give i32, and bf16·bf16 f32.

    The product of booleans is true if any pair of factors is true.
    """
    wide = promote(promote(factors[0].dtype, factors[1].dtype), result.dtype)
    wide = i32 if wide.is_bool else wide
    a, b = (x if x.dtype is wide else g.cast(x, wide) for x in factors)
    product = g.dot_general(a, b, *map(list, contracting), *map(list, batch))
    return product if wide is result.dtype else product != 0 if result.dtype.is_bool else g.cast(product, result.dtype)

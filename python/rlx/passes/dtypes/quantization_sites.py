"""Quantisable sites of a graph: products of activations with weights, with stable names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from rlx import mlir
from rlx.ir.dims.dim import estimate
from rlx.ir.dtype import f32
from rlx.ir.location import describe
from rlx.ir.op import opview, views
from rlx.ir.op.signature import read_arguments
from rlx.ir.shape import shape_of
from rlx.passes.simplification.invariants import WeightValues
from rlx.support.errors import PassError
from rlx.support.short import join_names
from rlx.support.suggestions import suggestion

# Passes after which `sites` finds the products of a graph.
PREPARATION = "rlx-lower-blocks,rlx-decompose{ops=matmul_transposed}"


@dataclass(frozen=True)
class QuantizationSite:
    """A product of activations with weights, in f32.

    Attributes:
        name: The parameter of the weights, the largest of several, or the op; repeated names become `name#2`, ….
        op: The product.
        activations: The operand with the activations.
        weights: The other operand.
        axis: The contracted axis of the activations; for a convolution, the channel axis.
        weight_axis: The corresponding axis of the weights.
        channel_axis: The axis of the weights that becomes the channels of the result.
    """

    name: str
    op: mlir.Operation
    activations: mlir.Value
    weights: mlir.Value
    axis: int
    weight_axis: int
    channel_axis: int

    @property
    def place(self) -> str:
        """The user's line."""
        return describe(self.op.location) or "<unknown>"

    @property
    def is_convolution(self) -> bool:
        return self.op.name == "rlx.conv"


def sites(function: mlir.FuncOp, ranks: Collection[int] = (4,)) -> list[QuantizationSite]:
    """Return the quantisable products of a function, in order. Products in regions are excluded.

    Args:
        function: A function at MIR.
        ranks: The ranks of tensors whose convolutions are included.
    """
    weights = WeightValues(function)
    arguments = read_arguments(function)
    seen: Counter[str] = Counter()
    result: list[QuantizationSite] = []
    for op in opview.operations(function.entry_block):
        for activations, factor, axis, weight_axis, channel_axis in _forms(op, ranks):
            shape = shape_of(factor)
            if activations in weights or factor not in weights or shape.dtype is not f32 or not shape.is_static:
                continue
            roots = [arguments[i] for i in sorted(weights.roots(factor))]
            largest = max((estimate(a.shape.num_elements) for a in roots), default=0)
            leading = [a.name for a in roots if estimate(a.shape.num_elements) == largest]
            name = leading[0] if len(leading) == 1 else opview.name_of(op)
            seen[name] += 1
            unique = name if seen[name] == 1 else f"{name}#{seen[name]}"
            result.append(QuantizationSite(unique, op, activations, factor, axis, weight_axis, channel_axis))
    return result


def _forms(op: mlir.Operation, ranks: Collection[int]) -> Iterator[tuple[mlir.Value, mlir.Value, int, int, int]]:
    """Yield activations and weights of a quantisable op, with their axes; nothing for other ops."""
    if op.name == "rlx.matmul":
        product = views.Matmul(op)
        if shape_of(product.rhs).rank == 2:
            yield product.lhs, product.rhs, shape_of(product.lhs).rank - 1, 0, 1
    elif op.name == "rlx.dot_general":
        dots = views.DotGeneral(op)
        last = shape_of(dots.lhs).rank - 1
        if shape_of(dots.rhs).rank == 2 and not dots.lhs_batch and tuple(dots.lhs_contracting) == (last,):
            (summed,) = dots.rhs_contracting
            yield dots.lhs, dots.rhs, last, summed, 1 - summed
    elif op.name == "rlx.conv":
        conv = views.Conv(op)
        if shape_of(conv.x).rank in ranks:
            yield conv.x, conv.w, 1, 1, 0


def check_products(pass_name: str, given: Iterable[str], names: Collection[str]) -> None:
    """Check that names are products of a graph.

    Raises:
        PassError: A name is unknown; the hint lists the products.
    """
    for name in given:
        if name not in names:
            hint = (
                f"products: {join_names(names)}" if names else "the graph has no products of activations with weights"
            )
            raise PassError(f"{pass_name}: there is no product '{name}'{suggestion(name, names)}", hint=hint)

"""`rlx-fuse-swiglu-dual-matmul`: combination of the two products of a SwiGLU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.ir.op import views
from rlx.ir.shape import shape_of
from rlx.passes.fusion.base import ELSEWHERE, USE_RESULT, Fusion, is_weight, operand_pairs, runs_once
from rlx.passes.pattern import Rewriter, has_one_use, pattern, producer

COMPUTED = "the weights are not parameters: joined, they would be copied in every call"
USE_PARAMETERS = "make them parameters of the function, and use them outside of loops"


@pattern
def swiglu_of_two_products(op: views.Binary, rewriter: Rewriter) -> Any:
    """`(x·up) · silu(x·gate)`, optionally with biases, becomes one product with joined `[K, N]` weights."""
    if op.kind != "mul":
        return None
    for linear, gated in operand_pairs(op):
        up, gate = _linear(linear, None), _gate(gated)
        if up is None or gate is None or len(up) != len(gate) or shape_of(up[1]) != shape_of(gate[1]):
            continue
        if up[0] != gate[0]:
            return rewriter.miss("the two products read different inputs", "both have to read the same tensor")
        if not has_one_use(linear) or not has_one_use(gated):
            return rewriter.miss(f"a product, or {ELSEWHERE}", USE_RESULT)
        if not runs_once(op) or not all(is_weight(v) for v in (*up[1:], *gate[1:])):
            return rewriter.miss(COMPUTED, USE_PARAMETERS)
        return _joined(rewriter, up, gate)
    return None


def _linear(value: mlir.Value, activation: str | None) -> list[mlir.Value] | None:
    """Return the operands of the product that computes a value: input, weight `[K, N]` and, if present, bias `[N]`."""
    fused = producer(value, views.FusedMatmulBiasAct)
    if fused is not None:
        is_vector = shape_of(fused.bias).rank == 1 and shape_of(fused.bias).dims[0] == shape_of(fused.w).dims[1]
        return fused.operands if fused.activation == activation and is_vector and _joins(fused.w) else None
    product = producer(value, views.Matmul) if activation is None else None
    return product.operands if product is not None and _joins(product.rhs) else None


def _gate(value: mlir.Value) -> list[mlir.Value] | None:
    """Return the operands of a gate, whose silu is separate or part of the fused op."""
    silu = producer(value, views.Activation)
    if silu is None:
        return _linear(value, "silu")
    return _linear(silu.x, None) if silu.kind == "silu" and has_one_use(silu.x) else None


def _joins(weight: mlir.Value) -> bool:
    """Whether a joined weight can be divided into halves again: its width must not be an unknown symbol."""
    shape = shape_of(weight)
    return shape.rank == 2 and type(shape.dims[1]) is int


def _joined(rewriter: Rewriter, up: list[mlir.Value], gate: list[mlir.Value]) -> Any:
    weights = rewriter.emit("concat", [up[1], gate[1]], axis=1)
    if len(up) == 2:
        return rewriter.emit("fused_swiglu", [rewriter.emit("matmul", [up[0], weights])])
    biases = rewriter.emit("concat", [up[2], gate[2]], axis=0)
    return rewriter.emit("fused_swiglu", [rewriter.emit("fused_matmul_bias_act", [up[0], weights, biases])])


@dataclass(frozen=True)
class FuseSwigluDualMatmul(Fusion, name="rlx-fuse-swiglu-dual-matmul"):
    """Create one product and `fused_swiglu` from the two products of a SwiGLU whose weights are parameters."""

    weighed = True
    makes = "fused_swiglu"
    patterns = (swiglu_of_two_products,)

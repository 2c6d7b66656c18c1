"""`rlx-fuse-matmul-bias-act`: fusion of a product, a bias, and an activation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.ir.op import views
from rlx.ir.shape import Shape, shape_of
from rlx.ops.lift import broadcasts_to
from rlx.passes.fusion.base import ELSEWHERE, USE_RESULT, Fusion, operand_pairs, readers
from rlx.passes.pattern import Rewriter, feeder, pattern, producer


@pattern
def matmul_bias(op: views.Binary, rewriter: Rewriter) -> Any:
    """`x·w + bias`, with `w [K, N]` and a bias that broadcasts to the product."""
    if op.kind not in ("add", "sub") or not shape_of(op.result).dtype.is_float:
        return None
    for value, bias in operand_pairs(op):
        product = producer(value, views.Matmul)
        if product is None or shape_of(product.rhs).rank != 2 or not is_bias(bias, shape_of(value)):
            continue
        if op.kind == "sub":
            return rewriter.miss("the vector is subtracted from the product", "negate it and add it, as a bias")
        if feeder(op, value, views.Matmul) is None:
            return rewriter.miss(f"the product, or {ELSEWHERE}", USE_RESULT)
        rewriter.locate(product)
        return rewriter.emit("fused_matmul_bias_act", [product.lhs, product.rhs, bias])
    return None


def is_bias(value: mlir.Value, product: Shape) -> bool:
    """Whether a value broadcasts to the shape of a product. A value that already has this shape is a residual, not a bias."""
    shape = shape_of(value)
    return broadcasts_to(shape.dims, product.dims) and (
        shape.dims != product.dims or all(d == 1 for d in shape.dims[:-1])
    )


@pattern
def biased_activation(op: views.Activation, rewriter: Rewriter) -> Any:
    """An activation of a product with bias."""
    inner = producer(op.x, views.FusedMatmulBiasAct)
    if inner is None:
        product = feeder(op, op.x, views.Matmul)
        if product is not None and shape_of(product.rhs).rank == 2 and not _is_gate(op):
            rewriter.miss(f"no bias is added between the product and {op.kind}", "add a bias, which may be zero")
        return None
    if inner.activation is not None:
        return None
    if feeder(op, op.x, views.FusedMatmulBiasAct) is None:
        return rewriter.miss(f"what {op.kind} takes is read elsewhere too", USE_RESULT)
    rewriter.locate(inner)
    return rewriter.emit("fused_matmul_bias_act", inner.operands, activation=op.kind)


def _is_gate(op: views.Activation) -> bool:
    """Whether an activation is only used in multiplications.

    In this case the product intentionally has no bias, as in a SwiGLU.
    """
    multiplied = [producer(reader.results[0], views.Binary) for reader in readers(op.result) if len(reader.results)]
    return bool(multiplied) and all(m is not None and m.kind == "mul" for m in multiplied)


@dataclass(frozen=True)
class FuseMatmulBiasAct(Fusion, name="rlx-fuse-matmul-bias-act"):
    """Create `fused_matmul_bias_act` from a product whose only use is a bias addition, and an optional activation."""

    makes = "fused_matmul_bias_act"
    patterns = (matmul_bias, biased_activation)

"""`rlx-fuse-shared-input-matmul`: joins several linear layers of the same input into one product."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cmp_to_key

from rlx import mlir
from rlx.ir import views
from rlx.ir.shape import shape_of
from rlx.passes.fusion import Fusion, is_parameter
from rlx.passes.pattern import Rewriter, pattern


@pattern
def linear_layers_of_one_input(op: views.FusedMatmulBiasAct, rewriter: Rewriter) -> mlir.Value | None:
    """`x·w_i + b_i` for several i, for example queries, keys and values: one product with the joined weights."""
    if not _is_joinable(op):
        return None
    layers = _layers(op)
    if len(layers) < 2 or layers[0].operation != op.operation:
        return None
    weights, biases = layers[0].w, layers[0].bias
    for layer in layers[1:]:
        weights = rewriter.emit("concat", [weights, layer.w], axis=1)
        biases = rewriter.emit("concat", [biases, layer.bias], axis=0)
    joined = rewriter.emit("fused_matmul_bias_act", [op.x, weights, biases])
    parts, start = list[mlir.Value](), 0
    for layer in layers:
        width, axis = shape_of(layer.w).dims[1], shape_of(joined).rank - 1
        parts.append(rewriter.emit("narrow", [joined], axis=axis, start=(start,), length=(width,)))
        start += width
    for layer, part in zip(layers[1:], parts[1:], strict=True):
        rewriter.replace(layer, part)
    return parts[0]


def _is_joinable(op: views.FusedMatmulBiasAct) -> bool:
    return op.activation is None and is_parameter(op.w) and is_parameter(op.bias)


def _layers(op: views.FusedMatmulBiasAct) -> list[views.FusedMatmulBiasAct]:
    """The layers that may be joined with a layer, including itself, in program order."""
    name, block = op.operation.name, op.operation.block
    users = dict.fromkeys(use.owner.operation for use in op.x.uses)
    similar = [views.FusedMatmulBiasAct(r) for r in users if r.name == name and r.block == block]
    return sorted((v for v in similar if v.x == op.x and _is_joinable(v)), key=cmp_to_key(_in_order))


def _in_order(a: views.FusedMatmulBiasAct, b: views.FusedMatmulBiasAct) -> int:
    return -1 if a.operation.is_before_in_block(b.operation) else 1


@dataclass(frozen=True)
class FuseSharedInputMatmul(Fusion, name="rlx-fuse-shared-input-matmul"):
    """Make one product of linear layers with the same input, if weights and biases are parameters.

    Back ends join the parameters only once, when they load them. Run rlx-fuse-matmul-bias-act first.
    """

    makes = "fused_matmul_bias_act"
    patterns = (linear_layers_of_one_input,)

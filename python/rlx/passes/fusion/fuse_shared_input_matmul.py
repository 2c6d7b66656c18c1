"""`rlx-fuse-shared-input-matmul`: combination of linear layers with the same input into one product."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cmp_to_key
from typing import Any

import numpy as np

from rlx import mlir
from rlx.ir.op import views
from rlx.ir.shape import shape_of
from rlx.passes.fusion.base import Fusion, is_vector, is_weight, runs_once, weight_before
from rlx.passes.fusion.fuse_swiglu_dual_matmul import COMPUTED, USE_PARAMETERS
from rlx.passes.pattern import Rewriter, pattern

_NAMES = {"rlx.matmul": views.Matmul, "rlx.fused_matmul_bias_act": views.FusedMatmulBiasAct}


@dataclass(frozen=True)
class _LinearLayer:
    """A linear layer: the op and its operands."""

    op: views.Matmul | views.FusedMatmulBiasAct
    x: mlir.Value
    weight: mlir.Value
    bias: mlir.Value | None = None
    activation: str | None = None

    @property
    def width(self) -> Any:
        return shape_of(self.weight).dims[1]

    @property
    def is_joinable(self) -> bool:
        """Whether its weights can be joined with others when the program is loaded."""
        return is_weight(self.weight) and (self.bias is None or is_weight(self.bias))


@pattern
def linear_layers_of_one_input(op: views.Matmul | views.FusedMatmulBiasAct, rewriter: Rewriter) -> Any:
    """`x·w_i + b_i` for several i, such as queries, keys and values, become one product with joined weights."""
    first = _layer(op)
    if first is None:
        return None
    joins = runs_once(op) and first.is_joinable
    if not joins and not rewriter.explains:  # searching all readers again from each layer would take quadratic time
        return None
    alike = _layers(first)
    if len(alike) < 2 or not joins:
        if len(alike) > 1 and alike[0].op.operation == op.operation:
            rewriter.miss(f"{len(alike)} products read one input, but {COMPUTED}", USE_PARAMETERS)
        return None
    layers = [layer for layer in alike if layer.is_joinable]
    if len(layers) < 2 or layers[0].op.operation != op.operation:
        return None
    parts = _parts(rewriter, _joined(rewriter, layers), layers)
    for layer, part in zip(layers[1:], parts[1:], strict=True):
        rewriter.replace(layer.op, part)
    return parts[0]


def _layer(op: views.Matmul | views.FusedMatmulBiasAct) -> _LinearLayer | None:
    if isinstance(op, views.Matmul):
        shape = shape_of(op.rhs)
        known = shape.rank == 2 and type(shape.dims[1]) is int and shape.dtype.is_float and shape_of(op.lhs).rank > 1
        return _LinearLayer(op, op.lhs, op.rhs) if known else None
    width = shape_of(op.w).dims[1]
    known = is_vector(op.bias, width) and type(width) is int and shape_of(op.x).rank > 1
    return _LinearLayer(op, op.x, op.w, op.bias, op.activation) if known else None


def _layers(first: _LinearLayer) -> list[_LinearLayer]:
    """Return the layers with the same input and activation as `first`, itself included, in program order."""
    block = first.op.operation.block
    ops = dict.fromkeys(use.owner.operation for use in first.x.uses)
    similar = [_layer(_NAMES[op.name](op)) for op in ops if op.name in _NAMES and op.block == block]
    alike = [v for v in similar if v is not None and v.x == first.x and v.activation == first.activation]
    return sorted(alike, key=cmp_to_key(_in_order))


def _in_order(a: _LinearLayer, b: _LinearLayer) -> int:
    return -1 if a.op.operation.is_before_in_block(b.op.operation) else 1


def _joined(rewriter: Rewriter, layers: list[_LinearLayer]) -> Any:
    """Emit one product for all layers. If some have a bias, the others get zeros."""
    first = layers[0].op
    weights = [weight_before(rewriter, first, layer.weight) for layer in layers]
    joined = _concat(rewriter, weights, 1)
    if all(layer.bias is None for layer in layers):
        return rewriter.emit("matmul", [layers[0].x, joined])
    biases = [_zeros(rewriter, v) if v.bias is None else weight_before(rewriter, first, v.bias) for v in layers]
    operands = [layers[0].x, joined, _concat(rewriter, biases, 0)]
    return rewriter.emit("fused_matmul_bias_act", operands, activation=layers[0].activation)


def _zeros(rewriter: Rewriter, layer: _LinearLayer) -> Any:
    zeros: Any = np.zeros(layer.width, shape_of(layer.weight).dtype.numpy)
    return rewriter.builder.constant(zeros).value


def _concat(rewriter: Rewriter, values: list[mlir.Value], axis: int) -> Any:
    joined = values[0]
    for value in values[1:]:
        joined = rewriter.emit("concat", [joined, value], axis=axis)
    return joined


def _parts(rewriter: Rewriter, joined: mlir.Value, layers: list[_LinearLayer]) -> list[mlir.Value]:
    """Return the results of the layers as slices of the joined result."""
    parts, start, axis = list[mlir.Value](), 0, shape_of(joined).rank - 1
    for layer in layers:
        parts.append(rewriter.emit("narrow", [joined], axis=axis, start=(start,), length=(layer.width,)))
        start += layer.width
    return parts


@dataclass(frozen=True)
class FuseSharedInputMatmul(Fusion, name="rlx-fuse-shared-input-matmul"):
    """Combine linear layers that read the same input into one product, if weights and biases are parameters.

    Back ends join the weights once, at load time. Run rlx-fuse-matmul-bias-act first, so that biases are joined as
    well.
    """

    weighed = True
    makes = "fused_matmul_bias_act"
    patterns = (linear_layers_of_one_input,)

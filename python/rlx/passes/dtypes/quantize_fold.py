"""`rlx-quantize-fold`: integer products from products of dequantised integers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx import mlir
from rlx.ir.dtype import f32, i8, i32
from rlx.ir.op import views
from rlx.ir.shape import shape_of
from rlx.passes.base import Pass, option
from rlx.passes.dtypes.quantize_insert import LARGEST_BIAS
from rlx.passes.integer.operands import constant
from rlx.passes.pattern import Rewriter, feeder, pattern, producer, rewrite
from rlx.passes.simplification.invariants import depends_on_weights
from rlx.passes.simplification.values import splat


def _bytes(value: mlir.Value, axis: int | None) -> views.Dequantize | None:
    """Return the producer of a value if it dequantises i8 with a known zero point and one scale, or scales along `axis`."""
    op = producer(value, views.Dequantize)
    if op is None or shape_of(op.x).dtype is not i8 or op.axis not in (None, axis):
        return None
    zero = splat(op.zero_point)
    return op if zero is not None and -128 <= zero <= 127 else None


def _zero_points(x: views.Dequantize, w: views.Dequantize) -> dict[str, Any]:
    points = {"x_zero_point": splat(x.zero_point), "w_zero_point": splat(w.zero_point)}
    return {name: int(point or 0) for name, point in points.items()} | {"out_zero_point": 0}


@pattern
def product_of_bytes(op: views.Matmul, rewriter: Rewriter) -> Any:
    """Fold a product of dequantised i8 matrices into an integer product with float results."""
    x, w = _bytes(op.lhs, 0), _bytes(op.rhs, 1)
    if x is None or w is None or shape_of(op.rhs).rank != 2 or (x.axis == 0 and shape_of(op.lhs).rank != 2):
        return None
    points = _zero_points(x, w)
    if x.axis is None:
        multiplier = rewriter.emit("binary", [w.scale, x.scale], kind="mul")
        return rewriter.emit("q_matmul", [x.x, w.x, None, multiplier], **points, dtype=f32)
    product = rewriter.emit("q_matmul", [x.x, w.x, None, w.scale], **points, dtype=f32)
    column = rewriter.emit("reshape", [x.scale], shape=(shape_of(op.lhs).dims[0], 1))
    return rewriter.emit("binary", [product, column], kind="mul")


@pattern
def convolution_of_bytes(op: views.Conv, rewriter: Rewriter) -> Any:
    """Fold a convolution of dequantised i8 into an integer convolution with float results."""
    x, w = _bytes(op.x, None), _bytes(op.w, 0)
    if x is None or w is None or shape_of(op.x).rank != 4:
        return None
    multiplier = rewriter.emit("binary", [w.scale, x.scale], kind="mul")
    return rewriter.emit("q_conv2d", [x.x, w.x, None, multiplier], **op.attributes, **_zero_points(x, w), dtype=f32)


@pattern
def requantised(op: views.Quantize, rewriter: Rewriter) -> Any:
    """Fold requantisation, an optional bias, and a relu that saturation to i8 implements, into an integer product."""
    zero = splat(op.zero_point)
    if op.dtype is not i8 or op.axis is not None or zero is None or not -128 <= zero <= 127:
        return None
    source: Any = op
    relu = feeder(op, op.x, views.Activation)
    if relu is not None:
        if relu.kind != "relu" or zero != -128:
            return None
        source = relu
    bias, product = None, _product(source, source.x)
    if product is None:
        added = feeder(source, source.x, views.Binary)
        if added is None or added.kind != "add":
            return None
        for value, other in ((added.lhs, added.rhs), (added.rhs, added.lhs)):
            product = _product(added, value)
            if product is not None and _is_bias(product, other):
                bias = other
                break
        if bias is None:
            return None
    assert product is not None
    if bias is not None and _is_too_large(product, bias):
        return None
    return _requantised(op, product, bias, int(zero), rewriter)


def _product(reader: Any, value: mlir.Value) -> views.QMatmul | views.QConv2d | None:
    product = feeder(reader, value, views.QMatmul) or feeder(reader, value, views.QConv2d)
    return product if product is not None and product.dtype is f32 and product.bias is None else None


def _is_bias(product: views.QMatmul | views.QConv2d, value: mlir.Value) -> bool:
    """Whether a value is the same in every run and has one number for each channel of the result."""
    dims, channels = shape_of(value).dims, shape_of(product.result).dims
    expected = (channels[-1],) if isinstance(product, views.QMatmul) else (channels[1], 1, 1)
    return dims == expected and depends_on_weights(value)


def _is_too_large(product: views.QMatmul | views.QConv2d, bias: mlir.Value) -> bool:
    """Whether a known bias overflows i32, because the scales of tiny weights are small. `rlx-quantize-insert` avoids these."""
    assert product.multiplier is not None  # a product in f32 has it
    number, step = constant(bias), constant(product.multiplier)
    if number is None or step is None:
        return False
    return bool((np.abs(number.reshape(-1)) > step.reshape(-1).astype(np.float64) * LARGEST_BIAS).any())


def _requantised(
    op: views.Quantize, product: views.QMatmul | views.QConv2d, bias: mlir.Value | None, zero: int, rewriter: Rewriter
) -> Any:
    b = rewriter.builder
    assert product.multiplier is not None  # a product in f32 has it
    factor = b.tensor(product.multiplier)
    whole = None
    if bias is not None:
        vector = b.reshape(b.tensor(bias), (shape_of(bias).num_elements,))
        whole = b.cast(b.round(vector / factor), i32)
    multiplier = factor / b.tensor(op.scale)
    attributes: dict[str, Any] = product.attributes | {"out_zero_point": zero, "dtype": i8}
    operands = [b.tensor(product.x), b.tensor(product.w), whole, multiplier]
    return b.emit(product.spec.name, operands, **attributes).value


@dataclass(frozen=True)
class QuantizeFold(Pass, name="rlx-quantize-fold"):
    """Create rlx.q_matmul and rlx.q_conv2d from products whose operands are dequantised i8.

    The results are floats, or i8 if the product is requantised. The bias is then added as integers.
    """

    # Integer sums are exact, unlike the rounded float sums; the bias is rounded to integers.
    preserves_results = False

    requantise: bool = option(True, "produce i8 where the result is requantised")

    def run(self, module: mlir.Module) -> None:
        patterns = (product_of_bytes, convolution_of_bytes, *((requantised,) if self.requantise else ()))
        rewrite(module, patterns, self.name)

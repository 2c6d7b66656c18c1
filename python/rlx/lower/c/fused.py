"""Products of 8-bit integers with constant weights."""

from __future__ import annotations

from typing import Any

from rlx import mlir
from rlx.ir.dtype import DType
from rlx.ir.shape import Shape
from rlx.lower.c.contraction import plain_conv, plain_matmul
from rlx.lower.c.kernel import Kernel
from rlx.lower.c.rules import loops


@loops("q_conv2d")
def q_conv2d(
    kernel: Kernel,
    result: Shape,
    x: mlir.Value,
    w: mlir.Value,
    bias: mlir.Value | None,
    multiplier: mlir.Value | None,
    *,
    x_zero_point: int,
    w_zero_point: int,
    out_zero_point: int,
    dtype: DType,
    **geometry: Any,
) -> None:
    plain_conv(kernel, result, x, w, bias, multiplier, (x_zero_point, w_zero_point), out_zero_point, dtype, **geometry)


@loops("q_matmul")
def q_matmul(
    kernel: Kernel,
    result: Shape,
    x: mlir.Value,
    w: mlir.Value,
    bias: mlir.Value | None,
    multiplier: mlir.Value | None,
    *,
    x_zero_point: int,
    w_zero_point: int,
    out_zero_point: int,
    dtype: DType,
) -> None:
    plain_matmul(kernel, result, x, w, bias, multiplier, (x_zero_point, w_zero_point), out_zero_point, dtype)

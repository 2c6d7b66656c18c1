"""Products of 8-bit integers: accumulated in i32, scaled in f32, and rounded to 8 bits again."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.ir.builder import Builder, Tensor
from rlx.ir.card import Card, Cost, Operand, sample
from rlx.ir.dim import Dim
from rlx.ir.dtype import f32, i8, i32
from rlx.ir.errors import ShapeError
from rlx.ir.shape import Shape
from rlx.ops.contraction.contraction import Matmul
from rlx.ops.convolution.convolution import Conv, pads_of, per_axis
from rlx.ops.elementwise.elementwise import convert
from rlx.ops.norm import along


def _check_bias(bias: Shape, size: Dim) -> None:
    if bias.dims != (size,):
        raise ShapeError(f"'bias' must have shape [{size}], got {bias}")


def _requantised_array(total: np.ndarray, multiplier: float, zero_point: int) -> np.ndarray:
    """`saturate(round(total·multiplier) + zero_point)` in f32."""
    return convert(np.rint(total.astype(np.float32) * np.float32(multiplier)) + np.float32(zero_point), i8)


def _requantised(b: Builder, total: Tensor, multiplier: float, zero_point: int) -> Tensor:
    """The same with ops."""
    return b.cast(b.round(b.cast(total, f32) * multiplier) + float(zero_point), i8)


def _centred(b: Builder, x: Tensor, zero_point: int) -> Tensor:
    """`x - zero_point` in i32."""
    steps = b.cast(x, i32)
    return steps - zero_point if zero_point else steps


class QMatmul(Card, op="q_matmul"):
    def infer(self, x: Shape, w: Shape, bias: Shape, **_: Any) -> Shape:
        if w.rank != 2:
            raise ShapeError(f"w must be [K, N], got {w}")
        _check_bias(bias, w.dims[1])
        return Matmul().infer(x, w)

    def evaluate(
        self,
        x: np.ndarray,
        w: np.ndarray,
        bias: np.ndarray,
        *,
        x_zero_point: int,
        w_zero_point: int,
        out_zero_point: int,
        multiplier: float,
    ) -> np.ndarray:
        total = np.matmul(x.astype(np.int32) - x_zero_point, w.astype(np.int32) - w_zero_point) + bias
        return _requantised_array(total, multiplier, out_zero_point)

    def decompose(
        self,
        b: Builder,
        x: Tensor,
        w: Tensor,
        bias: Tensor,
        *,
        x_zero_point: int,
        w_zero_point: int,
        out_zero_point: int,
        multiplier: float,
    ) -> Tensor:
        total = b.matmul(_centred(b, x, x_zero_point), _centred(b, w, w_zero_point)) + bias
        return _requantised(b, total, multiplier, out_zero_point)

    def build(
        self,
        b: Builder,
        x: Tensor,
        w: Tensor,
        bias: Tensor,
        multiplier: float,
        x_zero_point: int = 0,
        w_zero_point: int = 0,
        out_zero_point: int = 0,
    ) -> Tensor:
        return b.emit(
            "q_matmul",
            (x, w, bias),
            multiplier=multiplier,
            x_zero_point=x_zero_point,
            w_zero_point=w_zero_point,
            out_zero_point=out_zero_point,
        )

    def cost(self, operands: Any, results: Any, attributes: Any) -> Cost:
        bytes_ = super().cost(operands, results, attributes).bytes
        return Cost(Matmul().cost(operands[:2], results, {}).flops + 5 * results[0].num_elements, bytes_)

    def samples(self) -> Any:
        def case(x: Any, w: Any, **attributes: Any) -> Any:
            operands = [Operand(dims, low=-128, high=128) for dims in (x, w)]
            bias = Operand(w[1:], "i32", low=-3000, high=3000)
            return sample(*operands, bias, dtypes=("i8",), **attributes)

        yield case((3, 16), (16, 5), multiplier=0.004)
        yield case((2, 3, 9), (9, 5), x_zero_point=-7, w_zero_point=3, out_zero_point=-128, multiplier=0.0031)
        yield case(("n", 8), (8, 3), x_zero_point=100, multiplier=0.01)
        yield case((2, "k"), ("k", 3), w_zero_point=-9, multiplier=1e-3)
        yield case((2, 0), (0, 3), out_zero_point=5, multiplier=0.5)


class QConv2d(Card, op="q_conv2d"):
    def infer(
        self,
        x: Shape,
        w: Shape,
        bias: Shape,
        *,
        stride: Any,
        padding: Any,
        dilation: Any,
        groups: int,
        **_: Any,
    ) -> Shape:
        if x.rank != 4 or w.rank != 4:
            raise ShapeError(f"x must be [N, C, H, W] and w [O, C/groups, kH, kW], got {x} and {w}")
        result = Conv().infer(x, w, stride=stride, padding=padding, dilation=dilation, groups=groups)
        _check_bias(bias, w.dims[0])
        return result

    def evaluate(
        self,
        x: np.ndarray,
        w: np.ndarray,
        bias: np.ndarray,
        *,
        x_zero_point: int,
        w_zero_point: int,
        out_zero_point: int,
        multiplier: float,
        **geometry: Any,
    ) -> np.ndarray:
        total = Conv().evaluate(x.astype(np.int32) - x_zero_point, w.astype(np.int32) - w_zero_point, **geometry)
        return _requantised_array(total + bias.reshape(-1, 1, 1), multiplier, out_zero_point)

    def decompose(
        self,
        b: Builder,
        x: Tensor,
        w: Tensor,
        bias: Tensor,
        *,
        x_zero_point: int,
        w_zero_point: int,
        out_zero_point: int,
        multiplier: float,
        **geometry: Any,
    ) -> Tensor:
        # The padding is zero after the subtraction of the zero point, so it is x_zero_point before that.
        total = b.emit("conv", (_centred(b, x, x_zero_point), _centred(b, w, w_zero_point)), **geometry)
        return _requantised(b, total + along(b, bias, 1, 4), multiplier, out_zero_point)

    def build(
        self,
        b: Builder,
        x: Tensor,
        w: Tensor,
        bias: Tensor,
        multiplier: float,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        x_zero_point: int = 0,
        w_zero_point: int = 0,
        out_zero_point: int = 0,
    ) -> Tensor:
        strides, dilations = per_axis(stride, 2, "stride"), per_axis(dilation, 2, "dilation")
        return b.emit(
            "q_conv2d",
            (x, w, bias),
            stride=strides,
            padding=pads_of(padding, x.shape, w.shape, strides, dilations),
            dilation=dilations,
            groups=groups,
            x_zero_point=x_zero_point,
            w_zero_point=w_zero_point,
            out_zero_point=out_zero_point,
            multiplier=multiplier,
        )

    def cost(self, operands: Any, results: Any, attributes: Any) -> Cost:
        bytes_ = super().cost(operands, results, attributes).bytes
        return Cost(Conv().cost(operands[:2], results, {}).flops + 5 * results[0].num_elements, bytes_)

    def samples(self) -> Any:
        def case(x: Any, w: Any, **attributes: Any) -> Any:
            operands = [Operand(dims, low=-128, high=128) for dims in (x, w)]
            bias = Operand(w[:1], "i32", low=-3000, high=3000)
            plain: dict[str, Any] = {"stride": (1, 1), "padding": (0, 0, 0, 0), "dilation": (1, 1), "multiplier": 0.002}
            return sample(*operands, bias, dtypes=("i8",), **(plain | attributes))

        zeros = {"x_zero_point": -7, "w_zero_point": 3, "out_zero_point": 11}
        yield case((2, 3, 6, 5), (4, 3, 3, 2))
        yield case((1, 4, 5, 6), (6, 2, 3, 3), padding=(1, 0, 2, 1), stride=(2, 1), groups=2, **zeros)
        yield case((2, 4, 6, 6), (4, 1, 3, 3), padding=(1, 1, 1, 1), dilation=(2, 1), groups=4, **zeros)
        yield case(("n", 2, "h", 5), (3, 2, 3, 1), padding=(1, 1, 0, 0), x_zero_point=5)

"""Products of 8-bit integers. The i32 sums are returned, or scaled in f32 and returned as floats or rounded to 8 bits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from rlx.ir.dims.dim import Dim
from rlx.ir.dtype import DType, f32, i8, i32
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import DTypeLike, Padding, TensorLike, Window
from rlx.ir.op.argument_groups import ArgumentGroup
from rlx.ir.op.card import Attributes, Card, Cost, OpSample, SampleOperand, Shapes, sample
from rlx.ir.shape import DimLike, Shape, as_dtype
from rlx.ops.contraction.contraction import Matmul
from rlx.ops.convolution.convolution import Conv, pads_of, per_axis
from rlx.ops.convolution.geometry import ConvGeometry
from rlx.ops.elementwise.elementwise import convert
from rlx.ops.norm import along
from rlx.ops.quantization.quant import along_axis, quantization_parameter, spread
from rlx.support.errors import ShapeError

V = TypeVar("V")


@dataclass(frozen=True)
class QuantizedOperands(ArgumentGroup, Generic[V]):
    """The operands of a product of 8-bit integers: shapes, arrays, tensors or lowered values."""

    x: V
    w: V
    bias: V | None
    multiplier: V | None


@dataclass(frozen=True)
class ProductQuantization(ArgumentGroup):
    """The quantisation of a product of 8-bit integers: zero points of its factors and its result, and the result's dtype."""

    x_zero_point: int
    w_zero_point: int
    out_zero_point: int
    dtype: DType

    @property
    def factors(self) -> tuple[int, int]:
        """The zero points of both factors."""
        return self.x_zero_point, self.w_zero_point


def _result(shape: Shape, columns: Dim, operands: QuantizedOperands[Shape], quantization: ProductQuantization) -> Shape:
    """Return the shape of a product, in the requested dtype."""
    bias, multiplier = operands.bias, operands.multiplier
    if bias is not None and bias.dims != (columns,):
        raise ShapeError(f"'bias' must have shape [{columns}], got {bias}")
    kind, zero_point = quantization.dtype, quantization.out_zero_point
    if kind not in (i8, i32, f32):
        raise ShapeError(f"dtype must be i8, i32 or f32, got {kind.name}")
    if (multiplier is None) != (kind is i32):
        hint = "rlx.Graph.requantize scales them" if kind is i32 else "dtype=rlx.i32 gives the sums as they are"
        taken = "sums in i32 are not scaled: there is no" if kind is i32 else f"a result in {kind.name} needs a"
        raise ShapeError(f"{taken} 'multiplier'", hint=hint)
    if multiplier is not None and multiplier.dims not in ((), (columns,)):
        raise ShapeError(f"'multiplier' must be a scalar or have shape [{columns}], got {multiplier}")
    if kind is not i8 and zero_point:
        described = "floats" if kind is f32 else "sums"
        raise ShapeError(f"{described} have no zero point, got out_zero_point = {zero_point}")
    return shape.with_dtype(kind)


def _scaled_array(
    total: np.ndarray, multiplier: np.ndarray | None, axis: int, quantization: ProductQuantization
) -> np.ndarray:
    """Return `total·multiplier` in f32, or the total itself. For i8 it is rounded, shifted by the zero point and saturated."""
    if multiplier is None:
        return total
    scaled = total.astype(np.float32) * along_axis(multiplier, axis if multiplier.ndim else None, total.ndim)
    if quantization.dtype is f32:
        return np.asarray(scaled)
    return convert(np.rint(scaled) + np.float32(quantization.out_zero_point), i8)


def _scaled(
    b: Builder, total: Tensor, multiplier: Tensor | None, axis: int, quantization: ProductQuantization
) -> Tensor:
    """The same as `_scaled_array`, as ops."""
    if multiplier is None:
        return total
    scaled = b.cast(total, f32) * spread(b, multiplier, axis if multiplier.rank else None, total.rank)
    if quantization.dtype is f32:
        return scaled
    return b.cast(b.round(scaled) + float(quantization.out_zero_point), i8)


def _centred(b: Builder, x: Tensor, zero_point: int) -> Tensor:
    """Return `x - zero_point` in i32."""
    steps = b.cast(x, i32)
    return steps - zero_point if zero_point else steps


def _centred_factors(
    b: Builder, operands: QuantizedOperands[Tensor], quantization: ProductQuantization
) -> tuple[Tensor, Tensor]:
    """Both factors in i32, without their zero points."""
    x_zero_point, w_zero_point = quantization.factors
    return _centred(b, operands.x, x_zero_point), _centred(b, operands.w, w_zero_point)


def _centred_arrays(
    operands: QuantizedOperands[np.ndarray], quantization: ProductQuantization
) -> tuple[np.ndarray, np.ndarray]:
    """The same of arrays."""
    x_zero_point, w_zero_point = quantization.factors
    return operands.x.astype(np.int32) - x_zero_point, operands.w.astype(np.int32) - w_zero_point


def _multiplier(b: Builder, value: TensorLike | None) -> Tensor | None:
    """Return a user's multiplier as a tensor: from a tensor, a number or a list, or None.

    Raises:
        ShapeError: It is something else, or not finite as f32.
    """
    if value is None:
        return None
    if not isinstance(value, Tensor):
        array = np.asarray(value)
        with np.errstate(over="ignore"):
            if array.dtype.kind in "iuf" and not np.isfinite(array.astype(np.float32)).all():
                raise ShapeError(f"'multiplier' must be finite, got {value!r:.60}")
    dims = value.shape.dims if isinstance(value, Tensor) else np.shape(value)
    return quantization_parameter(b, value, dims, f32, "multiplier")


class QMatmul(Card, op="q_matmul"):
    def infer(self, operands: QuantizedOperands[Shape], *, quantization: ProductQuantization) -> Shape:
        x, w = operands.x, operands.w
        if w.rank != 2:
            raise ShapeError(f"w must be [K, N], got {w}")
        return _result(Matmul().infer(x, w), w.dims[1], operands, quantization)

    def evaluate(self, operands: QuantizedOperands[np.ndarray], *, quantization: ProductQuantization) -> np.ndarray:
        total = np.matmul(*_centred_arrays(operands, quantization))
        if operands.bias is not None:
            total = total + operands.bias
        return _scaled_array(total, operands.multiplier, total.ndim - 1, quantization)

    def decompose(
        self, b: Builder, operands: QuantizedOperands[Tensor], *, quantization: ProductQuantization
    ) -> Tensor:
        total = b.matmul(*_centred_factors(b, operands, quantization))
        if operands.bias is not None:
            total = total + operands.bias
        return _scaled(b, total, operands.multiplier, total.rank - 1, quantization)

    def build(
        self,
        b: Builder,
        x: Tensor,
        w: Tensor,
        bias: Tensor | None = None,
        multiplier: TensorLike | None = None,
        x_zero_point: int = 0,
        w_zero_point: int = 0,
        out_zero_point: int = 0,
        dtype: DTypeLike = i8,
    ) -> Tensor:
        return b.emit(
            "q_matmul",
            (x, w, bias, _multiplier(b, multiplier)),
            x_zero_point=x_zero_point,
            w_zero_point=w_zero_point,
            out_zero_point=out_zero_point,
            dtype=as_dtype(dtype),
        )

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        bytes_ = super().cost(operands, results, attributes).bytes
        return Cost(Matmul().cost(operands[:2], results, {}).flops + 5 * results[0].num_elements, bytes_)

    def samples(self) -> Iterable[OpSample]:
        def case(x: tuple[DimLike, ...], w: tuple[DimLike, ...], **given: Any) -> OpSample:
            attributes: dict[str, Any] = {"dtype": i8} | given
            multiplier = SampleOperand(
                w[1:] if attributes.pop("per_channel", False) else (), "f32", low=0.001, high=0.004
            )
            multiplier = None if attributes["dtype"] is i32 else multiplier
            bias = SampleOperand(w[1:], "i32", low=-3000, high=3000) if attributes.pop("bias", True) else None
            operands = [SampleOperand(dims, low=-128, high=128) for dims in (x, w)]
            return sample(*operands, bias, multiplier, dtypes=("i8",), **attributes)

        yield case((3, 16), (16, 5))
        yield case((2, 3, 9), (9, 5), per_channel=True, x_zero_point=-7, w_zero_point=3, out_zero_point=-128)
        yield case(("n", 8), (8, 3), x_zero_point=100, bias=False)
        yield case((2, "k"), ("k", 3), w_zero_point=-9)
        yield case((2, 3, 9), (9, 5), per_channel=True, x_zero_point=-7, dtype=f32, bias=False)
        yield case((2, "k"), ("k", 3), x_zero_point=5, w_zero_point=-9, dtype=f32)
        yield case((2, 0), (0, 3), out_zero_point=5)
        yield case((2, 3, 9), (9, 5), x_zero_point=-7, w_zero_point=3, dtype=i32)
        yield case(("n", 8), (8, 3), x_zero_point=100, dtype=i32, bias=False)
        yield case((3, 8), (8, 3), dtype=i32, bias=False)


class QConv2d(Card, op="q_conv2d"):
    def infer(
        self, operands: QuantizedOperands[Shape], *, geometry: ConvGeometry, quantization: ProductQuantization
    ) -> Shape:
        x, w = operands.x, operands.w
        if x.rank != 4 or w.rank != 4:
            raise ShapeError(f"x must be [N, C, H, W] and w [O, C/groups, kH, kW], got {x} and {w}")
        result = Conv().infer(x, w, **geometry.named)
        return _result(result, w.dims[0], operands, quantization)

    def evaluate(
        self, operands: QuantizedOperands[np.ndarray], *, geometry: ConvGeometry, quantization: ProductQuantization
    ) -> np.ndarray:
        total = Conv().evaluate(*_centred_arrays(operands, quantization), **geometry.named)
        if operands.bias is not None:
            total = total + operands.bias.reshape(-1, 1, 1)
        return _scaled_array(total, operands.multiplier, 1, quantization)

    def decompose(
        self,
        b: Builder,
        operands: QuantizedOperands[Tensor],
        *,
        geometry: ConvGeometry,
        quantization: ProductQuantization,
    ) -> Tensor:
        # The padding is zero after the subtraction of the zero point, so it is x_zero_point before that.
        total = b.emit("conv", _centred_factors(b, operands, quantization), **geometry.named)
        if operands.bias is not None:
            total = total + along(b, operands.bias, 1, 4)
        return _scaled(b, total, operands.multiplier, 1, quantization)

    def build(
        self,
        b: Builder,
        x: Tensor,
        w: Tensor,
        bias: Tensor | None = None,
        multiplier: TensorLike | None = None,
        stride: Window = 1,
        padding: Padding = 0,
        dilation: Window = 1,
        groups: int = 1,
        x_zero_point: int = 0,
        w_zero_point: int = 0,
        out_zero_point: int = 0,
        dtype: DTypeLike = i8,
    ) -> Tensor:
        strides, dilations = per_axis(stride, 2, "stride"), per_axis(dilation, 2, "dilation")
        return b.emit(
            "q_conv2d",
            (x, w, bias, _multiplier(b, multiplier)),
            stride=strides,
            padding=pads_of(padding, x.shape, w.shape, strides, dilations),
            dilation=dilations,
            groups=groups,
            x_zero_point=x_zero_point,
            w_zero_point=w_zero_point,
            out_zero_point=out_zero_point,
            dtype=as_dtype(dtype),
        )

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        bytes_ = super().cost(operands, results, attributes).bytes
        return Cost(Conv().cost(operands[:2], results, {}).flops + 5 * results[0].num_elements, bytes_)

    def samples(self) -> Iterable[OpSample]:
        def case(x: tuple[DimLike, ...], w: tuple[DimLike, ...], **attributes: Any) -> OpSample:
            operands = [SampleOperand(dims, low=-128, high=128) for dims in (x, w)]
            multiplier = SampleOperand(
                w[:1] if attributes.pop("per_channel", False) else (), "f32", low=0.001, high=0.004
            )
            bias = SampleOperand(w[:1], "i32", low=-3000, high=3000) if attributes.pop("bias", True) else None
            plain: dict[str, Any] = {"stride": (1, 1), "padding": (0, 0, 0, 0), "dilation": (1, 1), "dtype": i8}
            attributes = plain | attributes
            return sample(
                *operands, bias, None if attributes["dtype"] is i32 else multiplier, dtypes=("i8",), **attributes
            )

        zeros = {"x_zero_point": -7, "w_zero_point": 3, "out_zero_point": 11}
        yield case((2, 3, 6, 5), (4, 3, 3, 2))
        yield case((1, 4, 5, 6), (6, 2, 3, 3), padding=(1, 0, 2, 1), stride=(2, 1), groups=2, per_channel=True, **zeros)
        yield case((2, 4, 6, 6), (4, 1, 3, 3), padding=(1, 1, 1, 1), dilation=(2, 1), groups=4, **zeros)
        floats = {"dtype": f32, "bias": False, "x_zero_point": -9, "per_channel": True}
        yield case((1, 3, 6, 6), (4, 3, 3, 3), padding=(1, 1, 1, 1), **floats)
        yield case((2, 4, 6, 6), (4, 1, 3, 3), padding=(1, 1, 1, 1), groups=4, **floats)
        yield case(("n", 2, "h", 5), (3, 2, 3, 1), padding=(1, 1, 0, 0), x_zero_point=5)
        yield case((1, 3, 6, 6), (4, 3, 3, 3), padding=(1, 1, 1, 1), x_zero_point=-9, dtype=i32)
        yield case((2, 4, 6, 6), (4, 1, 3, 3), padding=(1, 1, 1, 1), groups=4, w_zero_point=3, dtype=i32, bias=False)

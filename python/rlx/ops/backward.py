"""Gradients of elementwise ops, of running sums, of lookups and of the cross entropy.

The other gradients are in `backward_norm`, `backward_attention`, `backward_image` and `backward_quant`. All of them are
composite: the decomposition is the definition. f16 and bf16 are computed in f32 and rounded once.
"""

from __future__ import annotations

from typing import Any

from rlx.ir import registry
from rlx.ir.builder import Builder, Tensor
from rlx.ir.card import Card, Cost, Operand, moved_bytes, sample
from rlx.ir.dim import Dim
from rlx.ir.dtype import i32
from rlx.ir.errors import ShapeError
from rlx.ir.shape import Shape
from rlx.ops import rules
from rlx.ops.index import clamped
from rlx.ops.lift import axis_of, cast, same_dtype, tensor_like
from rlx.ops.loss import class_slope
from rlx.ops.norm import widened
from rlx.ops.reduce import FLOATS
from rlx.ops.slopes import second_derivative, slope

_NUMBERS = (*FLOATS, "i8", "i16", "i32", "i64", "u8", "u32", "c64")


def check_cotangent(dy: Shape, result: Any, name: str = "dy") -> None:
    """A cotangent has the shape and dtype of the result that it belongs to.

    Raises:
        ShapeError: It has not.
    """
    if dy.dims != result.dims or dy.dtype is not result.dtype:
        raise ShapeError(f"'{name}' must be {result}, as the result of the forward op, got {dy}")


class ReluBackward(Card, op="relu_backward"):
    def infer(self, x: Shape, dy: Shape) -> Shape:
        check_cotangent(dy, x)
        return x

    def decompose(self, b: Builder, x: Tensor, dy: Tensor) -> Tensor:
        return b.where(x > 0.0, dy, 0.0)

    def samples(self) -> Any:
        yield sample((3, 5), (3, 5), dtypes=FLOATS)
        yield sample(("n", 4), ("n", 4), dtypes=("f32",))


# --- activations ------------------------------------------------------------------------------------


class ActivationBackward(Card, op="activation_backward"):
    def infer(self, x: Shape, dy: Shape, *, kind: str) -> Shape:
        check_cotangent(dy, registry.card("activation").infer(x, kind=kind))
        return x

    def decompose(self, b: Builder, x: Tensor, dy: Tensor, *, kind: str) -> Tensor:
        if kind == "relu":
            return b.where(x > 0.0, dy, 0.0)
        if kind == "neg":
            return -dy
        if kind == "round":
            return dy
        wide = widened(b, x)
        # The forward op is there already where this stands in a gradient: the two are joined.
        return cast(b, widened(b, dy) * slope(b, kind, wide, b.activation(kind, wide)), x.dtype)

    def build(self, b: Builder, x: Tensor, dy: Tensor, kind: Any) -> Tensor:
        return b.emit("activation_backward", (x, dy), kind=getattr(kind, "value", kind))

    def vmap(self, b: Builder, operands: Any, batched: Any, *, size: Dim, kind: str) -> Tensor:
        full = [rules.batch(b, x, own, size) for x, own in zip(operands, batched, strict=True)]
        return b.emit("activation_backward", full, kind=kind)

    def jvp(self, b: Builder, operands: Any, tangents: Any, results: Any, *, kind: str) -> Tensor | None:
        (x, dy), (moved, d) = operands, tangents
        along = None if d is None else b.emit("activation_backward", (x, d), kind=kind)
        return rules.total(b, [along, None if moved is None else _bent(b, kind, x, dy, moved)])

    def vjp(self, b: Builder, operands: Any, results: Any, cotangents: Any, *, kind: str) -> Any:
        (x, dy), (d,) = operands, cotangents
        return lambda: _bent(b, kind, x, dy, d), lambda: b.emit("activation_backward", (x, d), kind=kind)

    def cost(self, operands: Any, results: Any, attributes: Any) -> Cost:
        forward = registry.card("activation").cost(operands[:1], results, attributes)
        return Cost(2 * forward.flops + results[0].num_elements, moved_bytes(operands, results))

    def samples(self) -> Any:
        low = {"log": 0.05, "sqrt": 0.05, "rsqrt": 0.05, "tan": -1.4}
        for kind in registry.card("activation").spec.attributes[0].cases:
            x = Operand((3, 5), low=low.get(kind, -4.0), high=1.4 if kind == "tan" else 4.0)
            yield sample(x, (3, 5), kind=kind, dtypes=FLOATS)
        yield sample(("n", 4), ("n", 4), kind="tanh", dtypes=("f32",))


def _bent(b: Builder, kind: str, x: Tensor, dy: Tensor, d: Tensor) -> Tensor | None:
    """`d·dy·f''(x)`, rounded once."""
    second = second_derivative(b, kind, widened(b, x))
    return None if second is None else cast(b, widened(b, d) * widened(b, dy) * second, x.dtype)


class ComplexNormSqBackward(Card, op="complex_norm_sq_backward"):
    def infer(self, x: Shape, dy: Shape) -> Shape:
        check_cotangent(dy, registry.card("complex_norm_sq").infer(x))
        return x

    def decompose(self, b: Builder, x: Tensor, dy: Tensor) -> Tensor:
        double = dy * 2.0
        return b.complex(b.real(x) * double, b.imag(x) * double)

    def samples(self) -> Any:
        yield sample((3, 4), Operand((3, 4), "f32"))
        yield sample(("n",), Operand(("n",), "f32"))


# --- sums and lookups -------------------------------------------------------------------------------


class CumsumBackward(Card, op="cumsum_backward"):
    def infer(self, dy: Shape, *, axis: int, exclusive: bool) -> Shape:
        result = registry.card("cumsum").infer(dy, axis=axis, exclusive=exclusive)
        assert isinstance(result, Shape)
        return result

    def decompose(self, b: Builder, dy: Tensor, *, axis: int, exclusive: bool) -> Tensor:
        total = b.cumsum(b.reverse(dy, axes=(axis,)), axis=axis, exclusive=exclusive)
        return b.reverse(total, axes=(axis,))

    linear = ("dy",)

    def vjp(self, b: Builder, operands: Any, results: Any, cotangents: Any, *, axis: int, exclusive: bool) -> Any:
        return (b.emit("cumsum", cotangents, axis=axis, exclusive=exclusive),)

    def vmap(self, b: Builder, operands: Any, batched: Any, *, size: Dim, axis: int, exclusive: bool) -> Tensor:
        return b.emit("cumsum_backward", operands, axis=axis + 1, exclusive=exclusive)

    def build(self, b: Builder, dy: Tensor, axis: int, exclusive: bool = False) -> Tensor:
        return b.emit("cumsum_backward", (dy,), axis=axis_of(axis, dy.rank), exclusive=exclusive)

    def samples(self) -> Any:
        yield sample((3, 5), axis=1, dtypes=_NUMBERS)
        yield sample((5, 3), axis=0, exclusive=True, dtypes=("f32",))
        yield sample((2, "n"), axis=1, exclusive=True, dtypes=("f32",))


class GatherBackward(Card, op="gather_backward"):
    def infer(self, dy: Shape, indices: Shape, *, axis: int, size: tuple[Dim, ...]) -> Shape:
        table = _table(dy, indices, axis, size)
        check_cotangent(dy, registry.card("gather").infer(table, indices, axis=axis))
        return table

    def requires(self, dy: Shape, indices: Shape, *, axis: int, size: tuple[Dim, ...]) -> Any:
        return registry.card("gather").requires(_table(dy, indices, axis, size), indices, axis=axis)

    def decompose(self, b: Builder, dy: Tensor, indices: Tensor, *, axis: int, size: tuple[Dim, ...]) -> Tensor:
        """The axes of the indices come first, as `scatter_add` wants them, and the gathered axis goes where it was."""
        last = axis + indices.rank
        updates = b.transpose(dy, (*range(axis, last), *range(axis), *range(last, dy.rank)))
        table = b.scatter_add(updates, clamped(b, indices, size[0]), size=size[0])
        return b.transpose(table, (*range(1, axis + 1), 0, *range(axis + 1, table.rank)))

    linear = ("dy",)

    def vjp(self, b: Builder, operands: Any, results: Any, cotangents: Any, *, axis: int, size: tuple[Dim, ...]) -> Any:
        return b.emit("gather", (cotangents[0], operands[1]), axis=axis), None

    def build(self, b: Builder, dy: Tensor, indices: Any, axis: int = 0, *, size: Any) -> Tensor:
        positions = tensor_like(b, indices, i32)
        sizes = tuple(size) if isinstance(size, (list, tuple)) else (size,)
        rank = dy.rank - positions.rank + 1
        return b.emit("gather_backward", (dy, positions), axis=axis_of(axis, rank), size=sizes)

    def cost(self, operands: Any, results: Any, attributes: Any) -> Cost:
        return Cost(operands[0].num_elements, moved_bytes(operands, results))

    def samples(self) -> Any:
        wide: Any = {"low": -3, "high": 9}  # out of range on both sides, and repeated
        yield sample((4, 3), Operand((4,), "i32", **wide), axis=0, size=(5,), dtypes=(*FLOATS, "c64"))
        yield sample((2, 4, 2, 3), Operand((4, 2), "u8", **wide), axis=1, size=(300,), dtypes=("f32",))
        yield sample((2,), Operand((), "i64", **wide), axis=1, size=(5,), dtypes=("f32",))
        yield sample(("m", 3), Operand(("m",), "i32", **wide), axis=0, size=("n",), dtypes=("f32",))


def _table(dy: Shape, indices: Shape, axis: int, size: tuple[Dim, ...]) -> Shape:
    """The shape of the table from which a result like `dy` was gathered."""
    if len(size) != 1:
        raise ShapeError(f"size is a list of one dimension, got {list(size)}")
    if not 0 <= axis <= dy.rank - indices.rank:
        raise ShapeError(f"axis {axis} of the table leaves no room in {dy} for the axes of the indices {indices}")
    return dy.with_dims((*dy.dims[:axis], size[0], *dy.dims[axis + indices.rank :]))


class SoftmaxCrossEntropyBackward(Card, op="softmax_cross_entropy_backward"):
    def infer(self, logits: Shape, labels: Shape, dloss: Shape) -> Shape:
        same_dtype(logits, dloss)
        check_cotangent(dloss, registry.card("softmax_cross_entropy_with_logits").infer(logits, labels), "dloss")
        return logits

    def decompose(self, b: Builder, logits: Tensor, labels: Tensor, dloss: Tensor) -> Tensor:
        slope, is_class = class_slope(b, logits, labels)
        dlogits = slope * b.reshape(widened(b, dloss), (*labels.shape.dims, 1))
        return cast(b, b.where(is_class, dlogits, 0.0), logits.dtype)

    def cost(self, operands: Any, results: Any, attributes: Any) -> Cost:
        return Cost(17 * operands[0].num_elements, moved_bytes(operands, results))

    def samples(self) -> Any:
        yield sample((3, 5), Operand((3,), "i32", low=-1, high=7), (3,), dtypes=FLOATS)
        yield sample((2, 3, 5), Operand((2, 3), "u8", low=0, high=5), (2, 3), dtypes=("f32",))
        yield sample(("n", "classes"), Operand(("n",), "i64", low=-1, high=4), ("n",), dtypes=("f32",))

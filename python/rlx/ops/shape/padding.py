"""Padding, and triangles of matrices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.ir.dims.dim import Dim, DimExpr, dim
from rlx.ir.dtype import EVERY, WITH_ZERO
from rlx.ir.fitting import as_array_of
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import Flags, Size, Tensors
from rlx.ir.op.argument_groups import ArgumentGroup
from rlx.ir.op.card import Attributes, Card, Cost, OpSample, Shapes, moved_bytes, sample
from rlx.ir.shape import Shape
from rlx.ops import rules
from rlx.ops.elementwise.elementwise import convert
from rlx.ops.lift import constant_scalar
from rlx.support.errors import Error, ShapeError
from rlx.support.guards import is_array, is_sequence

_NUMPY_MODES: dict[str, Any] = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
# The minimum by which an axis must exceed the padding on either side; None means no limit.
_MARGINS = {"constant": None, "reflect": 1, "replicate": None, "circular": 0}


@dataclass(frozen=True)
class PadEdges(ArgumentGroup):
    """The attributes of a `pad`: the number of elements before and after each axis, and the source of these elements."""

    low: Sequence[Any]  # dimensions
    high: Sequence[Any]
    mode: str

    @property
    def pairs(self) -> list[tuple[Any, Any]]:
        """The numbers of elements added before and after each axis."""
        return list(zip(self.low, self.high, strict=True))


class Pad(Card, op="pad"):
    def infer(self, x: Shape, *, edges: PadEdges, value: float) -> Shape:
        low, high = edges.low, edges.high
        if not len(low) == len(high) == x.rank:
            raise ShapeError(f"low and high need {x.rank} entries each, got {len(low)} and {len(high)}")
        for amount, message in _requirements(x, edges):
            if type(amount) is int and amount < 0:
                raise ShapeError(message)
        if edges.mode == "constant" or x.dtype.has_zero:
            _check_value(value, x)
        return x.with_dims(before + d + after for before, d, after in zip(low, x.dims, high, strict=True))

    def requires(self, x: Shape, *, edges: PadEdges, value: float) -> Iterator[tuple[Dim, str]]:
        return _requirements(x, edges)

    def evaluate(self, x: np.ndarray, *, edges: PadEdges, value: float) -> np.ndarray:
        if not x.ndim:
            return x
        pairs: Any = edges.pairs
        options: Any = {"constant_values": np.asarray(value).astype(x.dtype)} if edges.mode == "constant" else {}
        return np.pad(x, pairs, _NUMPY_MODES[edges.mode], **options)

    def decompose(self, b: Builder, x: Tensor, *, edges: PadEdges, value: float) -> Tensor:
        for axis, (before, after) in enumerate(edges.pairs):
            added = _Added(b, x, axis, edges.mode, value)
            pieces = [added.before(before), x, added.after(after)]
            nonempty = [piece for piece in pieces if piece is not None]
            x = b.concat(nonempty, axis=axis)
        return x

    def build(
        self,
        b: Builder,
        x: Tensor,
        padding: Size | Sequence[Size] | Sequence[Sequence[Size]],
        mode: str = "constant",
        value: float = 0,
    ) -> Tensor:
        """`mode` selects the elements that are added.

        These are `value` (`constant`), the tensor mirrored at the edge element (`reflect`, at most `dim - 1` elements),
        the edge element (`replicate`), or the other side (`circular`, at most `dim` elements). Axes are padded one after
        the other, as in NumPy.

        Own arguments:
            padding: The number of elements before and after every axis: a size, a pair (before, after) for all axes, or
                one pair for each axis. Sizes may be symbolic.
            value: The number that `constant` adds.
        """
        low, high = zip(*_pairs(padding, x.rank), strict=True) if x.rank else ((), ())
        if isinstance(value, (bool, np.number, np.bool_)):
            value = float(value)  # pyright: ignore[reportUnknownArgumentType]
        return b.emit("pad", (x,), low=low, high=high, mode=mode, value=value)

    def jvp(
        self, b: Builder, operands: Tensors, tangents: Tensors, results: Tensors, *, value: float, **attributes: Any
    ) -> Tensor:
        return b.emit("pad", tangents, value=0.0, **attributes)

    def vjp(
        self, b: Builder, operands: Tensors, results: Tensors, cotangents: Tensors, *, edges: PadEdges, **_: Any
    ) -> tuple[Tensor]:
        (dy,), dims = cotangents, operands[0].shape.dims
        for axis, (before, after) in reversed(list(enumerate(edges.pairs))):
            dy = _folded_back(b, dy, axis, (before, dims[axis], after), edges.mode)
        return (dy,)

    def vmap(
        self, b: Builder, operands: Tensors, batched: Flags, *, size: Dim, edges: PadEdges, value: float
    ) -> Tensor:
        low, high = (0, *edges.low), (0, *edges.high)
        return b.emit("pad", operands, low=low, high=high, mode=edges.mode, value=value)

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        return Cost(0, moved_bytes(operands, results))

    def samples(self) -> Iterable[OpSample]:
        yield sample((3, 4), low=(0, 2), high=(1, 0), value=1.0, dtypes=EVERY)
        yield sample((3, 4), low=(2, 0), high=(1, 3), mode="reflect", dtypes=("f32", "f8e8m0fnu"))
        yield sample((3, 1), low=(4, 2), high=(0, 1), mode="replicate", dtypes=("f32",))
        yield sample((3, 4), low=(3, 1), high=(2, 4), mode="circular", dtypes=("f32",))
        yield sample((0, 2), low=(1, 0), high=(1, 0), value=float("-inf"), dtypes=("f32",))
        yield sample(("n", 2), low=("n", 0), high=(1, 1), dtypes=("f32",))
        yield sample(("n+3", 2), low=(2, 1), high=("n", 0), mode="reflect", dtypes=("f32", "f8e8m0fnu"))


def _requirements(x: Shape, edges: PadEdges) -> Iterator[tuple[Dim, str]]:
    """Yield the numbers that must not be negative, each with the error message."""
    mode = edges.mode
    margin = _MARGINS[mode]
    for axis, (d, *amounts) in enumerate(zip(x.dims, edges.low, edges.high, strict=True)):
        for amount in amounts:
            yield amount, f"axis {axis} is padded by {amount}, which is negative"
            if margin is not None and amount != 0:
                yield d - margin - amount, f"{mode} mode cannot add {amount} to axis {axis} of size {d}"
        total = amounts[0] + amounts[1]
        if mode == "replicate" and total != 0 and d == 0:
            yield -1, f"axis {axis} of {x} is empty: it has no edge to replicate"
        elif mode == "replicate" and type(d) is not int and total != 0:
            yield d - 1, f"axis {axis} of size {d} is empty: it has no edge to replicate"


def _check_value(value: float, x: Shape) -> None:
    """Check that the dtype of a tensor can represent the padding value.

    Raises:
        ShapeError: The dtype cannot represent it.
    """
    try:
        as_array_of(value, x.dtype)
    except Error as problem:
        raise ShapeError(f"attribute 'value': {problem.message}", hint="cast the tensor first") from None


class _Added:
    """The pieces added before and after a tensor along one axis."""

    def __init__(self, b: Builder, x: Tensor, axis: int, mode: str, value: float):
        self.b, self.x, self.axis, self.mode = b, x, axis, mode
        self.size = x.shape.dims[axis]
        self.value = value

    def before(self, amount: Dim) -> Tensor | None:
        """Return the piece before the tensor."""
        if amount == 0:
            return None
        if self.mode == "reflect":
            return self.b.reverse(self._part(1, amount), self.axis)
        if self.mode == "circular":
            return self._part(self.size - amount, amount)
        return self._repeated(0, amount)

    def after(self, amount: Dim) -> Tensor | None:
        """Return the piece after the tensor."""
        if amount == 0:
            return None
        if self.mode == "reflect":
            return self.b.reverse(self._part(self.size - 1 - amount, amount), self.axis)
        if self.mode == "circular":
            return self._part(0, amount)
        return self._repeated(self.size - 1, amount)

    def _part(self, start: Dim, length: Dim) -> Tensor:
        return self.b.narrow(self.x, self.axis, start, length)

    def _repeated(self, edge: Dim, amount: Dim) -> Tensor:
        dims = [amount if i == self.axis else d for i, d in enumerate(self.x.shape.dims)]
        if self.mode == "constant":
            array = np.asarray(self.value)
            return self.b.expand(self.b.constant(convert(array, self.x.dtype)), dims)
        return self.b.expand(self._part(edge, 1), dims)


def _folded_back(b: Builder, dy: Tensor, axis: int, sizes: tuple[Dim, Dim, Dim], mode: str) -> Tensor:
    """Return the adjoint of padding one axis.

    Cotangents of the padding are added to those of the elements that were copied there.

    Args:
        b: The builder that emits the ops.
        dy: The cotangent of the padded tensor.
        axis: The axis.
        sizes: The padding before, the size of the axis, and the padding after.
        mode: The mode of the padding.
    """
    before, size, after = sizes

    def piece(start: Dim, length: Dim) -> Tensor:
        return b.narrow(dy, axis, start, length)

    inner = piece(before, size) if before != 0 or after != 0 else dy
    if mode == "constant":
        return inner
    terms: list[Any] = [inner]
    for amount, start, source in (
        (before, 0, {"reflect": 1, "circular": size - before, "replicate": 0}),
        (after, before + size, {"reflect": size - 1 - after, "circular": 0, "replicate": size - 1}),
    ):
        if amount == 0:
            continue
        added = piece(start, amount)
        if mode == "reflect":
            added = b.reverse(added, axis)
        elif mode == "replicate":
            added = b.sum(added, axis, keep_dims=True)
        terms.append(rules.Range(axis, source[mode], added, size))
    return rules.joined(b, terms)


def _pairs(padding: object, rank: int) -> list[tuple[Dim, Dim]]:
    """Return the padding before and after each axis, from any argument of `numpy.pad`.

    Raises:
        ShapeError: The argument is something else.
    """
    if _is_size(padding):
        return [(dim(padding), dim(padding))] * rank
    entries = list(padding) if is_sequence(padding) or is_array(padding) else None
    if entries and all(map(_is_size, entries)) and len(entries) <= 2:
        return [_pair(entries)] * rank
    if entries is not None and not any(map(_is_size, entries)) and len(entries) in (1, rank):
        return [_pair(entry) for entry in entries] * (rank if len(entries) == 1 else 1)
    raise ShapeError(
        f"padding must be a size, a pair for all axes, or one pair for each of the {rank} axes, got {padding!r}",
        hint=_hint(entries, rank),
    )


def _hint(entries: list[Any] | None, rank: int) -> str | None:
    """Return a hint that converts PyTorch's flat list, which starts at the last axis, to pairs."""
    if entries is None or not all(map(_is_size, entries)) or len(entries) % 2 or len(entries) > 2 * rank:
        return None
    pairs = [(0, 0)] * rank
    for i in range(len(entries) // 2):
        pairs[-1 - i] = (entries[2 * i], entries[2 * i + 1])
    return f"PyTorch counts from the last axis; here that is padding={tuple(pairs)}"


def _is_size(value: object) -> bool:
    return isinstance(value, (int, np.integer, str, DimExpr)) and not isinstance(value, bool)


def _pair(entry: object) -> tuple[Dim, Dim]:
    values = list(entry) if is_sequence(entry) or is_array(entry) else []
    if len(values) not in (1, 2) or not all(map(_is_size, values)):
        raise ShapeError(f"padding holds {entry!r}; expected a pair of sizes")
    return dim(values[0]), dim(values[-1])


class Triangular(Card, op="triangular"):
    def infer(self, x: Shape, *, upper: bool, diagonal: int) -> Shape:
        if x.rank < 2:
            raise ShapeError(f"expected matrices […, M, N], got {x}")
        if not x.dtype.has_zero:
            raise ShapeError(f"{x.dtype.name} has no zero for the elements outside of the triangle")
        return x

    def evaluate(self, x: np.ndarray, *, upper: bool, diagonal: int) -> np.ndarray:
        row, column = np.ogrid[: x.shape[-2], : x.shape[-1]]
        offset = column - row
        return np.where(offset >= diagonal if upper else offset <= diagonal, x, x.dtype.type(0))

    def decompose(self, b: Builder, x: Tensor, *, upper: bool, diagonal: int) -> Tensor:
        dims = x.shape.dims[-2:]
        offset = b.iota(dims, axis=1) - b.iota(dims, axis=0)
        # Offsets are compared in i32, which can represent them. The diagonal may not fit into i32, and is clamped.
        furthest = 2**31 - 1
        bound = max(-furthest, min(diagonal, furthest))
        kept = b.ge(offset, bound) if upper else b.le(offset, bound)
        return b.where(kept, x, constant_scalar(b, 0, x.dtype))

    linear = ("x",)

    def vjp(
        self, b: Builder, operands: Tensors, results: Tensors, cotangents: Tensors, *, upper: bool, diagonal: int
    ) -> rules.Cotangents:
        return (b.emit("triangular", cotangents, upper=upper, diagonal=diagonal),)

    def vmap(self, b: Builder, operands: Tensors, batched: Flags, *, size: Dim, upper: bool, diagonal: int) -> Tensor:
        return b.emit("triangular", operands, upper=upper, diagonal=diagonal)

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        return Cost(0, moved_bytes(operands, results))

    def samples(self) -> Iterable[OpSample]:
        yield sample((4, 5), dtypes=WITH_ZERO)
        yield sample((2, 4, 3), upper=True, diagonal=1, dtypes=("f32",))
        yield sample((4, 4), diagonal=-2, dtypes=("f32",))
        yield sample((0, 3), upper=True, dtypes=("f32",))
        yield sample(("n", "m"), upper=True, diagonal=-1, dtypes=("f32",))

"""Ops on packed weights: rows of blocks in a format of `rlx.schemes`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from rlx.ir.dims.dim import Dim
from rlx.ir.dtype import f16, f32, i8, i32, u8, u16
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import Flags, TensorLike, Tensors
from rlx.ir.op.card import Attributes, Card, Cost, OpSample, SampleOperand, Shapes, moved_bytes, sample
from rlx.ir.shape import Shape
from rlx.ops import rules
from rlx.ops.contraction.linear_algebra import GroupedMatmul, grouped_products
from rlx.ops.lift import tensor_like
from rlx.schemes import Scheme, find_scheme
from rlx.schemes.blocks import Blocks
from rlx.support.errors import Error, ShapeError

LIMITS = {"i8": 127, "i16": 32767}
LEAST_TOP = 1e-30  # smaller blocks are rounded to zeros: the reciprocal of their scale would overflow
LEAST_INFINITE_HALF = 65520.0  # smaller numbers are rounded to finite ones of f16
NAN_HALF = 0x7E00


class TensorBlocks(Blocks[Tensor]):
    """Blocks in a tensor of a graph, u8 `[…, nbytes]`."""

    def __init__(self, b: Builder, stored: Tensor):
        self._b, self._stored = b, stored

    def integers(self, start: int, count: int) -> Tensor:
        return self._b.cast(self._stored[..., start : start + count], i32)

    def floats(self, integers: Tensor) -> Tensor:
        return self._b.cast(integers, f32)

    def from_bits(self, bits: Tensor) -> Tensor:
        return self._b.bitcast(bits, f32)

    def from_half_bits(self, bits: Tensor) -> Tensor:
        return self._b.cast(self._b.bitcast(self._b.cast(bits, u16), f16), f32)

    def reshape(self, x: Tensor, replaced: int, *sizes: int) -> Tensor:
        return self._b.reshape(x, (*x.shape.dims[: x.rank - replaced], *sizes))

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        return self._b.concat(parts, -1)

    def lookup(self, table: np.ndarray, index: Tensor) -> Tensor:
        return self._b.emit("gather", (self._b.constant(table), index), axis=0)


def scheme_of(name: str) -> Scheme:
    """Return a format.

    Raises:
        ShapeError: There is no such format.
    """
    try:
        return find_scheme(name)
    except Error as problem:
        raise ShapeError(problem.message) from None


def row_elements(scheme: Scheme, size: Dim) -> Dim:
    """Return the number of elements in a row of bytes."""
    if type(size) is not int:
        raise ShapeError(f"the bytes of a row must be an integer, got {size}")
    if size % scheme.nbytes:
        raise ShapeError(f"{scheme.name} has blocks of {scheme.nbytes} bytes, and a row has {size} bytes")
    return size // scheme.nbytes * scheme.block


def _decoded(x: Shape, w: Shape, scheme: str) -> Shape:
    """Return the shape of a packed matrix after decoding.

    Raises:
        ShapeError: Its rows do not have the number of elements of those of `x`.
    """
    description = scheme_of(scheme)
    elements = row_elements(description, w.dims[-1])
    if x.dims[-1] != elements:
        raise ShapeError(f"x has rows of {x.dims[-1]} elements, and w, in {description.name}, of {elements}")
    return Shape((*w.dims[:-1], elements), f32)


class DequantizePacked(Card, op="dequantize_packed"):
    def infer(self, x: Shape, *, scheme: str) -> Shape:
        if not x.rank:
            raise ShapeError(f"x must be rows of bytes, got {x}")
        return Shape((*x.dims[:-1], row_elements(scheme_of(scheme), x.dims[-1])), f32)

    def evaluate(self, x: np.ndarray, *, scheme: str) -> np.ndarray:
        return find_scheme(scheme).decode(x)

    def decompose(self, b: Builder, x: Tensor, *, scheme: str) -> Tensor:
        description = find_scheme(scheme)
        leading, size = x.shape.dims[:-1], x.shape.dims[-1]
        assert type(size) is int
        count = size // description.nbytes
        blocks = TensorBlocks(b, b.reshape(x, (*leading, count, description.nbytes)))
        return b.reshape(description.decoder(blocks), (*leading, count * description.block))

    def vmap(self, b: Builder, operands: Tensors, batched: Flags, *, size: Dim, scheme: str) -> Tensor:
        return b.emit("dequantize_packed", operands, scheme=scheme)

    def samples(self) -> Iterable[OpSample]:
        # Without the top bits, so that the scales are finite.
        yield sample(_row_bytes((3,), "q4_k", 2), scheme="q4_k", dtypes=("u8",))
        yield sample(_row_bytes((2, 3), "q8_0", 2), scheme="q8_0", dtypes=("u8",))
        yield sample(_row_bytes(("n",), "q6_k", 1), scheme="q6_k", dtypes=("u8",))
        yield sample(_row_bytes((0,), "q4_0", 3), scheme="q4_0", dtypes=("u8",))


class QuantizePacked(Card, op="quantize_packed"):
    def infer(self, x: Shape, *, scheme: str) -> Shape:
        packing = scheme_of(scheme)
        if packing.name != "q8_0":
            raise ShapeError(f"rows can be packed in the format q8_0, got {packing.name}")
        if not x.rank or type(x.dims[-1]) is not int or x.dims[-1] % packing.block:
            raise ShapeError(f"x must be rows of blocks of {packing.block} elements, got {x}")
        return Shape((*x.dims[:-1], packing.row_bytes(x.dims[-1])), u8)

    def evaluate(self, x: np.ndarray, *, scheme: str) -> np.ndarray:
        packing = find_scheme(scheme)
        assert packing.encode is not None
        blocks = x.reshape(*x.shape[:-1], x.shape[-1] // packing.block, packing.block)
        with np.errstate(all="ignore"):
            top = np.abs(blocks).max(-1, keepdims=True, initial=0)
            is_stored = top / np.float32(127) < LEAST_INFINITE_HALF
        stored = packing.encode(np.where(is_stored & (top >= np.float32(LEAST_TOP)), blocks, np.float32(0)))
        stored[..., :2] = np.where(is_stored, stored[..., :2], np.array([NAN_HALF & 255, NAN_HALF >> 8], np.uint8))
        return stored.reshape(*x.shape[:-1], packing.row_bytes(x.shape[-1]))

    def decompose(self, b: Builder, x: Tensor, *, scheme: str) -> Tensor:
        packing = find_scheme(scheme)
        leading, size = x.shape.dims[:-1], x.shape.dims[-1]
        assert type(size) is int
        blocks = b.reshape(x, (*leading, size // packing.block, packing.block))
        top = b.max(b.abs(blocks), -1, keep_dims=True)
        scale = top / 127.0
        is_stored = scale < LEAST_INFINITE_HALF
        factor = b.where(is_stored & (top >= LEAST_TOP), 1.0 / scale, 0.0)
        steps = b.where(is_stored, b.abs(blocks) * factor, 0.0)
        # Halves are rounded away from zero. A comparison cannot be fused with the product, as a difference can.
        whole = b.floor(steps)
        steps = whole + b.cast(steps >= whole + 0.5, f32)
        signed = b.bitcast(b.cast(b.where(blocks < 0.0, -steps, steps), i8), u8)
        half = b.cast(b.bitcast(b.cast(scale, f16), u16), i32)
        half = b.where(is_stored, half, NAN_HALF)
        parts = [b.cast(half & 255, u8), b.cast(half >> 8, u8), signed]
        return b.reshape(b.concat(parts, -1), (*leading, packing.row_bytes(size)))

    def build(self, b: Builder, x: TensorLike, scheme: str) -> Tensor:
        return b.emit("quantize_packed", (tensor_like(b, x, f32),), scheme=scheme)

    def vmap(self, b: Builder, operands: Tensors, batched: Flags, *, size: Dim, scheme: str) -> Tensor:
        return b.emit("quantize_packed", operands, scheme=scheme)

    def samples(self) -> Iterable[OpSample]:
        yield sample((3, 64), scheme="q8_0", dtypes=("f32",))
        yield sample((2, "n", 32), scheme="q8_0", dtypes=("f32",))
        yield sample((96,), scheme="q8_0", dtypes=("f32",))
        yield sample((0, 32), scheme="q8_0", dtypes=("f32",))


def _row_bytes(leading: tuple[int | str, ...], scheme: str, blocks: int) -> SampleOperand:
    return SampleOperand((*leading, blocks * find_scheme(scheme).nbytes), "u8", low=0, high=64)


class DequantMatmul(Card, op="dequant_matmul"):
    def infer(self, x: Shape, w: Shape, *, scheme: str, activations: str) -> Shape:
        if not x.rank or w.rank != 2:
            raise ShapeError(f"expected x [..., K] and w [N, bytes], got {x} and {w}")
        _decoded(x, w, scheme)
        return x.with_dims((*x.dims[:-1], w.dims[0]))

    def evaluate(self, x: np.ndarray, w: np.ndarray, *, scheme: str, activations: str) -> np.ndarray:
        description = find_scheme(scheme)
        rounded = rounded_activations(x, description.block, activations)
        with np.errstate(all="ignore"):
            return np.matmul(rounded.astype(np.float64), description.decode(w).T.astype(np.float64)).astype(np.float32)

    def decompose(self, b: Builder, x: Tensor, w: Tensor, *, scheme: str, activations: str) -> Tensor:
        matrix = b.transpose(b.emit("dequantize_packed", (w,), scheme=scheme))
        rows = _rounded(b, x, find_scheme(scheme).block, activations)
        return b.matmul(rows, matrix)

    def build(self, b: Builder, x: TensorLike, w: TensorLike, scheme: str, activations: str = "f32") -> Tensor:
        x, w = tensor_like(b, x, f32), tensor_like(b, w, u8)
        return b.emit("dequant_matmul", (x, w), scheme=scheme, activations=activations)

    def vjp(
        self,
        b: Builder,
        operands: Tensors,
        results: Tensors,
        cotangents: Tensors,
        *,
        scheme: str,
        activations: str,
    ) -> rules.Cotangents:
        (_, w), (dy,) = operands, cotangents
        return lambda: b.matmul(dy, b.emit("dequantize_packed", (w,), scheme=scheme)), None

    def jvp(
        self,
        b: Builder,
        operands: Tensors,
        tangents: Tensors,
        results: Tensors,
        *,
        scheme: str,
        activations: str,
    ) -> Tensor | None:
        return b.emit("dequant_matmul", (tangents[0], operands[1]), scheme=scheme, activations="f32")

    def vmap(
        self, b: Builder, operands: Tensors, batched: Flags, *, size: Dim, scheme: str, activations: str
    ) -> Tensor:
        if batched[1]:
            return NotImplemented
        return b.emit("dequant_matmul", operands, scheme=scheme, activations=activations)

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        return Cost(2 * results[0].num_elements * operands[0].dims[-1], moved_bytes(operands, results))

    def samples(self) -> Iterable[OpSample]:
        def case(rows: tuple[int | str, ...], columns: int | str, scheme: str, activations: str = "f32") -> OpSample:
            w = _row_bytes((columns,), scheme, 2)
            attributes: dict[str, Any] = {"scheme": scheme, "activations": activations}
            return sample((*rows, 2 * find_scheme(scheme).block), w, dtypes=("f32",), **attributes)

        yield case((3,), 5, "q8_0")
        yield case((), 9, "q4_k")
        yield case((2, 3), 4, "q6_k", "i16")
        yield case(("n",), 3, "q4_0", "i8")
        yield case((1,), "n", "q4_k", "i8")
        yield case((0,), 3, "q4_0", "i8")


class DequantGroupedMatmul(Card, op="dequant_grouped_matmul"):
    def infer(self, x: Shape, w: Shape, indices: Shape, *, scheme: str, activations: str) -> Shape:
        if x.rank != 2 or w.rank != 3:
            raise ShapeError(f"expected x [M, K] and w [E, N, bytes], got {x} and {w}")
        (groups, columns, elements) = _decoded(x, w, scheme).dims
        return GroupedMatmul().infer(x, Shape((groups, elements, columns), f32), indices)

    def requires(self, x: Shape, w: Shape, indices: Shape, *, scheme: str, activations: str) -> list[tuple[Dim, str]]:
        return GroupedMatmul().requires(x, w, indices)

    def decompose(self, b: Builder, x: Tensor, w: Tensor, indices: Tensor, *, scheme: str, activations: str) -> Tensor:
        def product(rows: Tensor, group: Tensor) -> Tensor:
            return b.dequant_matmul(rows, b.gather(w, group), scheme=scheme, activations=activations)

        return grouped_products(b, x, indices, (w.shape.dims[0], w.shape.dims[1]), product)

    def build(
        self,
        b: Builder,
        x: TensorLike,
        w: TensorLike,
        indices: TensorLike,
        scheme: str,
        activations: str = "f32",
    ) -> Tensor:
        operands = tensor_like(b, x, f32), tensor_like(b, w, u8), tensor_like(b, indices, i32)
        return b.emit("dequant_grouped_matmul", operands, scheme=scheme, activations=activations)

    def vjp(
        self,
        b: Builder,
        operands: Tensors,
        results: Tensors,
        cotangents: Tensors,
        *,
        scheme: str,
        activations: str,
    ) -> rules.Cotangents:
        (x, w, indices), (dy,) = operands, cotangents

        def product(rows: Tensor, group: Tensor) -> Tensor:
            return b.matmul(rows, b.dequantize_packed(b.gather(w, group), scheme=scheme))

        return lambda: grouped_products(b, dy, indices, (w.shape.dims[0], x.shape.dims[1]), product), None, None

    def jvp(
        self,
        b: Builder,
        operands: Tensors,
        tangents: Tensors,
        results: Tensors,
        *,
        scheme: str,
        activations: str,
    ) -> Tensor | None:
        attributes: dict[str, Any] = {"scheme": scheme, "activations": "f32"}
        return b.emit("dequant_grouped_matmul", (tangents[0], *operands[1:]), **attributes)

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        return Cost(2 * results[0].num_elements * operands[0].dims[1], moved_bytes(operands, results))

    def samples(self) -> Iterable[OpSample]:
        def case(rows: int | str, groups: int | str, scheme: str, activations: str = "f32") -> OpSample:
            packing = find_scheme(scheme)
            w = SampleOperand((groups, 3, 2 * packing.nbytes), "u8", low=0, high=64)
            indices = SampleOperand((rows,), "i32", low=-1, high=4)
            return sample(
                (rows, 2 * packing.block), w, indices, dtypes=("f32",), scheme=scheme, activations=activations
            )

        yield case(5, 3, "q8_0")
        yield case("n", 2, "q4_0", "i8")
        yield case(2, "e", "q4_k", "i16")
        yield case(0, 2, "q6_k")


def rounded_activations(x: np.ndarray, block: int, activations: str) -> np.ndarray:
    """Return activations f32 `[…, K]` as `dequant_matmul` rounds them, in blocks; for `"f32"` as they are."""
    if activations == "f32":
        return x
    limit = np.float32(LIMITS[activations])
    blocks = x.reshape(*x.shape[:-1], x.shape[-1] // block, block)
    with np.errstate(all="ignore"):
        top = np.abs(blocks).max(-1, keepdims=True, initial=0)
        inverse = np.where(top < np.float32(LEAST_TOP), np.float32(0), limit / top)
        return (np.rint(blocks * inverse) * (top / limit)).reshape(x.shape)


def _rounded(b: Builder, x: Tensor, block: int, activations: str) -> Tensor:
    """The same, as ops."""
    if activations == "f32":
        return x
    limit = float(LIMITS[activations])
    dims = x.shape.dims
    size = dims[-1]
    assert type(size) is int
    top = b.max(b.abs(b.reshape(x, (*dims[:-1], size // block, block))), -1)
    inverse = b.where(top < LEAST_TOP, 0.0, limit / top)
    # The numbers of a block are gathered: IREE does not compile a product whose operand is reshaped from blocks.
    block_of = b.iota((size,)) // block
    factors, scales = (b.gather(v, block_of, axis=-1) for v in (inverse, top / limit))
    return b.round(x * factors) * scales

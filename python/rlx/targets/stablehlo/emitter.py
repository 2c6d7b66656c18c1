"""`HloEmitter`: an emitter for StableHLO ops, on values with their shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx import mlir
from rlx.ir.dtype import DType, bool_, dtype, i32, i64, u64
from rlx.ir.op.attributes import elements_to_mlir
from rlx.ir.shape import Shape, element_type
from rlx.targets.stablehlo.attributes import attribute, full_precision, integer, sizes
from rlx.targets.stablehlo.rules import Lowered

if TYPE_CHECKING:
    from rlx.targets.stablehlo.sharding import Shardings

# A region of an op: the shapes of its arguments, and a function from the arguments to the returned values.
Body = tuple[Sequence[Shape], Callable[..., Sequence[Lowered]]]
Scalar = bool | int | float | complex


@cache
def tensor_type(shape: Shape) -> mlir.Type:
    """The tensor type of a static shape, without the encoding of rlx."""
    ir = mlir.ir
    return ir.RankedTensorType.get(shape.static, element_type(shape.dtype), loc=ir.Location.unknown(mlir.context()))


class HloEmitter:
    """An emitter for ops at the insertion point. Shapes of results follow from those of operands, and sizes are integers.

    Operands of elementwise methods have one shape and dtype. All except the first may be Python numbers.

    Args:
        shardings: The writer of shardings; None omits them.
        cpu: Whether to emit the forms that XLA's CPU client runs fastest. Otherwise the forms suit every reader: TPUs, for
            which a loop of small steps is slow, and importers.
    """

    def __init__(self, shardings: Shardings | None = None, *, cpu: bool = False):
        self.shardings, self.cpu = shardings, cpu

    type_of = staticmethod(tensor_type)

    def op(
        self,
        name: str,
        operands: Sequence[Lowered],
        results: Sequence[Shape],
        attributes: Mapping[str, Any] | None = None,
        bodies: Sequence[Body] = (),
    ) -> tuple[Lowered, ...]:
        """Emit any op of the dialect.

        Args:
            name: The name without prefix.
            operands: Its operands.
            results: The shapes of its results.
            attributes: MLIR attributes.
            bodies: For each region the shapes of its arguments, and a function from the arguments to the returned values.
        """
        made = mlir.ir.Operation.create(
            f"stablehlo.{name}",
            results=[tensor_type(r) for r in results],
            operands=[o.value for o in operands],
            attributes=dict(attributes or {}),
            regions=len(bodies),
        )
        for region, (shapes, body) in zip(made.regions, bodies, strict=True):
            block = region.blocks.append(*[tensor_type(s) for s in shapes])
            with mlir.ir.InsertionPoint(block):
                arguments = [Lowered(v, s) for v, s in zip(block.arguments, shapes, strict=True)]
                returned = [r.value for r in body(*arguments)]
                mlir.ir.Operation.create("stablehlo.return", operands=returned)
        return tuple(Lowered(v, s) for v, s in zip(made.results, results, strict=True))

    def one(
        self,
        name: str,
        operands: Sequence[Lowered],
        dims: Sequence[int],
        kind: DType,
        attributes: Mapping[str, Any] | None = None,
        bodies: Sequence[Body] = (),
    ) -> Lowered:
        """An op with one result of the given sizes and dtype; see `op`."""
        return self.op(name, operands, [Shape(dims, kind)], attributes, bodies)[0]

    # --- constants --------------------------------------------------------------------------------

    def constant(self, array: np.ndarray) -> Lowered:
        """A constant array."""
        return self.one("constant", [], array.shape, dtype(array.dtype), {"value": elements_to_mlir(array)})

    def full(self, dims: Sequence[int], kind: DType, value: Scalar) -> Lowered:
        """A tensor with all elements equal to one number."""
        if 0 in dims or kind.is_complex or kind.storage or kind is u64:
            return self.constant(np.broadcast_to(np.asarray(value).astype(kind.numpy), tuple(dims)))
        shape = Shape(dims, kind)
        elements = mlir.ir.DenseElementsAttr.get_splat(tensor_type(shape), _element(kind, value))
        return self.one("constant", [], dims, kind, {"value": elements})

    def like(self, x: Lowered, value: Scalar) -> Lowered:
        """A tensor like x with all elements equal to one number."""
        return self.full(x.dims, x.dtype, value)

    def iota(self, dims: Sequence[int], axis: int, kind: DType) -> Lowered:
        """The index along an axis."""
        return self.one("iota", [], dims, kind, {"iota_dimension": integer(axis)})

    # --- elementwise ------------------------------------------------------------------------------

    def elementwise(self, name: str, *operands: Lowered | Scalar, kind: DType | None = None) -> Lowered:
        """Emit an elementwise op by its name.

        Args:
            name: The name without prefix.
            operands: Operands of one shape and dtype. All except the first may be numbers.
            kind: The dtype of the result, by default that of the operands.
        """
        first = operands[0]
        assert isinstance(first, Lowered)
        lowered = [o if isinstance(o, Lowered) else self.like(first, o) for o in operands]
        return self.one(name, lowered, first.dims, kind or first.dtype)

    def add(self, a: Lowered, b: Lowered | Scalar) -> Lowered:
        return self.elementwise("add", a, b)

    def sub(self, a: Lowered, b: Lowered | Scalar) -> Lowered:
        return self.elementwise("subtract", a, b)

    def mul(self, a: Lowered, b: Lowered | Scalar) -> Lowered:
        return self.elementwise("multiply", a, b)

    def div(self, a: Lowered, b: Lowered | Scalar) -> Lowered:
        return self.elementwise("divide", a, b)

    def fma(self, a: Lowered, b: Lowered | Scalar, c: Lowered | Scalar) -> Lowered:
        """a·b + c, rounded twice: StableHLO lacks a fused operation."""
        return self.add(self.mul(a, b), c)

    def max(self, a: Lowered, b: Lowered | Scalar) -> Lowered:
        """The maximum; NaN if an operand is NaN; `or` of bools."""
        return self.elementwise("maximum", a, b)

    def min(self, a: Lowered, b: Lowered | Scalar) -> Lowered:
        """The minimum; NaN if an operand is NaN; `and` of bools."""
        return self.elementwise("minimum", a, b)

    def neg(self, x: Lowered) -> Lowered:
        return self.elementwise("negate", x)

    def absolute(self, x: Lowered) -> Lowered:
        return self.elementwise("abs", x)

    def copysign(self, size: Lowered, sign: Lowered) -> Lowered:
        """`size`, which is not negative, with the sign of another value, also of a zero or of NaN."""
        bits = self.bitcast(sign, {32: i32, 64: i64}[sign.dtype.bits])
        return self.select(self.compare("lt", bits, 0), self.neg(size), size)

    def both(self, a: Lowered, b: Lowered | Scalar) -> Lowered:
        """`and` of bools or of bits."""
        return self.elementwise("and", a, b)

    def either(self, a: Lowered, b: Lowered | Scalar) -> Lowered:
        """`or` of bools or of bits."""
        return self.elementwise("or", a, b)

    def compare(self, kind: str, a: Lowered, b: Lowered | Scalar, *, total: bool = False) -> Lowered:
        """A comparison.

        Args:
            kind: `"eq"`, `"ne"`, `"lt"`, `"le"`, `"gt"` or `"ge"`.
            a: The first operand.
            b: The second operand.
            total: Compare floats in IEEE 754's total order. Otherwise NaN is unequal to everything, and both zeros are equal.
        """
        other = b if isinstance(b, Lowered) else self.like(a, b)
        attributes = {"comparison_direction": attribute(f"#stablehlo<comparison_direction {kind.upper()}>")}
        if total:
            attributes["compare_type"] = attribute("#stablehlo<comparison_type TOTALORDER>")
        return self.one("compare", [a, other], a.dims, bool_, attributes)

    def barrier(self, x: Lowered) -> Lowered:
        """The same value, opaque to XLA's simplifier. This costs nothing, because XLA removes it before fusion."""
        return self.one("optimization_barrier", [x], x.dims, x.dtype)

    def select(self, condition: Lowered, a: Lowered | Scalar, b: Lowered | Scalar) -> Lowered:
        """`a` where a bool of the same shape is true, else `b`. One of a and b may be a number."""
        model = a if isinstance(a, Lowered) else b
        assert isinstance(model, Lowered)
        left, right = (v if isinstance(v, Lowered) else self.like(model, v) for v in (a, b))
        return self.one("select", [condition, left, right], model.dims, model.dtype)

    def clamp(self, x: Lowered, low: Scalar, high: Scalar) -> Lowered:
        """Clamp x to [low, high]."""
        return self.one("clamp", [self.like(x, low), x, self.like(x, high)], x.dims, x.dtype)

    def convert(self, x: Lowered, kind: DType) -> Lowered:
        """Convert to another dtype. Out-of-range integers are undefined: `elementwise.cast` has the semantics of rlx."""
        return x if x.dtype is kind else self.one("convert", [x], x.dims, kind)

    def bitcast(self, x: Lowered, kind: DType) -> Lowered:
        """The same bits as another dtype of the same width."""
        return x if x.dtype is kind else self.one("bitcast_convert", [x], x.dims, kind)

    # --- shape ------------------------------------------------------------------------------------

    def reshape(self, x: Lowered, dims: Sequence[int]) -> Lowered:
        """The same elements in another shape."""
        return x if x.dims == tuple(dims) else self.one("reshape", [x], dims, x.dtype)

    def broadcast_in_dim(self, x: Lowered, dims: Sequence[int], axes: Sequence[int]) -> Lowered:
        """Broadcast: axis i of x is axis `axes[i]` of the result. Axes of size 1 are repeated, and all other axes are new."""
        if x.dims == tuple(dims):
            return x
        return self.one("broadcast_in_dim", [x], dims, x.dtype, {"broadcast_dimensions": sizes(axes)})

    def broadcast(self, x: Lowered, dims: Sequence[int]) -> Lowered:
        """NumPy's broadcasting."""
        return self.broadcast_in_dim(x, dims, range(len(dims) - x.rank, len(dims)))

    def transpose(self, x: Lowered, perm: Sequence[int]) -> Lowered:
        """Permuted axes."""
        if list(perm) == list(range(x.rank)):
            return x
        return self.one("transpose", [x], [x.dims[p] for p in perm], x.dtype, {"permutation": sizes(perm)})

    def slice(
        self, x: Lowered, starts: Sequence[int], limits: Sequence[int], strides: Sequence[int] | None = None
    ) -> Lowered:
        """`x[starts:limits:strides]` on every axis."""
        strides = (1,) * x.rank if strides is None else strides
        dims = [-(-(hi - lo) // s) for lo, hi, s in zip(starts, limits, strides, strict=True)]
        bounds = {"start_indices": sizes(starts), "limit_indices": sizes(limits), "strides": sizes(strides)}
        return self.one("slice", [x], dims, x.dtype, bounds)

    def slice_axis(self, x: Lowered, axis: int, start: int, limit: int) -> Lowered:
        """`x[start:limit]` on one axis."""
        starts, limits = [0] * x.rank, list(x.dims)
        starts[axis], limits[axis] = start, limit
        return self.slice(x, starts, limits)

    def concatenate(self, xs: Sequence[Lowered], axis: int) -> Lowered:
        """Concatenate along an axis."""
        kind = xs[0].dtype
        if kind.bits == 2:  # XLA's CPU client (jaxlib 0.10.2) aborts the process
            return self.convert(self.concatenate([self.convert(x, kind.compute) for x in xs], axis), kind)
        dims = list(xs[0].dims)
        dims[axis] = sum(x.dims[axis] for x in xs)
        return self.one("concatenate", xs, dims, xs[0].dtype, {"dimension": integer(axis)})

    def pad(
        self,
        x: Lowered,
        value: Scalar,
        low: Sequence[int],
        high: Sequence[int],
        interior: Sequence[int] | None = None,
    ) -> Lowered:
        """Pad with one number. A negative `low` or `high` removes elements. `interior` is padding between neighbours."""
        interior = [0] * x.rank if interior is None else interior
        grown = zip(x.dims, low, high, interior, strict=True)
        dims = [before + d + after + max(d - 1, 0) * between for d, before, after, between in grown]
        amounts = {
            "edge_padding_low": sizes(low),
            "edge_padding_high": sizes(high),
            "interior_padding": sizes(interior),
        }
        return self.one("pad", [x, self.full((), x.dtype, value)], dims, x.dtype, amounts)

    def reverse(self, x: Lowered, axes: Sequence[int]) -> Lowered:
        """Reverse along axes."""
        return self.one("reverse", [x], x.dims, x.dtype, {"dimensions": sizes(axes)})

    # --- control ------------------------------------------------------------------------------------

    def while_(
        self, carries: Sequence[Lowered], condition: Callable[..., Lowered], body: Callable[..., Sequence[Lowered]]
    ) -> tuple[Lowered, ...]:
        """A loop. Both functions take the carries, and may use values from outside.

        Args:
            carries: The initial carries.
            condition: Returns a bool scalar: whether to continue.
            body: Returns the next carries.
        """
        shapes = [c.shape for c in carries]
        return self.op("while", carries, shapes, {}, [(shapes, lambda *c: [condition(*c)]), (shapes, body)])

    def dynamic_slice(self, x: Lowered, starts: Sequence[Lowered], dims: Sequence[int]) -> Lowered:
        """A part of x with these sizes. The starts are integer scalars, which are clamped so that the part fits."""
        kind = _moved_as(x.dtype)
        part = self.one("dynamic_slice", [self.bitcast(x, kind), *starts], dims, kind, {"slice_sizes": sizes(dims)})
        return self.bitcast(part, x.dtype)

    def dynamic_update_slice(self, x: Lowered, part: Lowered, starts: Sequence[Lowered]) -> Lowered:
        """Replace a part of x. The starts are integer scalars, which are clamped so that the part fits."""
        kind = _moved_as(x.dtype)
        bits, new = self.bitcast(x, kind), self.bitcast(part, kind)
        return self.bitcast(self.one("dynamic_update_slice", [bits, new, *starts], x.dims, kind), x.dtype)

    # --- reductions and order -----------------------------------------------------------------------

    def reduce(self, x: Lowered, name: str, axes: Sequence[int], start: Scalar) -> Lowered:
        """A reduction over axes, which are removed.

        Args:
            x: Any tensor.
            name: The op that combines two scalars: `"add"`, `"multiply"`, `"maximum"`, `"minimum"`, `"and"`, `"or"`.
            axes: The axes.
            start: The op's neutral element.
        """
        dims = [d for i, d in enumerate(x.dims) if i not in axes]
        initial = self.full((), x.dtype, start)
        return self.one(
            "reduce", [x, initial], dims, x.dtype, {"dimensions": sizes(axes)}, [self._joining(name, x.dtype)]
        )

    def reduce_window(
        self,
        x: Lowered,
        name: str,
        start: Scalar,
        window: Sequence[int],
        padding: Sequence[tuple[int, int]],
        strides: Sequence[int],
    ) -> Lowered:
        """A reduction over every window; see `reduce`. The padding is `start`."""
        grown = [d + before + after for d, (before, after) in zip(x.dims, padding, strict=True)]
        dims = [max((d - w) // s + 1, 0) for d, w, s in zip(grown, window, strides, strict=True)]
        amounts = np.array(padding, np.int64).reshape(x.rank, 2)
        attributes = {
            "window_dimensions": sizes(window),
            "window_strides": sizes(strides),
            "padding": elements_to_mlir(amounts),
        }
        operands = [x, self.full((), x.dtype, start)]
        return self.one("reduce_window", operands, dims, x.dtype, attributes, [self._joining(name, x.dtype)])

    def _joining(self, name: str, kind: DType) -> Body:
        scalar = Shape((), kind)

        def join(a: Lowered, b: Lowered) -> list[Lowered]:
            return [self.elementwise(name, a, b)]

        return [scalar, scalar], join

    def sort(
        self, xs: Sequence[Lowered], axis: int, before: Callable[..., Lowered], *, stable: bool = True
    ) -> tuple[Lowered, ...]:
        """Sort tensors of one shape together along an axis.

        Args:
            xs: The tensors.
            axis: The axis.
            before: Whether one row of scalars precedes another. It takes a pair of scalars for each tensor, as a flat list.
            stable: Whether to keep the order of rows if neither precedes the other.
        """
        scalars = [Shape((), x.dtype) for x in xs for _ in range(2)]
        attributes = {"dimension": integer(axis), "is_stable": mlir.ir.BoolAttr.get(stable, context=mlir.context())}
        return self.op("sort", xs, [x.shape for x in xs], attributes, [(scalars, lambda *rows: [before(*rows)])])

    # --- indexing -----------------------------------------------------------------------------------

    def gather(
        self,
        x: Lowered,
        indices: Lowered,
        dims: Sequence[int],
        *,
        axis: int,
        offset_dims: Sequence[int],
        batch: int = 0,
    ) -> Lowered:
        """`stablehlo.gather` of entries of one axis. Indices are clamped.

        Args:
            x: The table.
            indices: Integers; their last axis has size 1.
            dims: The sizes of the result.
            axis: The axis of x that indices are for.
            offset_dims: The axes of the result that come from other axes of x.
            batch: The number of leading axes that x and the indices share.
        """
        numbers = (
            f"#stablehlo.gather<offset_dims = {list(offset_dims)}, collapsed_slice_dims = {[axis]}, "
            f"operand_batching_dims = {list(range(batch))}, start_indices_batching_dims = {list(range(batch))}, "
            f"start_index_map = {[axis]}, index_vector_dim = {indices.rank - 1}>"
        )
        slice_sizes = [1 if i == axis or i < batch else d for i, d in enumerate(x.dims)]
        attributes = {"dimension_numbers": attribute(numbers), "slice_sizes": sizes(slice_sizes)}
        kind = _moved_as(x.dtype)
        return self.bitcast(self.one("gather", [self.bitcast(x, kind), indices], dims, kind, attributes), x.dtype)

    def scatter(self, table: Lowered, targets: Lowered, rows: Lowered, name: str) -> Lowered:
        """Combine rows with a table, in no particular order. See `reduce` for the names.

        Args:
            table: `[P, W]`.
            targets: `[N, 1]`: the table row for each of `rows`. Rows with targets out of range have no effect.
            rows: `[N, W]`.
            name: The op that combines two scalars.
        """
        numbers = (
            "#stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], "
            "scatter_dims_to_operand_dims = [0], index_vector_dim = 1>"
        )
        attributes = {"scatter_dimension_numbers": attribute(numbers)}
        operands = [table, targets, rows]
        return self.one("scatter", operands, table.dims, table.dtype, attributes, [self._joining(name, table.dtype)])

    # --- contractions -------------------------------------------------------------------------------

    def dot_general(
        self,
        lhs: Lowered,
        rhs: Lowered,
        contracting: tuple[Sequence[int], Sequence[int]],
        batch: tuple[Sequence[int], Sequence[int]] = ((), ()),
    ) -> Lowered:
        """Sums of products. The result has the batch axes, then the free axes of lhs and of rhs. It is f32 for f16 and bf16."""
        kind = lhs.dtype.compute
        dims = [lhs.dims[i] for i in batch[0]]
        for x, summed, shared in ((lhs, contracting[0], batch[0]), (rhs, contracting[1], batch[1])):
            dims += [d for i, d in enumerate(x.dims) if i not in summed and i not in shared]
        numbers = (
            f"#stablehlo.dot<lhs_batching_dimensions = {list(batch[0])}, rhs_batching_dimensions = {list(batch[1])}, "
            f"lhs_contracting_dimensions = {list(contracting[0])}, rhs_contracting_dimensions = {list(contracting[1])}>"
        )
        attributes = {"dot_dimension_numbers": attribute(numbers), "precision_config": full_precision()}
        return self.one("dot_general", [lhs, rhs], dims, kind, attributes)


def _moved_as(kind: DType) -> DType:
    """The dtype for moving data. Storage floats are moved as integers: XLA (jaxlib 0.10.2) changes small ones in loops."""
    return kind.unsigned_word if kind.storage and kind.is_float else kind


def _element(kind: DType, value: Any) -> Any:
    """Convert a real number to an attribute of a dtype."""
    ir, element = mlir.ir, element_type(kind)
    if kind.is_float:
        return ir.FloatAttr.get(element, float(value), loc=ir.Location.unknown(mlir.context()))
    return ir.IntegerAttr.get(element, int(value))

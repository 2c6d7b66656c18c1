"""`LoopEmitter`: an emitter for linalg and tensor ops at an insertion point, with the sizes of all symbols."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from rlx import mlir
from rlx.ir.dims.dim import Dim, DimExpr, linear
from rlx.ir.dims.expr import OpaqueTerm
from rlx.ir.op.card import as_results
from rlx.ir.shape import Shape
from rlx.numerics.scalars import constant, storage_type
from rlx.support.errors import Error
from rlx.targets.linalg.rules import Lowered

PARALLEL, REDUCTION = "parallel", "reduction"


@cache
def tensor_type(shape: Shape) -> mlir.Type:
    """The lowered tensor type: no encoding, `?` for symbolic sizes."""
    return sized_tensor_type(shape.dims, storage_type(shape.dtype))


def sized_tensor_type(dims: Sequence[Dim], element: mlir.Type) -> mlir.Type:
    """A tensor type of the given sizes and element type."""
    ir = mlir.ir
    unknown = ir.ShapedType.get_dynamic_size()
    sizes = [d if type(d) is int else unknown for d in dims]
    return ir.RankedTensorType.get(sizes, element, loc=ir.Location.unknown(mlir.context()))


# The index along an axis of an operand: a loop, the constant 0 (None), or a sum of loops times factors.
Axis = int | tuple[tuple[int, int], ...] | None


@cache
def projection(rank: int, axes: tuple[Axis, ...]) -> Any:
    """The affine map of `rank` loops onto `axes`."""
    affine, context = mlir.ir.AffineExpr, mlir.context()

    def expression(axis: Axis) -> Any:
        if isinstance(axis, int):
            return affine.get_dim(axis, context=context)
        total = affine.get_constant(0, context=context)
        for loop, factor in axis or ():
            total = total + affine.get_dim(loop, context=context) * factor
        return total

    return mlir.ir.AffineMap.get(rank, 0, [expression(a) for a in axes], context=context)


# A function of scalars that returns a scalar or a tuple of scalars. It is a union, so that type checkers can match lambdas.
Scalar = mlir.Value
ScalarFunction = (
    Callable[[Scalar], Any]
    | Callable[[Scalar, Scalar], Any]
    | Callable[[Scalar, Scalar, Scalar], Any]
    | Callable[[Scalar, Scalar, Scalar, Scalar], Any]
)
Indexed = tuple["mlir.Value", tuple[Axis, ...]]  # an operand, with the index along each of its axes


class LoopEmitter:
    """An emitter for the ops of one function.

    Args:
        entry: The function's entry block. Shared sizes and constants are emitted at its start.
    """

    type_of = staticmethod(tensor_type)

    def __init__(self, entry: mlir.Block):
        self.ir = mlir.ir
        self.arith = mlir.dialect("arith")
        self.linalg = mlir.dialect("linalg")
        self.tensor = mlir.dialect("tensor")
        self.entry = entry
        self.symbols: dict[str, mlir.Value] = {}
        self._sizes: dict[Dim, mlir.Value] = {}
        self.index_type = self.ir.IndexType.get(mlir.context())

    # --- sizes ------------------------------------------------------------------------------------

    def bind_symbols(self, arguments: Sequence[tuple[mlir.Value, Shape]]) -> None:
        """Read the size of every symbol from the dimensions of arguments.

        Raises:
            Error: A symbol occurs only in expressions that cannot be solved.
        """
        pending: list[Any] = [
            (value, i, d) for value, shape in arguments for i, d in enumerate(shape.dims) if type(d) is not int
        ]
        wanted = {name for _, shape in arguments for name in shape.symbols}
        for value, axis, d in pending:
            if str(d) in wanted and str(d) not in self.symbols:
                self.symbols[str(d)] = self.tensor.dim(value, self.size(axis))
        while missing := wanted - self.symbols.keys():
            if not any(self._solve(value, axis, d) for value, axis, d in pending):
                names = ", ".join(sorted(missing))
                raise Error(f"the size of {names} cannot be read from any argument", hint="bind it when compiling")
        self._mark_end()

    def _mark_end(self) -> None:
        """Emit an unused op. Sizes are computed before it, so that they dominate the whole body."""
        self._sizes_end = self.arith.ConstantOp(self.index_type, 0).operation

    def _solve(self, value: mlir.Value, axis: int, d: DimExpr) -> bool:
        """Solve `slope·symbol + rest = size` for a single unknown symbol.

        The division is exact and the divisor is not 0: the caller of the program has solved the same equation (`dim.Bindings`).
        """
        unknown = [name for name in d.symbols if name not in self.symbols]
        found = linear(d, unknown[0]) if len(unknown) == 1 else None
        if found is None:
            return False
        slope, rest = found
        self._mark_end()
        size = self.arith.subi(self.tensor.dim(value, self.size(axis)), self.size(rest))
        self.symbols[unknown[0]] = self.arith.divsi(size, self.size(slope))
        return True

    def size(self, d: Dim) -> mlir.Value:
        """A dimension as an index value."""
        found = self._sizes.get(d)
        if found is None:
            if type(d) is int:
                with self.ir.InsertionPoint.at_block_begin(self.entry):
                    found = self.arith.constant(self.index_type, d)
            else:
                with self.ir.InsertionPoint(self._sizes_end):
                    assert isinstance(d, DimExpr)
                    found = self._expression(d)
            self._sizes[d] = found
        return found

    def _expression(self, d: DimExpr) -> mlir.Value:
        total = None
        for monomial, coefficient in d.terms:
            term = None
            for atom in monomial:
                factor = self._symbol(atom) if isinstance(atom, str) else self._call(atom)
                term = factor if term is None else self.arith.muli(term, factor)
            if term is None:
                term = self.size(coefficient)
            elif coefficient != 1:
                term = self.arith.muli(term, self.size(coefficient))
            total = term if total is None else self.arith.addi(total, term)
        assert total is not None  # a dimension that is an expression has terms
        return total

    def _symbol(self, name: str) -> mlir.Value:
        if name not in self.symbols:
            hint = "bind it when compiling"
            raise Error(f"the size of {name} cannot be read from any argument", hint=hint)
        return self.symbols[name]

    def _call(self, call: OpaqueTerm) -> mlir.Value:
        left, right = (self.size(a) if isinstance(a, int) else self._expression(a) for a in call.args[:2])
        if call.kind == "//":
            result = self.arith.floordivsi(left, right)
        elif call.kind == "%":  # of a floor division: `remsi` has the sign of the dividend
            quotient = self.arith.floordivsi(left, right)
            result = self.arith.subi(left, self.arith.muli(quotient, right))
        else:
            pick = self.arith.maxsi if call.kind == "max" else self.arith.minsi
            result = pick(left, right)
            for other in call.args[2:]:
                result = pick(result, self.size(other) if isinstance(other, int) else self._expression(other))
        return result

    # --- tensors ----------------------------------------------------------------------------------

    def constant(self, value: Any, element: mlir.Type) -> mlir.Value:
        """A scalar constant of an MLIR element type."""
        return constant(value, element)

    def empty(self, dims: Sequence[Dim], element: mlir.Type) -> mlir.Value:
        """A tensor with undefined elements."""
        return self.tensor.empty([d if type(d) is int else self.size(d) for d in dims], element)

    def filled(self, dims: Sequence[Dim], element: mlir.Type, value: Any) -> mlir.Value:
        """A tensor with all elements equal to a value."""
        scalar = self.constant(value, element)
        return self.linalg.fill(scalar, outs=[self.empty(dims, element)])

    def is_constant(self, value: mlir.Value) -> bool:
        """Whether a value is a constant in the program."""
        owner = getattr(value.owner, "operation", None)
        return owner is not None and owner.name == "arith.constant"

    def fill_of(self, value: mlir.Value) -> mlir.Value | None:
        """The scalar that a tensor is filled with; None if the tensor is not a fill or a reshape of one."""
        owner = getattr(value.owner, "operation", None)
        while owner is not None and owner.name in ("tensor.expand_shape", "tensor.collapse_shape"):
            owner = getattr(owner.operands[0].owner, "operation", None)
        return owner.operands[0] if owner is not None and owner.name == "linalg.fill" else None

    def generic(
        self,
        inputs: Sequence[Indexed],
        outs: Sequence[Indexed],
        iterators: Sequence[str],
        body: ScalarFunction,
    ) -> Any:
        """A `linalg.generic`.

        Args:
            inputs: Values, each with the index along each of its axes.
            outs: Initial values of the results, in the same form.
            iterators: `PARALLEL` or `REDUCTION` for each loop.
            body: Takes one scalar for each input and each out, returns the scalars to store.

        Returns:
            The result, or a tuple of them.
        """
        ir, rank = self.ir, len(iterators)
        values = [v for v, _ in (*inputs, *outs)]
        maps = [ir.AffineMapAttr.get(projection(rank, axes)) for _, axes in (*inputs, *outs)]
        kinds = ir.ArrayAttr.get([ir.Attribute.parse(f"#linalg.iterator_type<{k}>") for k in iterators])
        op = self.linalg.GenericOp(
            [v.type for v, _ in outs], [v for v, _ in inputs], [v for v, _ in outs], ir.ArrayAttr.get(maps), kinds
        )
        elements = [v.type.element_type if hasattr(v.type, "element_type") else v.type for v in values]
        block = op.regions[0].blocks.append(*elements)
        with ir.InsertionPoint(block):
            stored = body(*block.arguments)
            self.linalg.yield_(list(as_results(stored)))
        results = tuple(op.results)
        return results[0] if len(results) == 1 else results

    def map(
        self, dims: Sequence[Dim], element: mlir.Type, operands: Sequence[Lowered], body: ScalarFunction
    ) -> mlir.Value:
        """An elementwise loop over `dims`. Operands broadcast as in NumPy. `body` takes one scalar for each operand."""
        rank = len(dims)
        inputs = [self.broadcast(operand, dims) for operand in operands]
        out = (self.empty(dims, element), tuple(range(rank)))

        def without_out(*scalars: Scalar) -> Any:
            return body(*scalars[:-1])

        return self.generic(inputs, [out], [PARALLEL] * rank, without_out)

    def broadcast(self, operand: Lowered, dims: Sequence[Dim]) -> tuple[mlir.Value, tuple[int, ...]]:
        """An operand without its broadcast axes, and the loops of the other axes."""
        offset = len(dims) - operand.shape.rank
        stretched = [i for i, d in enumerate(operand.shape.dims) if d == 1 and dims[i + offset] != 1]
        axes = tuple(i + offset for i in range(operand.shape.rank) if i not in stretched)
        return self.squeeze(operand.value, operand.shape.dims, stretched), axes

    def squeeze(self, value: mlir.Value, dims: Sequence[Dim], axes: Sequence[int]) -> mlir.Value:
        """A tensor without some of its axes of size 1."""
        if not axes:
            return value
        kept = [i for i in range(len(dims)) if i not in axes]
        groups: list[list[int]] = [[] for _ in kept]
        for i in range(len(dims)):
            if kept:
                groups[max(0, sum(k <= i for k in kept) - 1)].append(i)
        return self.collapse(value, [dims[i] for i in kept], groups)

    def collapse(self, value: mlir.Value, dims: Sequence[Dim], groups: Sequence[Sequence[int]]) -> mlir.Value:
        """Merge runs of axes."""
        type_ = sized_tensor_type(dims, value.type.element_type)
        return value if type_ == value.type else self.tensor.collapse_shape(type_, value, groups)

    def expand(self, value: mlir.Value, dims: Sequence[Dim], groups: Sequence[Sequence[int]]) -> mlir.Value:
        """Split axes."""
        type_ = sized_tensor_type(dims, value.type.element_type)
        if type_ == value.type:
            return value
        unknown = self.ir.ShapedType.get_dynamic_size()
        dynamic = [self.size(d) for d in dims if type(d) is not int]
        static = [d if type(d) is int else unknown for d in dims]
        return self.tensor.expand_shape(type_, value, groups, dynamic, static)

    def reshape(self, value: mlir.Value, source: Sequence[Dim], target: Sequence[Dim]) -> mlir.Value:
        """The same elements in another shape: runs of axes are merged, then split."""
        source, target = tuple(source), tuple(target)
        if source == target:
            return value
        if 0 in source or 0 in target:
            return self.empty(target, value.type.element_type)
        segments = common_segments(source, target)
        middle = [product_of(source[a:b]) for a, b, _, _ in segments]
        joined = self.collapse(value, middle, [list(range(a, b)) for a, b, _, _ in segments])
        return self.expand(joined, target, [list(range(c, d)) for _, _, c, d in segments])

    def padded(
        self, value: mlir.Value, dims: Sequence[Dim], target: Sequence[Dim], fill: Any, before: Sequence[int] = ()
    ) -> mlir.Value:
        """A tensor padded to larger sizes with one value.

        Args:
            value: The tensor.
            dims: Its sizes.
            target: The sizes of the result.
            fill: The number to fill with.
            before: The padding before each axis; 0 by default.
        """
        dims, target = tuple(dims), tuple(target)
        if dims == target:
            return value
        element, unknown = value.type.element_type, self.ir.ShapedType.get_dynamic_size()
        first = tuple(before) or (0,) * len(dims)
        if isinstance(
            element, self.ir.ComplexType
        ):  # code generators that vectorise `tensor.pad` do not support complex numbers
            return self.inserted(value, dims, self.filled(target, element, fill), first)
        after = [t - d - b for t, d, b in zip(target, dims, first, strict=True)]
        dynamic = [self.size(a) for a in after if type(a) is not int]
        static = [a if type(a) is int else unknown for a in after]
        scalar = self.constant(fill, element)
        op = self.tensor.PadOp(sized_tensor_type(target, element), value, [], dynamic, list(first), static)
        block = op.regions[0].blocks.append(*[self.index_type] * len(dims))
        with self.ir.InsertionPoint(block):
            self.tensor.yield_(scalar)
        return op.result

    def inserted(self, value: mlir.Value, dims: Sequence[Dim], into: mlir.Value, starts: Sequence[int]) -> mlir.Value:
        """Replace a part of a tensor by another tensor."""
        unknown = self.ir.ShapedType.get_dynamic_size()
        dynamic = [self.size(d) for d in dims if type(d) is not int]
        static = [d if type(d) is int else unknown for d in dims]
        ones = [1] * len(static)
        return self.tensor.insert_slice(value, into, [], dynamic, [], list(starts), static, ones)

    def transpose(self, value: mlir.Value, dims: Sequence[Dim], perm: Sequence[int]) -> mlir.Value:
        """Permuted axes."""
        if list(perm) == list(range(len(perm))):
            return value
        out = self.empty([dims[p] for p in perm], value.type.element_type)
        return self.linalg.transpose(value, outs=[out], permutation=list(perm)).results[0]

    def scalar_index(self, axis: int) -> mlir.Value:
        """Inside a loop body: the index of a loop."""
        return self.linalg.IndexOp(axis).result


def product_of(dims: Sequence[Dim]) -> Dim:
    result: Dim = 1
    for d in dims:
        result = result * d
    return result


def common_segments(source: tuple[Dim, ...], target: tuple[Dim, ...]) -> list[tuple[int, int, int, int]]:
    """Split two shapes with the same number of elements into the shortest runs of equal product.

    (a, b, c, d) means that `source[a:b]` and `target[c:d]` have the same product. Every run has at least one axis on each
    side, unless a whole shape is empty.
    """
    segments: list[tuple[int, int, int, int]] = []
    a = c = 0
    while a < len(source) and c < len(target):
        b, d = _next_cut(source, target, a, c)
        segments.append((a, b, c, d))
        a, c = b, d
    if not segments:
        return []
    a0, _, c0, _ = segments[-1]
    segments[-1] = (a0, len(source), c0, len(target))  # trailing axes of size 1
    return segments


def _next_cut(source: tuple[Dim, ...], target: tuple[Dim, ...], a: int, c: int) -> tuple[int, int]:
    best: tuple[int, int] | None = None
    for b in range(a + 1, len(source) + 1):
        left = product_of(source[a:b])
        for d in range(c + 1, len(target) + 1):
            if product_of(target[c:d]) == left and (best is None or b + d < sum(best)):
                best = (b, d)
    return best or (len(source), len(target))

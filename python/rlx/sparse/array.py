"""`SparseArray`, the base of all sparse matrices: attributes, arithmetic and conversions by lists of entries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NoReturn, TypeVar

import numpy as np

from rlx.ir.dtype import DType
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ops.lift import Scalar
from rlx.sparse.computing import computed, conjugated, dtype_of, is_tensor, lift, located, numbers, take
from rlx.sparse.entries import Entries, expansion, inside, joined
from rlx.sparse.indices import IndexArrays, longest, narrow
from rlx.support.answers import answers
from rlx.support.errors import Error, ShapeError

Self = TypeVar("Self", bound="SparseArray")

# The class of each format, and the function that returns a SciPy matrix, or an array of another library, as a container.
FORMATS: dict[str, type[Any]] = {}
CONVERTERS: list[Callable[[Any], Any]] = []


@dataclass(frozen=True)
class KnownPattern:
    """A pattern that is known while tracing. It has no leaves: it is a part of the signature of a function."""

    indices: IndexArrays = field(metadata={"static": True})


# `shape` is a field without a default, so that the class has no attribute `shape`: the class is a container of leaves.
@dataclass(frozen=True, eq=False, repr=False)
class SparseArray:
    """A matrix that stores some of its entries. It is a pytree with the leaf `data`, and those of a dynamic pattern.

    Attributes:
        data: The stored numbers, a tensor or an array.
        pattern: The positions: a `KnownPattern`, or a tuple of tensors.
        shape: The numbers of rows and columns.
    """

    format: ClassVar[str] = ""
    __array_ufunc__: ClassVar[None] = None  # operators of NumPy's arrays leave the operation to this class
    precedes_tensors: ClassVar[bool] = True  # and so do those of tensors

    data: Any
    pattern: Any
    shape: tuple[int, int] = field(metadata={"static": True})

    def __init_subclass__(cls) -> None:
        FORMATS.setdefault(cls.format, cls)

    # --- formats implement --------------------------------------------------------------------------

    def entries(self) -> Entries:
        """Return the entries, with duplicates, in the order of `data`."""
        raise NotImplementedError

    @classmethod
    def of_entries(cls, entries: Entries) -> Any:
        """Return a matrix of this format. Entries at the same position are added if the pattern is known."""
        raise NotImplementedError

    def times(self, b: Builder, x: Tensor) -> Tensor:
        """Return the product with a vector or a matrix of a fitting number of rows."""
        raise NotImplementedError

    @property
    def T(self) -> Any:
        """The transpose."""
        raise NotImplementedError

    # --- attributes ---------------------------------------------------------------------------------

    @property
    def arrays(self) -> tuple[Any, ...]:
        """The arrays or tensors of the pattern."""
        return self.pattern.indices.arrays if isinstance(self.pattern, KnownPattern) else self.pattern

    @property
    def is_known(self) -> bool:
        """Whether the pattern is known while tracing."""
        return isinstance(self.pattern, KnownPattern)

    @property
    def dtype(self) -> DType:
        """The dtype of the stored numbers."""
        return dtype_of(self.data)

    @property
    def ndim(self) -> int:
        """The number of axes: 2."""
        return 2

    @property
    def nnz(self) -> Any:
        """The number of stored entries, zeros and duplicates included."""
        return int(np.prod([int(d) for d in self.data.shape]))

    def __repr__(self) -> str:
        kind = "" if self.is_known else ", a dynamic pattern"
        return f"<{type(self).__name__} {self.shape[0]}x{self.shape[1]} {self.dtype.name}, {self.nnz} entries{kind}>"

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        known = [n for n in dir(type(self)) if n[0] != "_"]
        raise answers().attribute_problem("a sparse matrix", name, "sparse", known)

    @located
    def with_data(self: Self, data: Any) -> Self:
        """Return a matrix with the same pattern and other numbers.

        Raises:
            ShapeError: They have another shape.
        """
        data = numbers(data, "data")
        if tuple(data.shape) != tuple(self.data.shape):
            raise ShapeError(f"data must have the shape {_dims(self.data)}, got {_dims(data)}")
        return replace(self, data=data)

    def conj(self: Self) -> Self:
        """Return the complex conjugate."""
        return replace(self, data=conjugated(self.data))

    # --- conversions --------------------------------------------------------------------------------

    @located
    def todense(self) -> Any:
        """Return the matrix as a tensor `[M, N]`; as an array if data and pattern are arrays."""
        return self.entries().dense()

    toarray = todense

    def tocoo(self) -> Any:
        """Return the matrix as a `coo_array`."""
        return FORMATS["coo"].of_entries(self.entries())

    def tocsr(self) -> Any:
        """Return the matrix as a `csr_array`."""
        return FORMATS["csr"].of_entries(self.entries())

    def tocsc(self) -> Any:
        """Return the matrix as a `csc_array`."""
        return FORMATS["csc"].of_entries(self.entries())

    @located
    def tobsr(self, blocksize: tuple[int, int] = (1, 1)) -> Any:
        """Return the matrix as a `bsr_array` with blocks of a size.

        Raises:
            Error: The blocks do not divide the matrix, or the pattern is not known.
        """
        return FORMATS["bsr"].of_blocks(self.entries(), blocksize)

    @located
    def asformat(self, format: str) -> Any:
        """Return the matrix in a format: coo, csr, csc or bsr."""
        if format not in FORMATS:
            raise Error(f"format is one of coo, csr, csc and bsr, got {format!r:.40}")
        return self if format == self.format else getattr(self, f"to{format}")()

    # --- sums and diagonals -------------------------------------------------------------------------

    @located
    def diagonal(self, k: int = 0) -> Any:
        """Return the `k`-th diagonal, where entries that are not stored are 0."""
        entries, (rows, columns) = self.entries(), self.shape
        size = min(rows + min(k, 0), columns - max(k, 0))
        if size < 0:
            raise ShapeError(f"diagonal {k} is outside of a matrix {rows}x{columns}")
        if entries.is_known:
            entries = entries.chosen(entries.col.astype(np.int64) - entries.row == k)

        def added(b: Builder) -> Tensor:
            data, row, col = (lift(b, v) for v in (entries.data, entries.row, entries.col))
            if 0 in (size, *data.shape.dims):
                return b.zeros((size,), dtype=data.dtype)
            place = row if k >= 0 else col
            if not entries.is_known:  # -1 is dropped
                is_there = b.logical_and(lift(b, inside(entries)), b.compare("eq", col - row, k))
                place = b.where(is_there, place, b.full_like(place, -1))
            return b.scatter_add(data, place, size=size)

        return computed([entries.data, entries.row, entries.col], added)

    @located
    def sum(self, axis: int | None = None) -> Any:
        """Return the sum of all entries, or of each column (`axis=0`) or row (`axis=1`)."""
        if axis not in (None, 0, 1, -1, -2):
            raise Error(f"axis is None, 0 or 1, got {axis!r:.40}")
        if axis is None and self.is_known:
            return computed([self.data], lambda b: b.sum(lift(b, self.data)))
        matrix = self.T if axis in (0, -2) else self

        def summed(b: Builder) -> Tensor:
            totals = matrix @ b.ones((matrix.shape[1],), dtype=self.dtype)
            return b.sum(totals) if axis is None else totals

        return computed([self.data, *self.arrays], summed)

    # --- arithmetic ---------------------------------------------------------------------------------

    def __neg__(self: Self) -> Self:
        return replace(self, data=-self.data)

    def __pos__(self: Self) -> Self:
        return self

    def __abs__(self: Self) -> Self:
        return replace(self, data=abs(self.data))

    @located
    def multiply(self, other: Any) -> Any:
        """Return the elementwise product with a number, a dense matrix, row or column, or another sparse matrix."""
        other = as_container(other)
        if isinstance(other, SparseArray):
            return _intersection(self, other)
        if _is_scalar(other):
            return replace(self, data=_binary("mul", self.data, other))
        return _at_entries(self, other)

    def __mul__(self, other: Any) -> Any:
        return self.multiply(other)

    __rmul__ = __mul__

    @located
    def __truediv__(self, other: Any) -> Any:
        if not _is_scalar(other):
            raise Error("a sparse matrix can be divided by a number only", hint="A.multiply(1 / x), or A.todense() / x")
        return replace(self, data=_binary("div", self.data, other))

    def __add__(self, other: Any) -> Any:
        return _added(self, other, "+")

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return _added(self, -as_container(other), "-")

    def __rsub__(self, other: Any) -> Any:
        return _added(-self, other, "-")

    def __matmul__(self, other: Any) -> Any:
        other = as_container(other)
        return sparse_product(self, other) if isinstance(other, SparseArray) else dense_product(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        other = as_container(other)
        return sparse_product(other, self) if isinstance(other, SparseArray) else product_from_left(other, self)

    def dot(self, other: Any) -> Any:
        """Return `self @ other`."""
        return self @ other

    @located
    def __getitem__(self, index: object) -> NoReturn:
        raise Error("a sparse matrix has no items", hint="A.todense()[i] is a row, A @ x a product")

    @located
    def __iter__(self) -> NoReturn:
        raise Error("a sparse matrix has no items", hint="A.todense() has rows, A.shape[0] is their number")

    __len__ = __iter__

    @located
    def __bool__(self) -> NoReturn:
        raise Error("a sparse matrix is neither true nor false", hint="A.nnz is the number of entries")


def _dims(value: Any) -> tuple[Any, ...]:
    return tuple(value.shape.dims if isinstance(value, Tensor) else value.shape)


def _is_scalar(value: Any) -> bool:
    return isinstance(value, (*Scalar, np.number)) or (hasattr(value, "shape") and len(_dims(value)) == 0)


def as_container(value: Any) -> Any:
    """Return a SciPy matrix or a BCOO array as a container; other values unchanged."""
    if isinstance(value, (SparseArray, Tensor, np.ndarray)):
        return value
    for convert in CONVERTERS:
        value = convert(value)
    return value


@located
def container(value: Any, name: str = "A") -> Any:
    """Return a container, SciPy's or ours, or a dense array as a `csr_array` of its nonzeros.

    Raises:
        Error: It is something else.
    """
    found = as_container(value)
    if isinstance(found, SparseArray):
        return found
    if isinstance(found, Tensor):
        hint = "rlx.sparse.from_dense(x, pattern=A) takes the entries of a tensor at known positions"
        raise Error(f"{name} must be a sparse matrix, got a tensor {found.shape}", hint=hint)
    array = numbers(found, name)
    if array.ndim != 2:
        raise ShapeError(f"{name} must be a matrix, got an array with {array.ndim} axes")
    row, col = np.nonzero(array)
    return FORMATS["csr"].of_entries(Entries(array[row, col], narrow(row), narrow(col), array.shape))


def _binary(kind: str, lhs: Any, rhs: Any) -> Any:
    if not is_tensor(lhs) and not is_tensor(rhs):
        return lhs * rhs if kind == "mul" else lhs / rhs
    return computed([lhs, rhs], lambda b: b.binary(kind, lhs, rhs))


@located
def _added(a: SparseArray, other: Any, sign: str) -> Any:
    other = as_container(other)
    if not isinstance(other, SparseArray):
        if _is_scalar(other):
            raise Error(f"{sign} a number would change all entries", hint=f"A.todense() {sign} x is a dense matrix")
        return computed([a.data, *a.arrays, other], lambda b: lift(b, other) + lift(b, a.todense()))
    _check_equal(a, other)
    is_same = (
        type(a) is type(other) and a.is_known and a.pattern == other.pattern and _dims(a.data) == _dims(other.data)
    )
    if is_same:
        if is_tensor(a.data) or is_tensor(other.data):
            return replace(a, data=computed([a.data, other.data], lambda b: b.add(a.data, other.data)))
        return replace(a, data=a.data + other.data)
    entries = joined([a.entries(), other.entries()], a.shape)
    if not entries.is_known:
        return FORMATS["coo"].of_entries(entries)
    return FORMATS["csc" if a.format == other.format == "csc" else "csr"].of_entries(entries.merged())


def _check_equal(a: SparseArray, b: SparseArray) -> None:
    if a.shape != b.shape:
        raise ShapeError(f"the matrices have different shapes: {a.shape} and {b.shape}")


def _need_known(*matrices: SparseArray, what: str, hint: str) -> None:
    if not all(m.is_known for m in matrices):
        raise Error(f"{what} needs patterns that are known while tracing, not tensors", hint=hint)


def _intersection(a: SparseArray, b: SparseArray) -> Any:
    _check_equal(a, b)
    _need_known(a, b, what="the elementwise product", hint="A.multiply(B.todense()) takes any pattern")
    left, right = a.entries().merged(), b.entries().merged()
    keys = [m.row.astype(np.int64) * max(a.shape[1], 1) + m.col for m in (left, right)]
    _, i, j = np.intersect1d(*keys, assume_unique=True, return_indices=True)
    chosen = left.chosen(narrow(i))
    data = _binary("mul", chosen.data, take(right.data, narrow(j)))
    return FORMATS[a.format if a.format in ("csc", "coo") else "csr"].of_entries(replace(chosen, data=data))


def _at_entries(a: SparseArray, other: Any) -> Any:
    """Return the product of each entry with that of a dense matrix, row or column at its position."""
    other, entries = numbers(other, "the operand"), a.entries()
    dims = (1,) * (2 - len(_dims(other))) + _dims(other)
    if len(dims) != 2 or any(d not in (1, s) for d, s in zip(dims, a.shape, strict=True)):
        raise ShapeError(f"multiply: an operand of shape {_dims(other)} does not broadcast to {a.shape}")

    def scaled(b: Builder) -> Tensor:
        dense = b.reshape(lift(b, other), dims)
        if 0 in (*_dims(entries.data), *dims):
            return lift(b, entries.data)
        places = [lift(b, i) * int(d > 1) for i, d in zip((entries.row, entries.col), dims, strict=True)]
        return b.binary("mul", lift(b, entries.data), b.gather_nd(dense, b.stack(places, axis=-1)))

    data = computed([a.data, *a.arrays, other], scaled)
    if a.format == "bsr":
        return FORMATS["csr"].of_entries(replace(entries, data=data))
    return replace(a, data=data)


# --- products ---------------------------------------------------------------------------------------


@located
def dense_product(a: SparseArray, x: Any) -> Any:
    """Return `A @ x` for a vector or a matrix."""
    x = numbers(x, "the right operand")
    _check_dense(a, x, a.shape[1], 0, f"a matrix {a.shape[0]}x{a.shape[1]} @ {_dims(x)}")
    return computed([a.data, *a.arrays, x], lambda b: a.times(b, lift(b, x)))


@located
def product_from_left(x: Any, a: SparseArray) -> Any:
    """Return `x @ A` for a vector or a matrix."""
    x = numbers(x, "the left operand")
    _check_dense(a, x, a.shape[0], -1, f"{_dims(x)} @ a matrix {a.shape[0]}x{a.shape[1]}")

    def multiplied(b: Builder) -> Tensor:
        dense = lift(b, x)
        y = a.T.times(b, b.transpose(dense) if dense.rank == 2 else dense)
        return b.transpose(y) if dense.rank == 2 else y

    return computed([a.data, *a.arrays, x], multiplied)


def _check_dense(a: SparseArray, x: Any, size: int, axis: int, what: str) -> None:
    dims = _dims(x)
    if len(dims) not in (1, 2):
        hint = "A.multiply(x) is elementwise; rlx.vmap multiplies a batch"
        raise ShapeError(f"{what}: expected a vector or a matrix", hint=hint)
    if dims[axis] != size:
        raise ShapeError(f"{what}: {size} numbers were expected along the shared axis, got {dims[axis]}")


@located
def sparse_product(a: SparseArray, b: SparseArray) -> Any:
    """Return the product of two sparse matrices, whose patterns are known, as a `csr_array`."""
    check_inner(a, b)
    hint = "rlx.sparse.matmul(A, B, capacity=n) multiplies dynamic ones"
    _need_known(a, b, what="A @ B", hint=hint)
    left, right = a.entries(), b.entries()
    data_b, col_b, indptr, _ = right.sorted_rows()
    first, second = expansion(left, indptr)
    key = left.row[first].astype(np.int64) * max(b.shape[1], 1) + col_b[second]
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    starts = (
        np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])) if key.size else np.zeros(0, np.int64)
    )
    offsets, first, second = narrow(np.append(starts, key.size)), narrow(first[order]), narrow(second[order])
    shape = (a.shape[0], b.shape[1])

    def multiplied(g: Builder) -> Tensor:
        factors, others = take(lift(g, left.data), first), lift(g, data_b)
        if not key.size:
            return g.zeros((0,), dtype=g.add(g.zeros((), dtype=factors.dtype), g.zeros((), dtype=others.dtype)).dtype)
        return g.csr_matmul(factors, second, offsets, others, width=longest(offsets))

    data = computed([left.data, data_b], multiplied)
    kept = ordered[starts]
    row, col = kept // max(shape[1], 1), kept % max(shape[1], 1)
    return FORMATS["csr"].of_entries(Entries(data, narrow(row), narrow(col), shape))


def check_inner(a: SparseArray, b: SparseArray) -> None:
    """Check that two matrices can be multiplied."""
    if a.shape[1] != b.shape[0]:
        raise ShapeError(f"{a.shape} @ {b.shape}: {a.shape[1]} columns against {b.shape[0]} rows")

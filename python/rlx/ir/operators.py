"""Python operators and indexing of tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rlx.ir.dim import Dim, DimExpr
from rlx.ir.errors import ShapeError

if TYPE_CHECKING:
    from rlx.ir.builder import Tensor


class Operators:
    """Mixed into `Tensor`: every operator is one builder call."""

    __slots__ = ()
    __hash__ = object.__hash__
    __array_ufunc__ = None  # np_array + tensor must reach __radd__

    def _binary(self: Any, kind: str, other: Any, reverse: bool = False) -> Any:
        return self.builder.binary(kind, other, self) if reverse else self.builder.binary(kind, self, other)

    def __add__(self, other: Any) -> Any:
        return self._binary("add", other)

    def __radd__(self, other: Any) -> Any:
        return self._binary("add", other, True)

    def __sub__(self, other: Any) -> Any:
        return self._binary("sub", other)

    def __rsub__(self, other: Any) -> Any:
        return self._binary("sub", other, True)

    def __mul__(self, other: Any) -> Any:
        return self._binary("mul", other)

    def __rmul__(self, other: Any) -> Any:
        return self._binary("mul", other, True)

    def __truediv__(self, other: Any) -> Any:
        return self._binary("div", other)

    def __rtruediv__(self, other: Any) -> Any:
        return self._binary("div", other, True)

    def __pow__(self, other: Any) -> Any:
        return self._binary("pow", other)

    def __rpow__(self, other: Any) -> Any:
        return self._binary("pow", other, True)

    def __matmul__(self: Any, other: Any) -> Any:
        return self.builder.matmul(self, other)

    def __rmatmul__(self: Any, other: Any) -> Any:
        return self.builder.matmul(other, self)

    def __and__(self: Any, other: Any) -> Any:
        return self._logical("min", other)

    __rand__ = __and__

    def __or__(self: Any, other: Any) -> Any:
        return self._logical("max", other)

    __ror__ = __or__

    def __invert__(self: Any) -> Any:
        if not self.dtype.is_bool:
            raise self.builder.problem_at(f"~ takes a bool tensor, not {self.dtype.name}")
        return self.builder.compare("eq", self, False)

    def _logical(self: Any, kind: str, other: Any) -> Any:
        if not self.dtype.is_bool:
            raise self.builder.problem_at(f"& and | take bool tensors, not {self.dtype.name}")
        return self.builder.binary(kind, self, other)

    def __neg__(self: Any) -> Any:
        return self.builder.neg(self)

    def __pos__(self: Any) -> Any:
        return self

    def __abs__(self: Any) -> Any:
        return self.builder.abs(self)

    def __eq__(self: Any, other: object) -> Any:
        return self.builder.compare("eq", self, other)

    def __ne__(self: Any, other: object) -> Any:
        return self.builder.compare("ne", self, other)

    def __lt__(self: Any, other: Any) -> Any:
        return self.builder.compare("lt", self, other)

    def __le__(self: Any, other: Any) -> Any:
        return self.builder.compare("le", self, other)

    def __gt__(self: Any, other: Any) -> Any:
        return self.builder.compare("gt", self, other)

    def __ge__(self: Any, other: Any) -> Any:
        return self.builder.compare("ge", self, other)

    def __getitem__(self: Any, index: Any) -> Any:
        try:
            return index_tensor(self, index if isinstance(index, tuple) else (index,))
        except ShapeError as problem:
            if problem.location is not None:
                raise
            raise self.builder.problem_at(f"indexing {self.shape}: {problem.message}") from None

    @property
    def T(self: Any) -> Any:
        """All axes reversed, as in NumPy."""
        return self.builder.transpose(self)

    def reshape(self: Any, *shape: Any) -> Any:
        """The same elements under another shape."""
        return self.builder.reshape(
            self, shape[0] if len(shape) == 1 and not isinstance(shape[0], (int, str)) else shape
        )

    def astype(self: Any, dtype: Any) -> Any:
        """Conversion to another dtype."""
        return self.builder.cast(self, dtype)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Operators)


def index_tensor(x: Tensor, index: tuple[Any, ...]) -> Tensor:
    """`x[index]`: integers, slices, None, Ellipsis, and at most one integer array or tensor."""
    g: Any = x.builder
    if any(isinstance(i, (bool, np.bool_)) for i in index):
        raise ShapeError("indexing with booleans is not supported; use where")
    consumed = sum(i is not None and i is not Ellipsis for i in index)
    if consumed > x.rank:
        raise ShapeError(f"{consumed} indices for a tensor of rank {x.rank}")
    ellipsis = [n for n, i in enumerate(index) if i is Ellipsis]
    if len(ellipsis) > 1:
        raise ShapeError("an index holds at most one ellipsis")
    position = ellipsis[0] if ellipsis else len(index)
    fill = (slice(None),) * (x.rank - consumed)
    full = index[:position] + fill + index[position + bool(ellipsis) :]

    dims = x.shape.dims
    starts: list[Dim] = [0] * x.rank
    limits: list[Dim] = list(dims)
    strides = [1] * x.rank
    backwards: dict[int, int] = {}  # the axes that are run through from the end, and in which steps
    gathers: list[tuple[int, Any]] = []
    shape: list[Dim | None] = []  # None marks an axis that a tensor indexes
    axis = 0
    for entry in full:
        if entry is None:
            shape.append(1)
            continue
        size = dims[axis]
        if isinstance(entry, slice):
            starts[axis], limits[axis], step = _slice_bounds(entry, size)
            shape.append((limits[axis] - starts[axis] + abs(step) - 1) // abs(step))
            if step < 0:
                backwards[axis] = -step
            else:
                strides[axis] = step
        elif isinstance(entry, (int, np.integer, DimExpr)):
            starts[axis] = _position(entry, size)
            limits[axis] = starts[axis] + 1
        else:
            gathers.append((axis, entry))
            shape.append(None)
        axis += 1
    if len(gathers) > 1:
        raise ShapeError("at most one axis may be indexed by a tensor; use gather_batched or reshape for more")
    result: Any = x
    if tuple(starts) != (0,) * x.rank or tuple(limits) != dims or any(s != 1 for s in strides):
        result = g.slice(result, starts, limits, strides)
    if backwards:
        result = g.reverse(result, tuple(backwards))
        if any(step != 1 for step in backwards.values()):
            steps = [backwards.get(i, 1) for i in range(x.rank)]
            result = g.slice(result, (0,) * x.rank, result.shape.dims, steps)
    indices: Any = None
    if gathers:
        axis, indices = gathers[0]
        indices = indices if _is_tensor(indices) else g.constant(np.asarray(indices))
        result = g.gather(result, indices, axis=axis)
    target = [d for s in shape for d in (indices.shape.dims if s is None else (s,))]
    return result if list(result.shape.dims) == target else g.reshape(result, target)


def _position(entry: Any, size: Dim) -> Dim:
    entry = entry if isinstance(entry, DimExpr) else int(entry)
    if type(entry) is int and entry < 0:
        entry = size + entry
    if type(entry) is int and (entry < 0 or (type(size) is int and entry >= size)):
        raise ShapeError(f"index {entry} is out of range for an axis of size {size}")
    return entry


def _slice_bounds(entry: slice, size: Dim) -> tuple[Dim, Dim, int]:
    """Where the range of a slice starts and ends, read forwards, and the step; a negative one begins at its end.

    Raises:
        ShapeError: The step is 0.
    """
    step = 1 if entry.step is None else int(entry.step)
    if step == 0:
        raise ShapeError("a slice step must not be 0")
    if type(size) is int and all(isinstance(e, (int, np.integer, type(None))) for e in (entry.start, entry.stop)):
        start, stop, step = entry.indices(size)
        if step > 0:
            return start, max(start, stop), step
        return min(start, stop) + 1, start + 1, step

    def bound(value: Any, default: Dim) -> Dim:
        if value is None:
            return default
        value = value if isinstance(value, DimExpr) else int(value)
        return size + value if type(value) is int and value < 0 else value

    if step > 0:
        return bound(entry.start, 0), bound(entry.stop, size), step
    first = 0 if entry.stop is None else bound(entry.stop, 0) + 1
    return first, bound(entry.start, size - 1) + 1, step

"""`Shape`: the dimensions and dtype of a tensor, and its MLIR type."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Set
from typing import TYPE_CHECKING

import numpy as np

from rlx.ir.dims.dim import LARGEST, Dim, DimExpr, dim, product
from rlx.ir.dtype import DType, dtype, f32
from rlx.ir.dtype import from_mlir as dtype_from_mlir
from rlx.support.errors import ShapeError
from rlx.support.guards import is_sequence

if TYPE_CHECKING:  # code that runs programs uses shapes, possibly without MLIR; therefore MLIR is imported on first use
    from rlx import mlir

DimLike = int | str | DimExpr
ShapeLike = Iterable[DimLike]  # a `Shape` is iterable too
LARGEST_RANK = 64  # the limit of NumPy


class Shape(tuple[Dim, ...]):
    """Dimensions and dtype of a tensor.

    Args:
        dims: Sizes: integers, symbol names, or expressions in symbols such as `"2*seq"`.
        dtype: Element type; anything that `rlx.dtype` accepts.

    A shape is a tuple of its dimensions: it has a length, can be indexed and unpacked, and equals a tuple of the same
    dimensions. Two shapes are equal if their dtypes are equal as well.
    """

    dims: tuple[Dim, ...]
    dtype: DType

    def __new__(cls, dims: ShapeLike, dtype: object = None) -> Shape:
        kind = f32 if dtype is None else as_dtype(dtype)
        if isinstance(dims, Shape):
            sizes, kind = dims.dims, dims.dtype if dtype is None else kind
        else:
            if isinstance(dims, (int, np.integer, str, DimExpr)):
                dims = (dims,)
            elif not _has_order(dims):
                raise ShapeError(
                    f"a shape is a sequence of sizes, not {dims!r:.60} of type {type(dims).__name__}",
                    hint='give ints and symbol names: (2, "seq", 64), or () for a scalar',
                )
            sizes = tuple(d if type(d) is int and 0 <= d <= LARGEST else dim(d) for d in dims)
        if len(sizes) > LARGEST_RANK:
            raise ShapeError(f"a tensor of rank {len(sizes)}; at most {LARGEST_RANK} dimensions are allowed")
        self = super().__new__(cls, sizes)
        self.dims, self.dtype, self._hash, self._type = sizes, kind, hash(sizes), None
        return self

    _hash: int
    _type: mlir.Type | None

    def __getnewargs__(self) -> tuple[object, ...]:
        return self.dims, self.dtype

    @property
    def rank(self) -> int:
        return len(self.dims)

    @property
    def num_elements(self) -> Dim:
        """The product of the dimensions: an int, or an expression if a dimension is symbolic."""
        return product(self.dims)

    @property
    def is_static(self) -> bool:
        return all(type(d) is int for d in self.dims)

    @property
    def symbols(self) -> frozenset[str]:
        """Names of the symbols that occur in the dimensions."""
        return frozenset[str]().union(*(d.symbols for d in self.dims if isinstance(d, DimExpr)))

    @property
    def size_bytes(self) -> Dim:
        return (
            (self.num_elements * self.dtype.bits + 7) // 8
            if self.dtype.packed
            else self.num_elements * self.dtype.itemsize
        )

    @property
    def is_addressable(self) -> bool:
        """Whether an array may have the shape: its non-zero static sizes and the element size multiply to a valid i64.

        NumPy, XLA and MLIR's layouts multiply all sizes, so an axis of size 0 does not make large ones valid.
        """
        static = [d for d in self.dims if type(d) is int and d]
        return math.prod(static) * self.dtype.itemsize <= LARGEST

    def with_dims(self, dims: Iterable[DimLike]) -> Shape:
        """Return the same dtype with other dimensions."""
        return Shape(dims, self.dtype)

    def with_dtype(self, dtype: object) -> Shape:
        """Return the same dimensions with another dtype."""
        return Shape(self.dims, dtype)

    def bind(self, bindings: Mapping[str, DimLike]) -> Shape:
        """Return the shape with symbols replaced by sizes. Symbols not in `bindings` stay."""
        if self.is_static:
            return self
        values = {name: dim(value) for name, value in bindings.items()}
        return self.with_dims(d.substitute(values) if isinstance(d, DimExpr) else d for d in self.dims)

    @property
    def static(self) -> tuple[int, ...]:
        """The dimensions as integers.

        Raises:
            ShapeError: A dimension is symbolic.
        """
        if not self.is_static:
            raise ShapeError(f"{self} has a symbolic dimension where static sizes are needed")
        return self.dims  # type: ignore[return-value]

    @property
    def type(self) -> mlir.Type:
        """The MLIR type: `tensor<?x4xf32, #rlx.dims<["batch"]>>`."""
        if self._type is None:
            self._type = _mlir_type(self)
        return self._type

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Shape):
            return self.dims == other.dims and self.dtype is other.dtype
        if is_sequence(other):
            return len(other) == len(self.dims) and all(
                d == (dim(o) if isinstance(o, str) else o) for d, o in zip(self.dims, other, strict=True)
            )
        return NotImplemented

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[object, ...]:
        return Shape, (self.dims, self.dtype)  # the type and the hash are valid only in this process

    def __str__(self) -> str:
        return f"{self.dtype.name}[{', '.join(map(str, self.dims))}]"

    def __repr__(self) -> str:
        dims = ", ".join(str(d) if type(d) is int else repr(str(d)) for d in self.dims)
        return f"Shape(({dims}{',' if len(self.dims) == 1 else ''}), {self.dtype.name})"


def not_addressable(shape: Shape, what: str = "", location: str | None = None) -> ShapeError:
    """Return the error for a shape that is too large to address.

    Args:
        shape: The shape.
        what: The tensor, for the message.
        location: The location of the tensor.
    """
    counted = "its sizes other than 0 give" if 0 in shape.dims else "it has"
    message = f"{what}{shape} cannot be addressed: {counted} more than {LARGEST} bytes"
    return ShapeError(message, location=location, hint="give it smaller sizes")


def _has_order(dims: object) -> bool:
    if getattr(dims, "ndim", 1) == 0:  # a NumPy array without axes claims to be iterable
        return False
    return isinstance(dims, Iterable) and not isinstance(dims, (bytes, bytearray, Mapping, Set))


def as_dtype(value: object) -> DType:
    return value if isinstance(value, DType) else dtype(value)


# The context has a unique object for equal types, so both directions are dictionary look-ups.
_types: dict[tuple[tuple[Dim, ...], DType], mlir.Type] = {}
_shapes: dict[mlir.Type, Shape] = {}


def element_type(dtype: DType) -> mlir.Type:
    """Return the MLIR element type of a dtype."""
    from rlx import mlir

    return mlir.ir.Type.parse(dtype.mlir, context=mlir.context())


def _mlir_type(shape: Shape) -> mlir.Type:
    from rlx import mlir

    key = (shape.dims, shape.dtype)
    type_ = _types.get(key)
    if type_ is None:
        ir, context = mlir.ir, mlir.context()
        dynamic = [d for d in shape.dims if type(d) is not int]
        encoding = None
        if dynamic:
            names = ", ".join(f'"{d}"' for d in dynamic)
            encoding = ir.Attribute.parse(f"#rlx.dims<[{names}]>", context=context)
        unknown = ir.ShapedType.get_dynamic_size()
        sizes = [d if type(d) is int else unknown for d in shape.dims]
        element = element_type(shape.dtype)
        type_ = ir.RankedTensorType.get(sizes, element, encoding, loc=ir.Location.unknown(context))
        _types[key] = type_
        _shapes[type_] = shape
    return type_


def shape_of_type(type_: mlir.Type) -> Shape:
    """Return the shape of an MLIR type.

    Raises:
        ShapeError: The type is not a ranked tensor of a dtype, or a dynamic dimension has no name.
    """
    shape = _shapes.get(type_)
    if shape is None:
        shape = _shapes[type_] = _read_type(type_)
    return shape


def shape_of(value: mlir.Value) -> Shape:
    """Return the shape of an MLIR value."""
    type_ = value.type
    shape = _shapes.get(type_)
    return shape if shape is not None else shape_of_type(type_)


def _read_type(type_: mlir.Type) -> Shape:
    from rlx.mlir import ir

    if not isinstance(type_, ir.RankedTensorType):
        raise ShapeError(f"expected a ranked tensor type, got {type_}")
    element = dtype_from_mlir(str(type_.element_type))
    encoding = type_.encoding
    names = [] if encoding is None else _encoded_dims(encoding, type_)
    sizes: list[Dim] = [-1 if type_.is_dynamic_dim(i) else type_.get_dim_size(i) for i in range(type_.rank)]
    if sizes.count(-1) != len(names):
        example = ", ".join(f'"n{i}"' for i in range(sizes.count(-1)))
        raise ShapeError(
            f"{type_} has {sizes.count(-1)} dynamic dimensions and names {len(names)} of them",
            hint=f"name each dynamic dimension, in order: #rlx.dims<[{example}]>",
        )
    remaining = iter(names)
    return Shape((next(remaining) if s == -1 else s for s in sizes), element)


def _encoded_dims(encoding: mlir.Attribute, type_: mlir.Type) -> list[Dim]:
    from rlx import mlir

    text = str(encoding)
    if not text.startswith("#rlx.dims<"):
        raise ShapeError(f"{type_}: the encoding of an rlx tensor is #rlx.dims<[…]>, not {text}")
    symbols = mlir.ir.DynamicAttr(encoding).params[0].maybe_downcast()  # the bindings return a generic Attribute
    if not isinstance(symbols, mlir.ir.ArrayAttr) or not all(isinstance(s, mlir.ir.StringAttr) for s in symbols):
        raise ShapeError(f"{type_}: #rlx.dims takes a list of strings")
    dims = [dim(s.value) for s in symbols]
    if any(type(d) is int for d in dims):
        raise ShapeError(f"{type_}: a constant size belongs into the type, not into #rlx.dims")
    return dims

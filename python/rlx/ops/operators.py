"""Python operators and indexing of tensors. Each is one builder call."""

# The methods are installed on `Tensor`: their `self` is one.
# pyright: reportGeneralTypeIssues=false

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from rlx.ir.calls import with_call_errors
from rlx.ir.dims.dim import Dim
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.typing import DTypeLike, ShapeLike, TensorLike
from rlx.ir.location import describe
from rlx.ops import manual, numpy_functions
from rlx.ops.indexing import index_tensor
from rlx.ops.update import At
from rlx.parts import ARRAY_API
from rlx.support.answers import answers
from rlx.support.errors import Error, IndexShapeError, ShapeError

_OF_EVERY_CLASS = frozenset(
    {"__module__", "__qualname__", "__doc__", "__slots__", "__firstlineno__", "__static_attributes__"}
)


def install(methods: Mapping[str, Callable[..., Any]]) -> None:
    """Install the operators on `Tensor`, and the builder methods whose first argument is a tensor."""
    for name in methods_of_tensors(methods):
        setattr(Tensor, name, _method(name, methods[name]))
    for name, member in vars(Operators).items():
        if name not in _OF_EVERY_CLASS:
            setattr(Tensor, name, member)


def methods_of_tensors(methods: Mapping[str, Callable[..., Any]]) -> list[str]:
    """Return the builder methods that are also methods of tensors: `g.softmax(x, axis=-1)` is `x.softmax(axis=-1)`."""
    first = {name: list(inspect.signature(method).parameters)[1:2] for name, method in methods.items()}
    return sorted(n for n, parameters in first.items() if parameters in (["x"], ["lhs"]) and not hasattr(Operators, n))


def _method(name: str, of_builder: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.builder, name)(self, *args, **kwargs)

    parameters = list(inspect.signature(of_builder).parameters.values())
    method.__name__, method.__qualname__ = name, f"Tensor.{name}"
    method.__doc__ = manual.of_tensor(of_builder.__doc__ or "", parameters[1].name)
    returned = inspect.signature(of_builder).return_annotation
    signature = inspect.Signature([parameters[0], *parameters[2:]], return_annotation=returned)
    method.__signature__ = signature  # pyright: ignore[reportFunctionMemberAccess]
    return method


def _precedes(other: object) -> bool:
    """Return whether the other operand, such as a sparse matrix, implements operators with tensors itself."""
    return getattr(type(other), "precedes_tensors", False) is True


_MOST_SLICES = 1 << 16  # in an iteration over a tensor


class Operators:
    """The methods that `install` adds to `Tensor`. The class is never instantiated."""

    __slots__ = ()
    __hash__ = object.__hash__

    def __array_ufunc__(self: Tensor, ufunc: np.ufunc, method: str, *inputs: object, **kwargs: Any) -> Any:
        return numpy_functions.ufunc(self.builder, ufunc, method, inputs, kwargs)

    def __array_function__(
        self: Tensor, function: Callable[..., Any], types: object, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        return numpy_functions.function(self.builder, function, args, kwargs)

    @property
    def device(self) -> str:
        """The only device of the array API. A graph has no device; `rlx.Session(device)` compiles it for one."""
        return "graph"

    @with_call_errors
    def to_device(self: Tensor, device: str, /, *, stream: object = None) -> Tensor:
        """The tensor itself. There is only one device, see `device`."""
        if device != self.device:
            raise ValueError(f"a graph belongs to no device; rlx.Session({device!r}) compiles it for one")
        return self

    def __array_namespace__(self: Tensor, *, api_version: str | None = None) -> ModuleType:
        array_api = importlib.import_module(ARRAY_API)
        if api_version not in (None, "2021.12", "2022.12", "2023.12", array_api.__array_api_version__):
            raise ValueError(f"there is no version {api_version!r} of the array API here")
        return array_api

    def _binary(self: Tensor, kind: str, other: TensorLike, reverse: bool = False) -> Tensor:
        if _precedes(other):
            return NotImplemented
        return self.builder.binary(kind, other, self) if reverse else self.builder.binary(kind, self, other)

    def __add__(self: Tensor, other: TensorLike) -> Tensor:
        return self._binary("add", other)

    def __radd__(self: Tensor, other: TensorLike) -> Tensor:
        return self._binary("add", other, True)

    def __sub__(self: Tensor, other: TensorLike) -> Tensor:
        return self._binary("sub", other)

    def __rsub__(self: Tensor, other: TensorLike) -> Tensor:
        return self._binary("sub", other, True)

    def __mul__(self: Tensor, other: TensorLike) -> Tensor:
        return self._binary("mul", other)

    def __rmul__(self: Tensor, other: TensorLike) -> Tensor:
        return self._binary("mul", other, True)

    def __truediv__(self: Tensor, other: TensorLike) -> Tensor:
        return self._binary("div", other)

    def __rtruediv__(self: Tensor, other: TensorLike) -> Tensor:
        return self._binary("div", other, True)

    def __pow__(self: Tensor, other: TensorLike) -> Tensor:
        return self._binary("pow", other)

    def __rpow__(self: Tensor, other: TensorLike) -> Tensor:
        return self._binary("pow", other, True)

    def __matmul__(self: Tensor, other: TensorLike) -> Tensor:
        if _precedes(other):
            return NotImplemented
        return self.builder.matmul(self, other)

    def __rmatmul__(self: Tensor, other: TensorLike) -> Tensor:
        return self.builder.matmul(other, self)

    def __floordiv__(self: Tensor, other: TensorLike) -> Tensor:
        return self.builder.floor_divide(self, other)

    def __rfloordiv__(self: Tensor, other: TensorLike) -> Tensor:
        return self.builder.floor_divide(other, self)

    def __mod__(self: Tensor, other: TensorLike) -> Tensor:
        return self.builder.remainder(self, other)

    def __rmod__(self: Tensor, other: TensorLike) -> Tensor:
        return self.builder.remainder(other, self)

    def __divmod__(self: Tensor, other: TensorLike) -> tuple[Tensor, Tensor]:
        return self.builder.divmod(self, other)

    def __rdivmod__(self: Tensor, other: TensorLike) -> tuple[Tensor, Tensor]:
        return self.builder.divmod(other, self)

    def __and__(self: Tensor, other: TensorLike) -> Tensor:
        return self.builder.bitwise_and(self, other)

    __rand__ = __and__

    def __or__(self: Tensor, other: TensorLike) -> Tensor:
        return self.builder.bitwise_or(self, other)

    __ror__ = __or__

    def __xor__(self: Tensor, other: TensorLike) -> Tensor:
        return self.builder.bitwise_xor(self, other)

    __rxor__ = __xor__

    def __invert__(self: Tensor) -> Tensor:
        return self.builder.bitwise_not(self)

    def __lshift__(self: Tensor, other: TensorLike) -> Tensor:
        return self.builder.left_shift(self, other)

    def __rlshift__(self: Tensor, other: TensorLike) -> Tensor:
        return self.builder.left_shift(other, self)

    def __rshift__(self: Tensor, other: TensorLike) -> Tensor:
        return self.builder.right_shift(self, other)

    def __rrshift__(self: Tensor, other: TensorLike) -> Tensor:
        return self.builder.right_shift(other, self)

    def __neg__(self: Tensor) -> Tensor:
        return self.builder.neg(self)

    def __pos__(self: Tensor) -> Tensor:
        return self

    def __abs__(self: Tensor) -> Tensor:
        return self.builder.abs(self)

    def __eq__(self: Tensor, other: object) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.builder.compare("eq", self, other)

    def __ne__(self: Tensor, other: object) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.builder.compare("ne", self, other)

    def __lt__(self: Tensor, other: TensorLike) -> Tensor:
        return self.builder.compare("lt", self, other)

    def __le__(self: Tensor, other: TensorLike) -> Tensor:
        return self.builder.compare("le", self, other)

    def __gt__(self: Tensor, other: TensorLike) -> Tensor:
        return self.builder.compare("gt", self, other)

    def __ge__(self: Tensor, other: TensorLike) -> Tensor:
        return self.builder.compare("ge", self, other)

    def __len__(self: Tensor) -> int:
        size = self._leading("it has no length")
        if type(size) is not int:
            raise Error(
                f"{self!r} has no length that is known: its first axis has size {size}",
                location=describe(self.builder.location),
                hint="x.shape.dims[0] is the size as a symbol",
            )
        return size

    def __iter__(self: Tensor) -> Iterator[Tensor]:
        size = self._leading("it cannot be iterated over")
        if type(size) is not int:
            raise Error(
                f"{self!r} cannot be iterated over: its first axis has size {size}, which is not known",
                location=describe(self.builder.location),
                hint="use g.scan, or give the size",
            )
        if size > _MOST_SLICES:
            raise Error(
                f"{self!r} is not iterated over: that would be {size} slices, each an op of its own",
                location=describe(self.builder.location),
                hint="use g.scan, or an op on the whole tensor",
            )
        return iter([self[i] for i in range(size)])

    def _leading(self: Tensor, problem: str) -> Dim:
        if not self.rank:
            raise ShapeError(f"{self!r} is a scalar: {problem}", location=describe(self.builder.location))
        return self.shape.dims[0]

    def __getattr__(self: Tensor, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise answers().name_problem("a tensor", name, [n for n in dir(Tensor) if not n.startswith("_")])

    def __getitem__(self: Tensor, index: Any) -> Tensor:
        try:
            return index_tensor(self, index if isinstance(index, tuple) else (index,))  # pyright: ignore[reportUnknownArgumentType]
        except ShapeError as problem:
            if problem.location is not None:
                raise
            message, place = f"indexing {self.shape}: {problem.message}", describe(self.builder.location)
            raise IndexShapeError(message, location=place, hint=problem.hint) from None

    def __setitem__(self: Tensor, index: object, value: object) -> None:
        raise Error(
            "tensors are values and are never changed",
            location=describe(self.builder.location),
            hint="x = x.at[index].set(value) is a new one, and so are .add, .multiply, .min and .max; with a mask "
            "x = g.where(mask, value, x)",
        )

    @property
    def at(self: Tensor) -> At:
        """Functional updates: `x.at[index].set(values)`, `.add`, `.multiply`, `.min`, `.max`, `.divide`, `.apply`."""
        return At(self)

    @property
    def mT(self: Tensor) -> Tensor:
        """The tensor with its last two axes swapped, as in NumPy."""
        return self.builder.swapaxes(self, -1, -2)

    @property
    def real(self: Tensor) -> Tensor:
        """The real part; `x` itself if it is real."""
        return self.builder.real(self) if self.dtype.is_complex else self

    @property
    def imag(self: Tensor) -> Tensor:
        """The imaginary part; zeros if `x` is real."""
        return self.builder.imag(self) if self.dtype.is_complex else self.builder.zeros_like(self)

    @property
    def T(self: Tensor) -> Tensor:
        """The tensor with all axes reversed, as in NumPy."""
        return self.builder.transpose(self)

    @with_call_errors
    def reshape(self: Tensor, *shape: ShapeLike) -> Tensor:
        """Return the same elements in another shape."""
        return self.builder.reshape(
            self, shape[0] if len(shape) == 1 and not isinstance(shape[0], (int, str)) else shape
        )

    @with_call_errors
    def astype(self: Tensor, dtype: DTypeLike) -> Tensor:
        """Return the tensor converted to another dtype."""
        return self.builder.cast(self, dtype)

    @with_call_errors
    def expand(self: Tensor, *shape: ShapeLike) -> Tensor:
        """Return the tensor repeated along axes to another shape: `x.expand(2, 3)` or `x.expand((2, 3))`."""
        return self.builder.expand(
            self, shape[0] if len(shape) == 1 and not isinstance(shape[0], (int, str)) else shape
        )

    @with_call_errors
    def permute(self: Tensor, *axes: int | Sequence[int]) -> Tensor:
        """Return the tensor with its axes reordered: `x.permute(1, 0)` or `x.permute((1, 0))`."""
        return self.builder.transpose(self, axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes)

    @with_call_errors
    def split(self: Tensor, indices_or_sections: object, axis: int = 0) -> list[Tensor]:
        """`g.split` at given positions.

        A single integer is an error: it is the number of parts in NumPy, but their size in PyTorch.
        """
        if isinstance(indices_or_sections, (int, np.integer)):
            raise ShapeError(
                f"split: {indices_or_sections} is a number of parts in NumPy, and their size in PyTorch",
                location=describe(self.builder.location),
                hint="x.chunk(parts, axis), or g.split(x, [size, 2 * size], axis) at borders",
            )
        return self.builder.split(self, indices_or_sections, axis)

    def __round__(self: Tensor, digits: int | None = None) -> Tensor:
        return self.builder.round(self) if not digits else self.builder.round(self * 10.0**digits) / 10.0**digits

    @with_call_errors
    def transpose(self: Tensor, *axes: int | Sequence[int] | None) -> Tensor:
        """Return the tensor with its axes reordered, by default reversed: `x.transpose(1, 0)` or `x.transpose((1, 0))`."""
        if not axes or axes[0] is None:
            return self.builder.transpose(self)
        if len(axes) == 2 and (self.rank != 2 or axes in ((0, 1), (-2, -1))):
            said = "which changes nothing" if self.rank == 2 else "of which all have to be named"
            raise ShapeError(
                f"transpose: {len(axes)} axes for {self.shape}, {said}",
                location=describe(self.builder.location),
                hint=f"x.swapaxes({axes[0]}, {axes[1]}) exchanges two axes, as PyTorch's transpose",
            )
        return self.builder.transpose(self, axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes)

"""The builder and the tensors of `with rlx.eager():`, which evaluate op by op with the NumPy evaluators.

No op has a second implementation. This builder accepts the calls of any builder and checks them with the same
inference; where other builders emit an op, it evaluates the op's card at once. A region is traced once to infer the
shapes that it yields. When the op is evaluated, the function of the region is called on tensors with values, as many
times as the op requires.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx import mlir
from rlx.ir import dlpack
from rlx.ir.arrays import as_array
from rlx.ir.calls import with_call_errors
from rlx.ir.dtype import DType, dtype
from rlx.ir.fitting import as_array_of
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.current import current_builder, emitting_into
from rlx.ir.graph.evaluate import evaluate_block, evaluated
from rlx.ir.graph.regions import Region
from rlx.ir.graph.weak import dtypes_of
from rlx.ir.location import describe
from rlx.ir.op import attributes as attributes_module
from rlx.ir.op import opview, registry, storage_dtypes
from rlx.ir.op.verify import infer
from rlx.ir.shape import Shape
from rlx.support.caller import caller_place
from rlx.support.errors import Error, ShapeError
from rlx.support.guards import is_sequence

# Maximum number of failed regions whose ops are kept, for debuggers that inspect the exception.
_FAILED = 100


class EagerTensor(Tensor):
    """An immutable tensor with a value.

    Args:
        builder: The eager builder.
        array: The value. It must not be changed.
        shape: Its shape.
        number: The number, if the tensor represents a Python number.
        wide: The same tensor with all digits of that number.
    """

    __slots__ = ("_array", "_shape", "_wide", "number")
    elsewhere = (
        "has a value, and belongs to no graph: it was computed inside of `with rlx.eager():`",
        "np.asarray(tensor) makes an array of it, which becomes a constant",
    )

    def __init__(
        self, builder: Any, array: np.ndarray, shape: Shape, number: Any = None, wide: EagerTensor | None = None
    ):
        self.builder, self.beside = builder, None
        array.flags.writeable = False
        self._array, self._shape, self.number, self._wide = array, shape, number, wide

    @property
    def value(self) -> mlir.Value:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The MLIR value that represents the tensor in the region that is being traced."""
        return self.builder.placeholder(self)

    @property
    def shape(self) -> Shape:
        return self._shape

    @property
    def dtype(self) -> DType:
        return self._shape.dtype

    @property
    def rank(self) -> int:
        return len(self._shape.dims)

    ndim = rank

    @property
    def name(self) -> str:
        return "a value"

    def towards(self, kind: DType) -> Tensor:
        if self._wide is None:
            return self
        as_array_of(self.number, kind)  # raises an error if the number does not fit
        return self if kind is self.dtype else self._wide

    def item(self) -> Any:
        """Return the value as a Python number.

        Raises:
            Error: The tensor does not have exactly one element.
        """
        if self._array.size != 1:
            raise Error(f"item needs one element, got {self._shape}", location=caller_place())
        return self._array.item()

    def numpy(self) -> np.ndarray:
        """Return the value as a read-only array."""
        return self._array

    def tolist(self) -> Any:
        """Return the value as nested lists of Python numbers."""
        return self._array.tolist()

    def __array__(self, dtype: Any = None, *_: object, copy: object = None, **__: object) -> np.ndarray:
        if dtype is not None and np.dtype(dtype) != self._array.dtype:
            if copy is False:
                raise ValueError(f"{self._shape} is no array of {np.dtype(dtype)} without a copy")
            return self._array.astype(dtype)
        return self._array.copy() if copy else self._array

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
    ) -> Any:
        """Export the value to another library as a copy, since the value itself is read-only.

        Raises:
            BufferError: `copy` is False and the DLPack version is too old to mark a tensor as read-only, or the dtype
                is packed in DLPack.
        """
        array = self._array if copy is False else self._array.copy()
        return dlpack.lent(array, stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)

    def __dlpack_device__(self) -> tuple[Any, ...]:
        return self._array.__dlpack_device__()

    def __bool__(self) -> bool:
        if self._array.size != 1:
            message = f"the truth value of {self._shape} is not one: there are {self._array.size} elements"
            raise Error(message, location=caller_place(), hint="x.any(), x.all()")
        return bool(self._array.item())

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __index__(self) -> int:
        if self.rank or not self.dtype.is_integer:
            raise TypeError(f"only integer scalars are indices of Python's, not {self._shape}")
        return int(self._array)

    def __reduce__(self) -> tuple[object, ...]:
        return _restored, (self._array,)

    def __len__(self) -> int:
        if not self.rank:
            raise TypeError("a scalar has no length")
        return self._array.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec and self._array.size == 1 else str(self)

    def __repr__(self) -> str:
        values = np.array2string(self._array, separator=", ", prefix="Tensor(")
        return f"Tensor({values}, {self._shape})"


class _EndedTensor(Tensor):
    """A tensor of a traced region after the end of the region. The ops are gone; only the shape is left."""

    __slots__ = ()

    @property
    def shape(self) -> Shape:
        shape: Any = self.value
        return shape

    @property
    def dtype(self) -> DType:
        return self.shape.dtype

    @property
    def rank(self) -> int:
        return self.shape.rank

    ndim = rank

    @property
    def name(self) -> str:
        return "of a region that has ended"

    @classmethod
    def end(cls, tensor: Tensor) -> None:
        """Convert a tensor to this class in place, since the user may have kept a reference."""
        shape: Any = tensor.shape
        tensor.value = shape
        tensor.__class__ = cls


@dataclass
class _EagerRegion(Region):
    """A region whose function is called when its op is evaluated; its block is gone."""

    function: Callable[..., Any]


@dataclass(frozen=True)
class _Called:
    """The form of a region that evaluators receive, see `EvaluatedRegion`."""

    region: _EagerRegion
    builder: EagerBuilder

    def __call__(self, *arrays: np.ndarray) -> list[np.ndarray]:
        b, shapes = self.builder, self.region.shapes
        # Copies: a loop may overwrite the arguments of the body in the next step.
        tensors = [b.of(np.array(a), s) for a, s in zip(arrays, shapes.arguments, strict=True)]
        returned = self.region.function(*tensors)
        results = list(returned) if is_sequence(returned) else [returned]
        got = [r.shape if isinstance(r, EagerTensor) else None for r in results]
        if got != list(shapes.results):
            raise Error(
                f"the function of a region gave {got} for values and {list(shapes.results)} when it was traced",
                location=describe(b.location),
                hint="what it returns must not depend on values in number, shape or dtype",
            )
        return [np.asarray(r) for r in results]

    @property
    def results(self) -> list[Shape]:
        return list(self.region.shapes.results)


class EagerBuilder(threading.local, Builder):
    """Evaluates each op where other builders emit it. There is one instance, with separate state per thread."""

    def __init__(self) -> None:
        Builder.__init__(self, None)  # type: ignore[arg-type]  # ops are only emitted into regions
        # The values that represent tensors in the region that is being traced, with the tensors.
        self._placeholders: dict[int, tuple[EagerTensor, mlir.Value]] = {}
        self._scratch: mlir.Block | None = None

    def of(self, array: np.ndarray, shape: Shape | None = None) -> EagerTensor:
        """Return a tensor with a value that must not be changed."""
        return EagerTensor(self, array, Shape(array.shape, dtype(array.dtype)) if shape is None else shape)

    def of_number(self, number: bool | int | float | complex) -> EagerTensor:
        """Return a scalar for a Python number, with a weak dtype."""
        with np.errstate(over="ignore"):  # a number outside of f32 may be combined with f64
            alone, wide = (self.of(np.asarray(number, kind.numpy)) for kind in dtypes_of(number))
        return EagerTensor(self, np.asarray(alone), alone.shape, number, wide)

    def emit(
        self, name: str, operands: Sequence[Any], /, *, regions: Sequence[Region | None] = (), **attributes: Any
    ) -> Any:
        if len(self._points) > 1 and (regions or f"rlx.{name}" in opview.TERMINATORS or _is_traced(operands)):
            return super().emit(name, operands, regions=regions, **attributes)
        card = registry.card(name)
        spec, location = card.spec, self.location
        try:
            complete = attributes_module.complete(spec, attributes)
            arrays, shapes = self._grouped(spec, operands)
            if (stored_kind := storage_dtypes.unaccepted(spec, shapes)) is not None:
                return storage_dtypes.emitted(self, spec, operands, shapes, complete, stored_kind)
            results = infer(name, shapes, complete, tuple(r and r.shapes for r in regions))
        except Error as problem:
            if problem.location is None:
                message = f"rlx.{name}: {problem.message}"
                raise problem.moved(message, location=describe(location)) from None
            raise
        for entry in spec.attributes:
            if entry.kind == "elements":  # the user may change the array later
                complete[entry.name] = np.array(complete[entry.name])
        if spec.regions:
            complete["regions"] = tuple(_Called(r, self) if isinstance(r, _EagerRegion) else None for r in regions)
        expected = [(shape.static, shape.dtype.numpy) for shape in results]
        values = evaluated(card, arrays, complete, expected, f"rlx.{name}", location)
        tensors = tuple(EagerTensor(self, _own(a), s) for a, s in zip(values, results, strict=True))
        return tensors[0] if len(spec.results) == 1 and spec.results[0].arity == "single" else tensors

    def _grouped(self, spec: Any, operands: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Return the arrays and the shapes of operands, in the groups of the record."""
        if len(operands) != len(spec.operands):
            raise Error(f"expected {len(spec.operands)} operands, got {len(operands)}")
        arrays: list[Any] = []
        shapes: list[Any] = []
        for entry, operand in zip(spec.operands, operands, strict=True):
            if entry.arity == "variadic":
                group = [self._checked(o, entry.name) for o in operand]
                arrays.append([t.numpy() for t in group])
                shapes.append([t.shape for t in group])
            elif operand is None and entry.arity == "optional":
                arrays.append(None)
                shapes.append(None)
            else:
                tensor = self._checked(operand, entry.name)
                arrays.append(tensor.numpy())
                shapes.append(tensor.shape)
        return arrays, shapes

    def _checked(self, operand: object, what: str) -> EagerTensor:
        if isinstance(operand, EagerTensor):
            return operand
        self.check_operand(operand, what)
        raise ShapeError(f"operand '{what}' has no value while a region is traced")

    # --- regions ----------------------------------------------------------------------------------

    def region(self, function: Callable[..., Any], shapes: Sequence[Shape]) -> Region:
        if len(self._points) > 1:
            return super().region(function, shapes)
        holder, self._scratch = self.open_region(())
        mark, outer = len(self._pending), self._record
        self._points, self._record = [mlir.ir.InsertionPoint(self._scratch)], []
        try:
            shapes_of_both = super().region(function, shapes).shapes
        except BaseException:
            self._end_trace(holder, mark, outer, kept=True)  # the exception may refer to values of the region
            raise
        self._end_trace(holder, mark, outer, kept=False)
        nothing: Any = None
        return _EagerRegion(nothing, nothing, shapes_of_both, function)

    def _end_trace(self, holder: mlir.Operation, mark: int, outer: list[Tensor] | None, *, kept: bool) -> None:
        """Drop the traced region, and the block of its placeholders."""
        made, self._record = self._record or [], outer
        for tensor in made:
            if type(tensor) is Tensor:
                _EndedTensor.end(tensor)
        made.clear()
        self._retire(mark)  # the op no longer uses values of the scratch block
        self._pending.remove(holder)
        del self._retired[: -_FAILED if kept else None]
        self._placeholders.clear()
        self._scratch = None

    def tensor(self, value: mlir.Value) -> Tensor:
        tensor = super().tensor(value)
        if self._record is not None:
            self._record.append(tensor)
        return tensor

    def check_operand(self, operand: object, what: str) -> mlir.Value:
        if isinstance(operand, _EndedTensor):
            hint = "return it from the function that builds the region"
            raise ShapeError(f"operand '{what}' was made inside a region that has ended", hint=hint)
        return super().check_operand(operand, what)

    def placeholder(self, tensor: EagerTensor) -> mlir.Value:
        """Return the MLIR value that represents a tensor in the region that is being traced.

        Raises:
            Error: No region is being traced.
        """
        if self._scratch is None:
            raise Error(f"{tensor!r} is no value of MLIR", hint="it was computed inside of `with rlx.eager():`")
        known = self._placeholders.get(id(tensor))
        if known is None:
            value = self._scratch.add_argument(tensor.shape.type, self.location)
            known = self._placeholders[id(tensor)] = tensor, value
        return known[1]

    def inline(self, block: mlir.Block, arguments: Sequence[Tensor]) -> list[Tensor]:
        if len(self._points) > 1:
            return super().inline(block, arguments)
        arrays = evaluate_block(block, [self._checked(t, "argument").numpy() for t in arguments])
        return [self.of(_own(a)) for a in arrays]

    def checkpoint(self, *, shape: Any = None) -> Any:
        """Return an empty context: nothing is recomputed here."""
        return contextlib.nullcontext()


def _own(array: np.ndarray) -> np.ndarray:
    """Return an array that may be marked read-only: a view, since an evaluator may return its own constants."""
    return array.view() if array.flags.writeable else array


def _is_traced(operands: Sequence[Any]) -> bool:
    """Whether an operand is a tensor of a region that is being traced."""
    for operand in operands:
        if is_sequence(operand):
            if _is_traced(operand):
                return True
        elif isinstance(operand, Tensor) and not isinstance(operand, EagerTensor):
            return True
    return False


EAGER = EagerBuilder()


def is_eager() -> bool:
    """Whether calls without tensors are evaluated at once, as inside `with rlx.eager():`."""
    return current_builder() is EAGER


def lifted(value: Any, what: str) -> Any:
    """Return an array or a Python number as a tensor with a value. Arrays are copied, so the user's array stays independent.

    Raises:
        Error: The value is neither an array nor a number.
    """
    if isinstance(value, Tensor):
        return value
    if isinstance(value, (bool, int, float, complex)):
        return EAGER.of_number(value)
    return EAGER.of(np.array(as_array(value, what)))


def _restored(array: np.ndarray) -> EagerTensor:
    return EAGER.of(array)


@with_call_errors
@contextlib.contextmanager
def eager() -> Generator[None]:
    """Compute op by op with the NumPy evaluators, to debug functions of tensors.

    Inside, functions of `rlx.ops` take arrays and return tensors with values. These can be printed, tested by `if`, and
    converted to arrays (`np.asarray(t)`) and numbers (`t.item()`). Functions under `rlx.jit` and `rlx.model` also run
    op by op, so a debugger can step through them. This mode is slow. Its results define the meaning of the ops.
    """
    if not is_eager():
        EAGER.restart_seeds()  # seeds start at 0 in every block, as in every trace
    with emitting_into(EAGER):
        yield

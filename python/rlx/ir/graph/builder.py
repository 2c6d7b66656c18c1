"""`Builder`, which emits ops, and `Tensor`, a value: the base of `rlx.Graph`, passes and decompositions."""

# The methods that `method_of` returns belong to `Builder`, so they may use its private members.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx import mlir
from rlx.ir.calls import CallError, at_caller, with_call_errors
from rlx.ir.checks import check_name
from rlx.ir.dims.dim import Dim
from rlx.ir.dtype import DType, dtype
from rlx.ir.graph.binding import bind_arguments, with_canonical_axes
from rlx.ir.graph.regions import IN_BODY, Region, RegionBuilder
from rlx.ir.graph.traced import NumElements, no_value
from rlx.ir.location import caller_location, describe
from rlx.ir.op import attributes as attributes_module
from rlx.ir.op import grouping, opview, registry, storage_dtypes
from rlx.ir.op.op_methods import OpMethods, TensorMethods
from rlx.ir.op.verify import infer
from rlx.ir.promotion import beside
from rlx.ir.python_values import tensor_hint, type_description
from rlx.ir.shape import Shape, shape_of
from rlx.support.answers import answers
from rlx.support.errors import Error, ShapeError
from rlx.support.guards import is_tuple
from rlx.support.printable import printable
from rlx.support.short import short_repr
from rlx.support.traces import raised_at

if TYPE_CHECKING:
    from rlx.dialect.spec import OpSpec
    from rlx.ir.op.card import Card


class Tensor(TensorMethods):
    """A value in a graph. Operators and indexing emit ops; see `rlx.Graph` for all other ops."""

    __slots__ = ("beside", "builder", "value")
    # The problem and hint of messages about use in another graph.
    elsewhere: tuple[str, str | None] = ("belongs to another graph", None)
    number: Any = None  # the Python number that this tensor represents, if its dtype is weak

    def __init__(self, builder: Any, value: mlir.Value):
        self.beside: DType | None = None  # of an array passed as an operand: its dtype in promotion
        self.builder: Any = builder  # its methods are installed from the cards
        self.value = value

    @property
    def shape(self) -> Shape:
        """Dimensions and dtype. Equal to a plain tuple of the dimensions."""
        return shape_of(self.value)

    @property
    def dtype(self) -> DType:
        return shape_of(self.value).dtype

    @property
    def rank(self) -> int:
        return shape_of(self.value).rank

    ndim = rank

    @property
    def size(self) -> Dim:
        """The number of elements."""
        count = self.shape.num_elements
        return NumElements(count) if isinstance(count, int) else count

    @property
    def name(self) -> str:
        """The name of an input, parameter or state; otherwise the name that MLIR prints, such as `%3`."""
        return self.builder.name_of(self.value)

    def towards(self, kind: DType) -> Tensor:
        """Return the tensor to cast to `kind`. For a Python number, this tensor has all of its digits."""
        return self

    def __deepcopy__(self, _: object = None) -> Tensor:
        return self  # tensors are immutable

    __copy__ = __deepcopy__

    def __reduce__(self) -> Any:
        raise Error(f"{self!r} is a part of its graph and cannot be pickled", hint="pickle the graph")

    def __repr__(self) -> str:
        return printable(f"<Tensor {self.name}: {self.shape}>", keep="")

    def __bool__(self) -> bool:
        raise no_value(self, ", so Python cannot branch on it")

    def __float__(self) -> float:
        raise no_value(self, ", so it is no Python number")

    __int__: Any = __float__
    __index__: Any = __float__

    def item(self) -> Any:
        """Return the value as a Python number. Only tensors created inside `with rlx.eager():` have values."""
        raise no_value(self, ", so it is no Python number")

    def __array__(self, *_: object, **__: object) -> np.ndarray:
        raise no_value(self)


class Builder(RegionBuilder, OpMethods):
    """Emits rlx ops at an insertion point.

    Every op of the dialect is a method (`matmul`, `softmax`, …), and so is every kind of the enumerated ops (`gelu`,
    `add`, `lt`, `sum`). Tensors come first, other arguments are passed by keyword. `shape=` gives the expected shape of
    the result, which is then checked.

    Args:
        insertion_point: Where ops are inserted.
        location: One location for all ops; None records the caller's file and line.
    """

    def __init__(self, insertion_point: mlir.InsertionPoint, location: mlir.Location | None = None):
        self._points = [insertion_point]
        self._location = location
        self._scopes: list[str] = []
        self._seeds = count()
        RegionBuilder.__init__(self)

    def new_seed(self) -> int:
        """Return the next of 0, 1, …. Random ops without an explicit seed use it, so that seeds are unique."""
        return next(self._seeds)

    def restart_seeds(self) -> None:
        """Make `new_seed` start at 0 again."""
        self._seeds = count()

    # --- insertion points and locations -----------------------------------------------------------

    @with_call_errors
    @contextlib.contextmanager
    def named(self, name: str) -> Generator[None]:
        """Name a scope: ops built inside have `name` in their location."""
        check_name(name, "a scope's name")
        self._scopes.append(name)
        try:
            yield
        finally:
            self._scopes.pop()

    @contextlib.contextmanager
    def at(self, insertion_point: mlir.InsertionPoint) -> Generator[None]:
        """Emit the ops of this context at another insertion point: in a region, before an op."""
        self._points.append(insertion_point)
        try:
            yield
        finally:
            self._points.pop()

    @contextlib.contextmanager
    def located(self, location: mlir.Location) -> Generator[None]:
        """Use one location for all ops that are emitted in this context."""
        outer_location, self._location = self._location, location
        try:
            yield
        finally:
            self._location = outer_location

    @property
    def insertion_point(self) -> mlir.InsertionPoint:
        """Where the next op is inserted."""
        return self._points[-1]

    @property
    def location(self) -> mlir.Location:
        """The location of the next op."""
        return self._location if self._location is not None else caller_location("/".join(self._scopes))

    def is_weight(self, value: mlir.Value) -> bool:
        """Whether a value is a parameter or a state of the graph."""
        return False

    def name_of(self, value: mlir.Value) -> str:
        """Return a name for messages."""
        return value.get_name()

    # --- emitting ---------------------------------------------------------------------------------

    def tensor(self, value: mlir.Value) -> Tensor:
        """Return an MLIR value as a tensor of this builder."""
        return Tensor(self, value)

    def check_operand(self, operand: object, what: str) -> mlir.Value:
        """Return the MLIR value of an operand.

        Raises:
            Error: It is not a tensor, or belongs to another graph.
        """
        if not isinstance(operand, Tensor):
            raise ShapeError(f"operand '{what}' must be a tensor of this graph, got {type(operand).__name__}")
        if operand.builder is not self:
            problem, hint = operand.elsewhere
            raise ShapeError(f"operand '{what}' {problem}", hint=hint)
        if self._has_regions and not self._sees(operand.value):
            raise ShapeError(
                f"operand '{what}' was made inside a region that has ended",
                hint="return it from the function that builds the region",
            )
        return operand.value

    def emit(
        self, name: str, operands: Sequence[Any], /, *, regions: Sequence[Region | None] = (), **attributes: Any
    ) -> Any:
        """Emit one op. Returns a tensor, or a tuple of tensors if the op has several or variadic results.

        Args:
            name: The op's name without prefix.
            operands: Tensors in the order of the record; None for an absent optional operand, a list for a variadic
                one.
            regions: Results of `region`, which are moved into the op; None for an empty region.
            attributes: Attributes by name; absent ones take their defaults.

        Raises:
            ShapeError: Operands or attributes do not fit; the error names the op and the caller's line.
        """
        spec = registry.card(name).spec
        location = self.location
        try:
            complete = attributes_module.complete(spec, attributes)
            values, shapes = self._checked_operands(spec, operands)
            if (stored_kind := storage_dtypes.unaccepted(spec, shapes)) is not None:
                return storage_dtypes.emitted(self, spec, operands, shapes, complete, stored_kind)
            results = infer(name, shapes, complete, tuple(r and r.shapes for r in regions))
            stored = {
                a.name: attributes_module.to_mlir(a, complete[a.name])
                for a in spec.attributes
                if complete[a.name] is not None
            }
            stored = (
                _segments(spec, shapes, results, stored) if not spec.custom else _custom(spec, values, results, stored)
            )
        except Error as problem:
            if problem.location is None:
                message = f"rlx.{name}: {problem.message}"
                raise problem.moved(message, location=describe(location)) from None
            raise
        op = mlir.ir.Operation.create(
            opview.CUSTOM if spec.custom else f"rlx.{name}",
            results=[shape.type for shape in results],
            operands=values,
            attributes=stored,
            regions=len(spec.regions),
            loc=location,
            ip=self._points[-1],
        )
        for empty_region, region in zip(op.regions, regions, strict=False):
            if region is not None:
                region.block.append_to(empty_region)
                self._pending.remove(region.holder)
                region.holder.erase()
        tensors = tuple(Tensor(self, result) for result in op.results)
        if self._record is not None:
            self._record += tensors
        single = len(spec.results) == 1 and spec.results[0].arity == "single"
        return tensors[0] if single else tensors

    def _checked_operands(self, spec: OpSpec, operands: Sequence[Any]) -> tuple[list[mlir.Value], list[Any]]:
        """Return the flat MLIR values of the operands, and their shapes in the groups of the record."""
        if len(operands) != len(spec.operands):
            raise ShapeError(f"expected {len(spec.operands)} operands, got {len(operands)}")
        shapes: list[Any] = []
        values: list[mlir.Value] = []
        for entry, operand in zip(spec.operands, operands, strict=True):
            if entry.arity == "variadic":
                group = [self.check_operand(o, entry.name) for o in operand]
                shapes.append([shape_of(v) for v in group])
                values.extend(group)
            elif operand is None and entry.arity == "optional":
                shapes.append(None)
            else:
                value = self.check_operand(operand, entry.name)
                shapes.append(shape_of(value))
                values.append(value)
        return values, shapes

    def emit_bound(self, card: Card, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Emit an op from call arguments: operands, then attributes in the order of the record, or any of them by name."""
        operands, attributes = bind_arguments(self, card, args, kwargs)
        return self.emit(card.name, operands, **with_canonical_axes(card.spec, attributes, operands))

    def problem_at(self, message: str) -> ShapeError:
        """Return an error at the caller's line."""
        return ShapeError(message, location=describe(self.location))

    def problem(self, card: Card, message: str, hint: str | None = None) -> ShapeError:
        """Return an error at the caller's line that names the op."""
        return ShapeError(f"rlx.{card.name}: {message}", location=describe(self.location), hint=hint)


def _segments(
    spec: OpSpec, operands: Sequence[Any], results: Sequence[Shape], stored: dict[str, Any]
) -> dict[str, Any]:
    """Return the attributes of an op, extended by the segment sizes of its operands and results."""
    # The results of a record are either all single, or one variadic group.
    for name, values, groups, kind in (
        (grouping.OPERAND_SEGMENTS, spec.operands, operands, "operand"),
        (grouping.RESULT_SEGMENTS, spec.results, [list(results)], "result"),
    ):
        if grouping.is_segmented(values):
            sizes = grouping.segment_sizes(values, groups, kind)
            stored[name] = mlir.ir.DenseI32ArrayAttr.get(sizes, context=mlir.context())
    return stored


def _custom(
    spec: OpSpec, values: Sequence[mlir.Value], results: Sequence[Shape], stored: dict[str, Any]
) -> dict[str, Any]:
    """Return the attributes of the `rlx.custom` op that represents a user's op."""
    ir, context = mlir.ir, mlir.context()
    custom_attributes = {
        "name": ir.StringAttr.get(spec.name, context=context),
        "attributes": ir.DictAttr.get(stored, context=context),
    }
    return _segments(registry.SPECS["custom"], [[shape_of(v) for v in values]], results, custom_attributes)


def method_of(card: Card) -> Any:
    """Return the `Builder` method of an op.

    The method calls `build`. It also converts NumPy arrays to constants, checks `shape=` if present, and adds the op's
    name and the caller's line to errors.
    """
    parameters = _parameters(card)
    takes_shape = "shape" in parameters
    operands = {operand.name for operand in card.spec.operands}
    named = card.named

    def method(self: Builder, /, *args: Any, **kwargs: Any) -> Any:
        expected = None if takes_shape else kwargs.pop("shape", None)
        mark = len(self._pending)
        try:
            lifted = [_lift(self, a) if n in operands else a for n, a in zip(parameters, args, strict=False)]
            args = (*lifted, *args[len(lifted) :])
            kwargs = {n: _lift(self, a) if n in operands else a for n, a in kwargs.items()}
            result = card.build(self, *args, **kwargs)
            if named is not None and is_tuple(result):
                result = named(*result)
            for operand in lifted:
                if isinstance(operand, Tensor):
                    operand.beside = None  # the result may be the operand itself
        except Error as problem:
            raise at_caller(problem, f"rlx.{card.name}", card.build, len(args), describe(self.location)) from None
        except Exception as problem:
            if IN_BODY in getattr(problem, "__notes__", ()):
                raise
            raise _call_error(self, card, problem, args, kwargs) from problem
        finally:
            if len(self._pending) > mark:
                self._retire(mark)
        if expected is not None:
            first = result[0] if is_tuple(result) else result
            if not isinstance(first, Tensor):
                raise self.problem(card, "has no result of which shape= could speak")
            expected_shape = Shape(expected, expected.dtype if isinstance(expected, Shape) else first.dtype)
            if first.shape != expected_shape:
                raise self.problem(card, f"the result is {first.shape}, but shape= says {expected_shape}")
        return result

    method.__name__ = card.name
    method.__qualname__ = f"Graph.{card.name}"
    return method


def _parameters(card: Card) -> list[str]:
    """Return the parameters of `build` after the builder. By default they are the operands, then the attributes."""
    code = type(card).build.__code__
    names = code.co_varnames[2 : code.co_argcount + code.co_kwonlyargcount]
    return list(names) or [entry.name for entry in (*card.spec.operands, *card.spec.attributes)]


def _lift(b: Builder, value: object) -> Any:
    if type(value) is not np.ndarray:
        return value
    dtype(value.dtype)  # raises here for an unknown dtype, so that the error names the op and not the constant
    tensor = b.constant(value)
    tensor.beside = beside(value)
    return tensor


def _call_error(b: Builder, card: Card, problem: Exception, args: Sequence[Any], kwargs: dict[str, Any]) -> Exception:
    """Return the `ShapeError` for an exception that Python raises when `build` is called with wrong arguments."""
    arguments = dict(zip(_parameters(card), args, strict=False)) | kwargs
    trace = problem.__traceback__
    misfit = isinstance(problem, TypeError) and trace is not None and trace.tb_next is None
    badly_called = misfit and ("unexpected keyword" in str(problem) or "were given" in str(problem))
    for operand in () if badly_called else card.spec.operands:
        value = arguments.get(operand.name)
        if operand.name not in arguments or isinstance(value, Tensor):
            continue
        if operand.arity == "single" or not isinstance(value, (list, tuple, type(None))):
            message = f"operand '{operand.name}' must be a tensor, got {type_description(value)}"
            return b.problem(card, message, tensor_hint(value) or answers().advice(card.name))
    if misfit:
        message = str(problem).split(".build() ")[-1]
        if "positional argument" in message and "were given" in message:
            message = "got too many positional arguments"  # Python's message counts `self` and the builder as well
        return CallError.of(f"rlx.{card.name}", message, _parameters(card), describe(b.location), args, kwargs)
    if (place := raised_at(problem)) is not None:  # in a user's op or in an object among the arguments
        message = f"rlx.{card.name}: code that it calls raised {type(problem).__name__}: {problem}"
        return Error(message, location=describe(b.location), hint=place)
    others = ", ".join(f"{n} = {short_repr(v)}" for n, v in arguments.items() if not isinstance(v, Tensor))
    return b.problem(card, f"does not take {others or 'these arguments'}: {type(problem).__name__}: {problem}")

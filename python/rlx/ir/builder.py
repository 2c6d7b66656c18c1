"""`Builder` emits ops, `Tensor` is a value: the machinery under `rlx.Graph`, passes and decompositions."""

# The methods that `method_of` makes are `Builder`'s own.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx import mlir
from rlx.ir import attributes as attributes_module
from rlx.ir import grouping, opview, registry
from rlx.ir.attributes import suggestion
from rlx.ir.checks import check_name
from rlx.ir.dtype import DType, dtype
from rlx.ir.errors import Error, ShapeError
from rlx.ir.guards import is_tuple
from rlx.ir.location import caller_location, describe
from rlx.ir.op_methods import OpMethods, TensorMethods
from rlx.ir.regions import IN_BODY, Region, RegionBuilder
from rlx.ir.shape import Shape, shape_of
from rlx.ir.verify import infer

if TYPE_CHECKING:
    from rlx.dialect.spec import OpSpec
    from rlx.ir.card import Card


class Tensor(TensorMethods):
    """A value in a graph. Operators and indexing emit ops; see `rlx.Graph` for all others."""

    __slots__ = ("builder", "value")

    def __init__(self, builder: Any, value: mlir.Value):
        self.builder: Any = builder  # its methods are installed from the cards
        self.value = value

    @property
    def shape(self) -> Shape:
        """Dimensions and dtype; equal to a plain tuple of the dimensions."""
        return shape_of(self.value)

    @property
    def dtype(self) -> DType:
        return shape_of(self.value).dtype

    @property
    def rank(self) -> int:
        return shape_of(self.value).rank

    ndim = rank

    @property
    def name(self) -> str:
        """The name of an input, parameter or state; else the name that MLIR prints, such as `%3`."""
        return self.builder.name_of(self.value)

    def __repr__(self) -> str:
        return f"<Tensor {self.name}: {self.shape}>"

    def __iter__(self) -> Iterator[Tensor]:
        raise Error(
            f"{self!r} cannot be iterated over while it is traced",
            location=describe(caller_location()),
            hint="use indexing, or a scan",
        )

    def __bool__(self) -> bool:
        raise Error(
            f"{self!r} has no value while it is traced, so Python cannot branch on it",
            location=describe(caller_location()),
            hint="use g.where to choose elementwise",
        )

    def __array__(self, *_: object, **__: object) -> np.ndarray:
        raise Error(f"{self!r} has no value while it is traced", location=describe(caller_location()))


class Builder(RegionBuilder, OpMethods):
    """Emits rlx ops at an insertion point.

    Every op of the dialect is a method (`matmul`, `softmax`, …), and so is every kind of the enumerated ops
    (`gelu`, `add`, `lt`, `sum`). Tensors come first, the rest is by keyword; `shape=` states the expected
    result, which is then checked.

    Args:
        insertion_point: Where ops go.
        location: One location for all ops; None records the caller's file and line.
    """

    def __init__(self, insertion_point: mlir.InsertionPoint, location: mlir.Location | None = None):
        self._points = [insertion_point]
        self._location = location
        self._scopes: list[str] = []
        RegionBuilder.__init__(self)

    # --- where and whence -------------------------------------------------------------------------

    @contextlib.contextmanager
    def named(self, name: str) -> Generator[None]:
        """Scope names and locations: ops built inside carry `name` in their location."""
        check_name(name, "a scope's name")
        self._scopes.append(name)
        try:
            yield
        finally:
            self._scopes.pop()

    @contextlib.contextmanager
    def at(self, insertion_point: mlir.InsertionPoint) -> Generator[None]:
        """Emit somewhere else: into a region, before an op."""
        self._points.append(insertion_point)
        try:
            yield
        finally:
            self._points.pop()

    @contextlib.contextmanager
    def located(self, location: mlir.Location) -> Generator[None]:
        """Give all ops that are emitted inside one location."""
        before, self._location = self._location, location
        try:
            yield
        finally:
            self._location = before

    @property
    def insertion_point(self) -> mlir.InsertionPoint:
        """Where the next op goes."""
        return self._points[-1]

    @property
    def location(self) -> mlir.Location:
        """The location that the next op gets."""
        return self._location if self._location is not None else caller_location("/".join(self._scopes))

    def is_weight(self, value: mlir.Value) -> bool:
        """Whether a value is a parameter or a state of the graph."""
        return False

    def name_of(self, value: mlir.Value) -> str:
        """A name for messages."""
        return value.get_name()

    # --- emitting ---------------------------------------------------------------------------------

    def tensor(self, value: mlir.Value) -> Tensor:
        """An MLIR value as a tensor of this builder."""
        return Tensor(self, value)

    def check_operand(self, operand: object, what: str) -> mlir.Value:
        """The MLIR value of an operand.

        Raises:
            Error: It is not a tensor, or belongs to another graph.
        """
        if not isinstance(operand, Tensor):
            raise ShapeError(f"operand '{what}' must be a tensor of this graph, got {type(operand).__name__}")
        if operand.builder is not self:
            raise ShapeError(f"operand '{what}' belongs to another graph")
        if self._has_regions and not self._sees(operand.value):
            raise ShapeError(
                f"operand '{what}' was made inside a region that has ended",
                hint="return it from the function that builds the region",
            )
        return operand.value

    def emit(
        self, name: str, operands: Sequence[Any], *, regions: Sequence[Region | None] = (), **attributes: Any
    ) -> Any:
        """Emit one op: a tensor, or a tuple of them when it has several results (or any number of them).

        Args:
            name: The op's name without prefix.
            operands: Tensors in the order of the record; None for an absent optional one, a list for a variadic one.
            regions: What `region` made, None for an empty one; they become the op's.
            attributes: By name; absent ones take their defaults.

        Raises:
            ShapeError: Operands or attributes do not fit; it names the op and the caller's line.
        """
        spec = registry.card(name).spec
        location = self.location
        try:
            complete = attributes_module.complete(spec, attributes)
            values, shapes = self._checked_operands(spec, operands)
            given = tuple(r and r.shapes for r in regions)
            results = infer(name, shapes, complete, given)
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
                raise type(problem)(message, location=describe(location), hint=problem.hint) from None
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
        for region, made in zip(op.regions, regions, strict=False):
            if made is not None:
                made.block.append_to(region)
                self._pending.remove(made.holder)
                made.holder.erase()
        tensors = tuple(Tensor(self, result) for result in op.results)
        if self._record is not None:
            self._record += tensors
        single = len(spec.results) == 1 and spec.results[0].arity == "single"
        return tensors[0] if single else tensors

    def _checked_operands(self, spec: OpSpec, operands: Sequence[Any]) -> tuple[list[mlir.Value], list[Any]]:
        """Flat MLIR values, and shapes in the groups of the record."""
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
        """Emit an op from call arguments: operands, then attributes in the order of the record, or each by name."""
        operands, attributes = self.bound(card, args, kwargs)
        return self.emit(card.name, operands, **attributes)

    def bound(self, card: Card, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """The operands and attributes that call arguments give, as they were written.

        Raises:
            ShapeError: There are too many, or an operand is missing or given twice.
        """
        spec = card.spec
        names = [operand.name for operand in spec.operands]
        every = [*names, *(attribute.name for attribute in spec.attributes)]
        if len(args) > len(every):
            raise self.problem(card, f"takes at most {len(every)} arguments ({', '.join(every)}), got {len(args)}")
        given = dict(zip(every, args, strict=False))
        for name in kwargs:
            if name in given:
                count = _count_problem(spec, sum(isinstance(value, Tensor) for value in args))
                raise self.problem(card, f"'{name}' is given twice{count}")
        given |= kwargs
        kwargs = {name: given.pop(name) for name in list(given) if name not in names}
        operands: list[Any] = []
        for operand in spec.operands:
            if operand.name not in given and operand.arity == "single":
                known = [a.name for a in spec.attributes]
                extra = next((k for k in kwargs if k not in known), "")
                count = _count_problem(spec, sum(name in given for name in names))
                raise self.problem(card, f"operand '{operand.name}' is missing{count}{suggestion(extra, names)}")
            operands.append(given.get(operand.name))
        return operands, kwargs

    def problem_at(self, message: str) -> ShapeError:
        """An error at the caller's line."""
        return ShapeError(message, location=describe(self.location))

    def problem(self, card: Card, message: str) -> ShapeError:
        """An error at the caller's line that names the op."""
        return ShapeError(f"rlx.{card.name}: {message}", location=describe(self.location))


def _count_problem(spec: OpSpec, count: int) -> str:
    """How many operands an op takes, where that is one number and not the one that it was given."""
    fixed = all(operand.arity == "single" for operand in spec.operands)
    return f": expected {len(spec.operands)} operands, got {count}" if fixed and count != len(spec.operands) else ""


def _segments(
    spec: OpSpec, operands: Sequence[Any], results: Sequence[Shape], stored: dict[str, Any]
) -> dict[str, Any]:
    """The attributes of an op with those that group its operands and results."""
    # A record has results that are all single, or one group of any number.
    for name, values, groups, what in (
        (grouping.OPERAND_SEGMENTS, spec.operands, operands, "operand"),
        (grouping.RESULT_SEGMENTS, spec.results, [list(results)], "result"),
    ):
        if grouping.is_segmented(values):
            sizes = grouping.segment_sizes(values, groups, what)
            stored[name] = mlir.ir.DenseI32ArrayAttr.get(sizes, context=mlir.context())
    return stored


def _custom(
    spec: OpSpec, values: Sequence[mlir.Value], results: Sequence[Shape], stored: dict[str, Any]
) -> dict[str, Any]:
    """The attributes of the `rlx.custom` that stands for an op of a user's."""
    ir, context = mlir.ir, mlir.context()
    own = {
        "name": ir.StringAttr.get(spec.name, context=context),
        "attributes": ir.DictAttr.get(stored, context=context),
    }
    return _segments(registry.SPECS["custom"], [[shape_of(v) for v in values]], results, own)


def method_of(card: Card) -> Any:
    """The `Builder` method of an op.

    It is `build`, with NumPy arrays as constants, the optional check of `shape=`, and errors that name the op and the
    caller's line.
    """
    parameters = _parameters(card)
    takes_shape = "shape" in parameters
    operands = {operand.name for operand in card.spec.operands}

    def method(self: Builder, *args: Any, **kwargs: Any) -> Any:
        expected = None if takes_shape else kwargs.pop("shape", None)
        mark = len(self._pending)
        try:
            lifted = [_lift(self, a) if n in operands else a for n, a in zip(parameters, args, strict=False)]
            args = (*lifted, *args[len(lifted) :])
            kwargs = {n: _lift(self, a) if n in operands else a for n, a in kwargs.items()}
            result = card.build(self, *args, **kwargs)
        except Error as problem:
            if problem.location is not None:
                raise
            raise type(problem)(
                f"rlx.{card.name}: {problem.message}", location=describe(self.location), hint=problem.hint
            ) from None
        except Exception as problem:
            if IN_BODY in getattr(problem, "__notes__", ()):
                raise
            raise _explained(self, card, problem, dict(zip(parameters, args, strict=False)) | kwargs) from problem
        finally:
            if len(self._pending) > mark:
                self._retire(mark)
        if expected is not None:
            first = result[0] if is_tuple(result) else result
            wanted = Shape(expected, expected.dtype if isinstance(expected, Shape) else first.dtype)
            if first.shape != wanted:
                raise self.problem(card, f"the result is {first.shape}, but shape= says {wanted}")
        return result

    method.__name__ = card.name
    method.__qualname__ = f"Graph.{card.name}"
    method.__doc__ = f"{card.spec.summary}.\n\n{card.spec.description}"
    return method


def _parameters(card: Card) -> list[str]:
    """What `build` takes after the builder; an op without its own takes operands, then attributes."""
    code = type(card).build.__code__
    names = code.co_varnames[2 : code.co_argcount + code.co_kwonlyargcount]
    return list(names) or [entry.name for entry in (*card.spec.operands, *card.spec.attributes)]


def _lift(b: Builder, value: object) -> Any:
    if type(value) is not np.ndarray:
        return value
    dtype(value.dtype)  # a dtype that is none of ours is the op's problem, not the constant's
    return b.constant(value)


def _explained(b: Builder, card: Card, problem: Exception, given: dict[str, Any]) -> Exception:
    """What Python says of a wrong call, as an error of ours."""
    for operand in card.spec.operands:
        value = given.get(operand.name)
        if operand.name in given and not isinstance(value, (Tensor, list, tuple, type(None))):
            return b.problem(card, f"operand '{operand.name}' must be a tensor, got {type(value).__name__}")
    trace = problem.__traceback__
    if isinstance(problem, TypeError) and trace is not None and trace.tb_next is None:
        said = str(problem).split(".build() ")[-1]
        if (
            "positional argument" in said and "were given" in said
        ):  # Python's numbers count what the caller does not see
            said = "got too many positional arguments"
        return b.problem(card, f"{said}; it takes {', '.join(_parameters(card))}")
    others = ", ".join(f"{n} = {v!r:.60}" for n, v in given.items() if not isinstance(v, Tensor))
    return b.problem(card, f"does not take {others or 'these arguments'}: {problem}")

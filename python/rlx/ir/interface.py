"""The interface of a compiled function: its arguments and outputs, and the arrays and sizes that it accepts.

Programs are also called without a compiler, so this module does not need MLIR.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from rlx.ir.dims.bounds import Bounds
from rlx.ir.dims.dim import Dim, DimExpr, SymbolBindings, parse
from rlx.ir.dtype import DType, dtype, family
from rlx.ir.fitting import as_array_of
from rlx.ir.python_values import cast_array, given_array
from rlx.ir.shape import Shape
from rlx.support.errors import Error, ShapeError
from rlx.support.guards import is_array, is_real, is_truth_value

KINDS = ("input", "param", "state")


class OfShape:
    """Mixin of the shape properties of an argument or an output."""

    shape: Shape

    @property
    def dims(self) -> tuple[Dim, ...]:
        """The sizes: integers, or expressions of symbols."""
        return self.shape.dims

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return self.shape.rank

    @property
    def dtype(self) -> DType:
        """The dtype of the elements; `dtype.numpy` is the dtype of the array."""
        return self.shape.dtype


@dataclass(frozen=True)
class Argument(OfShape):
    """An argument of the graph's function: an input, a parameter (weight) or a state.

    A parameter that is not `trainable` is trained only if it is named.

    `sharding` has for each dimension the mesh axes that it is sharded over: `rlx.ir.sharding`.

    `bounds` are the bounds of its symbols, checked when sizes are known: `rlx.ir.dims.bounds`.

    `quantized` is the recorded scale and zero point of an integer input: `rlx.ir.op.quantization`.
    """

    name: str
    kind: str
    shape: Shape
    donate: bool = False
    init: float = 0.0
    sharding: tuple[tuple[str, ...], ...] | None = None
    trainable: bool = True
    bounds: Bounds = ()
    quantized: tuple[float, int] | None = field(default=None, compare=False)

    def initial_array(self) -> np.ndarray:
        """Return the value of a state before the first run."""
        return np.full(self.shape.static, self.init, self.shape.dtype.numpy)


@dataclass(frozen=True)
class Output(OfShape):
    """A result of the graph's function; `updates` names the state that receives it."""

    name: str
    shape: Shape
    updates: str | None = None


@dataclass(frozen=True)
class Requirement:
    """An expression that must not be negative, and the error message for a negative value.

    Attributes:
        expression: An expression in symbols.
        meaning: The start of the error message.
        location: The line in the user's code.
    """

    expression: DimExpr
    meaning: str
    location: str | None = None

    def check(self, bindings: Mapping[str, int]) -> None:
        """Raise an error if the expression is negative.

        Raises:
            ShapeError: The expression is negative for these sizes.
        """
        if self.expression.symbols <= bindings.keys() and self.expression.evaluate(bindings) < 0:
            sizes = ", ".join(f"{name} = {bindings[name]}" for name in sorted(self.expression.symbols))
            raise ShapeError(f"{self.meaning} (for {sizes})", location=self.location)

    def to_json(self) -> list[str | None]:
        return [str(self.expression), self.meaning, self.location]

    @classmethod
    def from_json(cls, data: list[Any]) -> Requirement:
        """Return the requirement serialised by `to_json`.

        Raises:
            Error: The expression has no symbols.
        """
        expression = parse(data[0])
        if not isinstance(expression, DimExpr):
            raise Error(f"{data[0]!r} has no symbols: nothing depends on it")
        return cls(expression, data[1], data[2])


def initial_value(init: Any, kind: DType) -> float:
    """Return the initial number of every element of a state.

    Raises:
        ShapeError: It is not a number, it is NaN, or the dtype cannot hold it.
    """
    if is_array(init) and not init.ndim:
        init = init.item()
    if not is_real(init) and not is_truth_value(init):
        hint = "an array is given by set_state, or when it is run"
        raise ShapeError(f"init must be a number, got {type(init).__name__}", hint=hint)
    as_array_of(init, kind)
    if init != init:
        raise ShapeError("init must be a number, got NaN")
    value = float(init)
    if kind.is_integer and int(value) != init:
        raise ShapeError(f"init = {init} has more digits than a double", hint="give it by set_state")
    return value


def argument_array(argument: Argument, value: object, *, cast: bool = False) -> np.ndarray:
    """Return the value of an argument as an array. See `given_array` for accepted values.

    Args:
        argument: The argument.
        value: The value.
        cast: Whether numbers of a different dtype are converted, as `cast_array` does.

    Raises:
        Error: It is not an array, or does not fit; the message names the argument.
    """
    what = f"{argument.kind} '{argument.name}'"
    array = given_array(value, argument.shape.dtype, what)
    if cast:
        array = cast_array(array, argument.shape.dtype, what)
    check_argument(argument, array)
    return array


class Described(Protocol):
    """An object with a shape and a dtype: an array, or a tensor in a file that has not been read yet."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype: ...


def check_argument(argument: Argument, array: Described) -> None:
    """Check that an array fits an argument. A symbol fits any size.

    Raises:
        ShapeError: Rank, a static size or the dtype differs.
    """
    expected = argument.shape
    what = f"{argument.kind} '{argument.name}'"
    if array.dtype != expected.dtype.numpy:
        raise ShapeError(
            f"{what} must be {expected}, got {array.dtype}{list(array.shape)}",
            hint=_argument_hint(argument, array.dtype),
        )
    fits = len(array.shape) == expected.rank and all(
        type(d) is not int or d == size for d, size in zip(expected.dims, array.shape, strict=True)
    )
    if not fits:
        raise ShapeError(f"{what} must be {expected}, got {array.dtype}{list(array.shape)}")


def _argument_hint(argument: Argument, actual: np.dtype) -> str:
    """Return the hint for an array of another dtype than an argument's.

    A cast would truncate numbers that an integer with a scale represents, so the hint quantises them instead.
    """
    expected = argument.shape.dtype
    cast = conversion_hint(
        actual, expected.numpy, ", or give cast=True with the parameters" if argument.kind == "param" else ""
    )
    is_number = actual.isnative and family(actual) in ("float", "signed", "unsigned")
    if argument.quantized is None or not is_number or not (expected.is_integer and expected.is_numpys_own):
        return cast
    scale, zero_point = argument.quantized
    if expected.name == "i8":
        call = f'rlx.quantizations(graph)["{argument.name}"].quantize(x)'
    else:
        limits = np.iinfo(expected.numpy)
        steps = f"numpy.rint(x / {scale:.9g}) {_term(zero_point)}"
        call = f"numpy.clip({steps}, {limits.min}, {limits.max}).astype(numpy.{expected.numpy})"
    hint = f"quantise it with {call}: the integers represent (integer {_term(-zero_point)}) * {scale:.9g}"
    return hint if family(actual) == "float" else f"{hint}; if it already has these integers, {cast}"


def _term(number: int) -> str:
    return f"{'-' if number < 0 else '+'} {abs(number)}"


def conversion_hint(actual: np.dtype, expected: np.dtype, option: str = "") -> str:
    """Return the hint for an array with an unexpected dtype.

    Args:
        actual: The dtype of the array.
        expected: The expected dtype.
        option: The name of an option that also converts.
    """
    if not actual.isnative:
        return "convert it to native byte order: array.astype(array.dtype.newbyteorder('='))"
    if actual.kind in "OSUTMm" or actual.names:
        return f"make it an array of numbers, of dtype {expected}"
    is_numpys_own = dtype(expected).is_numpys_own
    name = f"{'numpy' if is_numpys_own else 'ml_dtypes'}.{expected}"
    cast = f"cast it with .astype({name}){option}"
    if is_numpys_own or actual.kind != "u" or actual.itemsize != expected.itemsize or family(expected) != "float":
        return cast
    return f"if its elements are the bytes of {expected}, use .view({name}); if they are numbers, {cast}"


def bind_symbols(pairs: Sequence[tuple[Argument, Sequence[int]]]) -> dict[str, int]:
    """Return the sizes of all symbols, from the shapes of the arrays.

    Raises:
        ShapeError: A symbol has two sizes; the message names both sources.
    """
    if all(argument.shape.is_static for argument, _ in pairs):
        return {}
    bindings = SymbolBindings()
    for argument, shape in pairs:
        for axis, (d, size) in enumerate(zip(argument.shape.dims, shape, strict=True)):
            if type(d) is not int:
                bindings.add(d, int(size), f"{argument.kind} '{argument.name}' dimension {axis}")
    return bindings.solve()


def check_tensors(pairs: Sequence[tuple[Argument, Shape]]) -> None:
    """Check that the shapes of tensors fit arguments. A symbol fits any size, which is the same wherever it occurs.

    Raises:
        ShapeError: Rank, dtype or a size differs.
    """
    bindings, symbolic = SymbolBindings(), dict[str, Dim]()
    for argument, shape in pairs:
        if shape.rank != argument.rank or shape.dtype is not argument.dtype:
            raise ShapeError(f"{argument.kind} '{argument.name}' must be {argument.shape}, got {shape}")
        for axis, (declared, size) in enumerate(zip(argument.dims, shape.dims, strict=True)):
            if isinstance(declared, DimExpr) and type(size) is int:
                bindings.add(declared, size, f"{argument.kind} '{argument.name}' dimension {axis}")
            elif isinstance(declared, DimExpr) and [*declared.symbols] == [str(declared)]:
                symbolic.setdefault(str(declared), size)
    sizes = {**symbolic, **bindings.solve(partial=True)}
    for argument, shape in pairs:
        expected = argument.shape.bind(sizes)
        if shape != expected:
            raise ShapeError(f"{argument.kind} '{argument.name}' must be {expected}, got {shape}")

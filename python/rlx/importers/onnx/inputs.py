"""Inputs of a model: shapes, symbols for open sizes, and inputs with a constant value."""

from __future__ import annotations

import keyword
import re
import unicodedata
from collections.abc import Collection, Mapping
from itertools import count
from typing import Any

import numpy as np

from rlx.importers.onnx.reading import OnnxModel
from rlx.importers.onnx.scope import OnnxScope, OnnxValue
from rlx.ir.arrays import as_numbers, is_written
from rlx.ir.dims import dim
from rlx.ir.dims.dim import Dim, DimExpr
from rlx.ir.dims.text import CALLS
from rlx.ir.dtype import dtype as rlx_dtype
from rlx.ir.python_values import given_array
from rlx.support.errors import Error, ParseError, ShapeError, UnsupportedError

_MOST_INTEGERS = 8  # elements of an input that is listed as a possible constant, such as a shape
_INTEGER = re.compile(r"-?\d{1,18}")


class OpenSizes:
    """The open sizes of a model, by their names in it. Unnamed sizes of the input `x` are named `x_dim0`, ….

    A name that is an expression over other names (`past + seq`) becomes that expression. Any other name is converted to
    an identifier.

    Args:
        model: The model.
        given: Values or expressions for some of the sizes.
    """

    def __init__(self, model: OnnxModel, given: Mapping[str, int | str]):
        self.given = dict(given)
        inputs = [i for i in model.message.graph.input if i.type.WhichOneof("value") == "tensor_type"]
        self.names = [d.dim_param for i in inputs for d in i.type.tensor_type.shape.dim]
        self.found: dict[str, Dim] = {}
        self.first_axes: set[str] = set()  # the names of sizes of axis 0
        self.reached = 0  # the number of nodes that an import built before it ended
        self._model = model

    def check(self) -> None:
        """Check that every given size is a size of the model.

        Raises:
            Error: A given size is not a size of the model.
        """
        if unknown := self.given.keys() - self.found.keys() - set(filter(_is_name, self.names)):
            known = ", ".join(map(repr, self.found)) or "none"
            raise Error(f"sizes: {self._model.name} has no open size {min(unknown)!r}", hint=f"it has {known}")

    def size(self, declared: Any, place: str) -> Dim:
        """Return a size of an input.

        Args:
            declared: The declaration in the model.
            place: The name to use if the model has none.
        """
        if declared.HasField("dim_value") and declared.dim_value != -1:  # some exporters write -1 for an open size
            return dim.dim(declared.dim_value)
        name = declared.dim_param if _is_name(declared.dim_param) else _unused(place, self.names)
        if name not in self.found:
            self.found[name] = self._made(name)
        return self.found[name]

    def _made(self, name: str) -> Dim:
        if name in self.given:
            value = self.given[name]
            if isinstance(value, bool) or not isinstance(value, (int, str)):
                raise Error(f"sizes: expected an integer or an expression for {name!r}, got {value!r:.50}")
            return dim.dim(value)
        computed = self._computed(name)
        return computed if computed is not None else dim.symbol(self._identifier(name))

    def _computed(self, name: str) -> Dim | None:
        """Return the dimension for a name that is an expression over other sizes; None for any other name."""
        try:
            value = dim.parse(name)
        except Error:
            return None
        if not isinstance(value, DimExpr) or name in value.symbols or not value.symbols <= set(self.names):
            return None
        # The symbols of the expression are names in the model, which may have values as well.
        sizes = {n: self.found.setdefault(n, self._made(n)) for n in sorted(value.symbols)}
        return dim.substitute(value, sizes)

    def _identifier(self, name: str) -> str:
        made = re.sub(r"\W+", "_", unicodedata.normalize("NFKC", name)).strip("_")[:64] or "size"
        if not made.isidentifier() or keyword.iskeyword(made) or made in CALLS:
            made = f"size_{made}"
        return _unused(made, {n for d in self.found.values() for n in dim.symbols(d)} | (set(self.names) - {name}))

    @property
    def open(self) -> list[str]:
        """Return the names, in the model, of sizes without a value."""
        return [n for n, d in self.found.items() if isinstance(d, DimExpr)]


def _is_name(text: str) -> bool:
    """Return whether a model names a size: some exporters write "?" for all that are open."""
    return re.search(r"\w", text) is not None


def _unused(name: str, taken: Collection[str]) -> str:
    """Return a name that is not taken. A number is appended if necessary."""
    names = (name if number == 1 else f"{name}_{number}" for number in count(1))
    return next(n for n in names if n not in taken)


def define_inputs(scope: OnnxScope, sizes: OpenSizes, constants: Mapping[str, Any]) -> None:
    """Define the inputs of a model.

    Raises:
        Error: A constant or a size does not belong to an input, or an input is not a tensor of a dtype that RLX has.
    """
    model = scope.model
    inputs = [i for i in model.message.graph.input if i.name not in scope.values]
    if unknown := constants.keys() - {i.name for i in inputs}:
        raise Error(f"constants: {model.name} has no input '{min(unknown)}'")
    for declared in inputs:
        name, what = declared.name, f"input '{declared.name}'"
        if name in constants:
            scope.values[name] = _constant(model, sizes, name, constants[name], declared.type)
            continue
        kind = declared.type.tensor_type
        if declared.type.WhichOneof("value") != "tensor_type" or not kind.HasField("shape"):
            missing = "no tensor" if declared.type.WhichOneof("value") != "tensor_type" else "a tensor of any shape"
            hint = f"give its value: rlx.from_onnx(…, constants={{'{name}': […]}})"
            raise UnsupportedError(f"{model.name}: {what} is {missing}", hint=hint)
        if not name:
            raise ParseError(f"{model.name}: an input has no name")
        dims = tuple(sizes.size(d, f"{name}_dim{axis}") for axis, d in enumerate(kind.shape.dim))
        sizes.first_axes |= {n for n, d in sizes.found.items() if dims[:1] == (d,)}
        scope.values[name] = OnnxValue(tensor=scope.g.input(name, dims, model.dtype(kind.elem_type, what)))
    sizes.check()


def _constant(model: OnnxModel, sizes: OpenSizes, name: str, value: Any, declared: Any) -> OnnxValue:
    """Return the value of an input of a type: an array, a list of values, or None.

    Raises:
        Error: The value does not have the type.
    """
    kind, what = declared.WhichOneof("value"), f"input '{name}'"
    if value is None and kind == "optional_type":
        return OnnxValue(is_none=True)
    if kind == "optional_type":
        return _constant(model, sizes, name, value, declared.optional_type.elem_type)
    if kind == "sequence_type":
        if not isinstance(value, (list, tuple)):
            raise Error(f"{what} is a sequence: expected a list of values, got {type(value).__name__}")
        return OnnxValue(items=[_constant(model, sizes, name, v, declared.sequence_type.elem_type) for v in value])
    return OnnxValue(known=_held(model, sizes, name, value, declared.tensor_type))


def _held(model: OnnxModel, sizes: OpenSizes, name: str, value: Any, declared: Any) -> np.ndarray:
    """Return an array with the dtype, rank and declared sizes of an input.

    Numbers and lists of numbers, which have no dtype, get the dtype of the input.
    """
    what = f"input '{name}'"
    array, dtype = as_numbers(value, what), model.dtype(declared.elem_type, what)
    if is_written(value):
        array = given_array(value, rlx_dtype(dtype), f"constants: {what}")
    dims: tuple[Dim, ...] | None = None
    if declared.HasField("shape"):
        dims = tuple(sizes.size(d, f"{name}_dim{axis}") for axis, d in enumerate(declared.shape.dim))
    fits = dims is None or (
        len(dims) == array.ndim
        and all(isinstance(d, DimExpr) or d == n for d, n in zip(dims, array.shape, strict=True))
    )
    if array.dtype != dtype or not fits:
        expected = f"[{', '.join(map(str, dims))}]" if dims is not None else "an array"
        message = f"constants: expected {expected} of {dtype} for {what}, got {list(array.shape)} of {array.dtype}"
        raise ShapeError(message)
    return array


def integer_inputs(model: OnnxModel, most: int | None = None) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return the inputs of integers or bools without or with one axis, with dtype and shape. They can be constants.

    Args:
        model: The model.
        most: The largest number of elements; None for 8. Longer inputs, and those of an open size, are data such as token ids.
    """
    graph, types, result = model.message.graph, model.onnx.TensorProto, dict[str, tuple[str, tuple[int, ...]]]()
    stored = {t.name for t in graph.initializer}
    kinds = {types.INT64: "i64", types.INT32: "i32", types.BOOL: "bool"}
    for declared in graph.input:
        tensor = declared.type.tensor_type
        dims = tuple(d.dim_value for d in tensor.shape.dim)
        is_short = dims == () or (len(dims) == 1 and 1 <= dims[0] <= (most or _MOST_INTEGERS))
        if declared.name not in stored and tensor.elem_type in kinds and tensor.HasField("shape") and is_short:
            result[declared.name] = (kinds[tensor.elem_type], dims)
    return result


def described_inputs(inputs: Mapping[str, tuple[str, tuple[int, ...]]]) -> dict[str, str]:
    """Return the types of `integer_inputs` as text: `i64`, and `i64[2]` for two elements."""
    return {name: kind if dims in ((), (1,)) else f"{kind}[{dims[0]}]" for name, (kind, dims) in inputs.items()}


def split_bound(model: OnnxModel, bound: Mapping[str, int | str]) -> tuple[dict[str, int | str], dict[str, Any]]:
    """Return the sizes and the constants among values by name: a name of `integer_inputs` is a constant.

    Several values are separated by commas.

    Raises:
        Error: The value of a constant is not an integer or a bool, or there are more or fewer values than elements.
    """
    inputs, sizes, constants = integer_inputs(model), dict[str, int | str](), dict[str, Any]()
    for name, value in bound.items():
        if name not in inputs:
            sizes[name] = value
            continue
        dtype, dims = inputs[name]
        named = {"true": 1, "false": 0} if dtype == "bool" else {}
        texts = str(value).split(",")
        if len(texts) != (dims or (1,))[0] or not all(t.lower() in named or _INTEGER.fullmatch(t) for t in texts):
            expected = "its value" if dims in ((), (1,)) else f"{dims[0]} values with commas between them"
            kind = described_inputs(inputs)[name]
            raise Error(f"--bind={name}={value}: '{name}' is an input of {kind}; expected {expected}")
        numbers = [int(named.get(text.lower(), text)) for text in texts]
        values = [bool(n) for n in numbers] if dtype == "bool" else numbers
        constants[name] = values if dims else values[0]
    return sizes, constants

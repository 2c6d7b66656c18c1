"""Conversion of attributes between Python and MLIR, as declared in the records of the ops."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx import mlir
from rlx.dialect.spec import AttributeSpec, OpSpec
from rlx.ir.arrays import as_numbers
from rlx.ir.dims.dim import Dim, DimExpr, dim
from rlx.ir.dtype import DType, dtype
from rlx.ir.dtype import from_mlir as dtype_from_mlir
from rlx.ir.op.grouping import segment_attributes
from rlx.ir.shape import Shape, as_dtype, element_type, not_addressable
from rlx.support.errors import ShapeError
from rlx.support.guards import is_integer, is_mapping, is_real, is_truth_value, is_tuple
from rlx.support.short import short_repr
from rlx.support.suggestions import suggestion

if TYPE_CHECKING:
    from rlx.mlir_types import AttributeDict


# --- checking Python values -----------------------------------------------------------------------


def _integer(value: Any) -> int:
    if not is_integer(value):
        raise ShapeError(f"expected an integer, got {short_repr(value)}")
    if not -(2**63) <= value < 2**63:
        raise ShapeError(f"expected an integer of 64 bits, got {short_repr(value)}")
    return int(value)


def _number(value: Any) -> float:
    if not is_real(value):
        raise ShapeError(f"expected a number, got {short_repr(value)}")
    try:
        return float(value)
    except OverflowError:
        raise ShapeError(f"expected a number that a double holds, got {str(value)[:20]}…") from None


def _dim(value: object) -> Dim:
    d = dim(value, signed=True)  # `verify.infer` checks which ops allow a negative size
    return _integer(d) if type(d) is int else d


def _boolean(value: object) -> bool:
    if not is_truth_value(value):
        raise ShapeError(f"expected True or False, got {short_repr(value)}")
    return bool(value)


def _string(value: object) -> str:
    if not isinstance(value, str):
        raise ShapeError(f"expected a string, got {short_repr(value)}")
    return value


def _sequence(value: Any) -> list[Any]:
    if isinstance(value, (str, bytes)) or is_mapping(value) or not hasattr(value, "__iter__"):
        raise ShapeError(f"expected a list, got {short_repr(value)}")
    return list(value)


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "i64": _integer,
    "f64": _number,
    "bool": _boolean,
    "str": _string,
    "i64s": lambda value: tuple(_integer(v) for v in _sequence(value)),
    "dims": lambda value: tuple(_dim(v) for v in _sequence(value)),
    "dtype": as_dtype,
    "elements": lambda value: as_numbers(value, "the elements"),
    "dict": dict,
}


def normalise(spec: AttributeSpec, value: Any) -> Any:
    """Return the canonical Python value of an attribute.

    Raises:
        ShapeError: The value has the wrong type, or is not a case of the enumeration.
    """
    if value is None and not spec.required:
        return spec.default
    try:
        if spec.kind == "enum":
            value = _string(getattr(value, "value", value))
            if value not in spec.cases:
                cases = ", ".join(spec.cases)
                raise ShapeError(f"{short_repr(value)} is not one of {cases}{suggestion(value, spec.cases)}")
            return value
        return check_interval(spec, _CHECKS[spec.kind](value))
    except ShapeError as problem:
        raise ShapeError(f"attribute '{spec.name}': {problem.message}") from None


def check_interval(spec: AttributeSpec, value: Any) -> Any:
    """Return the canonical value of an attribute, if it is in the interval of the record.

    Raises:
        ShapeError: A number is outside the interval.
    """
    for number in (value if is_tuple(value) else (value,)) if spec.interval else ():
        if not spec.admits(number):
            raise ShapeError(f"{number} is not in {spec.interval}")
    return value


def complete(spec: OpSpec, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return all attributes of an op: checked values, with defaults filled in.

    Raises:
        ShapeError: An attribute is unknown, missing or of the wrong type.
    """
    known = {attribute.name for attribute in spec.attributes}
    for name in values:
        if name not in known:
            raise ShapeError(f"unknown attribute '{name}'{suggestion(name, known)}")
    result: dict[str, Any] = {}
    for attribute in spec.attributes:
        if attribute.name in values:
            result[attribute.name] = normalise(attribute, values[attribute.name])
        elif attribute.required:
            raise ShapeError(f"attribute '{attribute.name}' is missing")
        else:
            result[attribute.name] = attribute.default
    return result


# --- to MLIR --------------------------------------------------------------------------------------


def _dims_to_mlir(value: tuple[Dim, ...]) -> mlir.Attribute:
    ir, context = mlir.ir, mlir.context()
    i64 = ir.IntegerType.get_signless(64, context=context)
    return ir.ArrayAttr.get(
        [ir.IntegerAttr.get(i64, d) if type(d) is int else ir.StringAttr.get(str(d), context=context) for d in value],
        context=context,
    )


_LARGE = 1 << 20  # bytes: a larger splat (all elements equal) is not expanded


def _repeated(splat: mlir.Attribute, shape: tuple[int, ...]) -> mlir.Attribute:
    """Return a splat attribute (all elements equal) with another shape."""
    text, element = str(splat), splat.type.element_type
    body = text[text.index("<") + 1 : text.rindex("> :")].strip("[]")
    return mlir.ir.Attribute.parse(f"dense<{body}> : {mlir.ir.RankedTensorType.get(shape, element)}")


def elements_to_mlir(array: np.ndarray) -> mlir.Attribute:
    """Return a dense attribute that holds an array."""
    ir, context = mlir.ir, mlir.context()
    kind = dtype(array.dtype)
    element = element_type(kind)
    with context, ir.Location.unknown():
        if array.nbytes > _LARGE and not any(array.strides):
            return _repeated(elements_to_mlir(array[(0,) * array.ndim].reshape(1)), array.shape)
        if array.size == 0:
            return ir.Attribute.parse(f"dense<> : {ir.RankedTensorType.get(array.shape, element)}")
        array = np.ascontiguousarray(array).reshape(array.shape)
        stored = array if kind.is_numpys_own else array.view(f"u{kind.itemsize}")
        return ir.DenseElementsAttr.get(stored, type=element, shape=array.shape)


_small: dict[tuple[str, Any], Any] = {}


def to_mlir(spec: AttributeSpec, value: Any) -> mlir.Attribute:
    """Return the MLIR attribute of a canonical Python value."""
    if spec.kind == "elements":
        return elements_to_mlir(value)
    if spec.kind == "dict":
        return mlir.ir.DictAttr.get(value, context=mlir.context())
    key = (spec.kind, repr(value) if spec.kind == "f64" else value)
    stored = _small.get(key)
    if stored is None:
        stored = _small[key] = _to_mlir(spec.kind, value)
    return stored


def _to_mlir(kind: str, value: Any) -> mlir.Attribute:
    ir, context = mlir.ir, mlir.context()
    if kind == "i64":
        return ir.IntegerAttr.get(ir.IntegerType.get_signless(64, context=context), value)
    if kind == "f64":
        return ir.FloatAttr.get(ir.F64Type.get(context=context), value, loc=ir.Location.unknown(context))
    if kind == "bool":
        return ir.BoolAttr.get(value, context=context)
    if kind == "i64s":
        return ir.DenseI64ArrayAttr.get(list(value), context=context)
    if kind in ("str", "enum"):
        return ir.StringAttr.get(value, context=context)
    if kind == "dtype":
        return ir.TypeAttr.get(element_type(value), context=context)
    return _dims_to_mlir(value)


# --- from MLIR ------------------------------------------------------------------------------------


def _dims_from_mlir(attribute: mlir.Attribute) -> tuple[Dim, ...] | None:
    """Return the sizes in a list of integers and strings; None for other attributes."""
    ir = mlir.ir
    if not isinstance(attribute, ir.ArrayAttr) or not all(
        isinstance(entry, (ir.IntegerAttr, ir.StringAttr)) for entry in attribute
    ):
        return None
    return tuple(dim(entry.value, signed=True) for entry in attribute)


def elements_from_mlir(attribute: mlir.Attribute) -> np.ndarray:
    """Return the array of a dense attribute: a copy, or a read-only view of one element for a large splat.

    Raises:
        ShapeError: The array is too large for NumPy.
    """
    ir = mlir.ir
    type_ = attribute.type
    kind = dtype_from_mlir(str(type_.element_type))
    shape = tuple(type_.shape)
    if not (held := Shape(shape, kind)).is_addressable:
        raise not_addressable(held)
    if 0 in shape:
        return np.zeros(shape, kind.numpy)
    if attribute.is_splat and math.prod(shape) * kind.itemsize > _LARGE:
        with mlir.entered():
            single = elements_from_mlir(_repeated(attribute, (1,)))
        return np.broadcast_to(single[0], shape)  # a view that stores only one element
    if kind.is_complex or not kind.is_numpys_own:
        return _printed_elements(attribute, kind, shape)
    if kind.is_bool and attribute.is_splat:
        return np.full(shape, bool(ir.DenseIntElementsAttr(attribute)[0]))
    return np.array(ir.DenseElementsAttr(attribute)).astype(kind.numpy, copy=False).reshape(shape)


def _printed_elements(attribute: mlir.Attribute, kind: DType, shape: tuple[int, ...]) -> np.ndarray:
    """Parse the text of a dense attribute whose elements the bindings cannot read."""
    text = str(attribute)
    body = text[text.index("<") + 1 : text.rindex("> :")]
    part = kind.part.numpy
    if body.startswith('"0x'):
        flat = np.frombuffer(bytes.fromhex(body[3:-1]), kind.numpy)
    else:
        numbers = [_printed_number(n, part) for n in re.findall(r"[^\[\](),\s]+", body)]
        flat = np.array(numbers, part).view(kind.numpy)
    return np.full(shape, flat[0]) if flat.size == 1 else flat.reshape(shape).copy()


def _printed_number(text: str, part: np.dtype) -> Any:
    """Return the value of a printed number. NaN and infinities are printed as their bits."""
    if text.startswith("0x"):
        return np.array(int(text, 16), f"u{part.itemsize}").view(part)[()]
    return part.type(int(text) if dtype(part).is_integer else float(text) if part.itemsize < 4 else text)


# Syntax of attributes of each kind, for messages.
_FORMS = {
    "bool": "true or false",
    "i64": "a whole number without a type, or of i64",
    "f64": "a number with a point, such as 1.0, without a type, or of f64",
    "i64s": "whole numbers, such as array<i64: 0, 1>",
    "dims": 'a list of sizes, such as [2, "n"]',
    "dtype": "a type of elements, such as f32",
    "dict": "attributes by name, such as {size = 2}",
    "elements": "elements, such as dense<1.0> : tensor<4xf32>",
    "str": "a string",
}


def from_mlir(spec: AttributeSpec, attribute: mlir.Attribute) -> Any:
    """Return the canonical Python value of an MLIR attribute.

    Raises:
        ShapeError: The attribute does not have the kind declared in the record.
    """
    try:
        value = _value(spec, attribute)
    except ValueError:
        value = None
    # The bindings also accept attributes of other types: an i32 or index for an i64, an f32 for an f64.
    if value is None or (spec.kind not in ("dims", "elements", "dict") and to_mlir(spec, value) != attribute):
        expected = f'a string, such as "{spec.cases[0]}"' if spec.kind == "enum" else _FORMS[spec.kind]
        raise ShapeError(f"attribute '{spec.name}' is of the wrong kind: {attribute}; expected {expected}")
    try:
        return check_interval(spec, value)
    except ShapeError as problem:
        raise ShapeError(f"attribute '{spec.name}': {problem.message}") from None


def _value(spec: AttributeSpec, attribute: mlir.Attribute) -> Any:
    ir, kind = mlir.ir, spec.kind
    if kind == "dims":
        return _dims_from_mlir(attribute)
    if kind == "bool":
        return ir.BoolAttr(attribute).value
    if kind == "i64":
        return ir.IntegerAttr(attribute).value
    if kind == "f64":
        return ir.FloatAttr(attribute).value
    if kind == "i64s":
        return tuple(ir.DenseI64ArrayAttr(attribute))
    if kind == "dtype":
        return dtype_from_mlir(str(ir.TypeAttr(attribute).value))
    if kind == "dict":
        return {entry.name: entry.attr for entry in ir.DictAttr(attribute)}
    if kind == "elements":
        dense = isinstance(attribute, ir.DenseElementsAttr) and isinstance(attribute.type, ir.RankedTensorType)
        return elements_from_mlir(attribute) if dense else None
    return normalise(spec, ir.StringAttr(attribute).value)


_read: dict[tuple[str, str, Any], Any] = {}


def read(spec: OpSpec, op: mlir.Operation, bindings: Mapping[str, int] | None = None) -> dict[str, Any]:
    """Return all attributes of an MLIR op as canonical Python values. With `bindings`, dimensions are integers.

    Raises:
        ShapeError: An attribute is missing or of the wrong kind.
    """
    return read_from(spec, op.attributes, bindings)


def read_from(spec: OpSpec, attributes: AttributeDict, bindings: Mapping[str, int] | None = None) -> dict[str, Any]:
    """Return canonical Python values of MLIR attributes by name, as `read` does.

    Raises:
        ShapeError: An attribute is missing or of the wrong kind.
    """
    result: dict[str, Any] = {}
    for attribute in spec.attributes:
        name = attribute.name
        result[name] = read_one(attribute, attributes)
        if bindings is not None and attribute.kind == "dims":
            result[name] = tuple(d.evaluate(bindings) if isinstance(d, DimExpr) else d for d in result[name])
    return result


def read_one(attribute: AttributeSpec, attributes: AttributeDict) -> Any:
    """Return the canonical Python value of one attribute of an MLIR op, or its default if absent.

    Raises:
        ShapeError: The attribute is required and missing, or of the wrong kind.
    """
    if attribute.name not in attributes:
        if attribute.required:
            raise ShapeError(f"attribute '{attribute.name}' is missing")
        return attribute.default
    stored = attributes[attribute.name]
    if attribute.kind in ("elements", "dict"):
        return from_mlir(attribute, stored)
    key = (attribute.kind, attribute.enum + attribute.interval, stored)
    value = _read.get(key)
    if value is None:
        value = _read[key] = from_mlir(attribute, stored)
    return value


def check_names(spec: OpSpec, op: mlir.Operation) -> None:
    """Reject attributes that the record does not declare, unless they belong to another dialect.

    Raises:
        ShapeError: An attribute is unknown.
    """
    known = {attribute.name for attribute in spec.attributes} | segment_attributes(spec)
    for name in op.attributes:
        if name not in known and "." not in name:
            raise ShapeError(f"unknown attribute '{name}'{suggestion(name, known)}")

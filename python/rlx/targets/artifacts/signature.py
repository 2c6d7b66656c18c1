"""`Signature`: the arguments and outputs of a compiled function. It is checked when it is read from a file."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlx.ir.dims.dim import Dim, dim
from rlx.ir.dtype import DType, dtype
from rlx.ir.interface import KINDS, Argument, Output, Requirement, initial_value
from rlx.ir.shape import LARGEST_RANK, Shape
from rlx.support.errors import Error
from rlx.targets.artifacts import fields
from rlx.targets.artifacts.fields import (
    boolean,
    list_of,
    name,
    number,
    number_to_json,
    one_of,
    optional,
    record,
    row,
    text,
)

if TYPE_CHECKING:
    from rlx.ir.graph.graph import Graph


@dataclass(frozen=True)
class Signature:
    """The arguments and outputs of a compiled function: the part of a graph that callers see."""

    name: str
    arguments: tuple[Argument, ...]
    outputs: tuple[Output, ...]

    @classmethod
    def of(cls, graph: Graph) -> Signature:
        return cls(graph.name_symbol, graph.arguments, graph.outputs)

    def of_kind(self, kind: str) -> tuple[Argument, ...]:
        """The inputs, params or states."""
        return tuple(a for a in self.arguments if a.kind == kind)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "arguments": [
                {"name": a.name, "kind": a.kind, "donate": a.donate, "init": number_to_json(a.init)}
                | {"quantized": _scale_to_json(a.quantized)}
                | _shape_to_json(a.shape)
                for a in self.arguments
            ],
            "outputs": [output_to_json(o) for o in self.outputs],
        }

    @classmethod
    def from_json(cls, data: Any) -> Signature:
        """The signature that `to_json` was called on.

        Raises:
            Error: The data has another form, or cannot be the signature of a program.
        """
        content = _SIGNATURE(data, "signature")
        signature = cls(content["name"], tuple(content["arguments"]), tuple(content["outputs"]))
        for entries in (signature.arguments, signature.outputs):
            names = [entry.name for entry in entries]
            if len(set(names)) != len(names):
                raise Error(f"signature: two arguments or outputs have the same name: {', '.join(names)}")
        return signature


def output_to_json(output: Output) -> dict[str, Any]:
    return {"name": output.name} | _shape_to_json(output.shape)


def _scale_to_json(quantized: tuple[float, int] | None) -> list[Any] | None:
    """Return a recorded scale and zero point, without those that represent no numbers."""
    if quantized is None or not math.isfinite(quantized[0]):
        return None
    return [*quantized]


def _shape_to_json(shape: Shape) -> dict[str, Any]:
    return {"dims": [d if type(d) is int else str(d) for d in shape.dims], "dtype": shape.dtype.name}


def _dim(value: Any, what: str) -> Dim:
    if type(value) is int or (type(value) is str and fields.text(value, what)):
        size = dim(value)
        if size == value or str(size) == value:
            return size
    raise fields.unexpected_value(what, "a size or an expression in symbols", value)


def _dtype(value: Any, what: str) -> DType:
    result = dtype(fields.name(value, what))
    if result.name != value:
        raise fields.unexpected_value(what, "the name of a dtype", value)
    return result


def _argument(value: Any, what: str) -> Argument:
    entries = _ARGUMENT(value, what)
    argument = Argument(
        entries["name"],
        entries["kind"],
        _shape(entries, what),
        entries["donate"],
        entries["init"],
        quantized=None if entries["quantized"] is None else tuple(entries["quantized"]),
    )
    if argument.donate and argument.kind != "input":
        raise Error(f"{what}: a {argument.kind} is not donated")
    if argument.kind == "state":
        argument.shape.static  # noqa: B018  (raises)
        initial_value(argument.init, argument.shape.dtype)
    return argument


def output(value: Any, what: str) -> Output:
    """The check of an entry that `output_to_json` returned."""
    entries = _OUTPUT(value, what)
    return Output(entries["name"], _shape(entries, what))


def _shape(entries: Mapping[str, Any], what: str) -> Shape:
    shape = Shape(entries["dims"], entries["dtype"])
    if shape.is_static:
        dim(shape.size_bytes)  # raises if it is too large
    return shape


_SHAPE = {"dims": list_of(_dim, LARGEST_RANK), "dtype": _dtype}
_SCALE = row(number, fields.integer(-(2**63), 2**63 - 1))
_ARGUMENT = record(
    {
        "name": name,
        "kind": one_of(*KINDS),
        "donate": boolean,
        "init": number,
        "quantized": optional(_SCALE),
        **_SHAPE,
    }
)
_OUTPUT = record({"name": name, **_SHAPE})
_SIGNATURE = record({"name": name, "arguments": list_of(_argument), "outputs": list_of(output)})


def requirement(value: Any, what: str) -> Requirement:
    """The check of an entry of `info["requirements"]`."""
    return Requirement.from_json(_REQUIREMENT(value, what))


_REQUIREMENT = row(name, text, optional(text))


def shared_arguments(entries: Mapping[str, Iterable[Argument]]) -> dict[str, Argument]:
    """The parameters and states of several entry points, by name: those of one name are one.

    Args:
        entries: The arguments of each entry point.

    Raises:
        Error: Two of one name differ in kind, shape, dtype or initial value; the message names both entry points.
    """
    found: dict[str, tuple[str, Argument]] = {}
    for entry, arguments in entries.items():
        for argument in arguments:
            if argument.kind == "input":
                continue
            first, other = found.setdefault(argument.name, (entry, argument))
            if (argument.kind, argument.shape) != (other.kind, other.shape) or argument.init != other.init:
                raise Error(
                    f"'{argument.name}' is {_described(other)} in {first!a} and {_described(argument)} in {entry!a}",
                    hint="entry points share parameters and states by name: make them equal, or rename one",
                )
    return {key: argument for key, (_, argument) in found.items()}


def _described(argument: Argument) -> str:
    initial = f" that begins as {argument.init:g}" if argument.kind == "state" else ""
    return f"a {'parameter' if argument.kind == 'param' else argument.kind} {argument.shape}{initial}"

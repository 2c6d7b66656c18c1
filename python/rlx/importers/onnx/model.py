"""An ONNX model as a graph: its nodes in their order, with what depends on sizes alone computed on the way."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.importers.onnx.rules import Unknown, imports
from rlx.importers.table import LARGEST_LITERAL, MOST_OPS
from rlx.ir.arrays import as_array
from rlx.ir.builder import Tensor
from rlx.ir.errors import Error, ParseError, UnsupportedError
from rlx.ir.evaluate import evaluate
from rlx.ir.files import read_bytes
from rlx.ir.graph import Graph
from rlx.ir.packages import required
from rlx.weights.encoding import Plain
from rlx.weights.weight import Weight

_WHAT = "rlx.from_onnx"
_STANDARD = ("", "ai.onnx")
_OLDEST = 7
# Attributes that name a dtype by its number; 0 names none.
_TYPES = ("to", "dtype", "output_dtype")
# What the rules of a node that is not written as ONNX says may raise: nothing has verified the file.
_UNVERIFIED = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)
# Elements up to which a value that depends on constants alone is computed at once: shapes, axes, indices.
_LARGEST_STATIC = 4096


def from_onnx(
    source: str | bytes | os.PathLike[str],
    *,
    sizes: Mapping[str, int] | None = None,
    constants: Mapping[str, Any] | None = None,
) -> Graph:
    """The graph of an ONNX model.

    Args:
        source: The path of a file, or its bytes.
        sizes: Values for sizes that the model leaves open, by their names in it.
        constants: Inputs that are to have one value, by name: shapes, axes and the like that a model takes as inputs.

    Returns:
        Inputs and outputs have the model's names. Initialisers of floats are parameters, whose values are in `weights` and are
        read when they are used; small others are constants.

    Raises:
        ParseError: It is no ONNX model.
        UnsupportedError: Ops cannot be imported: it lists all of them with counts and places. Or one is written in a way
            that is not imported.
        Error: The `onnx` package is missing, the file cannot be read, a size is open, or a dtype is none of the twelve.
    """
    onnx = required("onnx", _WHAT)
    if isinstance(source, (bytes, bytearray)):
        data, name = bytes(source), "<bytes>"
    elif isinstance(source, (str, os.PathLike)) and source != "":
        data, name = read_bytes(source), os.fspath(source)
    else:
        raise Error(f"expected the path of an ONNX file or its bytes, got {source!r:.50}")
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except Exception as problem:
        raise ParseError(f"{name} is no ONNX model: {str(problem).partition(chr(10))[0]}") from None
    del data  # the message has a copy: a file is in memory twice at most
    if not model.HasField("graph") or not model.opset_import:
        raise ParseError(f"{name} is no ONNX model: it has no graph, or no version of the op set")
    try:
        return _Import(onnx, model, name).graph(dict(sizes or {}), dict(constants or {}))
    except Error:
        raise
    except _UNVERIFIED as problem:  # a name that is no text, a field of another kind
        raise ParseError(f"{name} is not written as ONNX says: {type(problem).__name__}: {problem}") from None


@dataclass
class _Value:
    """A value of the model: a tensor, or an array of which a tensor is made when one is asked for."""

    tensor: Tensor | None = None
    known: np.ndarray | None = None
    weight: Weight | None = None

    @property
    def is_literal(self) -> bool:
        return self.known is not None and self.weight is None


class _Import:
    def __init__(self, onnx: Any, model: Any, name: str):
        self.onnx, self.model, self.name = onnx, model, name
        self.opsets = {("" if o.domain in _STANDARD else o.domain): o.version for o in model.opset_import}
        self.opset = self.opsets.get("", onnx.defs.onnx_opset_version())
        if self.opset < _OLDEST:
            raise UnsupportedError(
                f"{name} is of version {self.opset} of ONNX's ops; {_OLDEST} is the oldest that is imported",
                hint="onnx.version_converter.convert_version makes a newer one of it",
            )
        self.values: dict[str, _Value] = {}
        self.g: Any = None

    def graph(self, sizes: dict[str, int], constants: dict[str, Any]) -> Graph:
        nodes = list(self._nodes(self.model.graph))
        if len(nodes) > MOST_OPS:
            raise Error(f"{self.name} has more than {MOST_OPS} nodes")
        imports.check((self._op(node), self._place(node)) for node in nodes)
        self.g = Graph(self.model.graph.name if self.model.graph.name.isidentifier() else "main")
        weights = [self._weight(t) for t in self.model.graph.initializer]
        self.values = {w.name: _Value(weight=w, known=_small(w)) for w in weights}
        self._inputs(sizes, constants)
        for node in self.model.graph.node:
            try:
                self._build(node)
            except Error:
                raise
            except _UNVERIFIED as problem:
                message = f"{self._op(node)} is not written as ONNX says: {type(problem).__name__}: {problem}"
                raise ParseError(message, location=self._place(node)) from None
        outputs = {o.name: self.tensor(o.name, f"output '{o.name}'") for o in self.model.graph.output}
        self.g.set_outputs(outputs)
        return self.g

    def _nodes(self, graph: Any) -> Iterator[Any]:
        for node in graph.node:
            yield node
            for attribute in node.attribute:
                if attribute.type in (attribute.GRAPH, attribute.GRAPHS):
                    raise UnsupportedError(f"{self._op(node)} has a graph inside", location=self._place(node))

    def _op(self, node: Any) -> str:
        return node.op_type if node.domain in _STANDARD else f"{node.domain}.{node.op_type}"

    def _place(self, node: Any) -> str:
        called = node.name or (node.output[0] if node.output else node.op_type)
        return f"{self.name}:{called}"

    def _inputs(self, sizes: dict[str, int], constants: dict[str, Any]) -> None:
        inputs = [i for i in self.model.graph.input if i.name not in self.values]
        if unknown := constants.keys() - {i.name for i in inputs}:
            raise Error(f"constants: {self.name} has no input '{min(unknown)}'")
        for declared in inputs:
            if declared.name in constants:
                array = as_array(constants[declared.name], f"input '{declared.name}'")
                self.values[declared.name] = _Value(known=array)
                continue
            if declared.type.WhichOneof("value") != "tensor_type":
                raise UnsupportedError(f"{self.name}: input '{declared.name}' is not a tensor")
            kind = declared.type.tensor_type
            dims = [self._size(d, declared.name, sizes) for d in kind.shape.dim]
            tensor = self.g.input(declared.name, tuple(dims), self._dtype(kind.elem_type, f"input '{declared.name}'"))
            self.values[declared.name] = _Value(tensor=tensor)

    def _size(self, dim: Any, name: str, sizes: dict[str, int]) -> int:
        if dim.HasField("dim_value"):
            return dim.dim_value
        if dim.dim_param in sizes:
            return sizes[dim.dim_param]
        hint = f"rlx.from_onnx(…, sizes={{'{dim.dim_param or 'batch'}': 1}})"
        raise Error(f"{self.name}: input '{name}' has a size without a value, '{dim.dim_param}'", hint=hint)

    def _dtype(self, number: int, what: str) -> np.dtype:
        try:
            return np.dtype(self.onnx.helper.tensor_dtype_to_np_dtype(number))
        except (KeyError, TypeError):
            raise UnsupportedError(f"{self.name}: {what} has a type that cannot be imported, {number}") from None

    def _weight(self, tensor: Any) -> Weight:
        """An initialiser, whose elements are read when they are used."""
        what = f"initialiser '{tensor.name}'"
        if tensor.data_location == tensor.EXTERNAL:
            raise UnsupportedError(f"{self.name}: {what} is in another file, which is not imported yet")
        dtype, shape = self._dtype(tensor.data_type, what), tuple(tensor.dims)
        nbytes = dtype.itemsize
        for size in shape:
            if size < 0:
                raise ParseError(f"{self.name}: {what} has a size below 0")
            nbytes *= size
        if tensor.HasField("raw_data") and len(tensor.raw_data) != nbytes:
            raise ParseError(f"{self.name}: {what} has {len(tensor.raw_data)} bytes, and {nbytes} are expected")

        def read() -> bytes:
            if tensor.HasField("raw_data"):
                return tensor.raw_data
            return self._array(tensor, what).tobytes()

        return Weight(tensor.name, shape, Plain(dtype), nbytes, self.name, read)

    def _array(self, tensor: Any, what: str) -> np.ndarray:
        try:
            return self.onnx.numpy_helper.to_array(tensor)
        except Exception as problem:
            raise ParseError(f"{self.name}: {what} cannot be read: {problem}") from None

    def tensor(self, name: str, what: str) -> Tensor:
        """The tensor of a value; for one that is only known as an array so far, it is made now."""
        if name not in self.values:
            raise ParseError(f"{self.name}: {what} is '{name}', which nothing before it gives")
        value = self.values[name]
        if value.tensor is None:
            weight = value.weight
            if weight is not None and (weight.dtype.kind == "f" or weight.nbytes > LARGEST_LITERAL):
                value.tensor = self.g.param(name, weight.shape, weight.dtype, value=weight)
            else:
                value.tensor = self.g.constant(weight.numpy() if weight is not None else value.known)
        assert value.tensor is not None
        return value.tensor

    def _attributes(self, node: Any) -> dict[str, Any]:
        return {a.name: self._attribute(a, self._place(node)) for a in node.attribute}

    def _attribute(self, attribute: Any, place: str) -> Any:
        if attribute.type == attribute.TENSOR:
            return self._array(attribute.t, f"'{attribute.name}' of {place}")
        try:
            value = self.onnx.helper.get_attribute_value(attribute)
        except Exception as problem:
            raise ParseError(f"attribute '{attribute.name}' cannot be read: {problem}", location=place) from None
        if attribute.name in _TYPES and isinstance(value, int):
            return self._dtype(value, f"'{attribute.name}' of {place}") if value else None
        if isinstance(value, bytes):
            return value.decode("utf-8", "replace")
        return tuple(value) if attribute.type in (attribute.INTS, attribute.FLOATS) else value

    def _build(self, node: Any) -> None:
        op, place = self._op(node), self._place(node)
        values = [None if not n else self.values.get(n, _Value()) for n in node.input]
        attributes = self._attributes(node)
        rule = imports.rules[op]
        details = {
            "static": [None if v is None else Unknown() if v.known is None else v.known for v in values],
            "opset": self.opset,
            "outputs": len(node.output),
        }
        attributes |= {n: v for n, v in details.items() if n in rule.attributes}
        literal = all(v is None or (v.is_literal or _is_integers(v)) for v in values)
        if literal and (values or op in ("Constant",)):
            results = self._computed(op, values, attributes, place)
            if results is not None:
                self.values.update({n: _Value(known=a) for n, a in zip(node.output, results, strict=False) if n})
                return
        if op == "Shape" or op == "Size":
            scratch = Graph("static")
            shape = self.tensor(node.input[0], place).shape
            built = imports.build(scratch, op, [scratch.input("x", shape)], attributes, (), place)
            scratch.set_outputs(built)
            known = evaluate(scratch, {"x": np.zeros(shape.static, shape.dtype.numpy)})
            self.values[node.output[0]] = _Value(known=known[0])
            return
        operands: list[Any] = [self.tensor(n, f"an operand of {place}") if n else None for n in node.input]
        built = imports.build(self.g, op, operands, attributes, (), place)
        if len(built) < sum(1 for n in node.output if n):
            raise UnsupportedError(f"{op} with {len(node.output)} results cannot be imported", location=place)
        self.values.update({n: _Value(tensor=t) for n, t in zip(node.output, built, strict=False) if n})

    def _computed(
        self, op: str, values: Sequence[_Value | None], attributes: dict[str, Any], place: str
    ) -> list[np.ndarray] | None:
        """What an op gives whose operands are all known: it is computed now; None if it is large."""
        scratch: Any = Graph("static")
        operands: list[Any] = [None if v is None else scratch.constant(v.known) for v in values]
        built = imports.build(scratch, op, operands, attributes, (), place)
        if any(math.prod(t.shape.static) > _LARGEST_STATIC for t in built):
            return None
        scratch.set_outputs(built)
        return [np.asarray(a) for a in evaluate(scratch, scratch.weights)]


def _is_integers(value: _Value) -> bool:
    return value.known is not None and value.known.dtype.kind in "iub"


def _small(weight: Weight) -> np.ndarray | None:
    """The elements of an initialiser that may be a shape, a list of axes or the like."""
    return weight.numpy() if weight.nbytes <= _LARGEST_STATIC * 8 else None

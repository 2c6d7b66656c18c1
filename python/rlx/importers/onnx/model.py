"""An ONNX model as a graph: its inputs, its nodes in their order, its outputs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from rlx.importers.onnx.reading import UNVERIFIED, Model
from rlx.importers.onnx.rules import imports, structures
from rlx.importers.onnx.scope import Scope, Value
from rlx.ir.arrays import as_array
from rlx.ir.errors import Error, ParseError, UnsupportedError
from rlx.ir.files import read_bytes
from rlx.ir.graph import Graph
from rlx.ir.packages import required

_WHAT = "rlx.from_onnx"


def from_onnx(
    source: str | bytes | os.PathLike[str],
    *,
    sizes: Mapping[str, int] | None = None,
    constants: Mapping[str, Any] | None = None,
) -> Graph:
    """The graph of an ONNX model.

    Args:
        source: The path of a file, or its bytes. Data in other files are read from the folder of the model alone.
        sizes: Values for sizes that the model leaves open, by their names in it. Without one the size is a symbol of the
            graph; where an op needs its value, the error says so.
        constants: Inputs that are to have one value, by name: shapes, axes and the like that a model takes as inputs. Of a
            sequence a list of values, of an optional value also None.

    Returns:
        Inputs and outputs have the model's names; of an output that is a sequence, `name.0`, `name.1`, …. Initialisers of
        floats are parameters, whose values are in `weights` and are read when they are used; small others are constants.

    Raises:
        ParseError: It is no ONNX model.
        UnsupportedError: Ops cannot be imported: it lists all of them with counts and places. Or one is written in a way
            that is not imported.
        Error: The `onnx` package is missing, the file cannot be read, or a dtype is none of the twelve.
    """
    onnx = required("onnx", _WHAT)
    folder = None
    if isinstance(source, (bytes, bytearray)):
        data, name = bytes(source), "<bytes>"
    elif isinstance(source, (str, os.PathLike)) and source != "":
        data, name = read_bytes(source), os.fspath(source)
        folder = os.path.dirname(os.path.abspath(name))
    else:
        raise Error(f"expected the path of an ONNX file or its bytes, got {source!r:.50}")
    message = onnx.ModelProto()
    try:
        message.ParseFromString(data)
    except Exception as problem:
        raise ParseError(f"{name} is no ONNX model: {str(problem).partition(chr(10))[0]}") from None
    del data  # the message has a copy: a file is in memory twice at most
    if not message.HasField("graph") or not message.opset_import:
        raise ParseError(f"{name} is no ONNX model: it has no graph, or no version of the op set")
    try:
        return _graph(Model(onnx, message, name, folder, dict(sizes or {})), dict(constants or {}))
    except Error:
        raise
    except UNVERIFIED as problem:  # a name that is no text, a field of another kind
        raise ParseError(f"{name} is not written as ONNX says: {type(problem).__name__}: {problem}") from None


def _graph(model: Model, constants: dict[str, Any]) -> Graph:
    message = model.message.graph
    _check_ops(model)
    g = Graph(message.name if message.name.isidentifier() else "main")
    scope = Scope(model, g)
    scope.define(message.initializer)
    for sparse in message.sparse_initializer:
        scope.values[sparse.values.name] = Value(known=model.dense(sparse, f"initialiser '{sparse.values.name}'"))
    _inputs(scope, constants)
    scope.run(message.node)
    outputs = {}
    for declared in message.output:
        what = f"output '{declared.name}'"
        value = scope.value(declared.name, what)
        parts = {declared.name: value}
        if value.items is not None:
            parts = {f"{declared.name}.{i}": item for i, item in enumerate(value.items)}
        outputs.update({n: scope.tensor(v, what) for n, v in parts.items()})
    g.set_outputs(outputs)
    return g


def _check_ops(model: Model) -> None:
    """Every op has a rule, or is defined by others.

    Raises:
        UnsupportedError: It lists those for which this is not so.
    """
    nodes = list(_nodes(model.message.graph))
    for function in model.functions.values():
        nodes += _nodes(function)
    known = {*imports.rules, *structures}
    unknown = []
    for node in nodes:
        op = model.op(node)
        if op not in known:
            if model.function(node, model.opsets, lambda: []) is None and not _has_function(model, node):
                unknown.append(node)
            else:
                known.add(op)
    imports.check((model.op(node), model.place(node)) for node in unknown)


def _has_function(model: Model, node: Any) -> bool:
    """Whether ONNX defines an op by a function that depends on the node."""
    try:
        version = model.opsets.get(node.domain, 1)
        return model.onnx.defs.get_schema(node.op_type, version, node.domain).has_context_dependent_function
    except model.onnx.defs.SchemaError:
        return False


def _nodes(graph: Any, depth: int = 0) -> Iterator[Any]:
    """The nodes of a graph and of those inside of it."""
    if depth > 64:
        raise Error("graphs are in one another, more than 64 deep")
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == attribute.GRAPH:
                yield from _nodes(attribute.g, depth + 1)
            elif attribute.type == attribute.GRAPHS:
                raise UnsupportedError(f"{node.op_type} has a list of graphs inside, which cannot be imported")


def _inputs(scope: Scope, constants: dict[str, Any]) -> None:
    model = scope.model
    inputs = [i for i in model.message.graph.input if i.name not in scope.values]
    if unknown := constants.keys() - {i.name for i in inputs}:
        raise Error(f"constants: {model.name} has no input '{min(unknown)}'")
    for declared in inputs:
        name, what = declared.name, f"input '{declared.name}'"
        if name in constants:
            scope.values[name] = _constant(constants[name], declared.type, what)
            continue
        if declared.type.WhichOneof("value") != "tensor_type":
            hint = f"give its value: rlx.from_onnx(…, constants={{'{name}': […]}})"
            raise UnsupportedError(f"{model.name}: {what} is not a tensor", hint=hint)
        kind = declared.type.tensor_type
        dims = [model.size(d) for d in kind.shape.dim]
        if -1 in dims:
            raise Error(f"{model.name}: {what} has a size with neither a value nor a name, of axis {dims.index(-1)}")
        scope.values[name] = Value(tensor=scope.g.input(name, tuple(dims), model.dtype(kind.elem_type, what)))


def _constant(value: Any, declared: Any, what: str) -> Value:
    """The value of an input of a type: an array, a list of values, or None."""
    kind = declared.WhichOneof("value")
    if value is None and kind == "optional_type":
        return Value(is_none=True)
    if kind == "optional_type":
        return _constant(value, declared.optional_type.elem_type, what)
    if kind == "sequence_type":
        if not isinstance(value, (list, tuple)):
            raise Error(f"{what} is a sequence: expected a list of values, got {type(value).__name__}")
        return Value(items=[_constant(v, declared.sequence_type.elem_type, what) for v in value])
    return Value(known=as_array(value, what))

"""Conversion of an ONNX model to a graph: inputs, nodes in their order, and outputs."""

from __future__ import annotations

import os
import time
from collections.abc import Container, Iterator, Mapping
from itertools import chain, count
from typing import TYPE_CHECKING, Any

from rlx.importers.onnx.inputs import OpenSizes, define_inputs, described_inputs, integer_inputs, split_bound
from rlx.importers.onnx.reading import UNVERIFIED, OnnxModel
from rlx.importers.onnx.refused import REASONS
from rlx.importers.onnx.remedies import LONGEST_IMPORT, Remedy, fails_for_all_sizes, find_remedy
from rlx.importers.onnx.rules import NEEDS_CONSTANTS, imports, structures
from rlx.importers.onnx.scope import OnnxScope, OnnxValue
from rlx.importers.table import importer
from rlx.ir.calls import with_call_errors
from rlx.ir.graph.graph import Graph
from rlx.support.caller import caller_place
from rlx.support.errors import Error, ParseError, UnsupportedError
from rlx.support.files import file_name
from rlx.support.packages import import_package
from rlx.support.short import short_repr
from rlx.weights.mapped import content_of_file

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto

_WHAT = "rlx.from_onnx"


@with_call_errors
@importer
def from_onnx(
    source: str | bytes | os.PathLike[str],
    *,
    sizes: Mapping[str, int | str] | None = None,
    constants: Mapping[str, Any] | None = None,
) -> Graph:
    """Return the graph of an ONNX model.

    Args:
        source: The path of a file, or its bytes. External data are read only from the folder of the model.
        sizes: Values for sizes that the model leaves open, by their names in the model. `x_dim0` is axis 0 of the input
            `x` if that axis has no name. A string is an expression: with `"32*rows"` the size is a multiple of 32, as
            many image networks need. A size without a value is a symbol of the graph. If an op needs its value, an
            error reports it.
        constants: Inputs with a fixed value, by name, for example shapes and axes that a model takes as inputs. A
            sequence takes a list of values. An optional value can also be None. Arrays have the dtype and the sizes of
            the input; numbers and lists of numbers get its dtype.

    Returns:
        The graph. Inputs and outputs have the model's names. An output that is a sequence becomes `name.0`, `name.1`,
        …; an output that the model lists again becomes `name.1`, …. Float initialisers are parameters, whose values are
        in `weights` and are read when they are used. Other small initialisers are constants.

    Raises:
        ParseError: The source is not an ONNX model.
        ShapeError: The dtype or the sizes of a constant differ from those of its input.
        UnsupportedError: Ops cannot be imported: the message lists all of them with counts and locations. Or an op is
            used in an unsupported form.
        Error: The `onnx` package is missing, the file cannot be read, or RLX does not have a dtype.
    """
    import_package("onnx", _WHAT)
    if isinstance(source, (bytes, bytearray)):
        return from_bytes(source, "<bytes>", None, sizes, constants)
    if not isinstance(source, (str, os.PathLike)) or source == "":
        raise Error(f"expected the path of an ONNX file or its bytes, got {short_repr(source)}")
    name = file_name(source)
    return from_bytes(content_of_file(source, "ONNX"), name, os.path.dirname(os.path.abspath(name)), sizes, constants)


def from_bytes(
    data: Any,
    name: str,
    folder: str | None,
    sizes: Mapping[str, int | str] | None = None,
    constants: Mapping[str, Any] | None = None,
    *,
    is_bound: bool = False,
) -> Graph:
    """Return the graph of an ONNX model, as `from_onnx` does.

    Args:
        data: The content of its file.
        name: The name of the model in messages.
        folder: The folder of external files; None if the model may not refer to any.
        sizes: As for `from_onnx`.
        constants: As for `from_onnx`.
        is_bound: Whether the names of `sizes` may also be those of `integer_inputs`, which become constants.
    """
    for what, given in (("sizes", sizes), ("constants", constants)):
        if given is not None and not isinstance(given, Mapping):
            raise Error(f"{what}: expected values by name, got {short_repr(given)}")
    message = message_of(data, name)
    del data  # The message is a copy of the file. This way a file is in memory at most twice.
    try:
        model = OnnxModel(import_package("onnx", _WHAT), message, name, folder)
        if is_bound:
            sizes, constants = split_bound(model, sizes or {})
        return _graph_or_remedy(model, OpenSizes(model, sizes or {}), dict(constants or {}))
    except Error as problem:
        said = f"{name}:" in str(problem) or problem.message.startswith((f"{name} ", "sizes: ", "constants: "))
        if said or problem.location not in (None, caller_place()):
            raise
        raise problem.moved(location=name) from None
    except UNVERIFIED as problem:  # a name that is not text, or a field of the wrong kind
        raise ParseError(f"{name} is not written as ONNX says: {type(problem).__name__}: {problem}") from None


def message_of(data: Any, name: str) -> Any:
    """Return the `ModelProto` of the content of a file.

    Raises:
        ParseError: It is not an ONNX model.
    """
    message = import_package("onnx", _WHAT).ModelProto()
    try:
        message.ParseFromString(memoryview(data))
    except Exception as problem:
        raise ParseError(f"{name} is no ONNX model: {str(problem).partition(chr(10))[0]}") from None
    if not message.HasField("graph") or not message.opset_import:
        raise ParseError(f"{name} is no ONNX model: it has no graph, or no version of the op set")
    return message


def _graph_or_remedy(model: OnnxModel, sizes: OpenSizes, constants: dict[str, Any]) -> Graph:
    """Return the graph of a model.

    Raises:
        Error: The import fails. The hint names the sizes that are open and the inputs that can be constants, and values with
            which the import succeeds, if some are found.
    """
    _check_ops(model)

    def build(sizes: OpenSizes, constants: Mapping[str, Any]) -> Graph:
        return _graph(model, sizes, dict(constants))

    start = time.thread_time()
    try:
        return _graph(model, sizes, constants)
    except Error as problem:
        if not sizes.reached:  # an error in the arguments
            raise
        most = None if problem.hint == NEEDS_CONSTANTS else 1  # short inputs of other models may be data
        possible = {n: t for n, t in integer_inputs(model, most).items() if n not in constants}
        if not sizes.open and not possible:
            raise
        # An op that is not supported for all sizes may be supported for some.
        is_quick = time.thread_time() - start < LONGEST_IMPORT
        remedy = find_remedy(model, build, problem, sizes, constants) if is_quick else None
        if (
            remedy is None
            and not possible
            and is_quick
            and fails_for_all_sizes(model, build, problem, sizes, constants)
        ):
            raise
        raise problem.moved(hint=_hint(problem, sizes, possible, remedy)) from None


def _hint(
    problem: Error, sizes: OpenSizes, possible: Mapping[str, tuple[str, tuple[int, ...]]], remedy: Remedy | None
) -> str:
    """Return the hint of an import that failed with open sizes, or with inputs that can be constants."""
    parts = []
    if sizes.open:
        parts.append(f"sizes that are open: {', '.join(map(repr, sizes.open))}")
    if possible:
        types = described_inputs(possible)
        parts.append(f"inputs that can be constants: {', '.join(f'{n!r} ({kind})' for n, kind in types.items())}")
    if remedy is not None:
        parts.append(f"for example, this succeeds: {remedy.call}")
        parts += [f"commands take {remedy.flags}"] if remedy.flags else []
        return "; ".join(parts)
    if problem.hint == NEEDS_CONSTANTS and possible:
        pass  # the inputs are listed by name
    elif problem.hint is not None and not problem.hint.startswith("by name: "):
        parts.append(problem.hint)
    elif sizes.open:
        flags = " ".join(f"--bind={name}=N" for name in sizes.open)
        parts.append(f"give them, as numbers or as '32*rows': rlx.from_onnx(…, sizes={{…}}); commands take {flags}")
    if possible:
        values = ", ".join(f"{n!r}: {f'[{dims[0]} values]' if dims else '…'}" for n, (_, dims) in possible.items())
        flags = " ".join(f"--bind={n}={','.join(['N'] * (dims or (1,))[0])}" for n, (_, dims) in possible.items())
        parts.append(f"give constants by rlx.from_onnx(…, constants={{{values}}}); commands take {flags}")
    return "; ".join(parts)


def _graph(model: OnnxModel, sizes: OpenSizes, constants: dict[str, Any]) -> Graph:
    message = model.message.graph
    model.start()
    g = Graph(message.name if message.name.isidentifier() else "main")
    scope = OnnxScope(model, g)
    scope.define(message.initializer)
    for sparse in message.sparse_initializer:
        scope.values[sparse.values.name] = OnnxValue(known=model.dense(sparse, f"initialiser '{sparse.values.name}'"))
    define_inputs(scope, sizes, constants)
    try:
        scope.run(message.node)
    finally:
        sizes.reached = model.built
    outputs = {}
    for declared in message.output:
        what = f"{model.name}: output '{declared.name}'"
        value = scope.value(declared.name, what)
        parts = {declared.name: value}
        if value.items is not None:
            parts = {f"{declared.name}.{i}": item for i, item in enumerate(value.items)}
        for name, part in parts.items():
            outputs[_unused(name, outputs)] = scope.tensor(part, what)
    g.set_outputs(outputs)
    return g


def _unused(name: str, taken: Container[str]) -> str:
    """Return the name of an output, with a number if the model lists a tensor more than once."""
    numbered = (f"{name}.{i}" for i in count(1))
    return next(n for n in chain((name,), numbered) if n not in taken)


def _check_ops(model: OnnxModel) -> None:
    """Check that every op has a rule, or is defined by other ops.

    Raises:
        UnsupportedError: Some ops do not. The message lists them.
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
    imports.check(((model.op(node), model.place(node)) for node in unknown), REASONS)


def _has_function(model: OnnxModel, node: NodeProto) -> bool:
    """Return whether ONNX defines an op by a function that depends on the node."""
    try:
        version = model.opsets.get(node.domain, 1)
        return model.onnx.defs.get_schema(node.op_type, version, node.domain).has_context_dependent_function
    except model.onnx.defs.SchemaError:
        return False


def _nodes(graph: GraphProto, depth: int = 0) -> Iterator[Any]:
    """Yield the nodes of a graph and of its inner graphs."""
    if depth > 64:
        raise Error("graphs are in one another, more than 64 deep")
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == attribute.GRAPH:
                yield from _nodes(attribute.g, depth + 1)
            elif attribute.type == attribute.GRAPHS:
                raise UnsupportedError(f"{node.op_type} has a list of graphs inside, which cannot be imported")

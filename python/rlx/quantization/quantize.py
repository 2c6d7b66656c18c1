"""`rlx.quantize`: quantisation of a graph's products with weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

from rlx import mlir
from rlx.ir.calls import with_call_errors
from rlx.ir.graph.graph import Graph
from rlx.ir.interface import Argument
from rlx.ir.op import opview
from rlx.ir.op.signature import read_outputs, sign_function
from rlx.ir.parameters import named_values
from rlx.ir.shape import shape_of
from rlx.passes import run
from rlx.passes.dtypes.quantization_record import CalibrationRecord
from rlx.passes.dtypes.quantization_scheme import QuantizationScheme, SchemeKeywords
from rlx.passes.dtypes.quantization_sites import PREPARATION
from rlx.passes.dtypes.quantize_insert import insert
from rlx.passes.rewrite import erase_dead
from rlx.passes.simplification.invariants import WeightValues
from rlx.quantization.calibrate import weight_values
from rlx.support.errors import Error
from rlx.support.options import takes_options
from rlx.targets.stages import graph_of

_INTEGERS = ("rlx-quantize-propagate", "rlx-quantize-fold", "rlx-quantize-propagate", "canonicalize", "cse")
# The suffix in the names of parameters that hold the integers of a quantised parameter. Scales have the suffix "scale".
_SUFFIX = "quantised"


@with_call_errors
@takes_options(QuantizationScheme)
def quantize(
    graph: Any,
    record: CalibrationRecord | None = None,
    *,
    keep: Sequence[str] = (),
    params: Mapping[str, Any] | None = None,
    **options: Unpack[SchemeKeywords],
) -> Graph:
    """Round the weights of products to integers of few bits, and optionally their activations.

    Args:
        graph: A `Graph` or `GraphModule` that computes in f32; it is not changed.
        record: The result of `rlx.calibrate` for this graph; required for `int8` activations.
        keep: Names of products in the record that stay in f32. If it names all products, the graph is unchanged.
        params: Weights that did not come with the graph.
        options: The scheme, by name.

    Returns:
        A graph at MIR. If the values of a quantised weight are known, a parameter with the integers replaces it, and
        its values come with the graph. Otherwise the weight is rounded when a program is loaded.

    Raises:
        Error: An option is wrong, the record is of another graph, or the graph has no product with weights.
    """
    scheme = QuantizationScheme(**options)
    if record is None and scheme.activations == "int8":
        hint = "rlx.calibrate(graph, batches) makes one; or give activations='dynamic' or 'none'"
        raise Error("the scales of int8 activations come from a record", hint=hint)
    if record is not None and not isinstance(record, CalibrationRecord):
        hint = "rlx.calibrate makes one, CalibrationRecord.load reads one from a file"
        raise Error(f"record must be a CalibrationRecord, got {type(record).__name__}", hint=hint)
    scheme = scheme if record is not None else replace(scheme, smooth=0.0)
    if isinstance(keep, str):
        raise Error(f"keep is a list of names, got the string {keep!r:.60}", hint=f"keep=[{keep!r:.60}]")
    source = graph_of(graph, "quantize")
    given = named_values(params or {}, [a.name for a in source.params], "params: ")
    result = run(source, PREPARATION)
    with mlir.entered():
        done = insert(result.function, scheme, record, keep=tuple(keep))
    if not done and not keep:
        raise Error(f"graph '{result.name}' has no product of activations with weights to quantise")
    result = run(result, [*_INTEGERS])
    return with_values(result, {**source.weights, **given})


def with_values(graph: Graph, values: Mapping[str, Any]) -> Graph:
    """Return the graph with known quantised weights replaced by parameters of integers and scales.

    Args:
        graph: Quantised; it is changed.
        values: Weights by name.
    """
    names = [a.name for a in graph.arguments]
    constant = WeightValues(graph.function)
    chosen = [v for v in _foldable(graph, constant) if all(names[i] in values for i in constant.roots(v))]
    if not chosen:
        return graph
    arrays = weight_values(graph, values, chosen)
    taken = set(names)
    for value in chosen:
        (root, *_) = sorted(constant.roots(value))
        name = _free(f"{names[root]}.{_SUFFIX if _is_bytes(value) else 'scale'}", taken)
        parameter = graph.param(name, arrays[value].shape, shape_of(value).dtype, value=arrays[value])
        makers = [value.owner.operation] if isinstance(value, mlir.ir.OpResult) else []
        value.replace_all_uses_with(parameter.value)
        erase_dead(makers)
    return _without_unread(graph)


def _foldable(graph: Graph, constant: WeightValues) -> list[mlir.Value]:
    """Return the integers of quantised weights, and the other values that later ops read, such as scales.

    Conversion from integers to floats is left to the loaded program, otherwise nothing would be saved.
    """
    operations = list(opview.operations(graph.function.entry_block))
    rounded = {r for op in operations for r in op.results if r in constant and _is_bytes(r) and constant.roots(r)}
    roots = frozenset[int]().union(*(constant.roots(value) for value in rounded))
    late, chosen = set[mlir.Value](), dict.fromkeys(rounded)
    for op in operations:
        if any(v in rounded or v in late or v not in constant for v in op.operands):
            late.update(op.results)
            early = [v for v in op.operands if v in constant and v not in late and isinstance(v, mlir.ir.OpResult)]
            chosen |= dict.fromkeys(v for v in early if constant.roots(v) & roots)
    return [value for value in chosen if value not in late]


def _is_bytes(value: mlir.Value) -> bool:
    return shape_of(value).dtype.name in ("i8", "u8")


def _free(name: str, taken: set[str]) -> str:
    unique, number = name, 1
    while unique in taken:
        number += 1
        unique = f"{name}.{number}"
    taken.add(unique)
    return unique


def _without_unread(graph: Graph) -> Graph:
    """Return the graph without unused parameters."""
    function, block = graph.function, graph.function.entry_block
    kept: list[Argument] = []
    with mlir.entered():
        for i in reversed(range(len(graph.arguments))):
            argument = graph.arguments[i]
            if argument.kind == "param" and not opview.is_used(block.arguments[i]):
                block.erase_argument(i)
            else:
                kept.insert(0, argument)
        sign_function(function, kept, read_outputs(function))
        result = Graph.from_module(graph.module, graph.name_symbol)
    result.take_weights(graph)
    return result

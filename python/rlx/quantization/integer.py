"""`rlx.observe_ranges` and `rlx.integer_only`: graphs of only integer ops, for machines without floats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx import mlir
from rlx.ir.calls import Answered, with_call_errors
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.location import describe
from rlx.ir.op import opview
from rlx.ir.op.quantization import quantization_of
from rlx.ir.parameters import named_values
from rlx.ops.quantization.requantize import BITS
from rlx.passes import run
from rlx.passes.bind import bind_hint
from rlx.passes.dtypes.quantization_sites import sites
from rlx.passes.integer.quantize_boundary import leftovers
from rlx.passes.integer.quantize_values import range_of, round_values, values_to_observe
from rlx.passes.integer.requantize_mode import RequantizeMode
from rlx.passes.integer.value_ranges import ValueRanges
from rlx.passes.simplification.bind_params import bind_params
from rlx.quantization.calibrate import called, check_batch, check_method, read, runner, weight_values
from rlx.quantization.observers import Observer, finite
from rlx.report.progress import progress as shown
from rlx.support.errors import Error, UnsupportedError
from rlx.support.guards import is_mapping
from rlx.targets.options import CompileOptions
from rlx.targets.stages import graph_of, prepare_graph

# Composite ops with an integer form. All other composite ops are decomposed.
_KEPT = "softmax,clamp,pad,fake_quantize,fake_quantize_lsq"
_DECOMPOSE = f"rlx-decompose{{except={_KEPT}}}"
_PREPARE = (
    "rlx-lower-blocks",
    _DECOMPOSE,
    "rlx-lower-control-flow",
    _DECOMPOSE,
    "rlx-simplify",
    "rlx-drop-fake-quantize",
    "rlx-fold-affine",
    "canonicalize",
    "cse",
)
_FINISH = (
    "rlx-quantize-integer",
    "rlx-constant-fold{max-elements=16777216}",
    "rlx-simplify",
    "canonicalize",
    "cse",
)


@with_call_errors
def observe_ranges(
    graph: Any,
    batches: Iterable[Mapping[str, Any]],
    *,
    params: Mapping[str, Any] | None = None,
    method: str = "minmax",
    percentile: float = 99.99,
    device: Any = "cpu",
    progress: bool = True,
) -> ValueRanges:
    """Run a graph on representative data, and record the ranges of its values.

    Args:
        graph: A `Graph` or `GraphModule` that computes in f32; it is not changed.
        batches: Inputs by name, for one run each.
        params: Weights that did not come with the graph.
        method: How ranges are chosen, as for `rlx.calibrate`.
        percentile: As for `rlx.calibrate`.
        device: The device to run on; None uses the NumPy evaluator.
        progress: Show a bar on a terminal.

    Raises:
        Error: There is no batch, a batch does not fit, or a value is not finite. The message names the batch and the
            value.
    """
    check_method(method, percentile)
    source = primitive_graph(graph, "observe_ranges")
    values = {**graph_of(graph, "observe_ranges").weights, **(params or {})}
    taps = values_to_observe(source.function)
    observers = [Observer(0, counts=method != "minmax") for _ in taps]
    tapped = source.clone()
    tapped.set_outputs([Tensor(tapped, value) for value in values_to_observe(tapped.function)])
    call = runner(tapped, values, device)
    count = 0
    for count, batch in enumerate(shown(batches, "observe", show=progress), 1):
        check_batch(batch, count)
        for value, observer, array in zip(taps, observers, called(call, batch, count), strict=True):
            if not finite(array):
                maker, place = range_of(source.function, value, 0, 0).maker, _place(value)
                raise Error(f"batch {count}: '{maker}' holds NaN or infinity", location=place)
            observer.observe(np.reshape(array, (1, -1)))
    if not count:
        raise Error("there is no batch to observe", hint="give at least one mapping of input names to arrays")
    ranges = [o.range(method, percentile) for o in observers]
    return ValueRanges(
        method, count, [range_of(source.function, v, *ends) for v, ends in zip(taps, ranges, strict=True)]
    )


@with_call_errors
def integer_only(
    graph: Any,
    ranges: ValueRanges,
    *,
    params: Mapping[str, Any] | None = None,
    bits: int = 8,
    layers: Mapping[str, int] | None = None,
    symmetric: bool = False,
    mode: str = "double",
    allow_float: bool = False,
    bind: Mapping[str, int] | None = None,
) -> Graph:
    """Return a graph with only integer ops: i8 values, i32 sums, fixed-point numbers, tables.

    Args:
        graph: A `Graph` or `GraphModule` that computes in f32; it is not changed. Its sizes are fixed, or fixed by `bind`.
        ranges: The result of `observe_ranges` for this graph, of any sizes.
        params: Weights that did not come with the graph.
        bits: The bits of weights: 8, 4 (-7 to 7) or 2 (-1, 0, 1), with one scale per channel of a result.
        layers: The bits of the weights of single products, by the names of their weights.
        symmetric: Whether zero points are 0.
        mode: How sums are scaled: `double`, `single` or `short`, as in `requantize`.
        allow_float: Keep ops without an integer form, instead of rejecting the graph.
        bind: The sizes of symbols: `{"batch": 1}`.

    Returns:
        A graph at MIR without parameters: weights are constants. Inputs and outputs are i8. They represent
            `(value - zero_point)·scale` with the parameters of `rlx.quantizations(graph)`. Indices are not changed.

    Raises:
        Error: An option is wrong, a weight is missing, or the ranges are of another graph.
        UnsupportedError: Some ops do not have an integer form. The message names all of them, with the user's lines.
    """
    _check_options(ranges, layers, mode)
    source = bound_graph(graph, "integer_only", bind)
    values = {**source.weights, **named_values(params or {}, [a.name for a in source.params], "params: ")}
    result = primitive_graph(source, "integer_only")
    if result.symbols:
        names = ", ".join(sorted(result.symbols))
        raise UnsupportedError(
            f"integer-only graphs have static sizes; unknown: {names}", hint=bind_hint(result.symbols)
        )
    missing = next((a.name for a in result.params if a.name not in values), None)
    if missing is not None:
        raise Error(f"param '{missing}' is missing", hint="give it in params, or have the graph come with its weights")
    _check_weights(result, values)
    with mlir.entered():
        round_values(result.function, ranges, symmetric=symmetric, bits=bits, layers=layers or {})
        bind_params(result.function, read({a.name: values[a.name] for a in result.params}))
    result = run(result, [*_FINISH, "rlx-quantize-boundary", "canonicalize"])
    left = leftovers(result.function)
    if left and not allow_float:
        raise _refused(left)
    return run(result, [RequantizeMode(mode=mode)]) if mode != "double" else result


def _check_options(ranges: Any, layers: Any, mode: Any) -> None:
    if not isinstance(ranges, ValueRanges):
        hint = "rlx.observe_ranges makes them, ValueRanges.load reads them from a file"
        raise Error(f"ranges must be ValueRanges, got {type(ranges).__name__}", hint=hint)
    if layers is not None and not is_mapping(layers):
        raise Error(f"layers is a mapping of names to bits, got {type(layers).__name__}", hint="layers={'w': 4}")
    if mode not in BITS:
        raise Error(f"mode must be one of {', '.join(BITS)}, got {mode!r:.60}")


def _check_weights(graph: Graph, values: Mapping[str, Any]) -> None:
    """Check that the weights of products, with the factors folded into them, are finite.

    Raises:
        Error: Some are not. The message names the product or the parameter.
    """
    known = sites(graph.function, ranks=(3, 4))
    arrays = weight_values(graph, values, {site.weights for site in known})
    for site in known:
        if not np.isfinite(arrays[site.weights]).all():
            message = f"the weights of '{site.name}' hold NaN or infinity, with what multiplies them"
            raise Error(message, location=site.place, hint="look at the scale and the variance of its norm")


@dataclass(frozen=True)
class Quantization(Answered):
    """The mapping from integers of an input or output to numbers: `(value - zero_point)·scale`."""

    scale: float
    zero_point: int

    def quantize(self, x: Any) -> np.ndarray:
        """Return floats as i8, rounded half to even and saturated. NaN becomes the zero point, as in the op `quantize`."""
        with np.errstate(over="ignore"):  # values beyond f32 are saturated too
            steps = np.rint(np.asarray(x, np.float32) / np.float32(self.scale)) + self.zero_point
        return np.clip(np.where(np.isnan(steps), self.zero_point, steps), -128, 127).astype(np.int8)

    def dequantize(self, x: Any) -> np.ndarray:
        """Return the floats, f32, for integers.

        Raises:
            Error: Some values are not integers.
        """
        array = np.asarray(x)
        if array.dtype.kind not in "iu":
            raise Error(f"dequantize takes integers, got {array.dtype}", hint="the results of the program are integers")
        return ((array.astype(np.int32) - self.zero_point) * np.float32(self.scale)).astype(np.float32)


@with_call_errors
def quantizations(graph: Graph) -> dict[str, Quantization]:
    """Return the quantisations of inputs and outputs of a graph from `integer_only`, by name, without plain integers."""
    with mlir.entered():
        return {name: Quantization(*pair) for name, pair in quantization_of(graph.function).items()}


def bound_graph(graph: Any, caller: str, bind: Mapping[str, int] | None) -> Graph:
    """Return the graph of a call with these sizes of symbols."""
    return prepare_graph(graph_of(graph, caller), CompileOptions(bind=bind))


def primitive_graph(graph: Any, caller: str) -> Graph:
    """Return a graph in the form in which its values are quantised: primitives, with batch norms folded."""
    return run(graph_of(graph, caller), [*_PREPARE])


def _place(value: mlir.Value) -> str | None:
    return describe(value.owner.operation.location if isinstance(value, mlir.ir.OpResult) else value.location)


def _refused(left: list[mlir.Operation]) -> UnsupportedError:
    moves = ("quantize", "dequantize")
    left = [op for op in left if opview.name_of(op) not in moves] or left  # they only surround the ops in question
    lines = [f"  {opview.name_of(op)} at {describe(op.location) or '<unknown>'}" for op in left]
    return UnsupportedError(
        "the graph has ops without a form in integers:\n" + "\n".join(dict.fromkeys(lines)),
        hint="allow_float=True (--allow-float) leaves them in f32; products need weights, sums and norms finite constants "
        "beside them",
    )

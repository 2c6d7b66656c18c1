"""`rlx.calibrate`: the ranges of a graph's activations over a user's data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from rlx.ir.calls import with_call_errors
from rlx.ir.dtype import family
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.evaluate import evaluate, evaluate_op
from rlx.ir.graph.graph import Graph
from rlx.ir.op import opview
from rlx.passes import run
from rlx.passes.dtypes.quantization_record import CalibrationEntry, CalibrationRecord
from rlx.passes.dtypes.quantization_sites import PREPARATION, sites
from rlx.passes.simplification.invariants import WeightValues
from rlx.quantization.observers import METHODS, Observer, finite
from rlx.report.progress import progress as shown
from rlx.runtime.session import Session
from rlx.support.errors import Error
from rlx.support.guards import is_mapping
from rlx.targets.stages import graph_of

Runner = Callable[[Mapping[str, Any]], list[np.ndarray]]


@with_call_errors
def calibrate(
    graph: Any,
    batches: Iterable[Mapping[str, Any]],
    *,
    params: Mapping[str, Any] | None = None,
    method: str = "minmax",
    percentile: float = 99.99,
    device: Any = "cpu",
    progress: bool = True,
) -> CalibrationRecord:
    """Run a graph on representative data, and record the ranges of the activations that its products with weights take.

    Args:
        graph: A `Graph` or `GraphModule`; it is not changed.
        batches: Inputs by name, for one run each.
        params: Weights that did not come with the graph.
        method: How ranges are chosen: `minmax` includes all values, `percentile` excludes outliers, `mse` minimises the
            mean squared error, `entropy` minimises the loss of information.
        percentile: The percentage of values in the range, for `percentile`.
        device: The device to run on; None uses the NumPy evaluator.
        progress: Show a bar on a terminal.

    Returns:
        A record for `rlx.quantize`, which can be saved.

    Raises:
        Error: There is nothing to calibrate, no batch, a batch that does not fit, or a value that is not finite. The
            message names the batch and the tensor.
    """
    check_method(method, percentile)
    source = run(graph_of(graph, "calibrate"), PREPARATION)
    known = sites(source.function)
    if not known:
        raise Error(
            f"graph '{source.name}' has no product of activations with weights",
            hint="there is nothing to quantise in it",
        )
    values = {**source.weights, **(params or {})}
    taps = {(site.activations, site.axis): site for site in reversed(known)}
    observers = {key: Observer(key[1], counts=method != "minmax") for key in taps}
    names = {key: site.name for key, site in taps.items()}
    source.set_outputs([Tensor(source, value) for value, _ in taps])
    call = runner(source, values, device)
    count = 0
    for count, batch in enumerate(shown(batches, "calibrate", show=progress), 1):
        check_batch(batch, count)
        for key, array in zip(taps, called(call, batch, count), strict=True):
            if not finite(array):
                message = f"batch {count}: what goes into the product with '{names[key]}' holds NaN or infinity"
                raise Error(message, location=taps[key].place, hint="look at the inputs of this batch")
            observers[key].observe(array)
    if not count:
        raise Error("there is no batch to calibrate with", hint="give at least one mapping of input names to arrays")
    entries: dict[str, CalibrationEntry] = {}
    ranges = {key: observer.range(method, percentile) for key, observer in observers.items()}
    for site in known:
        key = (site.activations, site.axis)
        seen = observers[key]
        entries[site.name] = CalibrationEntry(site.place, seen.low, seen.high, ranges[key])
    return CalibrationRecord(method, count, entries)


def check_method(method: str, percentile: float) -> None:
    if method not in METHODS:
        raise Error(f"method is one of {', '.join(METHODS)}, not {method!r:.60}")
    if isinstance(percentile, bool) or not 50 < percentile <= 100:
        raise Error(f"percentile must be above 50 and at most 100, got {percentile!r:.60}")


def check_batch(batch: Any, number: int) -> None:
    """Check that a batch has inputs by name, with finite values.

    Raises:
        Error: It is not a mapping, or an input is empty or has NaN or infinity.
    """
    if not is_mapping(batch):
        hint = "batches is a list of them: [{name: array}]"
        raise Error(f"batch {number} must be a mapping of input names to arrays, got {type(batch).__name__}", hint=hint)
    for name, value in batch.items():
        array = np.asarray(value)
        if family(array.dtype) == "float" and not finite(array):
            raise Error(f"batch {number}: input '{name}' holds NaN or infinity")
        if array.size == 0:
            raise Error(f"batch {number}: input '{name}' is empty")


def called(call: Runner, batch: Mapping[str, Any], number: int) -> list[np.ndarray]:
    try:
        return call(batch)
    except Error as problem:
        raise problem.moved(f"batch {number}: {problem.message}") from None


def runner(graph: Graph, values: Mapping[str, Any], device: Any) -> Runner:
    """Return a function that runs a graph on inputs, compiled for a device, or by the evaluator if the device is None.

    Raises:
        Error: A weight is missing or does not fit, or the graph cannot be compiled.
    """
    names = [a.name for a in graph.params]
    if missing := next((name for name in names if name not in values), None):
        raise Error(f"param '{missing}' is missing", hint="give it in params, or have the graph come with its weights")
    weights = {name: value for name, value in values.items() if name in names}
    if device is None:
        return lambda batch: evaluate(graph, {**read(weights), **batch})
    compiled = Session(device).compile(graph, params=weights)
    return lambda batch: compiled.run(dict(batch))


def read(weights: Mapping[str, Any]) -> dict[str, np.ndarray]:
    return {name: value.numpy() if hasattr(value, "numpy") else np.asarray(value) for name, value in weights.items()}


def weight_values(graph: Graph, values: Mapping[str, Any], wanted: Iterable[Any]) -> dict[Any, np.ndarray]:
    """Evaluate values that depend only on weights.

    Args:
        graph: At MIR.
        values: Weights by name.
        wanted: MLIR values.

    Raises:
        Error: A weight is missing or does not fit, or has a value that no scale can represent.
    """
    constant = WeightValues(graph.function)
    positions = {i for value in wanted for i in constant.roots(value)}
    needed = [graph.arguments[i].name for i in sorted(positions)]
    missing = [name for name in needed if name not in values]
    if missing:
        raise Error(
            f"param '{missing[0]}' is missing", hint="give it in params, or have the graph come with its weights"
        )
    arrays = read({name: values[name] for name in needed})
    for name, array in arrays.items():
        if not np.isfinite(array.astype(np.float32, copy=False)).all():
            raise Error(
                f"param '{name}' holds NaN or infinity, which no scale represents", hint="keep its product in f32"
            )
    return _Evaluated(graph, arrays).of(list(wanted))


class _Evaluated:
    """Values of a graph that depend on weights, evaluated on demand."""

    def __init__(self, graph: Graph, arrays: Mapping[str, np.ndarray]):
        arguments = graph.function.entry_block.arguments
        self.known: dict[Any, np.ndarray] = {
            arguments[i]: arrays[a.name] for i, a in enumerate(graph.arguments) if a.name in arrays
        }
        self.order = [op for op in opview.operations(graph.function.entry_block) if op.name not in opview.TERMINATORS]

    def of(self, wanted: list[Any]) -> dict[Any, np.ndarray]:
        needed = set(wanted)
        for op in reversed(self.order):
            if any(r in needed for r in op.results):
                needed.update(op.operands)
        for op in self.order:
            if any(r in needed for r in op.results) and all(v in self.known for v in op.operands):
                arrays = evaluate_op(op, [self.known[v] for v in op.operands], {})
                self.known.update(zip(op.results, arrays, strict=True))
        return {value: self.known[value] for value in wanted}

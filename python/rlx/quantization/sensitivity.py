"""`rlx.quantization_sensitivity`: the loss of accuracy of each product, and the products to keep in f32."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack

import numpy as np

from rlx import mlir
from rlx.ir.calls import with_call_errors
from rlx.ir.dtype import family
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.graph import Graph
from rlx.passes import run
from rlx.passes.dtypes.quantization_record import CalibrationRecord
from rlx.passes.dtypes.quantization_scheme import QuantizationScheme, SchemeKeywords
from rlx.passes.dtypes.quantization_sites import PREPARATION, QuantizationSite, sites
from rlx.passes.dtypes.quantize_insert import insert
from rlx.quantization.calibrate import Runner, check_batch, runner
from rlx.report.progress import progress as shown
from rlx.report.text import short_place, table
from rlx.support.errors import Error
from rlx.support.options import takes_options
from rlx.targets.stages import graph_of

_SWITCHES = "quantised_products"


@dataclass(frozen=True)
class Sensitivity:
    """The effect of rounding on the results of a graph.

    Attributes:
        name: The only product that is rounded.
        place: The user's line.
        cosine: The smallest cosine of a row of an output with that in f32.
        error: The norm of the change of the outputs, divided by the norm of the outputs.
    """

    name: str
    place: str
    cosine: float
    error: float


def check_cosine(cosine: Any) -> None:
    """Check that a smallest cosine is a number above 0 and below 1.

    Raises:
        Error: It is not.
    """
    if isinstance(cosine, bool) or not isinstance(cosine, (int, float)) or not 0 < cosine < 1:
        raise Error(f"the least cosine must be above 0 and below 1, got {cosine!r:.60}")


class SensitivityReport:
    """The loss of accuracy of each product, the largest first; as text, a table.

    Attributes:
        rows: Each product rounded alone.
        together: All products rounded.
    """

    def __init__(self, rows: Sequence[Sensitivity], together: Sensitivity, measure: _Measure):
        self.rows = tuple(sorted(rows, key=lambda row: -row.error))
        self.together = together
        self._measure = measure

    def keep(self, cosine: float) -> list[str]:
        """Return the products to keep in f32 for a given accuracy, those with the largest loss first.

        Args:
            cosine: The smallest acceptable cosine of a row of an output with that in f32, above 0 and below 1.

        Raises:
            Error: The cosine is not in this range.
        """
        check_cosine(cosine)
        names = [row.name for row in self.rows]
        fewest, most = 0, len(names)
        while fewest < most:  # apart from noise, one more product in f32 does not reduce accuracy
            count = (fewest + most) // 2
            if self._measure.of(names[count:])[0] >= cosine:
                most = count
            else:
                fewest = count + 1
        return names[:fewest]

    def __str__(self) -> str:
        cells = [
            (row.name, short_place(row.place), f"{row.cosine:.6f}", f"{row.error:.2e}")
            for row in (self.together, *self.rows)
        ]
        return "\n".join(table(cells, ("product", "line", "least cosine", "relative error"), right=(2, 3)))


@with_call_errors
@takes_options(QuantizationScheme)
def quantization_sensitivity(
    graph: Any,
    record: CalibrationRecord | None,
    batches: Iterable[Mapping[str, Any]],
    *,
    params: Mapping[str, Any] | None = None,
    device: Any = "cpu",
    progress: bool = True,
    **options: Unpack[SchemeKeywords],
) -> SensitivityReport:
    """Round one product at a time, and compare the outputs with those in f32.

    A single program is compiled. It has a switch for each product, and it rounds and multiplies as floats.

    Args:
        graph: As for `rlx.quantize`, with its options and its record.
        record: As for `rlx.quantize`.
        batches: Inputs by name; few are enough.
        params: Weights that did not come with the graph.
        device: The device to run on; None uses the NumPy evaluator.
        progress: Show a bar on a terminal.
        options: The scheme, by name.

    Raises:
        Error: As for `rlx.quantize`; or there is no batch, or no floating-point output.
    """
    scheme = QuantizationScheme(**options)
    scheme = scheme if record is not None else replace(scheme, smooth=0.0)
    source = graph_of(graph, "quantization_sensitivity")
    switched = run(source, PREPARATION)
    places = {site.name: site.place for site in sites(switched.function)}
    if not places:
        raise Error(f"graph '{switched.name}' has no product of activations with weights to quantise")
    _with_switches(switched, scheme, record, list(places))
    call = runner(switched, {**source.weights, **(params or {})}, device)
    data = list(batches)
    for number, batch in enumerate(data, 1):
        check_batch(batch, number)
    if not data:
        raise Error(
            "there is no batch to compare results on", hint="give at least one mapping of input names to arrays"
        )
    measure = _Measure(call, data, list(places))
    rows = [
        Sensitivity(name, places[name], *measure.of([name]))
        for name in shown(list(places), "measure what each product costs", show=progress)
    ]
    return SensitivityReport(rows, Sensitivity("all together", "", *measure.of(list(places))), measure)


def _with_switches(
    graph: Graph, scheme: QuantizationScheme, record: CalibrationRecord | None, names: Sequence[str]
) -> None:
    """Round every product whose switch is on. The switches are the elements of an additional input."""
    if any(a.name == _SWITCHES for a in graph.arguments):
        raise Error(f"the graph has an argument '{_SWITCHES}' already")
    switches = graph.input(_SWITCHES, (len(names),), "bool")

    def select(b: Builder, site: QuantizationSite, rounded: Tensor, plain: Tensor) -> Tensor:
        number = names.index(site.name)
        on = b.reshape(b.narrow(Tensor(b, switches.value), 0, number, 1), ())
        return b.where(on, rounded, plain)

    with mlir.entered():
        insert(graph.function, scheme, record, select=select)


class _Measure:
    """The distance of results from those in f32, with some products rounded."""

    def __init__(self, call: Runner, batches: Sequence[Mapping[str, Any]], names: Sequence[str]):
        self._call, self._batches, self._names = call, batches, names
        self._exact = [self._run(batch, ()) for batch in batches]
        if not any(self._exact):
            raise Error("the graph has no output of floats to compare")

    def _run(self, batch: Mapping[str, Any], rounded: Sequence[str]) -> list[np.ndarray]:
        switches = np.array([name in rounded for name in self._names])
        results = self._call({**batch, _SWITCHES: switches})
        floats = [r.astype(np.float64) for r in results if family(r.dtype) == "float"]
        return [r.reshape(-1, r.shape[-1] if r.ndim else 1) for r in floats]

    def of(self, rounded: Sequence[str]) -> tuple[float, float]:
        """Return the smallest cosine of a row, and the relative error of all outputs."""
        least, changed, whole = 1.0, 0.0, 0.0
        for batch, exact in zip(self._batches, self._exact, strict=True):
            for wanted, got in zip(exact, self._run(batch, rounded), strict=True):
                lengths = np.linalg.norm(wanted, axis=1) * np.linalg.norm(got, axis=1)
                cosines = np.where(lengths > 0, np.sum(wanted * got, axis=1) / np.where(lengths > 0, lengths, 1), 1.0)
                least = min(least, float(cosines.min(initial=1.0)))
                changed += float(np.sum((got - wanted) ** 2))
                whole += float(np.sum(wanted**2))
        return least, float(np.sqrt(changed / whole)) if whole else 0.0

"""`rlx-quantize-insert`: explicit quantisation of weights and activations to integers of few bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rlx import mlir
from rlx.ir.dtype import f32
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.op import opview, views
from rlx.ir.op.signature import functions
from rlx.ir.shape import shape_of
from rlx.passes.base import Pass, option
from rlx.passes.dtypes.quantization_record import CalibrationEntry, CalibrationRecord, scale_of
from rlx.passes.dtypes.quantization_scheme import ACTIVATIONS, WEIGHTS, QuantizationScheme
from rlx.passes.dtypes.quantization_sites import QuantizationSite, check_products, sites
from rlx.passes.pattern import has_one_use
from rlx.passes.rewrite import builder_before, erase_dead
from rlx.passes.simplification.invariants import depends_on_weights
from rlx.support.errors import PassError
from rlx.support.suggestions import suggestion

# A function that receives the product of rounded operands and the original product, and returns the value to use.
Select = Callable[[Builder, QuantizationSite, Tensor, Tensor], Tensor]


# A bias is added to a sum of products in i32, which needs the other half of the range.
LARGEST_BIAS = 2.0**30


@dataclass(frozen=True)
class QuantizeInsert(Pass, name="rlx-quantize-insert"):
    """Round the operands of products of activations with weights by pairs of rlx.quantize and rlx.dequantize.

    Scales of weights are computed from the weights, so back ends compute them once, when they load a program. Ranges of
    activations come from a record. Products in regions are not changed. `rlx-quantize-fold` creates integer products
    from the result.
    """

    # Rounding to 8 bits changes results beyond the tolerance of a comparison.
    preserves_results = False

    record: str | None = option(None, "the file of a calibration record: rlx.calibrate(…).save(…)")
    weights: str = option("int8", "the format that weights are rounded to", choices=WEIGHTS)
    activations: str = option("int8", "the format that activations are rounded to", choices=ACTIVATIONS)
    symmetric: bool = option(False, "zero points of activations are 0")
    smooth: float = option(0.0, "how strongly activation channels are equalised, 0 to 1", least=0)
    group: int = option(32, "the rows that share a scale, for int4", least=2)
    keep: tuple[str, ...] = option((), "products that stay in f32, by their names in the record")

    def run(self, module: mlir.Module) -> None:
        scheme = QuantizationScheme(self.weights, self.activations, self.symmetric, self.smooth, self.group)
        if self.record is None and scheme.activations == "int8":
            raise PassError(
                f"{self.name}: the scales of int8 activations come from a record",
                hint="rlx.calibrate makes one; or activations=dynamic or none",
            )
        record = CalibrationRecord.load(self.record) if self.record is not None else None
        for function in functions(module):
            if not function.is_external:
                insert(function, scheme, record, keep=self.keep)


def insert(
    function: mlir.FuncOp,
    scheme: QuantizationScheme,
    record: CalibrationRecord | None,
    *,
    keep: Sequence[str] = (),
    select: Select | None = None,
) -> list[str]:
    """Round the operands of products, in place.

    Args:
        function: A function at MIR.
        scheme: The quantisation scheme.
        record: Ranges of activations; required if these are rounded.
        keep: Names of products that are not changed.
        select: Chooses between the product of rounded operands and the original one; by default, the first.

    Returns:
        The names of the products.

    Raises:
        PassError: A name in `keep` is not a product, or the record lacks a product.
    """
    known = sites(function)
    names = [site.name for site in known]
    check_products(QuantizeInsert.name, keep, names)
    chosen = [site for site in known if site.name not in keep]
    if scheme.activations == "int8" or record is not None:
        _check_record(record, chosen)
    groups: dict[tuple[mlir.Value, int], list[QuantizationSite]] = {}
    for site in chosen:
        groups.setdefault((site.activations, site.axis), []).append(site)
    for group in groups.values():
        _SharedActivations(group, scheme, record.entries if record else {}, select).rewrite()
    return [site.name for site in chosen]


def _check_record(record: CalibrationRecord | None, chosen: Sequence[QuantizationSite]) -> None:
    entries: Mapping[str, CalibrationEntry] = record.entries if record is not None else {}
    for site in chosen:
        entry, channels = entries.get(site.name), shape_of(site.activations).dims[site.axis]
        hint = "make the record of this graph, by rlx.calibrate"
        if entry is None:
            message = f"{QuantizeInsert.name}: the record has no product '{site.name}'{suggestion(site.name, entries)}"
            raise PassError(message, location=site.place, hint=hint)
        if len(entry.low) != channels:
            message = f"{QuantizeInsert.name}: '{site.name}' has {channels} channels, in the record {len(entry.low)}"
            raise PassError(message, location=site.place, hint=hint)


@dataclass(frozen=True)
class _SharedActivations:
    """The products that share one activation tensor."""

    sites: Sequence[QuantizationSite]
    scheme: QuantizationScheme
    entries: Mapping[str, CalibrationEntry]
    select: Select | None

    def rewrite(self) -> None:
        first = self.sites[0]
        b = builder_before(first.op, QuantizeInsert.name)
        x = b.tensor(first.op.operands[0])  # the previous product may have replaced it
        factors, rounded, scale = None, x, None
        if self.scheme.activations != "none":
            entry = self.entries.get(first.name)
            bounds = entry.range if entry is not None else (0.0, 0.0)
            if entry is not None and self.scheme.smooth and not first.is_convolution:
                factors, bounds = entry.smoothed(self.scheme.smooth)
            rounded, scale = self._rounded(b, x if factors is None else x * factors, bounds)
        for site in self.sites:
            self._product(site, x, rounded, factors, scale)

    def _rounded(self, b: Builder, x: Tensor, bounds: tuple[float, float]) -> tuple[Tensor, float | None]:
        """Round activations to 8 bits, with one scale from a range or one per row. Returns also the single scale, if any."""
        if self.scheme.activations == "int8":
            scale, zero = scale_of(*bounds, symmetric=self.scheme.symmetric)
            return b.dequantize(b.quantize(x, scale, zero), scale, zero), scale
        if self.sites[0].is_convolution:
            return x, None
        return _eight_bits(b, x if x.rank == 2 else b.reshape(x, (-1, x.shape.dims[-1])), 0), None

    def _product(
        self, site: QuantizationSite, x: Tensor, rounded: Tensor, factors: np.ndarray | None, scale: float | None
    ) -> None:
        b = builder_before(site.op, QuantizeInsert.name)
        w = b.tensor(site.op.operands[1])
        as_matrix = b.transpose(w) if site.weight_axis and not site.is_convolution else w
        to_round = as_matrix if factors is None else as_matrix * (1 / factors)[:, None]
        channel = 0 if site.is_convolution else 1
        low = (
            _four_bits(b, to_round, self.scheme.group)
            if self.scheme.weights == "int4"
            else _eight_bits(b, to_round, channel, _least_scales(b, site, scale))
        )
        operands = [Tensor(b, rounded.value), low]
        if site.is_convolution:
            result = b.emit("conv", operands, **opview.attributes_of(site.op))
        else:
            result, dims = b.emit("matmul", operands), shape_of(site.op.results[0]).dims
            result = result if result.shape.dims == dims else b.reshape(result, dims)
        if self.select is not None:
            plain = b.emit(opview.name_of(site.op), [b.tensor(x.value), w], **opview.attributes_of(site.op))
            result = self.select(b, site, result, plain)
        site.op.results[0].replace_all_uses_with(result.value)
        erase_dead([site.op])


def _scales(b: Builder, largest: Tensor, most: int) -> Tensor:
    """Return scales that map the largest magnitudes to `most`; 1 if all values are 0."""
    return b.where(b.gt(largest, float(np.finfo(np.float32).tiny) * most), largest / float(most), 1.0)


def _least_scales(b: Builder, site: QuantizationSite, scale: float | None) -> Tensor | None:
    """Return the minimum weight scales for which the bias fits into the i32 accumulator.

    Returns None if there is no bias, or if activations have no known scale, so that sums are floats.
    """
    if scale is None or (bias := _bias_of(site)) is None:
        return None
    return b.abs(b.reshape(b.tensor(bias), (-1,))) / (scale * LARGEST_BIAS)


def _bias_of(site: QuantizationSite) -> mlir.Value | None:
    """Return the bias that is added to each channel of a product, if it is the same in every run."""
    (result,) = site.op.results
    adds = [op for use in result.uses if (op := use.owner.operation).name == "rlx.binary"]
    if len(adds) != 1 or not has_one_use(result) or views.Binary(adds[0]).kind != "add":
        return None
    other = next((value for value in adds[0].operands if value != result), None)
    channels = shape_of(result).dims[1 if site.is_convolution else -1]
    if other is None or shape_of(other).num_elements != channels or not depends_on_weights(other):
        return None
    return other


def _eight_bits(b: Builder, w: Tensor, channel: int, least: Tensor | None = None) -> Tensor:
    """Round numbers to 8 bits, with a scale for each channel that is at least `least`."""
    scales = _scales(b, b.max(b.abs(w), [i for i in range(w.rank) if i != channel]), 127)
    scales = scales if least is None else b.maximum(scales, least)
    return b.dequantize(b.quantize(w, scales, 0, axis=channel), scales, 0, axis=channel)


def _four_bits(b: Builder, w: Tensor, group: int) -> Tensor:
    """Round weights to 4 bits, two per byte, with a scale for each channel of a group of rows.

    The kernels of a convolution become rows of `[inner·kernel, O]`. If the group size does not divide the rows, all
    rows form one group.
    """
    if w.rank != 2:
        outer, *others = w.shape.static
        matrix = b.transpose(b.reshape(w, (outer, int(np.prod(others)))))
        return b.reshape(b.transpose(_four_bits(b, matrix, group)), w.shape.dims)
    rows, columns = w.shape.static
    if rows % 2:
        padded = b.concat([w, b.expand(b.constant(0.0), (1, columns))], 0)
        return b.narrow(_four_bits(b, padded, group), 0, 0, rows)
    group = group if rows % group == 0 else rows
    grouped = b.reshape(w, (rows // group, group, columns))
    scales = _scales(b, b.max(b.abs(grouped), 1, keep_dims=True), 7)
    steps = b.reshape(b.cast(b.round(grouped / scales), "i32") + 8, (rows // 2, 2, columns))
    lower, upper = (b.reshape(b.narrow(steps, 1, i, 1), (rows // 2, columns)) for i in range(2))
    packed = b.cast(lower + upper * 16, "u8")
    both = b.cast(packed, "i32")
    upper = b.cast(b.cast(packed, f32) / 16.0, "i32")  # truncated, as casts to integers do
    pairs = [b.reshape(v, (rows // 2, 1, columns)) for v in (both - upper * 16, upper)]
    steps = b.cast(b.concat(pairs, 1) - 8, f32)
    return b.reshape(b.reshape(steps, (rows // group, group, columns)) * scales, (rows, columns))

"""`rlx-quantize-values`: explicit rounding of every value of a graph to 8 bits, and of weights to 8, 4 or 2."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from rlx import mlir
from rlx.ir.dtype import f32, u8
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.location import describe, within
from rlx.ir.op import opview, registry, views
from rlx.ir.op.signature import bodies, read_arguments
from rlx.ir.shape import shape_of
from rlx.passes.base import Pass, option
from rlx.passes.dtypes.quantization_record import scale_of
from rlx.passes.dtypes.quantization_sites import QuantizationSite, check_products, sites
from rlx.passes.integer.choices import parts_of_choices
from rlx.passes.integer.fold_affine import is_per_channel, product_of
from rlx.passes.integer.value_ranges import ValueRange, ValueRanges
from rlx.passes.pattern import has_one_use, producer
from rlx.passes.rewrite import builder_before
from rlx.passes.simplification.invariants import WeightValues, depends_on_weights
from rlx.passes.simplification.values import splat
from rlx.support.errors import PassError

# The fixed scales and zero points of values in [0, 1) and in [-1, 1), which do not depend on calibration.
_FIXED = {"softmax": (2.0**-8, -128), "sigmoid": (2.0**-8, -128), "tanh": (2.0**-7, 0)}
_BITS = (8, 4, 2)
_SCALES = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)
# A lower and an upper bound: a number, a value, or None.
Bounds = tuple[mlir.Value | float | None, mlir.Value | float | None]


@dataclass(frozen=True)
class QuantizeValues(Pass, name="rlx-quantize-values"):
    """Round inputs, results and the weights of products by pairs of rlx.quantize and rlx.dequantize.

    A product, a sum or a mean is rounded once, together with a following bias, relu or other bounds. Ops that only move
    numbers keep the scale of their operand. `rlx-quantize-integer` creates integer ops from the result. Regions are not
    changed.
    """

    # Rounding to 8 bits changes results beyond the tolerance of a comparison.
    preserves_results = False

    ranges: str | None = option(None, "the file of the values' ranges: rlx.observe_ranges(…).save(…)")
    symmetric: bool = option(False, "zero points of activations are 0")
    bits: int = option(8, "bits of weights: 8, 4 or 2", least=2)
    layers: Mapping[str, int] = option({}, "bits of the weights of single products, by name: conv1.w=4", rest=True)

    def run(self, module: mlir.Module) -> None:
        if self.ranges is None:
            raise PassError(f"{self.name}: the scales of values come from a file", hint="rlx.observe_ranges makes one")
        ranges = ValueRanges.load(self.ranges)
        for function in bodies(module):
            round_values(function, ranges, symmetric=self.symmetric, bits=self.bits, layers=self.layers)


def round_values(
    function: mlir.FuncOp, ranges: ValueRanges, *, symmetric: bool, bits: int, layers: Mapping[str, int]
) -> None:
    """Round the values of a function, in place.

    Args:
        function: A function of primitives at MIR, after `rlx-fold-affine`.
        ranges: The ranges of the `values_to_observe` values.
        symmetric: Whether zero points of activations are 0.
        bits: The bits of weights.
        layers: The bits of weights of single products, by the names of `sites`.

    Raises:
        PassError: The ranges belong to another graph, or a product does not exist.
    """
    known = sites(function, ranks=(3, 4))
    _check_bits([s.name for s in known], bits, layers)
    values = values_to_observe(function)
    _check_ranges(values, ranges)
    plan = _plan(function)
    scales = {v: scale_of(r.low, r.high, symmetric=symmetric) for v, r in zip(values, ranges.values, strict=True)}
    for site in known:
        _round_weights(site, layers.get(site.name, bits))
    for entry in plan:
        scale, zero = entry.fixed or scales[entry.value if entry.source is None else entry.source]
        scales[entry.value] = found = float(np.clip(scale * entry.factor, *_SCALES)), zero
        _round(entry, *found)


def _round(entry: _RoundedValue, scale: float, zero: int) -> None:
    uses = [(use.owner.operation, use.operand_number) for use in entry.value.uses]
    b = Builder(mlir.ir.InsertionPoint(entry.after), within(_location(entry.value), QuantizeValues.name))
    rounded = b.dequantize(b.quantize(b.tensor(entry.value), scale, zero), scale, zero)
    for user, i in uses:
        user.operands[i] = rounded.value


def values_to_observe(function: mlir.FuncOp) -> list[mlir.Value]:
    """Return the values whose ranges calibration must observe, in order: inputs and results without a known scale."""
    return [e.value for e in _plan(function) if e.source is None and e.fixed is None]


def described(function: mlir.FuncOp, value: mlir.Value) -> tuple[str, str]:
    """Return the op or input that defines a value, and the user's line."""
    place = describe(_location(value)) or "<unknown>"
    if isinstance(value, mlir.ir.OpResult):
        return opview.name_of(value.owner.operation), place
    return read_arguments(function)[value.arg_number].name, place


# --- selection of values ---------------------------------------------------------------------------


@dataclass(frozen=True)
class _RoundedValue:
    """A value to round.

    Attributes:
        value: The value.
        after: The op after its definition.
        source: The value whose scale it takes, if any.
        fixed: Its fixed scale and zero point, if any.
        factor: The ratio of its scale to that of its source.
    """

    value: mlir.Value
    after: mlir.Operation
    source: mlir.Value | None
    fixed: tuple[float, int] | None
    factor: float = 1.0


def _plan(function: mlir.FuncOp) -> list[_RoundedValue]:
    """Return the values to round, in order."""
    weights = WeightValues(function)
    operations = [op.operation for op in function.entry_block.operations]
    kinds = [a.kind for a in read_arguments(function)]
    arguments = zip(function.entry_block.arguments, kinds, strict=True)
    found = [(v, operations[0]) for v, kind in arguments if kind == "input"]
    for op, after in pairwise(operations):
        if op.name not in ("rlx.quantize", "rlx.dequantize"):
            found += [(v, after) for v in op.results if v not in weights]
    parts = parts_of_choices(operations)
    plan: dict[mlir.Value, _RoundedValue] = {}
    for value, after in found:
        if value not in parts and _is_rounded(value):
            source, factor = _multiple(value)
            if source not in plan:
                source, factor = _source(value), 1.0
            plan[value] = _RoundedValue(value, after, source, _fixed(value), factor)
    return [*plan.values()]


def _is_rounded(value: mlir.Value) -> bool:
    return shape_of(value).dtype is f32 and not _is_taken_along(value)


def _is_taken_along(value: mlir.Value) -> bool:
    """Whether the only use of a value is a bias or a clamp, which is rounded instead of the value."""
    if not isinstance(value, mlir.ir.OpResult) or not has_one_use(value):
        return False
    user = next(iter(value.uses)).owner.operation
    if user.name == "rlx.binary" and (added := views.Binary(user)).kind == "add":
        product = product_of(value)
        other = added.rhs if added.lhs == value else added.lhs
        return product is not None and is_per_channel(product, other)
    keeps_scale = _source(value) is not None or _fixed(value) is not None or _is_function(value)
    return bounds_of(user, value) is not None and not keeps_scale


def bounds_of(op: mlir.Operation, value: mlir.Value) -> Bounds | None:
    """If an op clamps a value, return the lower and the upper bound, each None if absent. Return None for other ops."""
    if op.name == "rlx.activation" and views.Activation(op).kind == "relu":
        return 0.0, None
    if op.name == "rlx.clamp" and op.operands[0] == value:
        clamp = views.Clamp(op)
        return (clamp.low, clamp.high) if _is_number(clamp.low) and _is_number(clamp.high) else None
    if op.name == "rlx.binary" and (bound := views.Binary(op)).kind in ("max", "min"):
        other = bound.rhs if bound.lhs == value else bound.lhs
        if _is_number(other):
            return (other, None) if bound.kind == "max" else (None, other)
    return None


def _is_number(value: mlir.Value) -> bool:
    return shape_of(value).num_elements == 1 and depends_on_weights(value)


def _is_function(value: mlir.Value) -> bool:
    """Whether a value is a function of one other value, which becomes a table."""
    activation = producer(value, views.Activation)
    return activation is not None and activation.kind != "relu"


def _source(value: mlir.Value) -> mlir.Value | None:
    """Return the operand from which a value takes its numbers and scale, if its op only moves or selects them."""
    op = maker_of(value)
    return op.operands[0] if op is not None and keeps_scale(op) and not depends_on_weights(op.operands[0]) else None


def _multiple(value: mlir.Value) -> tuple[mlir.Value | None, float]:
    """Return operand and factor if a value is a product with a positive number, else None.

    The product is represented by the same integers as the operand, with another scale.
    """
    product = producer(value, views.Binary)
    if product is None or product.kind not in ("mul", "div"):
        return None, 1.0
    pairs = ((product.lhs, product.rhs), (product.rhs, product.lhs))
    for source, by in pairs[: 2 if product.kind == "mul" else 1]:
        number = splat(by)
        if number is not None and shape_of(source).dims == shape_of(value).dims:
            factor = float(number) if product.kind == "mul" else 1 / float(number) if number else 0.0
            return (source, factor) if 0 < factor < math.inf else (None, 1.0)
    return None, 1.0


def maker_of(value: mlir.Value) -> mlir.Operation | None:
    """Return the rlx op that defines a value, or None."""
    op = value.owner.operation if isinstance(value, mlir.ir.OpResult) else None
    return op if op is not None and registry.is_ours(op) else None


def keeps_scale(op: mlir.Operation) -> bool:
    """Whether an op only moves or selects numbers of its first operand, floats or the integers that represent them."""
    if (
        not len(op.operands)
        or not len(op.results)
        or shape_of(op.operands[0]).dtype is not shape_of(op.results[0]).dtype
    ):
        return False
    name = opview.name_of(op)
    if name in ("pool", "reduce"):
        return opview.attributes_of(op)["kind"] in ("max", "min")
    if name == "pad":
        attributes = opview.attributes_of(op)
        return attributes["mode"] != "constant" or attributes["value"] == 0
    return name == "gather" or opview.has_trait(op, "rearranges")


def _fixed(value: mlir.Value) -> tuple[float, int] | None:
    op = maker_of(value)
    if op is None:
        return None
    name = opview.name_of(op)
    if name == "cast" and (given := shape_of(op.operands[0]).dtype).is_integer and given.bits <= 8:
        return 1.0, -128 if given is u8 else 0  # each number is a distinct i8
    return _FIXED.get(opview.attributes_of(op)["kind"] if name == "activation" else name)


# --- weights ----------------------------------------------------------------------------------------


def _round_weights(site: QuantizationSite, bits: int) -> None:
    b = builder_before(site.op, QuantizeValues.name)
    w = b.tensor(site.op.operands[1])
    trained = producer(w.value, views.FakeQuantize) or producer(w.value, views.FakeQuantizeLsq)
    if trained is not None and trained.bits <= 8 and trained.axis in (None, site.channel_axis):
        axis, scale = trained.axis, b.tensor(trained.scale)
    else:
        axis = site.channel_axis
        w, scale = _scaled(b, w, axis, bits)
    rounded = b.dequantize(b.quantize(w, scale, 0, axis=axis), scale, 0, axis=axis)
    site.op.operands[1] = rounded.value


def _scaled(b: Builder, w: Tensor, axis: int, bits: int) -> tuple[Tensor, Tensor]:
    """Return weights with a scale for each channel, such that they range from -qmax to qmax in steps.

    The largest weight becomes qmax = 127 or 7. With 2 bits, all magnitudes above 0.7 times the mean are represented by
    their mean, as in Li et al. (Ternary weight networks, section 3.2), except that the threshold is half of that mean.
    """
    others = [i for i in range(w.rank) if i != axis]
    size = b.abs(w)
    if bits == 2:
        large = b.cast(size > b.mean(size, others, keep_dims=True) * 0.7, f32)
        reach = b.sum(size * large, others) / b.maximum(b.sum(large, others), 1.0)
    else:
        reach = b.max(size, others)
    most = float(2 ** (bits - 1) - 1)
    scale = b.where(reach > float(np.finfo(np.float32).tiny) * most, reach / most, 1.0)
    if bits == 2:
        bound = b.reshape(scale, [-1 if i == axis else 1 for i in range(w.rank)])
        w = b.minimum(b.maximum(w, -bound), bound)
    return w, scale


# --- checks -----------------------------------------------------------------------------------------


def _check_bits(names: Sequence[str], bits: int, layers: Mapping[str, int]) -> None:
    check_products(QuantizeValues.name, layers, names)
    for given in (bits, *layers.values()):
        if given not in _BITS:
            raise PassError(f"{QuantizeValues.name}: weights have 8, 4 or 2 bits, not {given!r:.60}")


def _check_ranges(values: Sequence[mlir.Value], ranges: ValueRanges) -> None:
    hint = "make them of this graph, by rlx.observe_ranges"
    if len(values) != len(ranges.values):
        message = f"{QuantizeValues.name}: the graph has {len(values)} values, the ranges are of {len(ranges.values)}"
        raise PassError(message, hint=hint)
    for value, known in zip(values, ranges.values, strict=True):
        if isinstance(value, mlir.ir.OpResult) and (maker := opview.name_of(value.owner.operation)) != known.maker:
            message = f"{QuantizeValues.name}: the ranges have a '{known.maker}' where the graph has a '{maker}'"
            raise PassError(message, location=describe(_location(value)), hint=hint)


def _location(value: mlir.Value) -> mlir.Location:
    return value.owner.operation.location if isinstance(value, mlir.ir.OpResult) else value.location


def range_of(function: mlir.FuncOp, value: mlir.Value, low: float, high: float) -> ValueRange:
    """Return the range of a value for the record."""
    return ValueRange(*described(function, value), low, high)

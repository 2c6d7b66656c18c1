"""`rlx-precision`: computation in f16 or bf16 instead of f32."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx import mlir
from rlx.ir.dtype import DType, dtype, f32
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.op import attributes, opview, registry, views
from rlx.ir.op.card import as_results
from rlx.ir.op.signature import functions
from rlx.ir.shape import shape_of
from rlx.passes.base import Pass, option
from rlx.passes.dtypes.precision_classes import OpClass, class_of
from rlx.passes.pattern import producer
from rlx.passes.rewrite import builder_before, collect, decompose
from rlx.passes.simplification.simplify_cast_rules import lossless
from rlx.support.errors import PassError, ShapeError
from rlx.support.guards import is_list
from rlx.support.suggestions import suggestion

POLICIES = ("mixed_conservative", "mixed", "always", "custom")


@dataclass(frozen=True)
class Precision(Pass, name="rlx-precision"):
    """Compute in f16 or bf16 instead of f32.

    Inputs, parameters, states and outputs keep their dtypes, with explicit casts where they are used. Tensors of other
    dtypes than f32 are not changed. Ops that only move data take the dtype of their operands. Regions take and yield
    the same dtypes as before. Each of the first three policies lowers more ops than the one before:

    * `mixed_conservative`: reductions (norms, softmax, sums), kinds such as exp and log, and arithmetic with numbers
      that the dtype cannot hold (a large mask value, a small epsilon, an integer cast to a float) stay in f32. So does
      arithmetic whose operands and uses are all f32. Contractions, convolutions, attention and the arithmetic around
      them
      are lowered.
    * `mixed`: reductions are lowered as well; they still accumulate in f32.
    * `always`: everything is lowered.
    * `custom`: only the ops and kinds in `lower` are lowered.

    Constants are converted; a finite constant beyond the largest number of the dtype becomes that number. A block
    counts as one compute op: run rlx-lower-blocks first to apply the policy inside blocks.
    """

    # Rounding to 8 or 11 significant bits changes results beyond the tolerance of a comparison.
    preserves_results = False

    to: str = option("f16", "the compute dtype", choices=("f16", "bf16"))
    policy: str = option("mixed_conservative", "how many ops are lowered", choices=POLICIES)
    keep: tuple[str, ...] = option((), "ops and kinds that stay in f32, such as softmax or gelu")

    lower: tuple[str, ...] = option((), "ops and kinds that are lowered, for the policy custom")

    def run(self, module: mlir.Module) -> None:
        if bool(self.lower) != (self.policy == "custom"):
            raise PassError(f"{self.name}: the policy custom, and no other, takes ops to lower")
        kinds = {
            case for spec in registry.SPECS.values() for a in spec.attributes if a.name == "kind" for case in a.cases
        }
        for name in (*self.keep, *self.lower):
            if name not in registry.SPECS and name not in kinds:
                raise PassError(
                    f"{self.name}: there is no op or kind '{name}'{suggestion(name, {*registry.SPECS, *kinds})}"
                )
        for op in collect(module):  # lower the product, but not the activation
            if opview.has_trait(op, "product") and opview.has_trait(op, "wide_range"):
                decompose(op)
        for function in functions(module):
            if not function.is_external:
                _Lowering(self).run(function)


@dataclass(slots=True)
class _PrecisionValue:
    """An f32 value of the program: its values in each dtype, and known properties of its numbers.

    Attributes:
        wide: The f32 value, if it exists.
        low: The value in the low dtype, if it exists.
        is_low: Whether it was computed in the low dtype.
        array: The value of a constant.
        extreme: Whether its numbers may be out of range in the low dtype, or be integers that it would round.
    """

    wide: Any = None
    low: Any = None
    is_low: bool = False
    array: np.ndarray | None = None
    extreme: bool = False


class _Lowering:
    """Rewrites one function. Ops are visited in order, so operands are rewritten before their users."""

    def __init__(self, options: Precision):
        self.low: DType = dtype(options.to)
        self.policy = options.policy
        self.keep = frozenset(options.keep)
        self.lower = frozenset(options.lower)
        self.numbers: dict[mlir.Value, _PrecisionValue] = {}
        self.dead: list[mlir.Operation] = []
        self._prefers_wide: dict[mlir.Value, bool] = {}

    def run(self, function: mlir.FuncOp) -> None:
        ops = list(opview.operations(function.entry_block))
        for op in reversed(ops):
            for result in op.results:
                self._prefers_wide[result] = all(self._takes_wide(use.owner) for use in result.uses)
        self._enter(function.entry_block)
        for op in ops:
            self._rewrite(op)
        for op in reversed(self.dead):
            op.erase()
        for op in reversed(list(opview.operations(function.entry_block))):
            if op.name in ("rlx.cast", "rlx.constant") and not opview.is_used(op.results[0]):
                op.erase()

    def _enter(self, block: mlir.Block) -> None:
        for argument in block.arguments:
            if _is_f32(argument):
                self.numbers[argument] = _PrecisionValue(wide=argument)

    # --- decision for an op --------------------------------------------------------------------------

    def _takes_wide(self, op: mlir.Operation) -> bool:
        """Whether a user would take a value in f32, as far as known before its operands are rewritten."""
        op = op.operation
        if not registry.is_ours(op) or self._is_kept(op):
            return True
        kind = class_of(opview.card_of(op).spec)
        if kind in (OpClass.ELEMENTWISE, OpClass.DATA_MOVEMENT):
            return all(self._prefers_wide[r] for r in op.results if _is_f32(r))
        return kind is not OpClass.COMPUTE

    def _is_kept(self, op: mlir.Operation) -> bool:
        """Whether the op stays in f32 in any case."""
        names = {opview.name_of(op), _kind(op)}
        kind = class_of(opview.card_of(op).spec)
        if kind is OpClass.BOUNDARY or names & self.keep or len(op.regions) or opview.card_of(op).spec.terminator:
            return True
        if self.policy == "custom":
            return not names & self.lower
        if self.policy == "always":
            return False
        return opview.has_trait(op, "wide_range") or (kind is OpClass.REDUCTION and self.policy == "mixed_conservative")

    def _is_lowered(self, op: mlir.Operation, numbers: list[_PrecisionValue]) -> bool:
        if self._is_kept(op):
            return False
        kind = class_of(opview.card_of(op).spec)
        computed = [n for n in numbers if n.array is None]  # a constant is available in either dtype
        if kind is OpClass.COMPUTE or self.policy == "custom":
            return True
        if self.policy != "always" and any(n.extreme for n in numbers):
            return False
        if kind is OpClass.DATA_MOVEMENT and computed:
            return all(n.is_low for n in computed)
        if kind is OpClass.REDUCTION or (kind is OpClass.ELEMENTWISE and self.policy == "always"):
            return True
        # If operands and uses are all f32, lowering the op would only lose precision.
        return any(n.is_low for n in computed) or not all(self._prefers_wide[r] for r in op.results if _is_f32(r))

    # --- rewriting --------------------------------------------------------------------------------

    def _rewrite(self, op: mlir.Operation) -> None:
        for region in op.regions:
            for block in region:
                self._enter(block)
        if op.name == "rlx.cast" and self._rewrite_cast(op):
            return
        if not any(map(_is_f32, (*op.operands, *op.results))):
            return
        numbers = [self.numbers[v] for v in op.operands if _is_f32(v)]
        if registry.is_ours(op) and numbers and self._is_lowered(op, numbers) and self._lower(op):
            return
        extreme = any(n.extreme for n in numbers) and registry.is_ours(op) and not self._is_moderate(op)
        self._keep(op, extreme or self._gives_integers(op))

    def _keep(self, op: mlir.Operation, extreme: bool) -> None:
        """Keep an op in f32, with operands in f32."""
        for i, value in enumerate(op.operands):
            if _is_f32(value):
                op.operands[i] = self._wide(value, op)
        for result in op.results:
            if _is_f32(result):
                self.numbers[result] = _PrecisionValue(wide=result, extreme=extreme)
        if op.name == "rlx.constant" and _is_f32(op.results[0]):
            array = attributes.elements_from_mlir(op.attributes["value"])
            self.numbers[op.results[0]] = _PrecisionValue(
                op.results[0], array=array, extreme=not _holds(self.low, array)
            )

    def _lower(self, op: mlir.Operation) -> bool:
        """Emit an op in the low dtype. Returns whether the dialect allows it."""
        spec = opview.card_of(op).spec
        builder = builder_before(op, Precision.name)
        named = zip(spec.operands, opview.operands_of(op, list(op.operands)), strict=True)
        operands = [self._operand(builder, op, entry.name, value) for entry, value in named]
        values: dict[str, Any] = {k: self.low if v is f32 else v for k, v in opview.attributes_of(op).items()}
        try:
            results = as_results(builder.emit(spec.name, operands, **values))
        except ShapeError:
            return False
        new = results[0].value.owner.operation
        changed = [(old, r.value) for old, r in zip(op.results, results, strict=True) if r.value.type != old.type]
        if any(not _is_f32(old) or shape_of(value).dtype is not self.low for old, value in changed):
            new.erase()
            return False
        for name in op.attributes:
            if "." in name:  # an attribute added by another pass
                new.attributes[name] = op.attributes[name]
        lowered = dict(changed)
        for old, result in zip(op.results, results, strict=True):
            if old in lowered:
                self.numbers[old] = _PrecisionValue(low=result.value, is_low=True)
            else:
                old.replace_all_uses_with(result.value)
                if _is_f32(old):
                    self.numbers[result.value] = _PrecisionValue(wide=result.value)
        self.dead.append(op)
        return True

    def _operand(self, builder: Builder, op: mlir.Operation, name: str, value: Any) -> Any:
        """Return an operand for an op in the low dtype: a tensor, None, or a list."""
        if value is None:
            return None
        if is_list(value):
            return [self._operand(builder, op, name, v) for v in value]
        if _is_f32(value):
            # The dtype of a mask may differ from that of the other operands.
            keeps_wide = name == "mask" and not self.numbers[value].is_low
            value = self._wide(value, op) if keeps_wide else self._low(value, op)
        return Tensor(builder, value)

    def _rewrite_cast(self, op: mlir.Operation) -> bool:
        """Replace a cast to the low dtype, or record a cast from it. Returns whether the op was one of these."""
        source, result = op.operands[0], op.results[0]
        to = shape_of(result).dtype
        if _is_f32(source):
            number = self.numbers[source]
            if to is self.low and number.array is None:  # an explicit cast of a constant may overflow
                result.replace_all_uses_with(self._low(source, op))
                self.dead.append(op)
            elif number.is_low:
                op.operands[0] = number.low
            else:
                return False
            return True
        if to is f32 and shape_of(source).dtype is self.low:
            self.numbers[result] = _PrecisionValue(wide=result, low=source, is_low=True)
            return True
        return False

    # --- values in either dtype -------------------------------------------------------------------

    def _wide(self, value: mlir.Value, user: mlir.Operation) -> mlir.Value:
        number = self.numbers[value]
        if number.wide is None:
            builder = builder_before(_ancestor(user, number.low), Precision.name)
            number.wide = builder.cast(Tensor(builder, number.low), f32).value
        return number.wide

    def _low(self, value: mlir.Value, user: mlir.Operation) -> mlir.Value:
        number = self.numbers[value]
        if number.low is None:
            if number.array is not None:
                builder = builder_before(number.wide.owner.operation, Precision.name)
                number.low = builder.constant(_rounded(number.array, self.low)).value
            else:
                builder = builder_before(_ancestor(user, number.wide), Precision.name)
                number.low = builder.cast(Tensor(builder, self._exact_source(number.wide)), self.low).value
        return number.low

    def _exact_source(self, value: mlir.Value) -> mlir.Value:
        """Return the operand of the cast that produced a value, if the low dtype can represent it exactly; else the value."""
        op = producer(value, views.Cast)
        return op.x if op is not None and self._is_exact(shape_of(op.x).dtype) else value

    def _is_exact(self, source: DType) -> bool:
        return not source.is_inexact and lossless(source, self.low)

    # --- known properties of numbers --------------------------------------------------------------

    def _is_moderate(self, op: mlir.Operation) -> bool:
        return class_of(opview.card_of(op).spec) is OpClass.COMPUTE or opview.has_trait(op, "bounded")

    def _gives_integers(self, op: mlir.Operation) -> bool:
        """Whether an f32 result consists of integers that the low dtype may round."""
        if op.name == "rlx.cast":
            source = shape_of(op.operands[0]).dtype
            return not source.is_inexact and not self._is_exact(source)
        if op.name == "rlx.iota":
            axis: int = attributes.read(registry.card("iota").spec, op)["axis"]
            size = shape_of(op.results[0]).dims[axis]
            return type(size) is not int or size - 1 > 2 / self.low.eps
        return False


def _is_f32(value: mlir.Value) -> bool:
    type_ = value.type
    return isinstance(type_, mlir.ir.RankedTensorType) and shape_of(value).dtype is f32


def _kind(op: mlir.Operation) -> str:
    """Return the kind of an op, empty if it has none."""
    return op.attributes["kind"].value if "kind" in op.attributes else ""


def _ancestor(op: mlir.Operation, value: mlir.Value) -> mlir.Operation:
    """Return the op that is `op` or contains it, and that is in the block that defines a value."""
    block = opview.home_of(value)
    while op.block != block:
        op = op.block.owner.operation
    return op


def _holds(low: DType, array: np.ndarray) -> bool:
    """Whether a dtype can hold the numbers of an array: none is too large, and not all are subnormal."""
    finite = np.abs(array[np.isfinite(array)]).astype(np.float64)
    greatest = finite.max(initial=0.0)
    assert low.float_format is not None
    return bool(greatest <= low.max and (greatest == 0 or greatest >= low.float_format.smallest_normal))


def _rounded(array: np.ndarray, low: DType) -> np.ndarray:
    """Return an array in the low dtype. Finite numbers stay finite, so that a mask of -1e9 times 0 is 0 and not NaN."""
    clipped = np.where(np.isfinite(array), np.clip(array, float(low.min), float(low.max)), array)
    return clipped.astype(low.numpy)

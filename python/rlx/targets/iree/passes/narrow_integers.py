"""`rlx-iree-narrow-integers`: computes with 8-bit and 16-bit integers in i32 where the upper bits matter.

IREE's VM stores these integers in 32-bit registers. A load sign-extends them, a truncation zero-extends them, and sums and
products leave the upper bits undefined. But comparisons, quotients and right shifts read all 32 bits. The VM also lacks a
popcount. Quirk: `wide-registers`. Some GPUs have wrong narrow remainders. Quirk: `narrow-remainders`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.passes.base import Pass
from rlx.targets.iree.passes.base import every
from rlx.targets.iree.passes.emulate import is_free

_UNSIGNED = ("shrui", "divui", "remui", "ceildivui")
_SIGNED = ("shrsi", "divsi", "remsi", "ceildivsi", "floordivsi")
# The comparison that selects the first operand.
_CHOICES = {"arith.maxsi": "sgt", "arith.minsi": "slt", "arith.maxui": "ugt", "arith.minui": "ult"}
_EXTENSIONS = {f"arith.{n}": "extui" for n in _UNSIGNED} | {f"arith.{n}": "extsi" for n in _SIGNED}
# Extensions to i64. MLIR merges them with a following conversion to index, which reads the whole register.
_LENGTHENINGS = {"arith.extsi": "shrsi", "arith.extui": "shrui"}
_COMPARISON, _COUNT = "arith.cmpi", "math.ctpop"
_NARROW = ("i8", "i16")


@dataclass(frozen=True)
class NarrowIntegers(Pass, name="rlx-iree-narrow-integers"):
    """Compute with 8-bit and 16-bit integers in i32 where the VM reads their upper bits, and expand popcount."""

    def run(self, module: mlir.Module) -> None:
        for op in every(module, lambda op: _is_wrong(op) and is_free(op)):
            with op.location, mlir.ir.InsertionPoint(op):
                op.results[0].replace_all_uses_with(_replacement(op))
            op.erase()


def _is_wrong(op: Any) -> bool:
    if op.name == _COUNT:
        return isinstance(op.operands[0].type, mlir.ir.IntegerType)
    if op.name in _LENGTHENINGS and str(op.results[0].type) != "i64":
        return False
    is_read = op.name == _COMPARISON or op.name in (_EXTENSIONS | _CHOICES | _LENGTHENINGS)
    return is_read and str(op.operands[0].type) in _NARROW


def _replacement(op: Any) -> Any:
    arith, word = mlir.dialect("arith"), mlir.ir.IntegerType.get_signless(32)
    kind = op.operands[0].type
    if op.name == _COUNT:
        wide = kind if kind.width >= word.width else word
        value = op.operands[0] if wide == kind else arith.extui(wide, op.operands[0])
        count = _bits_set(value, wide)
        return count if wide == kind else arith.trunci(kind, count)
    if op.name not in _EXTENSIONS:
        # The operands are shifted to the upper bits: MLIR would replace a comparison of extended numbers by one of the numbers.
        unused = _constant(word.width - kind.width, word)
        compared = [arith.shli(arith.extui(word, x), unused) for x in op.operands]
        if op.name in _LENGTHENINGS:
            exact = getattr(arith, _LENGTHENINGS[op.name])(compared[0], unused)
            return _again(op, [exact], op.results[0].type)
        if op.name == _COMPARISON:
            return _again(op, compared, op.results[0].type)
        first = arith.cmpi(getattr(arith.CmpIPredicate, _CHOICES[op.name]), *compared)
        return arith.select(first, *op.operands)
    extend = getattr(arith, _EXTENSIONS[op.name])
    return arith.trunci(kind, _again(op, [extend(word, x) for x in op.operands], word))


def _again(op: Any, operands: Sequence[Any], result: Any) -> Any:
    """Emit the op on other operands."""
    attributes = {name: op.attributes[name] for name in op.attributes}
    return mlir.ir.Operation.create(op.name, results=[result], operands=list(operands), attributes=attributes).result


def _bits_set(value: Any, kind: Any) -> Any:
    """Emit a popcount: of pairs, of fours, of bytes, and their sum, which is the upper byte of a product."""
    arith, ones = mlir.dialect("arith"), (1 << kind.width) - 1

    def constant(byte: int) -> Any:
        return _constant(byte * (ones // 255), kind)

    def shifted(x: Any, count: int) -> Any:
        return arith.shrui(x, _constant(count, kind))

    pairs = arith.subi(value, arith.andi(shifted(value, 1), constant(0x55)))
    fours = arith.addi(arith.andi(pairs, constant(0x33)), arith.andi(shifted(pairs, 2), constant(0x33)))
    of_bytes = arith.andi(arith.addi(fours, shifted(fours, 4)), constant(0x0F))
    return shifted(arith.muli(of_bytes, constant(0x01)), kind.width - 8)


def _constant(value: int, kind: Any) -> Any:
    signed = value - (1 << kind.width) if value >= 1 << kind.width - 1 else value
    return mlir.dialect("arith").constant(kind, mlir.ir.IntegerAttr.get(kind, signed))

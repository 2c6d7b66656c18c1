"""`rlx-iree-wide-complex`: stores c128 constants and globals as pairs of f64, and fills c128 tensors from f64 tensors.

IREE's compiler crashes on constants and parameters with 128-bit elements, and cannot fill tensors with them. Quirk:
`wide-elements`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx import mlir
from rlx.ir.op.attributes import elements_from_mlir, elements_to_mlir
from rlx.ir.op.signature import bodies, prepares
from rlx.targets.iree.passes.base import IreePass, behind_barrier, create, elementwise, empty, every
from rlx.targets.iree.passes.fence_reductions import reduces


@dataclass(frozen=True)
class WideComplex(IreePass, name="rlx-iree-wide-complex"):
    """Store c128 constants and globals as pairs of f64, for IREE, and replace each c128 fill by two f64 fills.

    The pair is the last axis. A fill with the initial value of a reduction is unchanged, because it is part of the kernel.
    """

    def run(self, module: mlir.Module) -> None:
        rules: dict[str, Callable[[Any], None]] = {
            "arith.constant": _constant,
            "linalg.fill": _fill,
            "util.global": _declaration,
            "util.global.load": _load,
            "util.global.store": _store,
        }
        for op in every(module, lambda op: op.name in rules and _is_wide(_type_of(op))):
            with op.location, mlir.ir.InsertionPoint(op):
                rules[op.name](op)
        for function in filter(prepares, bodies(module)):
            _return_pairs(function)


def _type_of(op: Any) -> Any:
    if op.name == "util.global":
        return op.attributes["type"].value
    return (op.results[0] if len(op.results) else op.operands[0]).type


def _is_wide(type_: Any) -> bool:
    ir = mlir.ir
    if not isinstance(type_, ir.RankedTensorType) or not isinstance(type_.element_type, ir.ComplexType):
        return False
    return isinstance(type_.element_type.element_type, ir.F64Type)


def _parts_type(type_: Any) -> Any:
    """Return the type of the pairs for a tensor of static shape."""
    return mlir.ir.RankedTensorType.get([*type_.shape, 2], mlir.ir.F64Type.get())


def _pairs(values: np.ndarray) -> Any:
    """Return complex numbers as pairs of real and imaginary part."""
    return elements_to_mlir(np.ascontiguousarray(values).reshape(-1).view(np.float64).reshape(*values.shape, 2))


def _constant(op: Any) -> None:
    arith, value = mlir.dialect("arith"), elements_from_mlir(op.attributes["value"])
    if op.attributes["value"].is_splat:
        first = value.reshape(-1)[0]
        real, imaginary = (
            arith.constant(None, elements_to_mlir(np.broadcast_to(part, value.shape)))
            for part in (first.real, first.imag)
        )
        _replace(op, _combined(op.results[0].type, real, imaginary))
        return
    pairs = _pairs(value)
    _replace(op, _of_pairs(op.results[0].type, arith.constant(pairs.type, pairs)))


def _return_pairs(function: Any) -> None:
    """Make a function return pairs, because its results become globals."""
    block = function.entry_block
    end = block.operations[len(block.operations) - 1].operation
    with end.location, mlir.ir.InsertionPoint(end):
        for i, value in enumerate(end.operands):
            if _is_wide(value.type):
                end.operands[i] = _to_pairs(value)
    type_ = mlir.ir.FunctionType.get(function.type.inputs, [value.type for value in end.operands])
    function.attributes["function_type"] = mlir.ir.TypeAttr.get(type_)


def _fill(op: Any) -> None:
    type_ = op.results[0].type
    if all(reduces(use.owner.operation) and 0 not in _sizes_of(use.owner.operation) for use in op.results[0].uses):
        return
    complex_, scalar = mlir.dialect("complex"), op.operands[0]
    parts = [_filled(type_, op.operands[1], part(scalar)) for part in (complex_.re, complex_.im)]
    _replace(op, _combined(type_, *parts))


def _sizes_of(op: Any) -> list[int]:
    return [
        size for value in op.operands if isinstance(value.type, mlir.ir.RankedTensorType) for size in value.type.shape
    ]


def _filled(type_: Any, like: Any, scalar: Any) -> Any:
    return mlir.dialect("linalg").fill(scalar, outs=[empty(type_, like, scalar.type)])


def _combined(type_: Any, real: Any, imaginary: Any) -> Any:
    identity = mlir.ir.AffineMap.get_identity(type_.rank)

    def body(block: Any) -> list[Any]:
        return [mlir.dialect("complex").create_(type_.element_type, *list(block.arguments)[:2])]

    out = empty(type_, real, type_.element_type)
    return elementwise([(real, identity), (imaginary, identity)], [out], body)[0]


def _of_pairs(type_: Any, pairs: Any) -> Any:
    """Convert pairs to complex numbers."""
    tensor, arith, index = mlir.dialect("tensor"), mlir.dialect("arith"), mlir.ir.IndexType.get()

    def body(_: Any) -> list[Any]:
        place = _place(type_.rank)
        parts = [tensor.extract(pairs, [*place, arith.constant(index, part)]) for part in (0, 1)]
        return [mlir.dialect("complex").create_(type_.element_type, *parts)]

    return elementwise([], [empty(type_, None, type_.element_type)], body)[0]


def _to_pairs(value: Any) -> Any:
    """Convert complex numbers to pairs."""
    arith, complex_, rank = mlir.dialect("arith"), mlir.dialect("complex"), value.type.rank
    type_ = _parts_type(value.type)
    numbers = mlir.ir.AffineMap.get(rank + 1, 0, [mlir.ir.AffineExpr.get_dim(i) for i in range(rank)])

    def body(block: Any) -> list[Any]:
        number = block.arguments[0]
        return [arith.select(_is_real(rank + 1), complex_.re(number), complex_.im(number))]

    return elementwise([(value, numbers)], [empty(type_, None, type_.element_type)], body)[0]


def _is_real(rank: int) -> Any:
    """Inside a loop body over pairs: whether this is the real part."""
    arith, part = mlir.dialect("arith"), _place(rank)[-1]
    return arith.cmpi(arith.CmpIPredicate.eq, part, arith.constant(part.type, 0))


def _place(rank: int) -> list[Any]:
    return [mlir.dialect("linalg").IndexOp(axis).result for axis in range(rank)]


def _declaration(op: Any) -> None:
    ir, type_ = mlir.ir, op.attributes["type"].value
    stored = _parts_type(type_)
    op.attributes["type"] = ir.TypeAttr.get(stored)
    if "initial_value" not in op.attributes:
        return
    value = op.attributes["initial_value"]
    if isinstance(value, ir.DenseElementsAttr):
        del op.attributes["initial_value"]
        _initialize(op, elements_from_mlir(value).flat[0], stored)
    else:
        op.attributes["initial_value"] = ir.Attribute.parse(str(value).rpartition(" : ")[0] + f" : {stored}")


def _initialize(op: Any, number: Any, type_: Any) -> None:
    """Fill a global with a number when the program is loaded."""
    ir, arith, f64 = mlir.ir, mlir.dialect("arith"), mlir.ir.F64Type.get()
    signature = {"function_type": ir.TypeAttr.get(ir.FunctionType.get([], []))}
    filler = create("util.initializer", attributes=signature, regions=1, ip=ir.InsertionPoint.after(op))
    with ir.InsertionPoint(filler.regions[0].blocks.append()):
        # Hidden from the compiler, so that globals with equal initial values do not share memory.
        parts = [
            behind_barrier(arith.constant(f64, ir.FloatAttr.get(f64, part))) for part in (number.real, number.imag)
        ]

        def body(_: Any) -> list[Any]:
            return [arith.select(_is_real(type_.rank), *parts)]

        filled = elementwise([], [empty(type_, None, f64)], body)[0]
        name = ir.FlatSymbolRefAttr.get(op.attributes["sym_name"].value)
        create("util.global.store", operands=[filled], attributes={"global": name})
        create("util.return")


def _load(op: Any) -> None:
    type_ = op.results[0].type
    loaded = create(op.name, [_parts_type(type_)], attributes={"global": op.attributes["global"]}).result
    _replace(op, _of_pairs(type_, loaded))


def _store(op: Any) -> None:
    op.operands[0] = _to_pairs(op.operands[0])


def _replace(op: Any, value: Any) -> None:
    op.results[0].replace_all_uses_with(value)
    op.erase()

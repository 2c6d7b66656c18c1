"""IREE kernels that overwrite tensors: dispatches whose results share memory with operands. Quirk: `new-states`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from rlx import mlir
from rlx.targets.iree.passes.base import create, elementwise


def overwritten(old: Any, new: Any) -> Any:
    """Copy the elements of a tensor to the memory of another one, which is overwritten."""

    def copy(loaded: dict[Any, Any]) -> list[Any]:
        identity = mlir.ir.AffineMap.get_identity(old.type.rank)
        return elementwise([(loaded[new], identity)], [loaded[old]], lambda block: [block.arguments[0]])

    return overwriting([old], [new], copy)[0]


def overwriting(states: Sequence[Any], read: Sequence[Any], loop: Callable[[dict[Any, Any]], list[Any]]) -> list[Any]:
    """Emit a kernel that overwrites tensors.

    Args:
        states: The tensors that it overwrites.
        read: The other tensors that it reads.
        loop: Emits the computation of the new values from the loaded tensors.

    Returns:
        The new values, in the memory of the old values.
    """
    operands = [*states, *read]

    def compute(arguments: Sequence[Any]) -> None:
        loaded = {v: _access(b, v.type) for v, b in zip(operands, arguments, strict=True)}
        for new, target in zip(loop(loaded), arguments, strict=False):
            _access(target, new.type, new)

    access = ["readwrite"] * len(states) + ["readonly"] * len(read)
    return _kernel([s.type for s in states], operands, range(len(states)), access, compute)


def digest(values: Sequence[Any]) -> Any:
    """Emit a kernel that computes a number from the first elements of tensors of static shape. The number is in memory."""
    ir, arith = mlir.ir, mlir.dialect("arith")
    word = ir.IntegerType.get_signless(32)
    type_ = ir.RankedTensorType.get([1], word)

    def bits(element: Any) -> Any:
        if isinstance(element.type, ir.ComplexType):
            element = mlir.dialect("complex").re(element)
        if isinstance(element.type, ir.FloatType):
            element = arith.bitcast(ir.IntegerType.get_signless(element.type.width), element)
        if element.type.width == 32:
            return element
        return (arith.extui if element.type.width < 32 else arith.trunci)(word, element)

    def compute(arguments: Sequence[Any]) -> None:
        *sources, target = arguments
        first = [ir.RankedTensorType.get([1] * v.type.rank, v.type.element_type) for v in values]
        maps = [ir.AffineMap.get(1, 0, [ir.AffineConstantExpr.get(0)] * v.type.rank) for v in values]
        inputs = [(_access(s, t), m) for s, t, m in zip(sources, first, maps, strict=True)]
        empty = mlir.dialect("tensor").empty([1], word)

        def body(block: Any) -> list[Any]:
            return [reduce(arith.xori, map(bits, list(block.arguments)[:-1]))]

        _access(target, type_, elementwise(inputs, [empty], body)[0])

    return _kernel([type_], values, (-1,), ["readonly"] * len(values) + ["writeonly"], compute)[0]


def needing(number: Any, values: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    """Return values that formally depend on a number: they are `others` if its square is 2 modulo 4, which is impossible.

    IREE does not know this, and keeps the number as an operand of the kernel. LLVM does, and emits no code for it.
    """
    arith = mlir.dialect("arith")
    two, three = (arith.constant(number.type, mlir.ir.IntegerAttr.get(number.type, n)) for n in (2, 3))
    never = arith.cmpi(arith.CmpIPredicate.eq, arith.andi(arith.muli(number, number), three), two)
    return [arith.select(never, other, value) for value, other in zip(values, others, strict=True)]


def _kernel(
    results: Sequence[Any],
    operands: Sequence[Any],
    tied: Sequence[int],
    access: Sequence[str],
    compute: Callable[[Sequence[Any]], None],
) -> list[Any]:
    """Emit a kernel.

    Args:
        results: The types of its results.
        operands: The operand tensors.
        tied: For each result, the index of the operand that it overwrites, or -1 for a new tensor.
        access: The access to each operand and to each new tensor.
        compute: Emits the computation of the results, given the arguments of the body for operands and new tensors.
    """
    ir, index = mlir.ir, mlir.ir.IndexType.get()
    attributes = {
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([0, len(operands), 0, 0]),
        "tied_operands": ir.ArrayAttr.get([ir.IntegerAttr.get(index, i) for i in tied]),
    }
    op = create("flow.dispatch.workgroups", results, operands, attributes, regions=2)
    types = [*(v.type for v in operands), *(t for t, i in zip(results, tied, strict=True) if i < 0)]
    body = op.regions[0].blocks.append(
        *[
            ir.Type.parse(f"!iree_tensor_ext.dispatch.tensor<{kind}:{type_}>")
            for kind, type_ in zip(access, types, strict=True)
        ]
    )
    with ir.InsertionPoint(body):
        compute(list(body.arguments))
        create("flow.return")
    with ir.InsertionPoint(op.regions[1].blocks.append()):
        counts = create("iree_tensor_ext.dispatch.workgroup_count_from_slice", [index] * 3)
        create("flow.return", operands=counts.results)
    return list(op.results)


def _access(argument: Any, type_: Any, value: Any = None) -> Any:
    """Load the tensor of an argument of a kernel, or store a value to it."""
    ir = mlir.ir
    parts = {
        "static_offsets": [0] * type_.rank,
        "static_sizes": list(type_.shape),
        "static_strides": [1] * type_.rank,
    }
    attributes = {name: ir.DenseI64ArrayAttr.get(part) for name, part in parts.items()}
    sizes = [1, 0, 0, 0, 0] if value is None else [1, 1, 0, 0, 0, 0]
    attributes["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get(sizes)
    if value is None:
        load = create("iree_tensor_ext.dispatch.tensor.load", [type_], [argument], attributes)
        return load.results[0]
    create("iree_tensor_ext.dispatch.tensor.store", [], [value, argument], attributes)
    return None

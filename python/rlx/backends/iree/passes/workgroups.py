"""Kernels of IREE that overwrite tensors: dispatches whose results are in the memory of operands. Quirk: `new-states`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rlx import mlir
from rlx.backends.iree.passes.base import create, elementwise


def overwritten(old: Any, new: Any) -> Any:
    """The elements of a tensor, written to the memory of another one, which is overwritten."""

    def copy(loaded: dict[Any, Any]) -> list[Any]:
        identity = mlir.ir.AffineMap.get_identity(old.type.rank)
        return elementwise([(loaded[new], identity)], [loaded[old]], lambda block: [block.arguments[0]])

    return overwriting([old], [new], copy)[0]


def overwriting(states: Sequence[Any], read: Sequence[Any], loop: Callable[[dict[Any, Any]], list[Any]]) -> list[Any]:
    """A kernel that overwrites tensors.

    Args:
        states: The tensors that it overwrites.
        read: The other tensors that it reads.
        loop: Computes the new values, given the loaded tensor for each of all these.

    Returns:
        The new values, in the memory of the old ones.
    """
    ir = mlir.ir
    operands, index = [*states, *read], ir.IndexType.get()
    attributes = {
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([0, len(operands), 0, 0]),
        "tied_operands": ir.ArrayAttr.get([ir.IntegerAttr.get(index, i) for i in range(len(states))]),
    }
    types = [s.type for s in states]
    op = create("flow.dispatch.workgroups", types, operands, attributes, regions=2)
    access = ["readwrite"] * len(states) + ["readonly"] * len(read)
    types_in_kernel = [
        ir.Type.parse(f"!iree_tensor_ext.dispatch.tensor<{kind}:{v.type}>")
        for kind, v in zip(access, operands, strict=True)
    ]
    body = op.regions[0].blocks.append(*types_in_kernel)
    with ir.InsertionPoint(body):
        loaded = {v: _access(b, v.type) for v, b in zip(operands, body.arguments, strict=True)}
        for new, target in zip(loop(loaded), body.arguments, strict=False):
            _access(target, new.type, new)
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

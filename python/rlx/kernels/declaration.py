"""The cases of kernels in IR: attributes of the functions that represent kernels between lowering and emission.

The dictionary `rlx.kernel_case` has the kernel's and the op's name, the op's attributes, the number of values of each operand
of the record (-1 for a missing one), and the types of operands and results. Unknown sizes are renamed s0, s1, …, so that ops
whose sizes have different names share a kernel. An op with a region is also stored as text, with its region.
"""

from __future__ import annotations

from typing import Any

from rlx import mlir
from rlx.ir.dims.dim import Dim, dim
from rlx.ir.op import attributes, opview, registry
from rlx.ir.shape import Shape, shape_of, shape_of_type
from rlx.kernels.case import KernelCase, unknown_dims
from rlx.kernels.cpu_model import CpuModel
from rlx.kernels.looped import LoopOp
from rlx.kernels.registry import CpuKernel, find_kernel
from rlx.kernels.routines import TABLE
from rlx.passes.lapack import PREFIX

CASE = "rlx.kernel_case"
# The start of the names of these functions, and of the executables that replace them.
FUNCTION_PREFIX = "kernel_"


def case_of(op: mlir.Operation, cpu: CpuModel) -> KernelCase:
    """Return the case of an rlx op."""
    operands = opview.operands_of(op, [shape_of(v) for v in op.operands])
    results = tuple(shape_of(r) for r in op.results)
    return KernelCase(tuple(operands), results, opview.attributes_of(op), cpu, LoopOp.of(op))


def encoded_case(op: mlir.Operation) -> mlir.Attribute:
    """Return the attribute of the case of an op that a kernel implements."""
    ir = mlir.ir
    groups = opview.operands_of(op, list(op.operands))
    sizes = [-1 if g is None else len(g) if isinstance(g, list) else 1 for g in groups]
    shapes = [shape_of(v) for v in (*op.operands, *op.results)]
    loop = LoopOp.of(op)
    # The text of a region has the names of sizes.
    unknown = unknown_dims(shapes) if loop is None else ()
    names: dict[Dim, Dim] = {d: dim(f"s{i}") for i, d in enumerate(unknown)}
    types = [ir.TypeAttr.get(Shape([names.get(d, d) for d in s.dims], s.dtype).type) for s in shapes]
    spec, values = opview.card_of(op).spec, opview.attributes_of(op)
    stored = {a.name: attributes.to_mlir(a, values[a.name]) for a in spec.attributes if values[a.name] is not None}
    region = {} if loop is None else {"loop": ir.StringAttr.get(loop.text())}
    return ir.DictAttr.get(
        {
            **region,
            "kernel": ir.StringAttr.get(opview.kernel_of(op) or ""),
            "op": ir.StringAttr.get(spec.name),
            "attributes": ir.DictAttr.get(stored),
            "groups": ir.DenseI32ArrayAttr.get(sizes),
            "operands": ir.ArrayAttr.get(types[: len(op.operands)]),
            "results": ir.ArrayAttr.get(types[len(op.operands) :]),
        }
    )


def decoded_case(attribute: Any, cpu: CpuModel) -> tuple[CpuKernel, KernelCase]:
    """Return the kernel and the case of an attribute of `encoded_case`.

    The last operand of kernels that call LAPACK is the table of pointers.

    Raises:
        Error: There is no such kernel.
    """
    entries = {entry.name: entry.attr for entry in attribute}
    flat = iter([shape_of_type(t.value) for t in entries["operands"]])
    spec = registry.card(entries["op"].value).spec
    operands: list[Any] = []
    for value, size in zip(spec.operands, entries["groups"], strict=True):
        if value.arity == "variadic":
            operands.append([next(flat) for _ in range(size)])
        else:
            operands.append(None if size < 0 else next(flat))
    results = tuple(shape_of_type(t.value) for t in entries["results"])
    values = attributes.read_from(spec, {entry.name: entry.attr for entry in entries["attributes"]})
    loop = LoopOp.parse(entries["loop"].value) if "loop" in entries else None
    kernel = find_kernel(entries["kernel"].value)
    if kernel.name.startswith(PREFIX):
        operands.append(TABLE)
    return kernel, KernelCase(tuple(operands), results, values, cpu, loop)

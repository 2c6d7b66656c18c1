"""Emission of kernels as executables of IREE: `stream.executable` with a function on bindings, and the code on pointers."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from rlx import mlir
from rlx.kernels.buffer import Access, Buffer, shape_in_memory
from rlx.kernels.call import Call, RegionCode
from rlx.kernels.case import KernelCase
from rlx.kernels.elements import INDEX
from rlx.kernels.emitter import Emitter
from rlx.kernels.kernel import Kernel
from rlx.kernels.registry import CpuKernel
from rlx.kernels.values import Value

# IREE's own code generation only converts the function to LLVM's dialect.
_NO_PIPELINE = "#iree_codegen.translation_info<pipeline = #iree_codegen.no_pipeline>"


def emit_executable(name: str, kernel: CpuKernel, case: KernelCase, location: mlir.Location) -> None:
    """Emit a `stream.executable` at the insertion point, with an export of the same name.

    The function takes a binding for each operand, result and tensor of the workspace, then an index for each different
    unknown size of operands and results, and for each unknown number. It calls the kernel's code, which does not depend on
    IREE: a function `…_code` that takes a pointer and a distance in bytes for each binding, these indices, and the number
    of the workgroup.

    Raises:
        ShapeError: The kernel's code is wrong, with its line.
    """
    ir = mlir.ir
    sizes = case.unknown
    symbol = {"sym_name": ir.StringAttr.get(name)}
    hidden, public = (ir.StringAttr.get(text) for text in ("private", "public"))
    executable = _create("stream.executable", attributes=symbol | {"sym_visibility": hidden}, regions=1, loc=location)
    outer = executable.regions[0].blocks.append()
    attributes = symbol | {"function_ref": ir.FlatSymbolRefAttr.get(name), "sym_visibility": public}
    export = _create(
        "stream.executable.export", attributes=attributes, regions=1, ip=ir.InsertionPoint(outer), loc=location
    )
    index = ir.IndexType.get()
    grid = export.regions[0].blocks.append(*[index] * len(sizes), arg_locs=[location] * len(sizes))
    inner = _create("builtin.module", regions=1, ip=ir.InsertionPoint(outer), loc=location).regions[0].blocks.append()
    count = _number_of_tensors(kernel, case)
    code = _emit_code(f"{name}_code", kernel, case, inner, location)
    function = _function(name, [ir.Type.parse("!stream.binding")] * count + [index] * len(sizes), inner, location)
    _emit_call(code, function.entry_block, count, location)
    _emit_grid(kernel, case, grid, location)  # after the function, which raises the errors of the code
    _create("stream.executable.end", ip=ir.InsertionPoint(outer), loc=location)


def _number_of_tensors(kernel: CpuKernel, case: KernelCase) -> int:
    """The number of operands, results and tensors of the workspace."""
    return len(case.tensors) + len(case.results) + len(kernel.workspace_of(case))


def _function(name: str, arguments: Sequence[mlir.Type], block: mlir.Block, location: mlir.Location) -> Any:
    """Return a new function without results at the end of a module's block, with an entry block."""
    signature = mlir.ir.FunctionType.get(arguments, [])
    function = mlir.dialect("func").FuncOp(name, signature, ip=mlir.ir.InsertionPoint(block), loc=location)
    function.attributes["translation_info"] = mlir.ir.Attribute.parse(_NO_PIPELINE)
    function.add_entry_block()
    return function


def _emit_code(name: str, kernel: CpuKernel, case: KernelCase, block: mlir.Block, location: mlir.Location) -> Any:
    """Emit the function with a kernel's code, and return it."""
    ir, index, sizes = mlir.ir, mlir.ir.IndexType.get(), case.unknown
    count = _number_of_tensors(kernel, case)
    pointer = ir.MemRefType.get([], ir.IntegerType.get_signless(8))
    function = _function(name, [pointer, index] * count + [index] * (len(sizes) + 1), block, location)
    function.attributes["sym_visibility"] = ir.StringAttr.get("private")
    function.attributes["llvm.bareptr"] = ir.BoolAttr.get(True)
    entry = function.entry_block
    # The library's kernels are tested; running bodies twice would take time in each compilation.
    emitter = Emitter(case.cpu, entry, location, repeats_bodies=not kernel.is_of_library)
    arguments = list(entry.arguments)
    memories = zip(arguments[: 2 * count : 2], arguments[1 : 2 * count : 2], strict=True)
    _call(kernel, case, emitter, [*memories, *arguments[2 * count : -1]]).run()
    mlir.dialect("func").ReturnOp([], ip=emitter.at["ip"], loc=location)
    return function


def _emit_call(code: Any, block: mlir.Block, count: int, location: mlir.Location) -> None:
    """Emit the call of a kernel's code in a function on bindings.

    Args:
        code: The function with the code.
        block: The entry block of the function.
        count: The number of bindings.
        location: The location.
    """
    ir, at = mlir.ir, {"ip": mlir.ir.InsertionPoint(block), "loc": location}
    index, byte = ir.IndexType.get(), ir.IntegerType.get_signless(8)
    pointer, zero = ir.MemRefType.get([], byte), mlir.dialect("arith").constant(index, 0, **at)
    operands, arguments = [], list(block.arguments)
    for binding in arguments[:count]:
        memory = _create(
            "stream.binding.subspan", results=[ir.MemRefType.get([1], byte)], operands=[binding, zero], **at
        )
        parts = _create(
            "iree_codegen.extract_strided_metadata",
            results=[pointer, index, index, index],
            operands=[memory.result],
            **at,
        )
        operands += list(parts.results)[:2]
    dimension = {"dimension": ir.IntegerAttr.get(index, 0)}
    number = _create("stream.dispatch.workgroup.id", results=[index], attributes=dimension, **at)
    mlir.dialect("func").CallOp(code, [*operands, *arguments[count:], number.result], **at)
    mlir.dialect("func").ReturnOp([], **at)


def _call(kernel: CpuKernel, case: KernelCase, emitter: Emitter, arguments: Sequence[Any]) -> Call:
    """Return the call of a kernel's code, which emits it.

    Args:
        kernel: The kernel.
        case: Its case.
        emitter: The emitter.
        arguments: The memory of each tensor, and an index value for each unknown size.
    """
    shapes = [*case.results, *kernel.workspace_of(case)]
    sizes = case.unknown
    count = len(case.tensors) + len(shapes)
    known = {d: Value(emitter, v, INDEX) for d, v in zip(sizes, arguments[count:], strict=True)}
    memories = iter(arguments[:count])

    def buffer(shape: Any, is_writable: bool) -> Any:
        if shape is None or isinstance(shape, list):
            return shape and [buffer(part, is_writable) for part in shape]
        stored = shape_in_memory(shape)
        sizes = [d if type(d) is int else known[d] for d in stored.dims]
        return Buffer(emitter, next(memories), sizes, stored.dtype, access=Access(is_writable))

    operands = [buffer(shape, False) for shape in case.operands]
    region = None
    if case.loop is not None:
        region = RegionCode(case.loop, [buffer(shape, False) for shape in case.loop.captured_shapes])
    others = [buffer(shape, True) for shape in shapes]
    results, workspace = others[: len(case.results)], others[len(case.results) :]
    numbers = {name: d if type(d) is int else known[d] for name, d in case.numbers.items()}
    return Call(kernel, Kernel(emitter), operands, results, workspace, kernel.named(case, numbers), region)


class _GridFound(Exception):
    """The number of workgroups is known: the kernel's code need not be run further."""


class _GridEmitter(Emitter):
    """Emits the number of workgroups of a kernel: its code up to `k.parallel`, without memory and registers."""

    def scratch(self, shape: Any, element: Any) -> Any:
        return None

    def table(self, array: Any) -> Any:
        return None

    def variable(self, element: Any, lanes: Any) -> Any:
        raise _GridFound

    def load(self, array: Any, indices: Any, element: Any, lanes: Any, mask: Any) -> Any:
        raise _GridFound

    def store(self, array: Any, indices: Any, data: Any, lanes: Any, mask: Any) -> None:
        raise _GridFound

    count: Any = None

    def workgroups(self, count: Any, chunk: Any) -> Any:
        self.count = self.arith.ceildivui(count, chunk, **self.at)
        raise _GridFound


def _emit_grid(kernel: CpuKernel, case: KernelCase, block: mlir.Block, location: mlir.Location) -> None:
    ir = mlir.ir
    emitter = _GridEmitter(case.cpu, block, location)
    memories: list[Any] = [None] * _number_of_tensors(kernel, case)
    with contextlib.suppress(_GridFound):
        _call(kernel, case, emitter, [*memories, *block.arguments]).run_function()
    if emitter.count is None:  # without `k.parallel`, there is one workgroup
        for op in reversed(list(block.operations)):
            op.operation.erase()
    point = ir.InsertionPoint(block)
    one = mlir.dialect("arith").constant(ir.IndexType.get(), 1, ip=point, loc=location)
    _create("stream.return", operands=[emitter.count or one, one, one], ip=point, loc=location)


def _create(name: str, **more: Any) -> Any:
    return mlir.ir.Operation.create(name, **more)

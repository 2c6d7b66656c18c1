"""`rlx-iree-emit-kernels`: replaces calls of kernels by dispatches of executables that it emits."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any

from rlx import mlir
from rlx.ir.op.signature import functions
from rlx.kernels.cpu_model import cpu_model, cpu_models
from rlx.kernels.declaration import CASE, decoded_case, unknown_dims
from rlx.kernels.emit import emit_executable
from rlx.kernels.registry import CpuKernel, KernelCase
from rlx.passes.base import option
from rlx.targets.iree.passes.base import IreePass, create, every
from rlx.targets.linalg.loops import tensor_type

for _name in ("stream", "iree_codegen"):
    mlir.provide_dialect(_name, ModuleType(_name))


@dataclass(frozen=True)
class EmitKernels(IreePass, name="rlx-iree-emit-kernels"):
    """Emit each kernel of a module as an executable, and replace its calls by dispatches, for IREE."""

    cpu: str = option("x86-64", "the CPU: its registers and instructions", choices=cpu_models())

    def run(self, module: mlir.Module) -> None:
        cpu = cpu_model(self.cpu)
        declarations = {f.name.value: f for f in functions(module) if CASE in f.attributes}
        if not declarations:
            return
        cases = {name: decoded_case(f.attributes[CASE], cpu) for name, f in declarations.items()}
        calls = every(module, lambda op: op.name == "func.call" and op.attributes["callee"].value in declarations)
        for call in calls:
            name = call.attributes["callee"].value
            with call.location, mlir.ir.InsertionPoint(call):
                results = _dispatch(name, *cases[name], list(call.operands))
            for old, new in zip(call.results, results, strict=True):
                old.replace_all_uses_with(new)
            call.erase()
        for name, function in declarations.items():
            with mlir.ir.InsertionPoint(function):
                emit_executable(name, *cases[name], function.location)
            function.erase()


def _dispatch(name: str, kernel: CpuKernel, case: KernelCase, operands: list[Any]) -> list[Any]:
    """Emit the dispatch of a kernel, and return the results of the op."""
    ir = mlir.ir
    workspace = kernel.workspace_of(case)
    dims = unknown_dims([*case.tensors, *case.results])
    tensors, sizes = operands[: len(case.tensors)], operands[len(case.tensors) :]
    size_of = dict(zip(dims, sizes, strict=True))
    shapes = [*case.results, *workspace]
    argument_dims, result_dims = (
        [size_of[d] for shape in group for d in shape.dims if type(d) is not int] for group in (case.tensors, shapes)
    )
    segments = [len(sizes), len(operands), len(argument_dims), len(result_dims)]
    attributes = {
        "entry_points": ir.ArrayAttr.get([ir.SymbolRefAttr.get([name, name])]),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get(segments),
    }
    types = [tensor_type(shape) for shape in shapes]
    op = create("flow.dispatch", types, [*sizes, *tensors, *sizes, *argument_dims, *result_dims], attributes)
    return list(op.results)[: len(case.results)]

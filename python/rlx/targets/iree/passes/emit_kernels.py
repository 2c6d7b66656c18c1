"""`rlx-iree-emit-kernels`: replaces calls of kernels by dispatches of executables that it emits."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any

from rlx import mlir
from rlx.ir.dims.dim import Dim
from rlx.ir.op.signature import functions
from rlx.kernels.case import KernelCase
from rlx.kernels.cpu_model import CpuModel, cpu_model, cpu_models
from rlx.kernels.declaration import CASE, decoded_case
from rlx.kernels.emit import emit_executable
from rlx.kernels.registry import CpuKernel
from rlx.kernels.routines import TABLE
from rlx.passes.base import option
from rlx.passes.lapack import PREFIX as LAPACK
from rlx.targets.iree.names import POINTERS
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
        codes = {name: _KernelCode.of(f.attributes[CASE], cpu) for name, f in declarations.items()}
        first = dict[str, str]()  # functions with the same code, which differ in open sizes only
        executables = {name: first.setdefault(code.key, name) for name, code in codes.items()}
        for call in every(module, lambda op: op.name == "func.call" and op.attributes["callee"].value in codes):
            name = call.attributes["callee"].value
            with call.location, mlir.ir.InsertionPoint(call):
                results = codes[name].dispatch(executables[name], codes[name].with_pointers(list(call.operands)))
            for old, new in zip(call.results, results, strict=True):
                old.replace_all_uses_with(new)
            call.erase()
        if any(code.calls_lapack for code in codes.values()):
            _declare_pointers(module)
        for name, function in declarations.items():
            if executables[name] == name:
                with mlir.ir.InsertionPoint(function):
                    emit_executable(name, codes[name].kernel, codes[name].opened, function.location)
            function.erase()


def _declare_pointers(module: mlir.Module) -> None:
    """Declare the global with the pointers of LAPACK's routines, a parameter that the runtime passes."""
    ir, type_ = mlir.ir, tensor_type(TABLE)
    attributes = {
        "sym_name": ir.StringAttr.get(POINTERS),
        "sym_visibility": ir.StringAttr.get("private"),
        "type": ir.TypeAttr.get(type_),
        "initial_value": ir.Attribute.parse(f'#flow.parameter.named<"{POINTERS}"::"{POINTERS}"> : {type_}'),
    }
    point = ir.InsertionPoint.at_block_begin(module.body)
    create("util.global", attributes=attributes, ip=point, loc=module.operation.location)


@dataclass(frozen=True)
class _KernelCode:
    """The code of a kernel for a case.

    Attributes:
        kernel: The kernel.
        case: The case.
        opened: The case whose open axes have unknown sizes.
        open_sizes: These sizes by their names.
        key: A text that is equal for equal code.
    """

    kernel: CpuKernel
    case: KernelCase
    opened: KernelCase
    open_sizes: dict[Dim, int]
    key: str

    @staticmethod
    def of(attribute: mlir.Attribute, cpu: CpuModel) -> _KernelCode:
        """Return the code for the attribute of a case."""
        kernel, case = decoded_case(attribute, cpu)
        case = kernel.planned(case)
        opened, sizes = kernel.opened(case)
        shapes = [[*map(str, group)] for group in (opened.tensors, opened.results)]
        entries = {entry.name: entry.attr for entry in attribute}
        # As text: equal numbers, such as 0.0 and -0.0 or 1 and True, may need different code.
        values = [str(entry) for entry in entries["attributes"] if entry.name not in case.numbers]
        region = entries["loop"].value if opened.loop is not None else ""
        key = repr((kernel.name, shapes, entries["groups"], values, opened.plan, [*opened.numbers], region))
        return _KernelCode(kernel, case, opened, sizes, key)

    @property
    def calls_lapack(self) -> bool:
        """Whether the code calls LAPACK through pointers, the last tensor of the case."""
        return self.kernel.name.startswith(LAPACK)

    def with_pointers(self, operands: list[Any]) -> list[Any]:
        """Return the operands of a call, with the pointers if the code takes them, at the insertion point."""
        if not self.calls_lapack:
            return operands
        attributes = {"global": mlir.ir.FlatSymbolRefAttr.get(POINTERS)}
        pointers = create("util.global.load", [tensor_type(TABLE)], attributes=attributes).result
        return [*operands[: len(self.case.tensors) - 1], pointers, *operands[len(self.case.tensors) - 1 :]]

    def dispatch(self, executable: str, operands: list[Any]) -> list[Any]:
        """Emit the dispatch of an executable, and return the results of the op.

        Args:
            executable: The name of the executable, and of its function.
            operands: The tensors, then the unknown sizes of the case.
        """
        ir, case, workspace = mlir.ir, self.case, self.kernel.workspace_of(self.case)
        tensors, known = operands[: len(case.tensors)], operands[len(case.tensors) :]
        size_of = dict(zip(case.unknown, known, strict=True))
        shapes = [*case.results, *workspace]
        argument_dims, result_dims = (
            [size_of[d] for shape in group for d in shape.dims if type(d) is not int]
            for group in (case.tensors, shapes)
        )
        index = ir.IndexType.get()
        for name, size in self.open_sizes.items():
            size_of[name] = mlir.dialect("arith").constant(index, size)
        sizes = [size_of[d] for d in self.opened.unknown]
        segments = [len(sizes), len(tensors) + len(sizes), len(argument_dims), len(result_dims)]
        attributes = {
            "entry_points": ir.ArrayAttr.get([ir.SymbolRefAttr.get([executable, executable])]),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get(segments),
        }
        types = [tensor_type(shape) for shape in shapes]
        op = create("flow.dispatch", types, [*sizes, *tensors, *sizes, *argument_dims, *result_dims], attributes)
        return list(op.results)[: len(case.results)]

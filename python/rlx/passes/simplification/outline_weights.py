"""`rlx-outline-weights`: outlining of computations on parameters into a function that runs once at load time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlx import mlir
from rlx.ir.interface import Argument, Output
from rlx.ir.op import opview, registry
from rlx.ir.op.signature import (
    PREPARES,
    bodies,
    prepares,
    read_arguments,
    read_outputs,
    sign_function,
)
from rlx.ir.shape import shape_of
from rlx.passes.base import Pass, option
from rlx.passes.rewrite import erase_dead
from rlx.passes.simplification.invariants import bytes_of, has_open_sizes, undoes_transpose, worth_keeping


@dataclass(frozen=True)
class OutlineWeights(Pass, name="rlx-outline-weights"):
    """Move computations on parameters into a private function `<name>.weights`, whose results become parameters.

    A back end runs this pass after LIR and calls the function once. Views and broadcasts are not moved, because they
    are free. Values that take much more memory than their parameters, such as dequantised weights, are not moved
    either, nor are transposes that undo others, because they determine the stored order of axes: see rlx-kernel-layout.
    """

    preserves_results = False  # the parameters of the function change

    # Twice the size is allowed, as for f32 from f16. Otherwise XLA's products would compute the casts in every call.
    growth: float = option(
        2.0, "the maximum size of a value, as a multiple of its parameters; products are moved at any size", least=0
    )

    def run(self, module: mlir.Module) -> None:
        for function in bodies(module):
            if not prepares(function):
                _outline(function, self.growth)


def _outline(function: mlir.FuncOp, growth: float) -> None:
    arguments, outputs, block = read_arguments(function), read_outputs(function), function.entry_block
    kinds = zip(block.arguments, arguments, strict=True)
    params = {value: a for value, a in kinds if a.kind == "param" and a.shape.is_static}
    sizes = {value: bytes_of(value) for value in params}
    crossing, inside = worth_keeping(block, sizes.get, _is_movable, growth)
    if not crossing:
        return
    name, taken = f"{function.name.value}.weights", {a.name for a in arguments}
    names = [n for n in (f"{name}{i}" for i in range(len(crossing) + len(taken))) if n not in taken][: len(crossing)]
    prepared = [Argument(n, "param", shape_of(v)) for n, v in zip(names, crossing, strict=True)]
    _emit(function, name, params, inside, crossing, prepared)
    for value in crossing:
        value.replace_all_uses_with(block.add_argument(value.type, value.owner.operation.location))
    erase_dead(inside)
    unused = [i for i, value in enumerate(block.arguments) if value in params and not opview.is_used(value)]
    for i in reversed(unused):
        block.erase_argument(i)
    kept = [a for i, a in enumerate([*arguments, *prepared]) if i not in unused]
    sign_function(function, kept, outputs)


def _is_movable(op: mlir.Operation) -> bool:
    if not registry.is_ours(op) or undoes_transpose(op):
        return False
    if len(op.regions) and opview.name_of(op) != "elementwise_region":  # others may read values from outside
        return False
    return not has_open_sizes(op) and all(shape_of(r).is_static for r in op.results)


def _emit(
    function: mlir.FuncOp,
    name: str,
    params: dict[mlir.Value, Argument],
    ops: Sequence[mlir.Operation],
    results: Sequence[mlir.Value],
    prepared: Sequence[Argument],
) -> None:
    """Emit the function that runs once at load time. It is placed before the main function."""
    ir, func = mlir.ir, mlir.dialect("func")
    read = {v for op in ops for v in op.operands}
    taken = {value: argument for value, argument in params.items() if value in read}
    outlined = func.FuncOp(name, ([], []), visibility="private", ip=ir.InsertionPoint(function), loc=function.location)
    block = outlined.add_entry_block()
    copies = {value: block.add_argument(value.type, value.location) for value in taken}
    with ir.InsertionPoint(block):
        for op in ops:
            copy = op.clone()
            for i, value in enumerate(op.operands):
                copy.operands[i] = copies[value]
            copies |= zip(op.results, copy.results, strict=True)
        func.ReturnOp([copies[v] for v in results], loc=function.location)
    outlined.attributes[PREPARES] = ir.StringAttr.get(function.name.value)
    sign_function(outlined, taken.values(), [Output(a.name, a.shape) for a in prepared])

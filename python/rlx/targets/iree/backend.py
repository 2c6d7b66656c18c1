"""The compiling half of the IREE back end: CPU, CUDA, ROCm, Vulkan and Metal through linalg. `program` runs the programs."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rlx import mlir
from rlx.ir.interface import Output
from rlx.ir.op.signature import find_function
from rlx.targets.artifacts.artifact import Artifact
from rlx.targets.artifacts.signature import output_to_json
from rlx.targets.building import estimated_flops, timed
from rlx.targets.compilation import Compilation
from rlx.targets.iree.compiler import compile_module, compiler_version, prewarm
from rlx.targets.iree.cpu import Cpu
from rlx.targets.iree.cpu_operations import BYTE_PRODUCT_FLAGS
from rlx.targets.iree.kernel_objects import take_out_kernels
from rlx.targets.iree.names import exported_name
from rlx.targets.iree.passes.quantised_products import has_unsigned_products
from rlx.targets.iree.program import DESCRIPTION_KEY, description, info_fields
from rlx.targets.iree.targets import Target, target, target_names
from rlx.targets.joint import lowered_together
from rlx.targets.protocol import Compiled, Measurement


def version() -> str:
    """Return the version of IREE's compiler."""
    return compiler_version()


def compile_program(compilation: Compilation, timeout_s: float | None = None) -> Compiled:
    """Compile a graph through linalg.

    Args:
        compilation: The compilation.
        timeout_s: The time limit in seconds for each attempt of the compiler.

    Raises:
        CompileError: The module cannot be expressed or compiled for the target.
    """
    (compiled,) = compile_together([compilation], timeout_s)
    return compiled


def compile_together(compilations: Sequence[Compilation], timeout_s: float | None = None) -> list[Compiled]:
    """Compile graphs to one module: see `protocol.JointCompiler`.

    Raises:
        CompileError: The module cannot be expressed or compiled for the target.
    """
    first = compilations[0]
    target, phases = leveled(*compilations), first.phases
    prewarm(target)  # the compiler's process starts while this process lowers the graph
    flops = max(estimated_flops(compilation.lir.module) for compilation in compilations)
    with timed(phases, "lower"):
        lowered = first.lowered() if len(compilations) == 1 else lowered_together(compilations)
        borrows = [_seal(lowered, compilation) for compilation in compilations]
    with timed(phases, "kernels"):
        objects = take_out_kernels(lowered, target, cache=first.cache, timeout_s=timeout_s)
    with timed(phases, "iree"):
        target = with_flags_of(lowered, target)
        text, name = module_text(lowered), f"{first.lir.name_symbol}.mlir"
        compiled = compile_module(text, target, objects=objects, timeout_s=timeout_s, name=name)
    info = {
        "flops": flops,
        "flags": list(compiled.flags_used),
        "cpu": compiled.cpu and compiled.cpu.to_json(),
        "iree": compiler_version(),
    }
    return [
        Compiled(compiled.vmfb, {**info, "borrow": borrow, "others": others}, lasting=not compiled.may_improve)
        for borrow, others in zip(borrows, _other_parameters(compilations), strict=True)
    ]


def _other_parameters(compilations: Sequence[Compilation]) -> Iterator[list[dict[str, Any]]]:
    """Yield the parameters for each graph that only other graphs have."""
    params = {a.name: a for compilation in compilations for a in compilation.signature.of_kind("param")}
    for compilation in compilations:
        own = {a.name for a in compilation.signature.of_kind("param")}
        yield [output_to_json(Output(name, a.shape)) for name, a in params.items() if name not in own]


def leveled(*compilations: Compilation) -> Target:
    """Return the target of compilations, with the flags of their optimisation level."""
    target = compilations[0].target
    assert isinstance(target, Target)
    # The operations are estimated before the passes, so that the compiler's process can start while they run.
    flops = max(estimated_flops(compilation.prepared.module) for compilation in compilations)
    return target.at_level(compilations[0].options.opt, flops)


def with_flags_of(lowered: Any, target: Target) -> Target:
    """The target with the flags that a lowered module needs."""
    if not has_unsigned_products(lowered):
        return target
    return replace(target, flags=(*target.flags, *BYTE_PRODUCT_FLAGS))


def _seal(lowered: Any, compilation: Compilation) -> bool:
    """Store the hash of a function's description in the program. Loading it with another description raises an error.

    Returns:
        Whether the function only reads its arguments.
    """
    signature, requirements = compilation.signature, [r.to_json() for r in compilation.requirements]
    with mlir.entered():
        function = find_function(lowered, exported_name(signature.name))
        borrow = only_reads_arguments(function)
        text = description(signature, borrow, requirements)
        function.attributes["iree.reflection"] = mlir.ir.DictAttr.get({DESCRIPTION_KEY: mlir.ir.StringAttr.get(text)})
    return borrow


def emit(kind: str, compilation: Compilation) -> str | bytes | None:
    """Return the linalg module that IREE compiles, as text or as bytecode."""
    if kind == "bytecode":
        buffer = io.BytesIO()
        compilation.lowered().operation.write_bytecode(buffer)
        return buffer.getvalue()
    return compilation.lowered_text() if kind == "linalg" else None


def notes(artifact: Artifact) -> list[str]:
    """Return a note on the CPUs that can run a CPU program."""
    if (data := artifact.info["cpu"]) is None:
        return []
    cpu = Cpu.from_json(data)
    others = "; for most other CPUs there is --arch=x86-64-v3" if cpu.host and cpu.architecture == "x86_64" else ""
    return [f"needs: {cpu}{others}"]


def module_text(lowered: Any) -> str:
    """Return the module as text for IREE, with locations, so that IREE's errors name source locations."""
    return lowered.operation.get_asm(enable_debug_info=True, print_generic_op_form=True)


# Ops of lowered modules that write to a part of a buffer. IREE may use the buffer of an argument for them, so a program
# with one of these ops gets copies of its arguments (quirk `arguments-overwritten`).
_PARTIAL_WRITES = (
    "tensor.insert",
    "tensor.insert_slice",
    "tensor.concat",
    "tensor.pad",
    "linalg.copy",
    "scf.for",
    "scf.while",
    "cf.br",
    "iree_linalg_ext.scatter",
)


def only_reads_arguments(lowered: Any) -> bool:
    """Whether a lowered module or function has no op that may write to the buffer of an argument in IREE."""
    is_partial_write = []

    def visit(op: Any) -> Any:
        if op.name == "stream.executable":  # kernels write to their results only
            return mlir.ir.WalkResult.SKIP
        is_partial_write.append(op.name in _PARTIAL_WRITES)
        return mlir.ir.WalkResult.ADVANCE

    mlir.walk(lowered, visit, mlir.ir.WalkOrder.PRE_ORDER)
    return not any(is_partial_write)


def profile(
    compilation: Compilation,
    arrays: Sequence[np.ndarray],
    parameters: Mapping[str, np.ndarray],
    *,
    runs: int,
    threads: int | None = None,
) -> Measurement:
    """Measure the kernels of a program: see `protocol.Profiler`."""
    from rlx.targets.iree import profile as profiler

    return profiler.profile(compilation, arrays, parameters, runs=runs, threads=threads)


__all__: Sequence[str] = [
    "compile_program",
    "compile_together",
    "emit",
    "info_fields",
    "module_text",
    "notes",
    "profile",
    "target",
    "target_names",
    "version",
]

"""The IREE back end: CPU, CUDA, ROCm, Vulkan and Metal through linalg."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rlx import mlir
from rlx.backends.artifact import Artifact, Signature
from rlx.backends.building import timed
from rlx.backends.cache import fingerprint
from rlx.backends.compilation import Compilation
from rlx.backends.fields import Check, boolean, integer, listed, name, optional
from rlx.backends.iree import targets
from rlx.backends.iree.abi import ArgumentType, TensorType
from rlx.backends.iree.compiler import compile_module, compiler_version, prewarm
from rlx.backends.iree.cpu import Cpu
from rlx.backends.iree.devices import check_features, devices
from rlx.backends.iree.executable import Executable, Function
from rlx.backends.iree.names import state_getter, state_setter
from rlx.backends.iree.passes.quantised_products import has_unsigned_products
from rlx.backends.iree.pipeline import lower
from rlx.backends.iree.targets import Target, device_names, target, target_names
from rlx.backends.protocol import Compiled, Measurement
from rlx.ir import opview
from rlx.ir.dim import estimate
from rlx.ir.errors import ExecutionError
from rlx.ir.graph import Graph
from rlx.ir.interface import Argument
from rlx.ir.shape import Shape
from rlx.ir.signature import bodies

# Below this many operations the threads of local-task cost more than they save (about 15 µs a call).
PARALLEL_FLOPS = 20_000_000


def estimated_flops(module: Any) -> int:
    """The number of operations of each function, each op counted once, with a typical size for each symbol.

    The body of a loop is counted once as well, because threads cost time in every step: they have to be worth it in each. With
    threads, 1,000 steps of `tanh(h @ w + x)` for 256 numbers (134 million operations) took 36 ms on two cores instead of 9.
    """
    total = 0
    for function in bodies(module):
        for op in opview.operations(function.entry_block):
            if op.name not in opview.TERMINATORS:
                total += max(0, estimate(opview.own_cost_of(op).flops))  # a size may be n - 100
    return total


def version() -> str:
    """The version of IREE's compiler."""
    return compiler_version()


def compile_program(compilation: Compilation, timeout_s: float | None = None) -> Compiled:
    """Compile a graph through linalg.

    Args:
        compilation: The compilation.
        timeout_s: The seconds that an attempt of the compiler may take.

    Raises:
        CompileError: The module cannot be expressed or compiled for the target.
    """
    target, phases = leveled(compilation), compilation.phases
    prewarm(target)  # the compiler's process starts while the graph is lowered here
    lir = compilation.lir
    requirements = [r.to_json() for r in compilation.requirements]
    with timed(phases, "lower"):
        lowered, target = compiler_input(lir, target)
        borrow = only_reads_arguments(lowered)
        _seal(lowered, compilation.signature, _description(compilation.signature, borrow, requirements))
        text = module_text(lowered)
    with timed(phases, "iree"):
        compiled = compile_module(text, target, timeout_s=timeout_s, name=f"{lir.name_symbol}.mlir")
    info = {
        "flops": estimated_flops(lir.module),
        "borrow": borrow,
        "flags": list(compiled.flags_used),
        "cpu": compiled.cpu and compiled.cpu.to_json(),
        "iree": compiler_version(),
    }
    return Compiled(compiled.vmfb, info, lasting=not compiled.may_improve)


def leveled(compilation: Compilation) -> Target:
    """The target of a compilation, with the flags of its level of optimisation."""
    assert isinstance(compilation.target, Target)
    # As it is before the passes, so that the compiler's process can start while they run.
    return compilation.target.at_level(compilation.opt, estimated_flops(compilation.prepared.module))


def compiler_input(lir: Graph, target: Target) -> tuple[Any, Target]:
    """The module that IREE compiles, and the target with the flags that it needs."""
    lowered = lir.clone().module
    lower(lowered, target)
    if has_unsigned_products(lowered):
        target = replace(target, flags=(*target.flags, *targets.BYTE_PRODUCT_FLAGS))
    return lowered, target


_LARGEST_FLOPS = 10**300
_DESCRIPTION_KEY = "rlx.described"


def info_fields() -> dict[str, Check]:
    """The entries of an artifact's `info`. The flags are only for information."""
    return {
        "flops": integer(0, _LARGEST_FLOPS),
        "borrow": boolean,
        "flags": listed(name),
        "cpu": optional(Cpu.from_json),
        "iree": name,
    }


def _description(signature: Signature, borrow: bool, requirements: Sequence[Sequence[str | None]]) -> str:
    """A hash of the facts in an artifact, besides the program, that make a call safe: types, access and sizes of arguments."""
    # Texts for users, the meanings and places of requirements, do not matter.
    expressions = sorted({str(requirement[0]) for requirement in requirements})
    return fingerprint(json.dumps([signature.to_json(), borrow, expressions], sort_keys=True))


def _seal(lowered: Any, signature: Signature, description: str) -> None:
    """Store the hash of the description in the program: with another description it is refused when it is loaded."""
    with mlir.entered():
        for op in lowered.body.operations:
            if op.operation.name == "func.func" and op.operation.attributes["sym_name"].value == signature.name:
                note = {_DESCRIPTION_KEY: mlir.ir.StringAttr.get(description)}
                op.operation.attributes["iree.reflection"] = mlir.ir.DictAttr.get(note)


def emit(kind: str, compilation: Compilation) -> str | None:
    """The linalg that IREE compiles, as text."""
    if kind != "linalg":
        return None
    with mlir.unregistered_dialects_allowed():  # otherwise MLIR prints the generic form
        return str(compiler_input(compilation.lir, leveled(compilation))[0])


def notes(artifact: Artifact) -> list[str]:
    """A note on the CPUs on which a program for a CPU can run."""
    if (data := artifact.info["cpu"]) is None:
        return []
    cpu = Cpu.from_json(data)
    others = "; for most other CPUs there is --arch=x86-64-v3" if cpu.host and cpu.architecture == "x86_64" else ""
    return [f"needs: {cpu}{others}"]


def module_text(lowered: Any) -> str:
    """The text that IREE gets, with locations, so that its errors name the user's line."""
    return lowered.operation.get_asm(enable_debug_info=True, print_generic_op_form=True)


# Ops of lowered modules that write to a part of a buffer. IREE may choose the buffer of an argument for that, so a program
# with such an op gets copies of its arguments (quirk `arguments-overwritten`).
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
    """Whether a lowered module has no op that IREE may let write to the buffer of an argument."""
    is_partial_write = []

    def visit(op: Any) -> Any:
        is_partial_write.append(op.name in _PARTIAL_WRITES)
        return mlir.ir.WalkResult.ADVANCE

    mlir.walk(lowered, visit)
    return not any(is_partial_write)


class Program:
    """A loaded artifact: its function, and its states."""

    def __init__(
        self,
        artifact: Artifact,
        parameters: Mapping[str, np.ndarray],
        driver: str,
        threads: int | None,
        *,
        takes_empty: bool = True,
    ):
        signature = artifact.signature
        params = signature.of_kind("param")
        self.executable = Executable(
            artifact.program,
            driver=driver,
            parameters=parameters,
            parameter_types={a.name: _tensor_type(a.shape) for a in params},
            threads=threads,
        )
        self.in_host_memory = self.executable.local  # see `protocol.KeepingResults`
        borrow, requirements = artifact.info["borrow"], artifact.info["requirements"]
        if self.executable.note(signature.name, _DESCRIPTION_KEY) != _description(signature, borrow, requirements):
            raise ExecutionError("the program is another one than the artifact describes", hint="compile it again")
        self.states = {a.name: a for a in signature.of_kind("state")}
        # A result may share the memory of a state, which the next run overwrites.
        function = self.executable.function(
            signature.name,
            [_argument_type(a, borrow) for a in signature.of_kind("input")],
            [_tensor_type(o.shape) for o in signature.outputs],
            copy_results=bool(self.states),
        )
        self.call: Callable[[Sequence[np.ndarray]], list[np.ndarray]] = function
        if not takes_empty and any(not a.shape.is_static for a in signature.of_kind("input")):
            self.call = _refusing_empty(function, [a.name for a in signature.of_kind("input")])

    def read_state(self, name: str) -> np.ndarray:
        """A copy of the current value of a state."""
        type_ = _tensor_type(self.states[name].shape)
        return self.executable.function(state_getter(name), [], [type_], copy_results=True)([])[0]

    def write_state(self, name: str, value: np.ndarray) -> None:
        """Set the value of a state."""
        shape = self.states[name].shape
        type_ = ArgumentType(shape.dtype.numpy, shape.static)
        self.executable.function(state_setter(name), [type_], [])([value])


def _refusing_empty(function: Function, names: Sequence[str]) -> Callable[[Sequence[np.ndarray]], list[np.ndarray]]:
    """A function that refuses empty inputs: some devices give wrong results or unclear errors for these (`empty-tensors`)."""

    def call(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        for input_name, array in zip(names, arrays, strict=True):
            if not array.size:
                raise ExecutionError(
                    f"input '{input_name}' is empty, {list(array.shape)}, which this device does not take"
                )
        return function(arrays)

    return call


def _sizes(shape: Shape) -> tuple[int | None, ...]:
    return tuple(d if type(d) is int else None for d in shape.dims)


def _tensor_type(shape: Shape) -> TensorType:
    return TensorType(shape.dtype.numpy, _sizes(shape))


def _argument_type(argument: Argument, borrow: bool) -> ArgumentType:
    access = "donate" if argument.donate else "borrow" if borrow else "copy"
    return ArgumentType(argument.shape.dtype.numpy, _sizes(argument.shape), access)


def profile(
    compilation: Compilation,
    arrays: Sequence[np.ndarray],
    parameters: Mapping[str, np.ndarray],
    *,
    runs: int,
    threads: int | None = None,
) -> Measurement:
    """Measure the kernels of a program: see `protocol.Profiler`."""
    from rlx.backends.iree import profile as profiler

    return profiler.profile(compilation, arrays, parameters, runs=runs, threads=threads)


def choose_driver(target: Target, flops: int, threads: int | None) -> str:
    """The driver of the runtime; for the CPU, one with threads only if there is enough work."""
    if "local-task" not in target.drivers:
        return target.drivers[0]
    return "local-sync" if threads == 1 or flops < PARALLEL_FLOPS else "local-task"


def load(artifact: Artifact, parameters: Mapping[str, np.ndarray], threads: int | None = None) -> Program:
    """Load an artifact on its device.

    Raises:
        ExecutionError: There is no such device, this machine's CPU lacks instructions that the code needs, or a parameter is
            missing or does not fit.
    """
    if (cpu := artifact.info["cpu"]) is not None:
        Cpu.from_json(cpu).check(f"the program {artifact.signature.name}")
    target = targets.target(artifact.target, artifact.arch)
    if target.device:
        check_features(target.drivers[0])
    driver = choose_driver(target, artifact.info["flops"], threads)
    return Program(artifact, parameters, driver, threads, takes_empty=target.takes_empty)


__all__: Sequence[str] = [
    "Program",
    "compile_program",
    "device_names",
    "devices",
    "emit",
    "info_fields",
    "load",
    "module_text",
    "notes",
    "profile",
    "target",
    "target_names",
    "version",
]

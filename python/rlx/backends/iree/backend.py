"""The IREE back end: CPU, CUDA, ROCm, Vulkan and Metal through linalg."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rlx import mlir
from rlx.backends import stages
from rlx.backends.artifact import Artifact, Signature, requirement
from rlx.backends.building import cached, timed
from rlx.backends.cache import DiskCache, fingerprint
from rlx.backends.fields import Check, boolean, integer, listed, name, optional
from rlx.backends.iree import targets
from rlx.backends.iree.abi import ArgumentType, TensorType
from rlx.backends.iree.adaptation import adapt
from rlx.backends.iree.compiler import compile_module, compiler_version, prewarm
from rlx.backends.iree.cpu import Cpu
from rlx.backends.iree.devices import check_features, devices
from rlx.backends.iree.executable import Executable, Function
from rlx.backends.iree.targets import Target, target
from rlx.ir import opview
from rlx.ir.dim import estimate
from rlx.ir.errors import ExecutionError, UnsupportedError
from rlx.ir.graph import Graph
from rlx.ir.location import describe
from rlx.ir.requirements import requirements
from rlx.ir.shape import Shape, shape_of
from rlx.ir.signature import Argument, bodies, read_arguments
from rlx.lower.linalg import claimed_ops, lower_module
from rlx.lower.linalg.function import state_getter, state_setter
from rlx.lower.linalg.rules import RULES
from rlx.version import __version__

# Below this many operations the threads of local-task cost more than they save (about 15 µs a call).
PARALLEL_FLOPS = 20_000_000
# What a symbol is taken to be where work has to be guessed.
_TYPICAL_SIZE = 64


def legalise(module: Any, *, fusion_policy: str = "direct") -> None:
    """Make a module of rlx ops consist of what the linalg lowering claims, in place."""
    stages.legalise(module, claimed_ops(), policy=fusion_policy)


def legalised(graph: Graph, target: Target, *, policy: str = "direct") -> Graph:
    """A graph of ops that are lowered, of dtypes that the target has.

    Raises:
        UnsupportedError: It lists every op with another dtype.
    """
    legal = stages.legalised(graph, claimed_ops(), policy=policy)
    check_dtypes(legal.module, target)
    return legal


def check_dtypes(module: Any, target: Target) -> None:
    """No tensor has a dtype that the target cannot compute with, or no elements where it has none of those.

    Raises:
        UnsupportedError: It lists every argument and op of that kind, with its location.
    """
    if not target.unsupported_dtypes and target.takes_empty:
        return
    wrong = []
    for function in bodies(module):
        for a in read_arguments(function):
            wrong += [f"  {a.kind} '{a.name}' is {what}" for what in _refused(a.shape, target)]
        for op in opview.operations(function.entry_block):
            found = dict.fromkeys(what for r in op.results for what in _refused(shape_of(r), target))
            place = describe(op.location) or "<unknown>"
            wrong += [f"  {place}: {op.name} gives {what}" for what in found]
            if opview.name_of(op) in target.given_kernels and not _is_given(op.operands[1]):
                wrong.append(f"  {place}: {op.name} by what the program computes, as in gradients, is not right there")
    if wrong:
        message = f"target {target.name} ({target.arch}) does not support some dtypes or ops:\n" + "\n".join(wrong)
        raise UnsupportedError(
            message, hint="cast to a dtype that it has, outside of the program; leave out empty tensors"
        )


def _is_given(value: Any) -> bool:
    """Whether a value is an argument or a constant, perhaps seen in another way."""
    while not isinstance(value, mlir.ir.BlockArgument):
        op = value.owner.operation
        if not opview.has_trait(op, "rearranges") and opview.name_of(op) != "cast":
            return opview.name_of(op) == "constant"
        value = op.operands[0]
    return True


def _refused(shape: Shape, target: Target) -> list[str]:
    """What a target has against tensors of a shape."""
    found = [shape.dtype.name] if shape.dtype.name in target.unsupported_dtypes else []
    return found if target.takes_empty or 0 not in shape.dims else [*found, f"{shape}, which is empty"]


def estimated_flops(module: Any) -> int:
    """Operations of one run of every function, with a typical size for each symbol."""
    total = 0
    for function in bodies(module):
        for op in opview.operations(function.entry_block):
            if op.name in ("func.return", "rlx.yield"):
                continue
            total += max(0, estimate(opview.own_cost_of(op).flops, _TYPICAL_SIZE))  # a size may be n - 100
    return total


def target_names() -> tuple[str, ...]:
    """The names that `target` takes, aliases among them."""
    return targets.names_and_aliases()


def compile_graph(
    graph: Graph,
    target: Target,
    *,
    fusion_policy: str = "direct",
    cache: DiskCache | None = None,
    timeout_s: float | None = None,
    phases: dict[str, float] | None = None,
) -> Artifact:
    """Compile a graph. The graph is not changed.

    Args:
        graph: HIR or MIR.
        target: What to compile for.
        fusion_policy: `"direct"` fuses ops, `"fusable"` leaves primitives.
        cache: Where compiled programs are kept.
        timeout_s: Seconds that an attempt of the compiler may take.
        phases: Filled with the seconds that each phase took.

    Raises:
        CompileError: The module cannot be expressed or compiled for the target.
    """
    phases = {} if phases is None else phases

    def described() -> tuple[str, ...]:
        return compiler_version(), target.fingerprint(), fusion_policy, str(graph.module), graph.name_symbol

    return cached(
        cache,
        graph,
        RULES,
        described,
        phases,
        make=lambda: _compiled(graph, target, fusion_policy, timeout_s, phases),
        legalised=lambda: legalised(graph, target, policy=fusion_policy),
    )


def _compiled(
    graph: Graph, target: Target, fusion_policy: str, timeout_s: float | None, phases: dict[str, float]
) -> tuple[Artifact, bool]:
    """The artifact, and whether compiling again would give no better one."""
    prewarm(target)  # the compiler's process gets ready while we lower
    with timed(phases, "passes"):
        work = graph.clone()
        legalise(work.module, fusion_policy=fusion_policy)
        check_dtypes(work.module, target)
        flops, needed = estimated_flops(work.module), requirements(graph.module, work.module)
    signature, needs = Signature.of(graph), [r.to_json() for r in needed]
    with timed(phases, "lower"):
        lowered = lower_module(work.module, for_iree=True)
        adapt(lowered, target)
        borrow = only_reads_arguments(lowered)
        _seal(lowered, signature, _described(signature, borrow, needs))
        text = module_text(lowered)
    with timed(phases, "iree"):
        compiled = compile_module(text, target, timeout_s=timeout_s, name=f"{graph.name_symbol}.mlir")
    info = {
        "flops": flops,
        "borrow": borrow,
        "requirements": needs,
        "flags": list(compiled.flags_used),
        "cpu": compiled.cpu and compiled.cpu.to_json(),
        "rlx": __version__,
        "iree": compiler_version(),
    }
    artifact = Artifact(target.name, target.arch, signature, compiled.vmfb, info)
    return artifact, not compiled.weakened_by_chance


_LARGEST_FLOPS = 10**300
_DESCRIBED = "rlx.described"


def info_fields() -> dict[str, Check]:
    """What stands in an artifact's `info`. The flags are told to people; nothing is done with them."""
    return {
        "flops": integer(0, _LARGEST_FLOPS),
        "borrow": boolean,
        "requirements": listed(requirement),
        "flags": listed(name),
        "cpu": optional(Cpu.from_json),
        "rlx": name,
        "iree": name,
    }


def _described(signature: Signature, borrow: bool, needs: Sequence[Sequence[str | None]]) -> str:
    """A hash of all on which the safety of a call depends, beside the program: what it reads and writes, and how far."""
    # Not what users read: meanings and places of requirements.
    expressions = sorted({str(need[0]) for need in needs})
    return fingerprint(json.dumps([signature.to_json(), borrow, expressions], sort_keys=True))


def _seal(lowered: Any, signature: Signature, described: str) -> None:
    """Have the program itself say which description it goes with: one with another is refused when it is loaded."""
    with mlir.entered():
        for op in lowered.body.operations:
            if op.operation.name == "func.func" and op.operation.attributes["sym_name"].value == signature.name:
                note = {_DESCRIBED: mlir.ir.StringAttr.get(described)}
                op.operation.attributes["iree.reflection"] = mlir.ir.DictAttr.get(note)


def emit(kind: str, graph: Graph, target: Target) -> str | None:
    """A legalised graph as the linalg that IREE is given."""
    if kind != "linalg":
        return None
    with mlir.unregistered_dialects_allowed():  # else MLIR prints its generic form
        lowered = lower_module(graph.module, for_iree=True)
        adapt(lowered, target)
        return str(lowered)


def module_text(lowered: Any) -> str:
    """What goes to IREE, with locations, so that its errors name the user's line."""
    return lowered.operation.get_asm(enable_debug_info=True, print_generic_op_form=True)


# Ops of the lowering that write into a part of a buffer. IREE may choose an argument's buffer for that, so where one
# occurs the program gets copies of its arguments.
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
    """Whether no op of a lowered module can be made to write into an argument's buffer."""
    found = []

    def visit(op: Any) -> Any:
        found.append(op.name in _PARTIAL_WRITES)
        return mlir.ir.WalkResult.ADVANCE

    mlir.walk(lowered, visit)
    return not any(found)


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
        borrow, needs = artifact.info["borrow"], artifact.info["requirements"]
        if self.executable.note(signature.name, _DESCRIBED) != _described(signature, borrow, needs):
            raise ExecutionError("the program is another one than the artifact describes", hint="compile it again")
        self.states = {a.name: a for a in signature.of_kind("state")}
        # A result may be the memory of a state, which the next run overwrites.
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
        """A copy of a state's present value."""
        type_ = _tensor_type(self.states[name].shape)
        return self.executable.function(state_getter(name), [], [type_], copy_results=True)([])[0]

    def write_state(self, name: str, value: np.ndarray) -> None:
        """Set a state."""
        shape = self.states[name].shape
        type_ = ArgumentType(shape.dtype.numpy, shape.static)
        self.executable.function(state_setter(name), [type_], [])([value])


def _refusing_empty(function: Function, names: Sequence[str]) -> Callable[[Sequence[np.ndarray]], list[np.ndarray]]:
    """The function for a device that gives wrong results for no elements, or an error that says nothing."""

    def call(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        for given, array in zip(names, arrays, strict=True):
            if not array.size:
                raise ExecutionError(f"input '{given}' is empty, {list(array.shape)}, which this device does not take")
        return function(arrays)

    return call


def _sizes(shape: Shape) -> tuple[int | None, ...]:
    return tuple(d if type(d) is int else None for d in shape.dims)


def _tensor_type(shape: Shape) -> TensorType:
    return TensorType(shape.dtype.numpy, _sizes(shape))


def _argument_type(argument: Argument, borrow: bool) -> ArgumentType:
    access = "donate" if argument.donate else "borrow" if borrow else "copy"
    return ArgumentType(argument.shape.dtype.numpy, _sizes(argument.shape), access)


def choose_driver(target: Target, flops: int, threads: int | None) -> str:
    """The runtime driver: for the CPU, threads only where the work pays for them."""
    if "local-task" not in target.drivers:
        return target.drivers[0]
    return "local-sync" if threads == 1 or flops < PARALLEL_FLOPS else "local-task"


def load(artifact: Artifact, parameters: Mapping[str, np.ndarray], threads: int | None = None) -> Program:
    """Load an artifact on its device.

    Raises:
        ExecutionError: The device is not there, this machine's CPU lacks what the code needs, or a parameter is missing or
            does not fit.
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
    "claimed_ops",
    "compile_graph",
    "devices",
    "emit",
    "info_fields",
    "legalise",
    "legalised",
    "load",
    "module_text",
    "target",
    "target_names",
]

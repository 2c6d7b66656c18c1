"""The kernel of a scan: all steps of a loop in one workgroup, with carries and values between ops where they are.

As a loop of the program, each op of each step would be a dispatch of its own, and carries would be copied. Steps are not
shared between threads, so the kernel pays for small steps only.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlx import mlir
from rlx.ir.dims.dim import Dim
from rlx.ir.shape import Shape, shape_of
from rlx.kernels.buffer import Buffer, Size
from rlx.kernels.call import RegionCode
from rlx.kernels.kernel import Kernel
from rlx.kernels.looped import LoopOp
from rlx.kernels.registry import KernelCase, kernel
from rlx.kernels.step_code import Memory, StepCode, packed_shape
from rlx.kernels.step_plan import StepPlan

# The largest step that pays without threads.
_MOST_PRODUCTS, _MOST_ELEMENTS = 1 << 22, 1 << 17


def _plan(case: KernelCase) -> StepPlan:
    assert case.loop is not None
    return StepPlan(case.loop, case.attributes["num_carries"])


def _has_code(case: KernelCase) -> bool:
    """Whether the step consists of ops that kernels have code for, of tensors whose sizes are those of operands."""
    known = [d for shape in (*case.tensors, *case.results) for d in shape.dims if d != 0]
    (length,) = case.attributes["length"]
    if any(0 in shape.dims for shape in (*case.tensors, *case.results)) or (
        type(length) is not int and length not in known
    ):
        return False
    return _plan(case).problem(known) is None


def _is_small(case: KernelCase) -> bool:
    plan = _plan(case)
    return plan.products() <= _MOST_PRODUCTS and plan.elements() <= _MOST_ELEMENTS


def _workspace(case: KernelCase) -> list[Shape]:
    """Memory for the values between the ops of a step, the next values of carries that are still read, and packed matrices."""
    plan = _plan(case)
    values = (*plan.stored, *(plan.arguments[number] for number in plan.buffered))
    return [*map(shape_of, values), *(packed_shape(shape_of(w), rows, case.cpu) for w, rows in plan.packed.items())]


@kernel("scan", takes=_has_code, pays=_is_small, workspace=_workspace)
def scan(
    k: Kernel,
    inputs: Sequence[Buffer],
    *tensors: Buffer,
    num_carries: int,
    length: tuple[Dim],
    reverse: bool,
    num_checkpoints: int | None,
    region: RegionCode,
) -> None:
    """All steps of a scan."""
    plan = StepPlan(region.op, num_carries)
    count = len(plan.yielded)
    results, workspace = tensors[:count], tensors[count:]
    sizes = _sizes(region.op, [*inputs, *results, *region.captures])
    memory = {v: Memory.of(b) for v, b in zip(plan.captures, region.captures, strict=True)}
    carries = [Memory.of(b) for b in results[:num_carries]]
    memory |= dict(zip(plan.arguments, carries, strict=False))
    memory |= {v: Memory.of(b) for v, b in zip(plan.stored, workspace, strict=False)}
    rest = workspace[len(plan.stored) :]
    following = dict(zip(plan.buffered, map(Memory.of, rest), strict=False))
    packed = dict(zip(plan.packed, rest[len(following) :], strict=True))
    code = StepCode(k, plan, memory, sizes)
    steps = length[0] if type(length[0]) is int else sizes[length[0]]
    for _ in k.parallel(1):
        for value, start, carry in zip(plan.arguments, inputs, carries, strict=False):
            source = Memory.of(start)
            for place in code.positions(value):
                carry.write(place, source.read(place))
        code.store(plan.invariant)
        code.pack(packed)
        for i in k.range(steps):
            step = steps - 1 - i if reverse else i
            code.memory |= {
                value: Memory(b, (step,))
                for value, b in zip(plan.arguments[num_carries:], inputs[num_carries:], strict=True)
            }
            stacks = {number: Memory(results[number], (step,)) for number in range(num_carries, count)}
            _step(code, carries, following, stacks)


def _step(code: StepCode, carries: Sequence[Memory], following: dict[int, Memory], stacks: dict[int, Memory]) -> None:
    """Compute a step, and then set the carries whose old values it reads to the end."""
    plan = code.plan
    code.store([value for value in plan.stored if value not in plan.invariant])
    targets = {**dict(enumerate(carries)), **following, **stacks}
    for values in plan.groups:
        code.copy(values, [[targets[n] for n in plan.places_of(value)] for value in values])
    for op in plan.updates.values():
        code.update(op)
    for number, memory in following.items():
        for place in code.positions(plan.arguments[number]):
            carries[number].write(place, memory.read(place))


def _sizes(loop: LoopOp, buffers: Sequence[Buffer]) -> dict[Dim, Size]:
    """Return the sizes of the buffers of operands, results and captures that are not known."""
    values: list[mlir.Value] = [*loop.op.operands, *loop.op.results, *loop.captures]
    pairs = [pair for v, b in zip(values, buffers, strict=True) for pair in zip(shape_of(v).dims, b.shape, strict=True)]
    return {d: size for d, size in pairs if type(d) is not int}

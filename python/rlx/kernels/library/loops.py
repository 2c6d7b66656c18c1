"""The kernels of loops: all steps in one workgroup, with carries and values between ops where they are.

As a loop of the program, each op of each step would be a dispatch of its own, and carries would be copied. Steps are not
shared between threads, so a kernel pays for small steps only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rlx import mlir
from rlx.ir.dims.dim import Dim
from rlx.ir.shape import Shape, shape_of
from rlx.kernels.buffer import Buffer, Size
from rlx.kernels.call import RegionCode
from rlx.kernels.case import KernelCase
from rlx.kernels.elements import DTYPES
from rlx.kernels.kernel import Kernel
from rlx.kernels.registry import kernel
from rlx.kernels.step_code import Memory, StepCode
from rlx.kernels.step_plan import StepPlan

# The largest step that pays without threads.
_MOST_PRODUCTS, _MOST_ELEMENTS = 1 << 22, 1 << 17


def _plans(case: KernelCase) -> list[StepPlan]:
    """Return the plans of the regions of a loop: of a scan's step, or of a condition and a step."""
    assert case.loop is not None
    if "num_carries" in case.attributes:
        return [StepPlan(case.loop, case.attributes["num_carries"])]
    return [StepPlan(case.loop, 0), StepPlan(case.loop, len(case.results), region=1)]


def _has_code(case: KernelCase) -> bool:
    """Whether the steps consist of ops that kernels have code for, of tensors whose sizes are those of operands."""
    shapes = (*case.tensors, *case.results)
    if any(shape.dtype.name not in DTYPES for shape in shapes):
        return False
    known = [d for shape in shapes for d in shape.dims]
    unknown = [d for d in case.attributes.get("length", ()) if type(d) is not int and d not in known]
    return 0 not in known and not unknown and all(plan.problem(known) is None for plan in _plans(case))


def _is_small(case: KernelCase) -> bool:
    plans = _plans(case)
    products, elements = (sum(numbers) for numbers in ((p.products() for p in plans), (p.elements() for p in plans)))
    return products <= _MOST_PRODUCTS and elements <= _MOST_ELEMENTS


def _workspace(case: KernelCase) -> list[Shape]:
    return [shape for plan in _plans(case) for shape in plan.workspace(case.cpu)]


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
    results, rows = tensors[: len(plan.yielded)], plan.arguments[num_carries:]
    sizes = _sizes(region, inputs, results)
    memory = _places(plan, region, results[:num_carries])
    code = StepCode(k, plan, memory, iter(tensors[len(results) :]), sizes)
    steps = length[0] if type(length[0]) is int else sizes[length[0]]
    for _ in k.parallel(1):
        _start(code, inputs[:num_carries])
        code.before()
        for i in k.range(steps):
            step = steps - 1 - i if reverse else i
            code.memory |= {v: Memory(b, (step,)) for v, b in zip(rows, inputs[num_carries:], strict=True)}
            code.step({number: Memory(results[number], (step,)) for number in range(num_carries, len(results))})


@kernel("while", name="while_loop", takes=_has_code, pays=_is_small, workspace=_workspace)
def while_loop(
    k: Kernel, inits: Sequence[Buffer], *tensors: Buffer, max_iterations: int | None, region: RegionCode
) -> None:
    """All steps of a loop with a condition."""
    count = len(inits)
    results, workspace = tensors[:count], iter(tensors[count:])
    sizes = _sizes(region, inits, results)
    plans = StepPlan(region.op, 0), StepPlan(region.op, count, region=1)
    condition, body = (StepCode(k, plan, _places(plan, region, results), workspace, sizes) for plan in plans)
    for _ in k.parallel(1):
        _start(body, inits)
        condition.before()
        done = k.register(k.index(0))
        is_allowed = max_iterations is None or max_iterations > 0
        for _ in k.when(condition.scalar()) if is_allowed else ():
            body.before()
            for _ in k.repeat():
                body.step({})
                done.value = done.value + 1
                goes_on = condition.scalar()
                k.stop_unless(goes_on if max_iterations is None else goes_on & (done.value < max_iterations))


def _places(plan: StepPlan, region: RegionCode, carries: Sequence[Buffer]) -> dict[mlir.Value, Memory]:
    """Return the places of captured values, and of arguments that are carries: they are in the results."""
    captured = {v: Memory.of(b) for v, b in zip(plan.captures, region.captures, strict=True)}
    return captured | {v: Memory.of(b) for v, b in zip(plan.arguments, carries, strict=False)}


def _start(code: StepCode, inits: Sequence[Buffer]) -> None:
    """Set the carries to their first values."""
    for value, buffer in zip(code.plan.arguments, inits, strict=False):
        source, carry = Memory.of(buffer), code.memory[value]
        for place in code.positions(value):
            carry.write(place, source.read(place))


def _sizes(region: RegionCode, *buffers: Sequence[Buffer]) -> dict[Dim, Size]:
    """Return the sizes of the buffers of operands, results and captures that are not known."""
    values: list[mlir.Value] = [*region.op.op.operands, *region.op.op.results, *region.op.captures]
    everything: Iterator[Buffer] = iter([b for group in (*buffers, region.captures) for b in group])
    pairs = [
        pair for v, b in zip(values, everything, strict=True) for pair in zip(shape_of(v).dims, b.shape, strict=True)
    ]
    return {d: size for d, size in pairs if type(d) is not int}

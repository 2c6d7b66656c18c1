"""The kernel of regions of elementwise ops: one pass over memory.

Its code has no sizes, so that regions of the same ops share it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx.ir.dtype import f32
from rlx.ir.op import opview
from rlx.ir.shape import shape_of
from rlx.kernels.buffer import Buffer, Lanes, Size, ceil_div, greatest, product
from rlx.kernels.case import Axes, KernelCase
from rlx.kernels.elementwise import ElementwisePlan, has_code, joined_axes
from rlx.kernels.kernel import Kernel
from rlx.kernels.pulled import POINTWISE, number_of
from rlx.kernels.registry import kernel
from rlx.kernels.values import Value

_ELEMENTS = 8192  # of a workgroup
_MOST_OPS = 200
_MOST_AXES = 5


def _takes(case: KernelCase) -> bool:
    """Whether all values are of f32 or conditions, tensors of f32 with known sizes, and the results of one shape."""
    if case.loop is None or not case.are_all("f32") or len({shape.dims for shape in case.results}) != 1:
        return False
    if any(type(d) is not int for shape in (*case.tensors, *case.results) for d in shape.dims):
        return False
    *body, end = (op.operation for op in case.loop.op.regions[0].blocks[0].operations)
    made = {op.results[0] for op in body}
    whole = all(v in made and opview.name_of(v.owner.operation) != "constant" for v in end.operands)
    dims = case.results[0].dims
    alike = all(opview.name_of(op) == "constant" or shape_of(op.results[0]).dims == dims for op in body)
    few = len(body) <= _MOST_OPS and len(joined_axes([*case.tensors, *case.results])[1]) <= _MOST_AXES
    return whole and alike and few and all(map(has_code, body))


def _plan(case: KernelCase) -> ElementwisePlan:
    assert case.loop is not None
    return ElementwisePlan.of(case.loop)


def _sizes(case: KernelCase) -> dict[str, int]:
    sizes = joined_axes([*case.tensors, *case.results])[1]
    return {f"size{i}": size for i, size in enumerate(sizes)}


def _open_axes(case: KernelCase) -> list[Axes]:
    """All axes: the code uses its numbers."""
    return [[(t, axis)] for t, shape in enumerate((*case.tensors, *case.results)) for axis in range(shape.rank)]


@kernel("elementwise_region", takes=_takes, plan=_plan, numbers=_sizes, open_axes=_open_axes)
def elementwise(
    k: Kernel, inputs: Sequence[Buffer], *results: Buffer, plan: ElementwisePlan, region: Any = None, **sizes: Size
) -> None:
    """All ops of a region, for vectors of elements of the last axis."""
    *outer, inner = sizes.values()
    views = [
        b.view(*(size if v else 1 for size, v in zip(sizes.values(), varies, strict=True)))
        for b, varies in zip((*inputs, *results), plan.varies, strict=True)
    ]
    pieces = greatest(ceil_div(inner, _ELEMENTS), 1)  # of a row
    rows_at_once = greatest(_ELEMENTS // greatest(inner, 1), 1)
    for i in k.parallel(product([*outer, pieces]), rows_at_once):
        first = i % pieces * _ELEMENTS
        place, rest = [], i // pieces
        for size in reversed(outer):
            place.insert(0, rest % size)
            rest = rest // size
        read, written = views[: len(inputs)], views[len(inputs) :]
        rows = [
            [at if v else 0 for at, v in zip(place, varies, strict=False)] for varies in plan.varies
        ]  # of each tensor
        fixed = {
            n: view[(*row, 0)]
            for n, (view, row, varies) in enumerate(zip(read, rows, plan.varies, strict=False))
            if not varies[-1]
        }
        for c in k.vectors(k.least(inner - first, _ELEMENTS), f32, unroll=1):
            values = [
                fixed[n].splat(c.count) if n in fixed else view[(*rows[n], c + first)] for n, view in enumerate(read)
            ]
            computed = _computed(k, plan, values, c)
            for view, row, number in zip(written, rows[len(inputs) :], plan.results, strict=True):
                view[(*row, c + first)] = computed[number]


def _computed(k: Kernel, plan: ElementwisePlan, inputs: Sequence[Value], c: Lanes) -> list[Value]:
    """Return the values of a region for a vector of elements."""
    values = [*inputs]
    for (name, _, operands), op in zip(plan.steps, plan.ops, strict=True):
        if name == "constant":
            values.append(k.constant(number_of(op).item(), shape_of(op.results[0]).dtype, c.count))
            continue
        combine = POINTWISE[name](op)
        assert combine is not None
        values.append(combine(*(values[n] for n in operands)))
    return values

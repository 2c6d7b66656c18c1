"""Padding and concatenation."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx import mlir
from rlx.ir.op import opview
from rlx.ir.shape import Shape, shape_of
from rlx.ops.shape.padding import PadEdges
from rlx.targets.c.lower.kernel import IndexBody, KernelWriter
from rlx.targets.c.lower.rules import loops
from rlx.targets.c.lower.values import Affine, Index, literal


@loops("pad")
def pad(kernel: KernelWriter, result: Shape, x: mlir.Value, *, edges: PadEdges, value: float) -> None:
    dims, mode, low = shape_of(x).static, edges.mode, edges.low
    if mode == "constant":
        filler = literal(np.asarray(value).astype(result.dtype.numpy)[()], result.dtype)
        if any((*low, *edges.high)):
            kernel.nest(result.static, lambda body, index: kernel.finish(body, index, filler))
        kernel.nest(
            dims,
            lambda body, index: kernel.finish(
                body, tuple(at + before for at, before in zip(index, low, strict=True)), body.element(x, index)
            ),
        )
        return

    def run(body: IndexBody, index: Index) -> None:
        at = [
            i if not before and not after else _inside(body, i, before, d, mode)
            for i, before, after, d in zip(index, low, edges.high, dims, strict=True)
        ]
        kernel.finish(body, index, body.element(x, tuple(at)))

    kernel.nest(result.static, run)


def _inside(body: IndexBody, index: Affine, before: int, size: int, mode: str) -> Affine:
    """The index in the operand for an index of the padded result."""
    name = body.fresh("place")
    w = body.writer
    w.line(f"int32_t {name} = {body.text_of(index + -before)};")
    below, above = {
        "reflect": (f"-{name}", f"{2 * (size - 1)} - {name}"),
        "replicate": ("0", str(size - 1)),
        "circular": (f"{name} + {size}", f"{name} - {size}"),
    }[mode]
    with w.block(f"if ({name} < 0)"):
        w.line(f"{name} = {below};")
    with w.block(f"if ({name} >= {size})"):
        w.line(f"{name} = {above};")
    return Affine.of(name)


@loops("concat")
def concat(kernel: KernelWriter, result: Shape, lhs: mlir.Value, rhs: mlir.Value, *, axis: int) -> None:
    border = shape_of(lhs).static[axis]
    memory, into = kernel.program.memory, kernel.program.memory.live(kernel.group.result)
    card = opview.card_of(kernel.group.final)
    parts = card.parts([shape_of(lhs), shape_of(rhs)], {"axis": axis})
    for operand, start, part in ((lhs, 0, parts[0]), (rhs, border, parts[1])):
        if _is_there(memory, operand, into, part, result):
            continue

        def run(body: IndexBody, index: Index, operand: mlir.Value = operand, start: int = start) -> None:
            moved = tuple(at + start if i == axis else at for i, at in enumerate(index))
            kernel.finish(body, moved, body.element(operand, index))

        kernel.nest(shape_of(operand).static, run)


def _is_there(memory: Any, operand: mlir.Value, into: Any, part: int | None, result: Shape) -> bool:
    """Whether the plan computes an operand directly in its part of the result."""
    if part is None or operand not in memory.plan.layout.liveness.values:
        return False
    live = memory.live(operand)
    return live.storage is into.storage and live.offset == into.offset + part * result.dtype.itemsize

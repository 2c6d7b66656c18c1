"""`rlx-lower-control-flow`: inlining of regions, for targets without branches or loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx import mlir
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.location import describe
from rlx.ir.op import opview
from rlx.passes.base import Pass, option
from rlx.passes.rewrite import collect, replace_with
from rlx.support.errors import PassError

_MOST_OPS = 1 << 17  # maximum number of ops that one loop, including nested loops, may become


@dataclass(frozen=True)
class LowerControlFlow(Pass, name="rlx-lower-control-flow", exact=True, idempotent=True):
    """Inline the regions of `if`, `while` and `scan`.

    `select` computes both branches of an `if` and selects elementwise. `unroll` repeats the body of a `scan` for each
    step, and the body of a `while` up to its bound; carries stop changing once the condition is false.
    """

    mode: str = option("all", "the ops to inline: branches, loops, or both", choices=("all", "select", "unroll"))
    max_steps: int = option(1024, "the maximum number of copies of one body", least=0)

    def run(self, module: mlir.Module) -> None:
        rules: dict[str, Callable[..., Any]] = {}
        if self.mode != "unroll":
            rules["if"] = _select
        if self.mode != "select":
            rules |= {"while": self._unroll_while, "scan": self._unroll_scan}
        for op in collect(module, rules):  # inner regions first
            name = opview.name_of(op)
            self._check(op)
            regions = [opview.block_of(region) for region in op.regions]
            replace_with(op, rules[name], self.name, regions=regions, **opview.attributes_of(op))

    def _check(self, op: mlir.Operation) -> None:
        """Check that the number of steps of a loop is known and not too large.

        Raises:
            PassError: It is unknown or too large.
        """
        values = opview.attributes_of(op)
        steps = values.get("max_iterations", 0)
        if "length" in values:
            (steps,) = values["length"]
        problem = None
        if steps is None:
            problem = "a while loop without max_iterations cannot be unrolled"
        elif type(steps) is not int:
            problem = f"a scan of symbolic length {steps} cannot be unrolled; bind it"
        elif steps > self.max_steps:
            problem = f"{steps} steps are more than max-steps = {self.max_steps}"
        elif (num_ops := steps * _size(op)) > _MOST_OPS:
            problem = f"{steps} steps would make {num_ops} ops; at most {_MOST_OPS} are made of one loop"
        if problem is not None:
            raise PassError(f"{self.name}: {problem}", location=describe(op.location))

    def _unroll_while(
        self, b: Builder, inits: list[Tensor], *, max_iterations: int, regions: Sequence[mlir.Block]
    ) -> tuple[Tensor, ...]:
        condition, body = regions
        carries, active = list(inits), None
        for _ in range(max_iterations):
            (is_true,) = b.inline(condition, carries)
            active = is_true if active is None else b.minimum(active, is_true)
            next_carries = b.inline(body, carries)
            carries = [b.where(active, new, old) for new, old in zip(next_carries, carries, strict=True)]
        return tuple(carries)

    def _unroll_scan(
        self,
        b: Builder,
        inputs: list[Tensor],
        *,
        num_carries: int,
        length: tuple[int],
        reverse: bool,
        num_checkpoints: int | None,
        regions: Sequence[mlir.Block],
    ) -> tuple[Tensor, ...]:
        carries, xs = inputs[:num_carries], inputs[num_carries:]
        rows: list[list[Tensor]] = []
        for step in range(length[0])[:: -1 if reverse else 1]:
            slices = [b.reshape(b.narrow(x, 0, step, 1), x.shape.dims[1:]) for x in xs]
            yielded = b.inline(regions[0], [*carries, *slices])
            carries = yielded[:num_carries]
            rows.append([b.reshape(y, (1, *y.shape.dims)) for y in yielded[num_carries:]])
        if not rows:
            return (*carries, *_empty(b, regions[0], num_carries))
        columns = zip(*(rows[::-1] if reverse else rows), strict=True)
        return (*carries, *(b.concat(list(column), 0) for column in columns))


def _size(op: mlir.Operation) -> int:
    """Return the number of ops in the regions of an op."""
    return sum(1 for region in op.regions for block in region.blocks for _ in opview.operations(block))


def _select(b: Builder, condition: Tensor, *, regions: Sequence[mlir.Block]) -> tuple[Tensor, ...]:
    then, otherwise = (b.inline(region, []) for region in regions)
    return tuple(b.where(condition, x, y) for x, y in zip(then, otherwise, strict=True))


def _empty(b: Builder, body: mlir.Block, num_carries: int) -> list[Tensor]:
    """Return the stacked results of a scan without steps: empty tensors."""
    shapes = [b.tensor(v).shape for v in opview.yielded(body)[num_carries:]]
    return [b.expand(b.constant(np.zeros((0,) + (1,) * s.rank, s.dtype.numpy)), (0, *s.dims)) for s in shapes]

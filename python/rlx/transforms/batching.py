"""Batching: the same ops on many tensors at once. A batched tensor has the batch as its first axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.ir.dims.dim import Dim
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.location import within
from rlx.ir.op import opview
from rlx.ir.op.card import Card
from rlx.ir.shape import shape_of
from rlx.ops import rules
from rlx.support.errors import Error
from rlx.transforms import rule_checks
from rlx.transforms import scope as scopes
from rlx.transforms.scope import ValueScope


class Batching:
    """Copies blocks to the insertion point of a builder. All values that depend on a batched tensor are batched.

    Args:
        builder: The builder to emit with.
        size: The size of the batch.
    """

    def __init__(self, builder: Builder, size: Dim):
        self.builder = builder
        self.size = size
        self._batched: set[mlir.Value] = set()

    def mark(self, tensors: Sequence[Tensor]) -> None:
        """Mark tensors as batched."""
        self._batched |= {t.value for t in tensors}

    def is_batched(self, tensor: Tensor) -> bool:
        """Whether a tensor is batched."""
        return tensor.value in self._batched

    def full(self, tensor: Tensor) -> Tensor:
        """Return a tensor as a batched one: it is expanded if it is not batched."""
        return rules.batch(self.builder, tensor, self.is_batched(tensor), self.size)

    def run(self, block: mlir.Block, scope: ValueScope) -> list[Tensor]:
        """Emit the ops of a block. Returns the tensors that it yields.

        Args:
            block: The block, which is not changed.
            scope: The tensors for its arguments and for values from outside.

        Raises:
            Error: An op on a batched tensor has no rule; the message names it and the user's line.
        """
        for op in scopes.ops_of(block):
            operands = [scope[v] for v in op.operands]
            scope.bind(op.results, self._step(op, operands, scope))
        return [scope[v] for v in opview.yielded(block)]

    def _step(self, op: mlir.Operation, operands: list[Tensor], scope: ValueScope) -> Sequence[Tensor]:
        b = self.builder
        outside = [scope[v] for v in scopes.captures(op)] if len(op.regions) else []
        if not any(map(self.is_batched, (*operands, *outside))):
            return scopes.copy(b, op, operands, scope)
        card = opview.card_of(op)
        try:
            with b.located(within(op.location, "vmap")):
                if card.has("vmap") or self._broadcasts(card, operands):
                    results = self._rule(card, op, operands, scope)
                    if results is not NotImplemented:
                        self.mark(results)
                        return results
                if card.composite:
                    block = scopes.decomposition(b, op, scope)
                    inner = ValueScope(b, scope)
                    inner.bind(block.arguments, operands)
                    return self.run(block, inner)
        except Error as problem:
            raise problem if problem.location else scopes.at_op(problem, op, "vmap") from None
        raise scopes.no_rule(op, "vmap")

    def _broadcasts(self, card: Card, operands: Sequence[Tensor]) -> bool:
        """Whether an op can be applied to batched operands directly. A composite op may need operands of equal shapes."""
        return card.spec.has_trait("elementwise") and (not card.composite or all(map(self.is_batched, operands)))

    def _rule(self, card: Card, op: mlir.Operation, operands: list[Tensor], scope: ValueScope) -> Any:
        """Return the results of an op on a batch, or NotImplemented."""
        b, attributes = self.builder, opview.attributes_of(op)
        flags = [self.is_batched(t) for t in operands]
        with rule_checks.rule(op, "vmap"):
            if not card.has("vmap"):
                rank = max(shape_of(v).rank for v in op.operands)
                aligned = [rules.aligned(b, t, is_batched, rank) for t, is_batched in zip(operands, flags, strict=True)]
                returned = b.emit(card.name, scopes.grouped(op, aligned), **attributes)
            else:
                if len(op.regions):
                    attributes["regions"] = [
                        r and BatchedRegion(self, r, scope) for r in map(opview.block_of, op.regions)
                    ]
                groups = scopes.grouped(op, operands), scopes.grouped(op, flags)
                returned = card.vmap(b, *groups, size=self.size, **attributes)
            return returned if returned is NotImplemented else rule_checks.batched(b, op, returned, self.size)


@dataclass(frozen=True)
class BatchedRegion:
    """A batched region, for the rules of ops with regions."""

    engine: Batching
    block: mlir.Block
    scope: ValueScope

    @property
    def reads_batched(self) -> bool:
        """Whether the region reads a batched tensor from outside."""
        captures = scopes.block_captures(self.block)
        return any(self.engine.is_batched(self.scope[v]) for v in captures)

    def batched(self, arguments: Sequence[bool]) -> list[bool]:
        """Whether each result may be batched, given whether each argument is."""
        engine, scope = self.engine, self.scope
        return scopes.depends(self.block, arguments, lambda v: engine.is_batched(scope[v]), floats=False)

    def __call__(self, arguments: Sequence[Tensor], batched: Sequence[bool], wanted: Sequence[bool]) -> list[Tensor]:
        """Emit the ops of the region. Returns the tensors that it yields.

        Args:
            arguments: The arguments; batched ones have the batch as their first axis.
            batched: Whether each argument is batched.
            wanted: Whether each result must be batched.
        """
        inner = ValueScope(self.engine.builder, self.scope)
        inner.bind(self.block.arguments, arguments)
        self.engine.mark([a for a, is_batched in zip(arguments, batched, strict=True) if is_batched])
        results = self.engine.run(self.block, inner)
        return [
            self.engine.full(r) if must_be_batched else r for r, must_be_batched in zip(results, wanted, strict=True)
        ]

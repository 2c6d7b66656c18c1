"""Batching: ops on many tensors at once. A batched tensor has the batch as its leading axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.ir import opview
from rlx.ir.builder import Builder, Tensor
from rlx.ir.card import Card
from rlx.ir.dim import Dim
from rlx.ir.errors import Error
from rlx.ir.location import within
from rlx.ir.shape import shape_of
from rlx.ops import rules
from rlx.transforms import checked
from rlx.transforms import scope as scopes
from rlx.transforms.scope import Scope


class Batching:
    """Copies blocks to where a builder stands; what depends on a batched tensor is batched.

    Args:
        builder: Where to emit.
        size: The size of the batch.
    """

    def __init__(self, builder: Builder, size: Dim):
        self.builder = builder
        self.size = size
        self._batched: set[mlir.Value] = set()

    def mark(self, tensors: Sequence[Tensor]) -> None:
        """Say that tensors have the batch as their leading axis."""
        self._batched |= {t.value for t in tensors}

    def is_batched(self, tensor: Tensor) -> bool:
        """Whether a tensor has the batch as its leading axis."""
        return tensor.value in self._batched

    def full(self, tensor: Tensor) -> Tensor:
        """A tensor with the batch as its leading axis: repeated where it is not batched."""
        return rules.batch(self.builder, tensor, self.is_batched(tensor), self.size)

    def run(self, block: mlir.Block, scope: Scope) -> list[Tensor]:
        """Emit the ops of a block; what it yields.

        Args:
            block: It stays as it is.
            scope: What stands for its arguments and for values from outside.

        Raises:
            Error: An op on a batched tensor has no rule; the message names it and the user's line.
        """
        for op in scopes.ops_of(block):
            operands = [scope[v] for v in op.operands]
            scope.bind(op.results, self._step(op, operands, scope))
        return [scope[v] for v in opview.yielded(block)]

    def _step(self, op: mlir.Operation, operands: list[Tensor], scope: Scope) -> Sequence[Tensor]:
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
                    inner = Scope(b, scope)
                    inner.bind(block.arguments, operands)
                    return self.run(block, inner)
        except Error as problem:
            raise problem if problem.location else scopes.at_op(problem, op, "vmap") from None
        raise scopes.no_rule(op, "vmap")

    def _broadcasts(self, card: Card, operands: Sequence[Tensor]) -> bool:
        """Whether an op may be emitted as it is. A composite one may want operands of one shape."""
        return card.spec.has_trait("elementwise") and (not card.composite or all(map(self.is_batched, operands)))

    def _rule(self, card: Card, op: mlir.Operation, operands: list[Tensor], scope: Scope) -> Any:
        """The results of an op on a batch, or NotImplemented."""
        b, attributes = self.builder, opview.attributes_of(op)
        flags = [self.is_batched(t) for t in operands]
        with checked.rule(op, "vmap"):
            if not card.has("vmap"):
                rank = max(shape_of(v).rank for v in op.operands)
                level = [rules.aligned(b, t, own, rank) for t, own in zip(operands, flags, strict=True)]
                given = b.emit(card.name, scopes.grouped(op, level), **attributes)
            else:
                if len(op.regions):
                    attributes["regions"] = [r and Body(self, r, scope) for r in map(opview.block_of, op.regions)]
                groups = scopes.grouped(op, operands), scopes.grouped(op, flags)
                given = card.vmap(b, *groups, size=self.size, **attributes)
            return given if given is NotImplemented else checked.batched(b, op, given, self.size)


@dataclass(frozen=True)
class Body:
    """A region under batching, for the rules of ops with regions."""

    engine: Batching
    block: mlir.Block
    scope: Scope

    @property
    def reads_batched(self) -> bool:
        """Whether the region reads a batched tensor from outside."""
        read = scopes.block_captures(self.block)
        return any(self.engine.is_batched(self.scope[v]) for v in read)

    def batched(self, given: Sequence[bool]) -> list[bool]:
        """Which results may be batched when these arguments are."""
        engine, scope = self.engine, self.scope
        return scopes.depends(self.block, given, lambda v: engine.is_batched(scope[v]), floats=False)

    def __call__(self, arguments: Sequence[Tensor], batched: Sequence[bool], wanted: Sequence[bool]) -> list[Tensor]:
        """The region's ops at the builder's place; what they yield.

        Args:
            arguments: Those that are batched have the batch in front.
            batched: Which are.
            wanted: Which results have to be batched.
        """
        inner = Scope(self.engine.builder, self.scope)
        inner.bind(self.block.arguments, arguments)
        self.engine.mark([a for a, own in zip(arguments, batched, strict=True) if own])
        results = self.engine.run(self.block, inner)
        return [self.engine.full(r) if want else r for r, want in zip(results, wanted, strict=True)]

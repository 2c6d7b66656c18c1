"""Forward mode: emission of ops and of the tangents of their results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.location import within
from rlx.ir.op import opview
from rlx.ir.op.card import Card
from rlx.ir.shape import Shape
from rlx.ops import rules
from rlx.support.errors import Error
from rlx.support.guards import is_list
from rlx.transforms import rule_checks
from rlx.transforms import scope as scopes
from rlx.transforms.scope import ValueScope


class Forward:
    """Copies blocks to the insertion point of a builder, with the ops that compute tangents.

    Args:
        builder: The builder to emit with.
        note: Added to the locations of the new ops.
    """

    def __init__(self, builder: Builder, note: str = "jvp"):
        self.builder = builder
        self.note = note
        # The tangents of emitted values. A value that is not a key has a zero tangent.
        self.tangents: dict[mlir.Value, Tensor] = {}

    def seed(self, tensor: Tensor, tangent: Tensor | None) -> None:
        """Set the tangent of a tensor."""
        if tangent is not None:
            self.tangents[tensor.value] = tangent

    def tangent(self, tensor: Tensor) -> Tensor | None:
        """Return the tangent of a tensor, None for zero."""
        return self.tangents.get(tensor.value)

    def run(self, block: mlir.Block, scope: ValueScope) -> list[Tensor]:
        """Emit the ops of a block. Returns the tensors that it yields.

        Args:
            block: The block, which is not changed.
            scope: The tensors for its arguments and for values from outside.

        Raises:
            Error: An op that depends on a tangent has no rule; the message names it and the user's line.
        """
        for op in scopes.ops_of(block):
            operands = [scope[v] for v in op.operands]
            scope.bind(op.results, self._step(op, operands, scope))
        return [scope[v] for v in opview.yielded(block)]

    def _step(self, op: mlir.Operation, operands: list[Tensor], scope: ValueScope) -> Sequence[Tensor]:
        b = self.builder
        has_tangent = any(t.value in self.tangents for t in operands) or (
            len(op.regions) and any(scope[v].value in self.tangents for v in scopes.captures(op))
        )
        if not has_tangent or not any(map(scopes.has_tangent, op.results)):
            return scopes.copy(b, op, operands, scope)
        card = opview.card_of(op)
        try:
            with b.located(within(op.location, self.note)):
                if card.has("pushforward"):
                    return self._regions(card, op, operands, scope)
                if card.has("jvp") or card.linear:
                    results = scopes.copy(b, op, operands, scope)
                    self._seed(results, self._rule(card, op, operands, results))
                    return results
                if card.composite:
                    inner = ValueScope(b, scope)
                    block = scopes.decomposition(b, op, scope)
                    inner.bind(block.arguments, operands)
                    return self.run(block, inner)
                if card.has("vjp"):
                    results = scopes.copy(b, op, operands, scope)
                    self._seed(results, self._from_vjp(card, op, operands, results))
                    return results
        except Error as problem:
            raise problem if problem.location else scopes.at_op(problem, op, "jvp") from None
        raise scopes.no_rule(op, "jvp")

    def _seed(self, results: Sequence[Tensor], tangents: Sequence[Tensor | None]) -> None:
        for result, tangent in zip(results, tangents, strict=True):
            self.seed(result, tangent)

    def _rule(
        self, card: Card, op: mlir.Operation, operands: list[Tensor], results: list[Tensor]
    ) -> Sequence[Tensor | None]:
        tangents = scopes.grouped(op, [self.tangent(t) for t in operands])
        primals, attributes = scopes.grouped(op, operands), opview.attributes_of(op)
        if card.has("jvp"):
            with rule_checks.rule(op, "jvp"):
                returned = card.jvp(self.builder, primals, tangents, results, **attributes)
                return rule_checks.tangents(self.builder, op, returned)
        return [linear_jvp(self.builder, card, primals, tangents, attributes)]

    def _from_vjp(
        self, card: Card, op: mlir.Operation, operands: list[Tensor], results: list[Tensor]
    ) -> Sequence[Tensor | None]:
        """Derive the jvp from the vjp: the vjp is linear in the cotangents, and the jvp is its adjoint."""
        from rlx.transforms.reverse import transpose_block

        b = self.builder
        primals, attributes = scopes.grouped(op, operands), opview.attributes_of(op)
        has_tangent = [t.value in self.tangents for t in operands]

        def emit(*cotangents: Tensor) -> list[Tensor]:
            with rule_checks.rule(op, "vjp"):
                entries = rule_checks.cotangents(op, card.vjp(b, primals, results, cotangents, **attributes), primals)
            chosen = [(i, t, g) for i, (t, g, m) in enumerate(zip(operands, entries, has_tangent, strict=True)) if m]
            pulled = [rules.resolved(b, rule_checks.cotangent(b, op, i, t.shape, g)) for i, t, g in chosen]
            return [rules.or_zeros(b, f, t.shape) for f, (_, t, _) in zip(pulled, chosen, strict=True)]

        block = b.scratch(emit, [r.shape for r in results])
        tangents = [self.tangent(t) for t in operands if t.value in self.tangents]
        with rule_checks.rule(op, "vjp"):
            return transpose_block(b, block, tangents)

    def _regions(self, card: Card, op: mlir.Operation, operands: list[Tensor], scope: ValueScope) -> Sequence[Tensor]:
        tangents = scopes.grouped(op, [self.tangent(t) for t in operands])
        bodies = [block and ForwardRegion(self, block, scope) for block in map(opview.block_of, op.regions)]
        results, tangents_of_results = card.pushforward(
            self.builder, scopes.grouped(op, operands), tangents, regions=bodies, **opview.attributes_of(op)
        )
        self._seed(results, tangents_of_results)
        return results


@dataclass(frozen=True)
class ForwardRegion:
    """A region in forward mode, for the rules of ops with regions."""

    engine: Forward
    block: mlir.Block
    scope: ValueScope

    @property
    def argument_shapes(self) -> list[Shape]:
        """The shapes of the region's arguments."""
        return [scopes.shape_of(a) for a in self.block.arguments]

    def moving(self, arguments: Sequence[bool]) -> list[bool]:
        """Whether each result may have a tangent, given whether each argument has one."""
        tangents = self.engine.tangents
        return scopes.depends(self.block, arguments, lambda v: self.scope[v].value in tangents, floats=True)

    def plain(self, arguments: Sequence[Tensor]) -> list[Tensor]:
        """Copy the ops of the region. Returns the tensors that it yields."""
        return scopes.inlined(self.engine.builder, self.block, arguments, self.scope)

    def adjoint(
        self, fixed: Sequence[Tensor], shapes: Sequence[Shape], cotangents: Sequence[Tensor]
    ) -> list[Tensor | None]:
        """See `reverse.Body.adjoint`."""
        from rlx.transforms.reverse import adjoint

        return adjoint(self.engine.builder, self.plain, fixed, shapes, cotangents)

    def run(
        self, arguments: Sequence[Tensor], tangents: Sequence[Tensor | None]
    ) -> tuple[list[Tensor], list[Tensor | None]]:
        """Copy the ops as `plain` does, with tangents of arguments and results."""
        inner = ValueScope(self.engine.builder, self.scope)
        inner.bind(self.block.arguments, arguments)
        for argument, tangent in zip(arguments, tangents, strict=True):
            self.engine.seed(argument, tangent)
        results = self.engine.run(self.block, inner)
        return results, [self.engine.tangent(r) for r in results]

    def pushed(
        self, arguments: Sequence[Tensor], tangents: Sequence[Tensor | None]
    ) -> tuple[list[Tensor], list[Tensor | None]]:
        """Copy the ops as `run` does, with zero tangents for the values from outside."""
        return ForwardRegion(Forward(self.engine.builder), self.block, self.scope).run(arguments, tangents)

    def partial(self, arguments: Sequence[Tensor], position: int) -> Tensor:
        """See `partial`."""
        return partial(self.engine.builder, self.block, self.scope, arguments, position)


def partial(b: Builder, block: mlir.Block, scope: ValueScope, arguments: Sequence[Tensor], position: int) -> Tensor:
    """Return the elementwise derivative of the only result of a block of elementwise ops, with respect to one of its arguments.

    Args:
        b: The builder to emit with.
        block: The block.
        scope: The tensors for values from outside the block.
        arguments: The tensors for its arguments.
        position: The index of the argument, which has the shape of the result.
    """
    engine, inner = Forward(b), ValueScope(b, scope)
    inner.bind(block.arguments, arguments)
    engine.seed(arguments[position], b.ones_like(arguments[position]))
    (result,) = engine.run(block, inner)
    return rules.or_zeros(b, engine.tangent(result), result.shape)


def linear_jvp(b: Builder, card: Card, primals: list[Any], tangents: list[Any], attributes: dict[str, Any]) -> Any:
    """Return the tangent of an op that is linear in groups of operands: the sum over groups of the op applied to tangents."""
    terms: list[Tensor | None] = []
    for group in scopes.linear_groups(card):
        if all(_is_zero(tangents[i]) for i in group):
            continue
        replaced = [
            _filled(b, p, t) if i in group else p for i, (p, t) in enumerate(zip(primals, tangents, strict=True))
        ]
        terms.append(b.emit(card.name, replaced, **attributes))
    return rules.total(b, terms)


def _is_zero(tangent: object) -> bool:
    return all(t is None for t in tangent) if is_list(tangent) else tangent is None


def _filled(b: Builder, primal: Any, tangent: Any) -> Any:
    if is_list(primal):
        return [_filled(b, p, t) for p, t in zip(primal, tangent, strict=True)]
    return None if primal is None else rules.or_zeros(b, tangent, primal.shape)

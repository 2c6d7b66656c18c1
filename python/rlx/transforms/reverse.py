"""Reverse mode: ops with a tape, then the cotangents of what they read, from the last op to the first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.ir import opview
from rlx.ir.builder import Builder, Tensor
from rlx.ir.card import Card
from rlx.ir.errors import Error
from rlx.ir.location import within
from rlx.ir.shape import Shape
from rlx.ops import rules
from rlx.ops.backward import backward
from rlx.transforms import checked
from rlx.transforms import scope as scopes
from rlx.transforms.scope import Scope

Pull = Callable[[list[Tensor | None]], Sequence[Any]]


@dataclass(frozen=True)
class _Step:
    """An op on the tape: its results and operands (with what its regions read), and how cotangents go through it."""

    op: mlir.Operation
    results: Sequence[Tensor]
    operands: Sequence[Tensor]
    pull: Pull


class Reverse:
    """Copies blocks to where a builder stands, remembers what depends on chosen tensors, and goes back over it.

    Args:
        builder: Where to emit.
        note: Added to the locations of the new ops.
    """

    def __init__(self, builder: Builder, note: str = "vjp"):
        self.builder = builder
        self.note = note
        # Values (that are emitted) which depend on the chosen ones.
        self.varied: set[mlir.Value] = set()
        # Those of them that have no value, because a linear function is transposed.
        self._absent: set[mlir.Value] = set()
        self._tape: list[_Step] = []
        self._terms: dict[mlir.Value, list[Any]] = {}

    def choose(self, tensors: Sequence[Tensor], *, absent: bool = False) -> None:
        """Say for which tensors cotangents are wanted.

        Args:
            tensors: Floats or complex; others count for nothing.
            absent: They have no value: what is run must be linear in them.
        """
        chosen = {t.value for t in tensors if t.dtype.is_inexact}
        self.varied |= chosen
        if absent:
            self._absent |= chosen

    # --- forward ----------------------------------------------------------------------------------

    def run(self, block: mlir.Block, scope: Scope, known: Mapping[mlir.Value, Tensor] | None = None) -> list[Tensor]:
        """Emit the ops of a block; what it yields.

        Args:
            block: It stays as it is.
            scope: What stands for its arguments and for values from outside.
            known: Results of its ops that are there already, and are not computed again.

        Raises:
            Error: An op that depends on a chosen tensor has no rule; the message names it and the user's line.
        """
        for op in scopes.ops_of(block):
            operands = [scope[v] for v in op.operands]
            given = [known[r] for r in op.results if r in known] if known else []
            results = self._step(op, operands, scope, given if len(given) == len(op.results) else None)
            scope.bind(op.results, results)
        return [scope[v] for v in opview.yielded(block)]

    def _step(
        self, op: mlir.Operation, operands: list[Tensor], scope: Scope, given: list[Tensor] | None
    ) -> Sequence[Tensor]:
        b = self.builder
        read = [scope[v] for v in scopes.captures(op)] if len(op.regions) else []
        varied = any(t.value in self.varied for t in operands) or any(t.value in self.varied for t in read)
        if not varied or not any(map(scopes.has_tangent, op.results)):
            if any(t.value in self._absent for t in (*operands, *read)):
                raise checked.NotLinearError(f"rlx.{opview.name_of(op)} reads a tangent or cotangent")
            return given or scopes.copy(b, op, operands, scope)
        try:
            results, pull = self._rule(op, operands, read, scope, given)
        except Error as problem:
            raise problem if problem.location else scopes.at_op(problem, op, "vjp") from None
        if pull is not None:
            self._tape.append(_Step(op, results, [*operands, *read], pull))
            self.varied |= {r.value for r in results if r.dtype.is_inexact}
        return results

    def _rule(
        self, op: mlir.Operation, operands: list[Tensor], read: list[Tensor], scope: Scope, given: list[Tensor] | None
    ) -> tuple[Sequence[Tensor], Pull | None]:
        """Results of an op and its pull; no pull where the tape has it in steps already."""
        b, card = self.builder, opview.card_of(op)
        block = scopes.reversible(b, op, scope) if card.has("reversible") else None
        if block is not None:
            return self._inside(block, operands, scope), None
        if card.has("pullback"):
            with b.located(within(op.location, self.note)):
                wanted = scopes.grouped(op, [t.value in self.varied for t in operands])
                bodies = [block and Body(self, block, scope, read) for block in map(opview.block_of, op.regions)]
                grouped = scopes.grouped(op, operands)
                return card.pullback(b, grouped, wanted, regions=bodies, **opview.attributes_of(op))
        if card.has("vjp") or card.has("jvp"):
            results = given or self._results(op, operands, scope)
            rule = self._vjp if card.has("vjp") else self._from_jvp
            return results, lambda cotangents: rule(card, op, operands, results, cotangents)
        if card.composite:
            with b.located(within(op.location, card.name)):
                return self._inside(scopes.decomposition(b, op, scope), operands, scope), None
        raise scopes.no_rule(op, "vjp")

    def _inside(self, block: mlir.Block, operands: list[Tensor], scope: Scope) -> list[Tensor]:
        """Run a block in place of an op; what it yields."""
        inner = Scope(self.builder, scope)
        inner.bind(block.arguments, operands)
        return self.run(block, inner)

    def _results(self, op: mlir.Operation, operands: list[Tensor], scope: Scope) -> Sequence[Tensor]:
        """A copy of an op; one that reads what has no value gives what has none."""
        if not any(t.value in self._absent for t in operands):
            return scopes.copy(self.builder, op, operands, scope)
        results = [checked.Absent(r) for r in op.results]
        self._absent |= {r.value for r in results}
        return results

    # --- back -------------------------------------------------------------------------------------

    def pull(self, results: Sequence[Tensor], cotangents: Sequence[Tensor | None]) -> None:
        """Go back over the tape.

        Args:
            results: What the cotangents belong to; the same tensor may occur more than once.
            cotangents: None for zero.
        """
        for result, cotangent in zip(results, cotangents, strict=True):
            self._add(result, cotangent)
        b = self.builder
        while self._tape:
            step = self._tape.pop()
            with b.located(within(step.op.location, self.note)):
                own = [self.taken(r) for r in step.results]
                if all(c is None for c in own):
                    continue
                try:
                    self._back(step, own)
                except Error as problem:
                    raise problem if problem.location else scopes.at_op(problem, step.op, "vjp") from None

    def _back(self, step: _Step, cotangents: list[Tensor | None]) -> None:
        """Cotangents of the results of a step become terms of those of its operands, as far as they are wanted."""
        for i, (operand, term) in enumerate(zip(step.operands, step.pull(cotangents), strict=True)):
            if operand.value in self.varied:
                self._add(operand, checked.cotangent(self.builder, step.op, i, operand.shape, term))

    def _add(self, tensor: Tensor, term: Any) -> None:
        if tensor.value in self.varied and term is not None:
            self._terms.setdefault(tensor.value, []).append(term)

    def cotangent(self, tensor: Tensor) -> Tensor | None:
        """What has come to a tensor, added up; None for zero."""
        terms = self._terms.pop(tensor.value, None)
        if terms is None:
            return None
        result = rules.joined(self.builder, terms)
        self._terms[tensor.value] = [result]
        return result

    def taken(self, tensor: Tensor) -> Tensor | None:
        """The same, once: of a tensor that stands in two places (argument and capture, operand and result) it counts once."""
        result = self.cotangent(tensor)
        self._terms.pop(tensor.value, None)
        return result

    def _vjp(
        self,
        card: Card,
        op: mlir.Operation,
        operands: list[Tensor],
        results: Sequence[Tensor],
        cotangents: list[Tensor | None],
    ) -> Sequence[Any]:
        grouped = scopes.grouped(op, operands)
        with checked.rule(op, "vjp"):
            given = backward.cotangents(self.builder, card, grouped, results, cotangents, **opview.attributes_of(op))
            return checked.cotangents(op, given, grouped)

    def _from_jvp(
        self,
        card: Card,
        op: mlir.Operation,
        operands: list[Tensor],
        results: Sequence[Tensor],
        cotangents: list[Tensor | None],
    ) -> Sequence[Any]:
        """The vjp is the adjoint of the jvp, which is linear in the tangents: that is transposed."""
        b, attributes = self.builder, opview.attributes_of(op)
        moving = [i for i, t in enumerate(operands) if t.value in self.varied]

        def emit(*tangents: Tensor) -> list[Tensor]:
            by_position = dict(zip(moving, tangents, strict=True))
            groups = scopes.grouped(op, [by_position.get(i) for i in range(len(operands))])
            primals = scopes.grouped(op, operands)
            with checked.rule(op, "jvp"):
                found = checked.tangents(b, op, card.jvp(b, primals, groups, results, **attributes))
            return [rules.or_zeros(b, f, r.shape) for f, r in zip(found, results, strict=True)]

        block = b.scratch(emit, [operands[i].shape for i in moving])
        with checked.rule(op, "jvp"):
            found = dict(zip(moving, transposed(b, block, cotangents), strict=True))
        return [found.get(i) for i in range(len(operands))]


@dataclass(frozen=True)
class Body:
    """A region in reverse mode, for the rules of ops with regions.

    Attributes:
        captures: What the regions of the op read from outside. Their cotangents come with those of the arguments.
    """

    engine: Reverse
    block: mlir.Block
    scope: Scope
    captures: Sequence[Tensor]

    @property
    def wanted(self) -> list[bool]:
        """For which captures a cotangent is wanted."""
        return [t.value in self.engine.varied for t in self.captures]

    def moving(self, given: Sequence[bool]) -> list[bool]:
        """Which results may depend on these arguments, or on captures."""
        varied = self.engine.varied
        return scopes.depends(self.block, given, lambda v: self.scope[v].value in varied, floats=True)

    def _inner(self, arguments: Sequence[Tensor], captures: Sequence[Tensor] | None) -> Scope:
        inner = Scope(self.engine.builder, self.scope)
        if captures is not None:
            own = scopes.block_captures(self.block)
            stand_ins = {old.value: new for old, new in zip(self.captures, captures, strict=True)}
            inner.bind(own, [stand_ins[self.scope[v].value] for v in own])
        inner.bind(self.block.arguments, arguments)
        return inner

    def plain(self, arguments: Sequence[Tensor]) -> list[Tensor]:
        """A copy of the region's ops at the builder's place; what they yield."""
        return scopes.inlined(self.engine.builder, self.block, arguments, self.scope)

    def keeping(self, arguments: Sequence[Tensor], values: Sequence[mlir.Value]) -> tuple[list[Tensor], list[Tensor]]:
        """The same, and what stands for some values of the block."""
        inner = self._inner(arguments, None)
        results = scopes.copied(self.engine.builder, self.block, inner)
        return results, [inner[v] for v in values]

    def adjoint(
        self, fixed: Sequence[Tensor], shapes: Sequence[Shape], cotangents: Sequence[Tensor]
    ) -> list[Tensor | None]:
        """The adjoint of a region that is linear in its last arguments.

        Args:
            fixed: The first arguments.
            shapes: Of the last ones.
            cotangents: Of what it yields.

        Returns:
            Cotangents of the last arguments.
        """
        return adjoint(self.engine.builder, self.plain, fixed, shapes, cotangents)

    def vjp(
        self,
        arguments: Sequence[Tensor],
        wanted: Sequence[bool],
        known: Mapping[mlir.Value, Tensor] | None = None,
        captures: Sequence[Tensor] | None = None,
    ) -> tuple[list[Tensor], Callable[[Sequence[Tensor | None]], tuple[list[Tensor | None], list[Tensor | None]]]]:
        """The region's ops at the builder's place, ready to go back over.

        Args:
            arguments: What stands for the region's arguments.
            wanted: For which of them cotangents are wanted.
            known: Values of the block that are there already, by the block's own values.
            captures: What stands for the captures, where not they themselves.

        Returns:
            What they yield, and a function from cotangents of that to cotangents of arguments and of captures.
        """
        inner = self._inner(arguments, captures)
        engine = Reverse(self.engine.builder, self.engine.note)
        engine.choose([a for a, want in zip(arguments, wanted, strict=True) if want])
        outside = self.captures if captures is None else captures
        engine.choose([c for c, want in zip(outside, self.wanted, strict=True) if want])
        results = engine.run(self.block, inner, known)

        def pull(cotangents: Sequence[Tensor | None]) -> tuple[list[Tensor | None], list[Tensor | None]]:
            engine.pull(results, cotangents)
            return [engine.taken(a) for a in arguments], [engine.taken(c) for c in outside]

        return results, pull


def adjoint(
    b: Builder,
    function: Callable[[Sequence[Tensor]], list[Tensor]],
    fixed: Sequence[Tensor],
    shapes: Sequence[Shape],
    cotangents: Sequence[Tensor | None],
) -> list[Tensor | None]:
    """The adjoint of a function that is linear in its last arguments: see `Body.adjoint`."""
    return transposed(b, b.scratch(lambda *t: function([*fixed, *t]), shapes), cotangents)


def transposed(b: Builder, block: mlir.Block, cotangents: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Cotangents of the arguments of a block that is linear in them, from those of what it yields.

    What does not depend on the arguments is emitted; the rest has no value, unless an op with regions depends on them: then
    they are zeros, at which the gradient of a linear function is what it is everywhere.

    Raises:
        Error: It is not linear in them.
    """
    engine = Reverse(b)
    scope = Scope(b)
    if any(len(op.regions) for op in scopes.ops_of(block)):
        arguments = [rules.zeros(b, scopes.shape_of(a)) for a in block.arguments]
        scope.bind(block.arguments, arguments)
        engine.choose(arguments)
    else:
        arguments = [checked.Absent(a) for a in block.arguments]
        scope.bind(block.arguments, arguments)
        engine.choose(arguments, absent=True)
    try:
        results = engine.run(block, scope)
        engine.pull(results, cotangents)
    except checked.NotLinearError as problem:
        message = f"a rule that is transposed must be linear in tangents and cotangents: {problem.message}"
        raise Error(message, hint="it may scale, add and move them; other functions of them have no adjoint") from None
    return [engine.cotangent(a) for a in arguments]

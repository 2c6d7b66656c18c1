"""Reverse mode: ops are emitted and recorded on a tape; cotangents are then computed from the last op to the first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.location import within
from rlx.ir.op import opview
from rlx.ir.op.card import Card
from rlx.ir.shape import Shape
from rlx.ops import rules
from rlx.ops.backward import backward
from rlx.support.errors import Error
from rlx.transforms import rule_checks
from rlx.transforms import scope as scopes
from rlx.transforms.forward import Forward, ForwardRegion, partial
from rlx.transforms.scope import ValueScope

Pull = Callable[[list[Tensor | None]], Sequence[Any]]


@dataclass(frozen=True)
class _TapeEntry:
    """An op on the tape.

    It has the results, the operands (and values that its regions use), and a function from cotangents of the results to
    cotangents of the operands.
    """

    op: mlir.Operation
    results: Sequence[Tensor]
    operands: Sequence[Tensor]
    pull: Pull


class ReverseMode:
    """Copies blocks to the insertion point of a builder, and computes the cotangents of chosen tensors.

    It records the ops that depend on these tensors on a tape, and then traverses the tape backwards.

    Args:
        builder: The builder to emit with.
        note: Added to the locations of the new ops.
    """

    def __init__(self, builder: Builder, note: str = "vjp"):
        self.builder = builder
        self.note = note
        # Emitted values that depend on the chosen tensors.
        self.varied: set[mlir.Value] = set()
        # The values in `varied` that are `rule_checks.LinearArgument`, because a linear function is being transposed.
        self._absent: set[mlir.Value] = set()
        self._tape: list[_TapeEntry] = []
        self._terms: dict[mlir.Value, list[Any]] = {}

    def choose(self, tensors: Sequence[Tensor], *, absent: bool = False) -> None:
        """Choose tensors whose cotangents are wanted.

        Args:
            tensors: The tensors; those that are not floats or complex are ignored.
            absent: Whether they have no value. The block that is run must be linear in them.
        """
        chosen = {t.value for t in tensors if t.dtype.is_inexact}
        self.varied |= chosen
        if absent:
            self._absent |= chosen

    # --- forward ----------------------------------------------------------------------------------

    def run(
        self, block: mlir.Block, scope: ValueScope, known: Mapping[mlir.Value, Tensor] | None = None
    ) -> list[Tensor]:
        """Emit the ops of a block. Returns the tensors that it yields.

        Args:
            block: The block, which is not changed.
            scope: The tensors for its arguments and for values from outside.
            known: Existing tensors for results of its ops, which are not computed again.

        Raises:
            Error: An op that depends on a chosen tensor has no rule; the message names it and the user's line.
        """
        for op in scopes.ops_of(block):
            operands = [scope[v] for v in op.operands]
            known_results = [known[r] for r in op.results if r in known] if known else []
            results = self._step(op, operands, scope, known_results if len(known_results) == len(op.results) else None)
            scope.bind(op.results, results)
        return [scope[v] for v in opview.yielded(block)]

    def _step(
        self, op: mlir.Operation, operands: list[Tensor], scope: ValueScope, known: list[Tensor] | None
    ) -> Sequence[Tensor]:
        b = self.builder
        captured = [scope[v] for v in scopes.captures(op)] if len(op.regions) else []
        varied = any(t.value in self.varied for t in operands) or any(t.value in self.varied for t in captured)
        absent = any(t.value in self._absent for t in (*operands, *captured))
        goes_on = any(map(scopes.has_tangent, op.results)) and (absent or scopes.has_derivative(op))
        if not varied or not goes_on:
            if absent:
                raise rule_checks.NotLinearError(f"rlx.{opview.name_of(op)} reads a tangent or cotangent")
            return known or scopes.copy(b, op, operands, scope)
        try:
            results, pull = self._rule(op, operands, captured, scope, known)
        except Error as problem:
            raise problem if problem.location else scopes.at_op(problem, op, "vjp") from None
        if pull is not None:
            self._tape.append(_TapeEntry(op, results, [*operands, *captured], pull))
            self.varied |= {r.value for r in results if r.dtype.is_inexact}
        return results

    def _rule(
        self,
        op: mlir.Operation,
        operands: list[Tensor],
        captured: list[Tensor],
        scope: ValueScope,
        known: list[Tensor] | None,
    ) -> tuple[Sequence[Tensor], Pull | None]:
        """Return the results of an op and its pull function; no pull if its decomposition is on the tape instead."""
        b, card = self.builder, opview.card_of(op)
        block = scopes.reversible(b, op, scope)
        if block is not None:
            return self._run_instead(block, operands, scope), None
        if card.has("pullback"):
            with b.located(within(op.location, self.note)):
                wanted = scopes.grouped(op, [t.value in self.varied for t in operands])
                bodies = [
                    block and ReverseRegion(self, block, scope, captured) for block in map(opview.block_of, op.regions)
                ]
                grouped = scopes.grouped(op, operands)
                return card.pullback(b, grouped, wanted, regions=bodies, **opview.attributes_of(op))
        if card.has("vjp") or card.has("jvp"):
            results = known or self._results(op, operands, scope)
            rule = self._vjp if card.has("vjp") else self._from_jvp
            return results, lambda cotangents: rule(card, op, operands, results, cotangents)
        if card.composite:
            with b.located(within(op.location, card.name)):
                return self._run_instead(scopes.decomposition(b, op, scope), operands, scope), None
        raise scopes.no_rule(op, "vjp")

    def _run_instead(self, block: mlir.Block, operands: list[Tensor], scope: ValueScope) -> list[Tensor]:
        """Run a block in place of an op. Returns the tensors that it yields."""
        inner = ValueScope(self.builder, scope)
        inner.bind(block.arguments, operands)
        return self.run(block, inner)

    def _results(self, op: mlir.Operation, operands: list[Tensor], scope: ValueScope) -> Sequence[Tensor]:
        """Return the results of a copy of an op. If an operand has no value, neither do the results."""
        if not any(t.value in self._absent for t in operands):
            return scopes.copy(self.builder, op, operands, scope)
        results = [rule_checks.LinearArgument(r) for r in op.results]
        self._absent |= {r.value for r in results}
        return results

    # --- backward ---------------------------------------------------------------------------------

    def pull(self, results: Sequence[Tensor], cotangents: Sequence[Tensor | None]) -> None:
        """Traverse the tape backwards.

        Args:
            results: The tensors with the given cotangents; the same tensor may occur more than once.
            cotangents: Their cotangents, None for zero.
        """
        for result, cotangent in zip(results, cotangents, strict=True):
            self._add(result, cotangent)
        b = self.builder
        while self._tape:
            step = self._tape.pop()
            with b.located(within(step.op.location, self.note)):
                result_cotangents = [self.taken(r) for r in step.results]
                if all(c is None for c in result_cotangents):
                    continue
                try:
                    self._back(step, result_cotangents)
                except Error as problem:
                    raise problem if problem.location else scopes.at_op(problem, step.op, "vjp") from None

    def _back(self, step: _TapeEntry, cotangents: list[Tensor | None]) -> None:
        """Add the contributions of a step's results to the wanted cotangents of its operands."""
        for i, (operand, term) in enumerate(zip(step.operands, step.pull(cotangents), strict=True)):
            if operand.value in self.varied:
                self._add(operand, rule_checks.cotangent(self.builder, step.op, i, operand.shape, term))

    def _add(self, tensor: Tensor, term: Any) -> None:
        if tensor.value in self.varied and term is not None:
            self._terms.setdefault(tensor.value, []).append(term)

    def cotangent(self, tensor: Tensor) -> Tensor | None:
        """Return the sum of the terms of a tensor's cotangent; None for zero."""
        terms = self._terms.pop(tensor.value, None)
        if terms is None:
            return None
        result = rules.joined(self.builder, terms)
        self._terms[tensor.value] = [result]
        return result

    def taken(self, tensor: Tensor) -> Tensor | None:
        """Return and remove the cotangent, so that a tensor with several roles (argument and capture) counts once."""
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
        with rule_checks.rule(op, "vjp"):
            returned = backward.cotangents(self.builder, card, grouped, results, cotangents, **opview.attributes_of(op))
            return rule_checks.cotangents(op, returned, grouped)

    def _from_jvp(
        self,
        card: Card,
        op: mlir.Operation,
        operands: list[Tensor],
        results: Sequence[Tensor],
        cotangents: list[Tensor | None],
    ) -> Sequence[Any]:
        """Derive the vjp from the jvp: the jvp is linear in the tangents, and the vjp is its adjoint."""
        b, attributes = self.builder, opview.attributes_of(op)
        positions = [i for i, t in enumerate(operands) if t.value in self.varied]

        def emit(*tangents: Tensor) -> list[Tensor]:
            by_position = dict(zip(positions, tangents, strict=True))
            groups = scopes.grouped(op, [by_position.get(i) for i in range(len(operands))])
            primals = scopes.grouped(op, operands)
            with rule_checks.rule(op, "jvp"):
                pushed = rule_checks.tangents(b, op, card.jvp(b, primals, groups, results, **attributes))
            return [rules.or_zeros(b, t, r.shape) for t, r in zip(pushed, results, strict=True)]

        block = b.scratch(emit, [operands[i].shape for i in positions])
        with rule_checks.rule(op, "jvp"):
            pulled = dict(zip(positions, transpose_block(b, block, cotangents), strict=True))
        return [pulled.get(i) for i in range(len(operands))]


@dataclass(frozen=True)
class ReverseRegion:
    """A region in reverse mode, for the rules of ops with regions.

    Attributes:
        captures: The tensors that the regions of the op use from outside. Their cotangents follow those of the arguments.
    """

    engine: ReverseMode
    block: mlir.Block
    scope: ValueScope
    captures: Sequence[Tensor]

    @property
    def wanted(self) -> list[bool]:
        """Whether the cotangent of each capture is wanted."""
        return [t.value in self.engine.varied for t in self.captures]

    def moving(self, arguments: Sequence[bool]) -> list[bool]:
        """Whether each result may depend on the arguments marked True in `arguments`, or on captures."""
        varied = self.engine.varied
        return scopes.depends(self.block, arguments, lambda v: self.scope[v].value in varied, floats=True)

    def _inner(self, arguments: Sequence[Tensor], captures: Sequence[Tensor] | None) -> ValueScope:
        inner = ValueScope(self.engine.builder, self.scope)
        if captures is not None:
            values = scopes.block_captures(self.block)
            replacements = {old.value: new for old, new in zip(self.captures, captures, strict=True)}
            inner.bind(values, [replacements[self.scope[v].value] for v in values])
        inner.bind(self.block.arguments, arguments)
        return inner

    def plain(self, arguments: Sequence[Tensor]) -> list[Tensor]:
        """Copy the ops of the region. Returns the tensors that it yields."""
        return scopes.inlined(self.engine.builder, self.block, arguments, self.scope)

    def forward(
        self, arguments: Sequence[Tensor], wanted: Sequence[bool], values: Sequence[mlir.Value] = ()
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Copy the ops for the forward pass.

        A function with a `vjp` of its own becomes the function that its rule for reverse mode returns: forward mode of the
        gradient differentiates that function, as the `vjp` may have no adjoint.

        Args:
            arguments: The tensors for the region's arguments.
            wanted: Whether the cotangent of each argument is wanted.
            values: Values of the block.

        Returns:
            The tensors that the region yields, and those for `values`.
        """
        inner = self._inner(arguments, None)
        if scopes.has_own_vjp(self.block):
            results = self._chosen(arguments, wanted, self.captures).run(self.block, inner)
        else:
            results = scopes.copy_block(self.engine.builder, self.block, inner)
        return results, [inner[v] for v in values]

    def _chosen(self, arguments: Sequence[Tensor], wanted: Sequence[bool], captures: Sequence[Tensor]) -> ReverseMode:
        """Return an engine for the cotangents of wanted arguments and captures."""
        engine = ReverseMode(self.engine.builder, self.engine.note)
        engine.choose([a for a, is_wanted in zip(arguments, wanted, strict=True) if is_wanted])
        engine.choose([c for c, is_wanted in zip(captures, self.wanted, strict=True) if is_wanted])
        return engine

    def adjoint(
        self, fixed: Sequence[Tensor], shapes: Sequence[Shape], cotangents: Sequence[Tensor]
    ) -> list[Tensor | None]:
        """Return the adjoint of a region that is linear in its last arguments.

        Args:
            fixed: The first arguments.
            shapes: The shapes of the last arguments.
            cotangents: The cotangents of the values that the region yields.

        Returns:
            Cotangents of the last arguments.
        """
        return adjoint(self.engine.builder, self.plain, fixed, shapes, cotangents)

    @property
    def argument_shapes(self) -> list[Shape]:
        """The shapes of the region's arguments."""
        return [scopes.shape_of(a) for a in self.block.arguments]

    def is_linear(self, count: int) -> bool:
        """Whether the region is linear in its last arguments, so that it has an adjoint."""
        b, shapes = self.engine.builder, self.argument_shapes
        yielded = [scopes.shape_of(v) for v in opview.yielded(self.block)]

        def attempt(*arguments: Tensor) -> list[Tensor]:
            fixed, cotangents = arguments[: len(shapes) - count], arguments[len(shapes) - count :]
            pulled = self.adjoint(fixed, shapes[len(shapes) - count :], cotangents)
            return [t for t in pulled if t is not None]

        try:
            b.scratch(attempt, [*shapes[: len(shapes) - count], *yielded])
        except Error:
            return False
        return True

    def pushed(
        self, arguments: Sequence[Tensor], tangents: Sequence[Tensor]
    ) -> tuple[list[Tensor], list[Tensor | None]]:
        """Copy the ops with tangents, as `ForwardRegion.run` does."""
        engine = Forward(self.engine.builder)
        inexact = [t if a.dtype.is_inexact else None for a, t in zip(arguments, tangents, strict=True)]
        return ForwardRegion(engine, self.block, self.scope).run(arguments, inexact)

    def pulled(self, arguments: Sequence[Tensor], cotangents: Sequence[Tensor]) -> list[Tensor | None]:
        """Return the cotangents of the arguments alone. Values from outside count as constants."""
        engine, inner = ReverseMode(self.engine.builder, self.engine.note), self._inner(arguments, None)
        engine.choose(arguments)
        engine.pull(engine.run(self.block, inner), cotangents)
        return [engine.taken(a) for a in arguments]

    def partial(self, arguments: Sequence[Tensor], position: int) -> Tensor:
        """See `forward.partial`."""
        return partial(self.engine.builder, self.block, self.scope, arguments, position)

    def vjp(
        self,
        arguments: Sequence[Tensor],
        wanted: Sequence[bool],
        known: Mapping[mlir.Value, Tensor] | None = None,
        captures: Sequence[Tensor] | None = None,
    ) -> tuple[list[Tensor], Callable[[Sequence[Tensor | None]], tuple[list[Tensor | None], list[Tensor | None]]]]:
        """Emit the ops of the region, and prepare the computation of cotangents.

        Args:
            arguments: The tensors for the region's arguments.
            wanted: Whether the cotangent of each argument is wanted.
            known: Existing tensors, by the values of the block that they replace.
            captures: The tensors that replace the captures; by default the captures themselves.

        Returns:
            The tensors that the region yields, and a function from their cotangents to those of arguments and of
            captures.
        """
        inner = self._inner(arguments, captures)
        captured = self.captures if captures is None else captures
        engine = self._chosen(arguments, wanted, captured)
        results = engine.run(self.block, inner, known)

        def pull(cotangents: Sequence[Tensor | None]) -> tuple[list[Tensor | None], list[Tensor | None]]:
            engine.pull(results, cotangents)
            return [engine.taken(a) for a in arguments], [engine.taken(c) for c in captured]

        return results, pull


def adjoint(
    b: Builder,
    function: Callable[[Sequence[Tensor]], list[Tensor]],
    fixed: Sequence[Tensor],
    shapes: Sequence[Shape],
    cotangents: Sequence[Tensor | None],
) -> list[Tensor | None]:
    """Return the adjoint of a function that is linear in its last arguments: see `ReverseRegion.adjoint`."""
    return transpose_block(b, b.scratch(lambda *t: function([*fixed, *t]), shapes), cotangents)


def transpose_block(b: Builder, block: mlir.Block, cotangents: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Return the cotangents of the arguments of a linear block, from the cotangents of the values that it yields.

    Ops that do not depend on the arguments are emitted; the results of the others are absent. If the block contains an
    op with regions, the arguments are zeros instead: the gradient of a linear function is the same at every point. If
    the cotangents then depend on the zeros, the block is not linear.

    Raises:
        Error: The block is not linear in its arguments.
    """
    engine = ReverseMode(b)
    scope = ValueScope(b)
    if any(len(op.regions) for op in scopes.ops_of(block)):
        arguments = [rules.zeros(b, scopes.shape_of(a)) for a in block.arguments]
        scope.bind(block.arguments, arguments)
        engine.choose(arguments)
    else:
        arguments = [rule_checks.LinearArgument(a) for a in block.arguments]
        scope.bind(block.arguments, arguments)
        engine.choose(arguments, absent=True)
    try:
        results = engine.run(block, scope)
        engine.pull(results, cotangents)
        taken = [engine.cotangent(a) for a in arguments]
        if any(len(op.regions) for op in scopes.ops_of(block)) and scopes.depends_on(taken, arguments):
            raise rule_checks.NotLinearError("its derivative depends on a tangent or cotangent")
    except rule_checks.NotLinearError as problem:
        message = f"a rule that is transposed must be linear in tangents and cotangents: {problem.message}"
        raise Error(message, hint="it may scale, add and move them; other functions of them have no adjoint") from None
    return taken

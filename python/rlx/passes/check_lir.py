"""`rlx-check-lir`: check that a target can compile a module."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.ir.dtype import DTYPES
from rlx.ir.location import describe
from rlx.ir.op import opview, registry
from rlx.ir.op.signature import bodies, read_arguments
from rlx.ir.shape import Shape, shape_of
from rlx.passes.base import Pass, option
from rlx.passes.claims import claimed_ops, known_ops, rules_of
from rlx.passes.rewrite import block_names, set_stage
from rlx.support.errors import PassError, UnsupportedError
from rlx.support.suggestions import suggestion

# Replacements for kinds of ops that an integer target does not support.
INSTEAD = {
    "binary.rem": "a remainder of a power of 2 of what is not negative is an `and`",
    "binary.trunc_div": "a quotient by a constant that may be rounded to nearest is a requantize",
    "binary.div": "a quotient by a constant that may be rounded to nearest is a requantize",
    "binary.pow": "a power of an i8 value is a table: gather",
    "activation": "a function of an i8 value is a table: gather",
}


_BRANCHES = ("if", "while", "scan")
_WITHOUT_BRANCHES = (
    'compile(…, passes="rlx-lower-control-flow"), or --passes=rlx-lower-control-flow, leaves no branches'
)
_WITHOUT_OPS = (
    "write them as ops that the target has, or leave them out of the graph and compute them outside of the program, from its "
    "outputs; an op of your own needs a decomposition, or a rule of the target's lowering"
)


@dataclass(frozen=True)
class CheckLir(Pass, name="rlx-check-lir", exact=True, idempotent=True):
    """Check that a target supports every op and every tensor of a module, and declare the module LIR.

    This is the last pass of a target's pipeline, and its options describe the target. The error lists everything that
    the target does not support, with the user's lines.
    """

    edits_ops = False

    for_: str | None = option(None, "the next pass: the target supports the ops that it lowers")
    ops: tuple[str, ...] = option(
        (), "more ops that the target supports; if neither option is given, it supports all ops but blocks"
    )
    without: tuple[str, ...] = option((), "ops that the target does not support, although the next pass lowers them")
    unsupported_dtypes: tuple[str, ...] = option((), "dtypes that tensors must not have")
    unsupported_kinds: tuple[str, ...] = option(
        (),
        "kinds of ops, such as `binary.pow`, that the lowering rejects: listed with other unsupported ops",
    )
    empty: bool = option(True, "whether tensors may have no elements")
    target: str = option("", "the target's name, for messages")
    arch: str = option("", "its architecture, for messages")

    def run(self, module: mlir.Module) -> None:
        self._check_dtypes()
        functions = bodies(module)
        refused, unsupported = list(self._refused_ops(functions)), self._without_support(functions)
        messages = [text for text in (self._text_of(refused), unsupported) if text]
        if messages:
            if kinds := list(self._kinds(functions)):
                messages.append("and not these kinds of ops:\n" + "\n".join(kinds))
            usual = "cast to a dtype that it has, outside of the program; leave out empty tensors"
            if refused:
                branches = any(opview.name_of(op) in _BRANCHES for op in refused)
                usual = _WITHOUT_BRANCHES if branches else _WITHOUT_OPS
            raise UnsupportedError("\n".join(messages), hint=self._hint(usual))
        set_stage(module, "lir")

    def _check_dtypes(self) -> None:
        known = [dtype.name for dtype in DTYPES]
        for name in self.unsupported_dtypes:
            if name not in known:
                message = f"option 'unsupported-dtypes': there is no dtype '{name}'{suggestion(name, known)}"
                raise PassError(message, hint=f"dtypes: {', '.join(known)}")

    @property
    def _target(self) -> str:
        arch = f" ({self.arch})" if self.arch else ""
        return f"target {self.target}{arch}" if self.target else "the target"

    @property
    def accepted(self) -> frozenset[str]:
        """The names of the ops that the target supports.

        Raises:
            PassError: An option names an op or a lowering that does not exist.
        """
        if self.for_ is None and not self.ops:
            return frozenset(registry.load()) - block_names() - known_ops(self.without)
        return claimed_ops(self.for_, self.ops, self.without)

    @property
    def lowering_rules(self) -> Mapping[str, Callable[..., Any]]:
        """The rules of the next lowering, by the names of the ops that they lower."""
        return rules_of(self.for_) if self.for_ else {}

    def _refused_ops(self, functions: list[mlir.FuncOp]) -> Iterator[mlir.Operation]:
        """Yield the ops that the target does not support."""
        accepted = self.accepted
        for op in (op for function in functions for op in opview.operations(function.entry_block)):
            is_accepted = opview.name_of(op) in accepted or opview.kernel_of(op) is not None
            if not is_accepted and op.name not in opview.TERMINATORS:
                yield op

    def _text_of(self, refused: list[mlir.Operation]) -> str:
        """Return the error text for unsupported ops."""
        lines: list[str] = []
        for op in refused:
            name = opview.name_of(op)
            lines.append(f"  {describe(op.location) or '<unknown>'}: {f'rlx.{name}' if registry.is_ours(op) else name}")
        verb = "op has" if len(lines) == 1 else "ops have"
        return f"{len(lines)} {verb} no lowering for {self._target}:\n" + "\n".join(lines) if lines else ""

    def _without_support(self, functions: list[mlir.FuncOp]) -> str:
        """Return the error text for unsupported dtypes, kinds and tensors."""
        refused = [line for function in functions for line in self._unsupported(function)]
        return f"{self._target} does not support some dtypes or ops:\n" + "\n".join(refused) if refused else ""

    def _hint(self, usual: str) -> str:
        """Return the hint for unsupported ops and tensors."""
        if "f32" not in self.unsupported_dtypes:
            return usual
        return "it computes with integers: `rlx quantize --integer-only`, or rlx.integer_only, makes such a graph of floats"

    def _unsupported(self, function: mlir.FuncOp) -> Iterator[str]:
        for a in read_arguments(function):
            yield from (f"  {a.kind} '{a.name}' is {problem}" for problem in self._problems(a.shape))
        for op in opview.operations(function.entry_block):
            place = describe(op.location) or "<unknown>"
            problems = dict.fromkeys(problem for r in op.results for problem in self._problems(shape_of(r)))
            yield from (f"  {place}: {op.name} gives {problem}" for problem in problems)

    def _kinds(self, functions: list[mlir.FuncOp]) -> Iterator[str]:
        """Yield a line for each op of an unsupported kind."""
        for op in (op for function in functions for op in opview.operations(function.entry_block)):
            kind = f"{opview.name_of(op)}.{opview.attributes_of(op).get('kind')}" if registry.is_ours(op) else ""
            computed = any(getattr(v.owner, "name", "") != "rlx.constant" for v in op.operands)
            if kind in self.unsupported_kinds and computed:
                instead = INSTEAD.get(kind) or INSTEAD.get(opview.name_of(op))
                place = describe(op.location) or "<unknown>"
                yield f"  {place}: rlx.{kind.replace('.', ' ')}{f' ({instead})' if instead else ''}"

    def _problems(self, shape: Shape) -> list[str]:
        """Return the reasons why the target does not support tensors of a shape."""
        problems = [shape.dtype.name] if shape.dtype.name in self.unsupported_dtypes else []
        if not shape.is_addressable:
            problems.append(f"{shape}, which cannot be addressed")
        return problems if self.empty or 0 not in shape.dims else [*problems, f"{shape}, which is empty"]

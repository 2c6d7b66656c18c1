"""`rlx-check-lir`: checks that a target can compile a module."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.ir import opview, registry
from rlx.ir.attributes import suggestion
from rlx.ir.dtype import DTYPES
from rlx.ir.errors import PassError, UnsupportedError
from rlx.ir.location import describe
from rlx.ir.shape import Shape, shape_of
from rlx.ir.signature import bodies, read_arguments
from rlx.passes.base import Pass, option
from rlx.passes.claims import claimed, known_ops, rules_of
from rlx.passes.rewrite import block_names, set_stage


@dataclass(frozen=True)
class CheckLir(Pass, name="rlx-check-lir", exact=True, idempotent=True):
    """Check that a target takes every op and every tensor of a module, and declare the module LIR.

    It is the last pass of a target's pipeline, and its options say what the target takes. The error lists everything that
    the target does not take, with the user's lines.
    """

    edits_ops = False

    for_: str | None = option(None, "the pass that comes next: the target takes the ops that it lowers")
    ops: tuple[str, ...] = option(
        (), "more ops that the target takes; if neither option is given, it takes all ops but blocks"
    )
    without: tuple[str, ...] = option((), "ops that the target does not take, although that pass lowers them")
    unsupported_dtypes: tuple[str, ...] = option((), "dtypes that tensors must not have")
    empty: bool = option(True, "whether tensors may have no elements")
    computed_kernels: bool = option(True, "whether the kernel of a convolution may be computed by the program")
    target: str = option("", "the target's name, for messages")
    arch: str = option("", "its architecture, for messages")

    def run(self, module: mlir.Module) -> None:
        self._check_dtypes()
        functions = bodies(module)
        self._check_ops(functions)
        if self.unsupported_dtypes or not self.empty or not self.computed_kernels:
            self._check_support(functions)
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
        """The names of the ops that the target takes.

        Raises:
            PassError: An option names an op or a lowering that does not exist.
        """
        if self.for_ is None and not self.ops:
            return frozenset(registry.load()) - block_names() - known_ops(self.without)
        return claimed(self.for_, self.ops, self.without)

    @property
    def lowering_rules(self) -> Mapping[str, Callable[..., Any]]:
        """The rules of the lowering that comes next, by the names of the ops that they lower."""
        return rules_of(self.for_) if self.for_ else {}

    def _check_ops(self, functions: list[mlir.FuncOp]) -> None:
        accepted = self.accepted
        refused: list[str] = []
        for function in functions:
            for op in opview.operations(function.entry_block):
                name = opview.name_of(op)
                if name not in accepted and op.name not in opview.TERMINATORS:
                    label = f"rlx.{name}" if registry.is_ours(op) else name
                    refused.append(f"  {describe(op.location) or '<unknown>'}: {label}")
        if refused:
            verb = "op has" if len(refused) == 1 else "ops have"
            message = f"{len(refused)} {verb} no lowering for {self._target}:\n" + "\n".join(refused)
            raise UnsupportedError(
                message, hint=self._hint("give it a decomposition, or a rule of the target's lowering")
            )

    def _check_support(self, functions: list[mlir.FuncOp]) -> None:
        refused = [line for function in functions for line in self._unsupported(function)]
        if refused:
            message = f"{self._target} does not support some dtypes or ops:\n" + "\n".join(refused)
            usual = "cast to a dtype that it has, outside of the program; leave out empty tensors"
            raise UnsupportedError(message, hint=self._hint(usual))

    def _hint(self, usual: str) -> str:
        """What to do about what the target does not take."""
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
            if not self.computed_kernels and _is_convolution(op) and not _is_not_computed(op.operands[1]):
                yield f"  {place}: {op.name} with a computed kernel, as in gradients, gives wrong results there"

    def _problems(self, shape: Shape) -> list[str]:
        """The reasons for which the target does not take tensors of a shape."""
        problems = [shape.dtype.name] if shape.dtype.name in self.unsupported_dtypes else []
        return problems if self.empty or 0 not in shape.dims else [*problems, f"{shape}, which is empty"]


def _is_convolution(op: mlir.Operation) -> bool:
    return registry.is_ours(op) and opview.card_of(op).spec.family == "convolution"


def _is_not_computed(value: mlir.Value) -> bool:
    """Whether a value is an argument or a constant, or a rearrangement or cast of one."""
    while not isinstance(value, mlir.ir.BlockArgument):
        op = value.owner.operation
        if not opview.has_trait(op, "rearranges") and op.name != "rlx.cast":
            return op.name == "rlx.constant"
        value = op.operands[0]
    return True

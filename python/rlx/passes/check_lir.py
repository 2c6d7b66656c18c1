"""`rlx-check-lir`: whether a module is what a target takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rlx import mlir
from rlx.ir import opview, registry
from rlx.ir.errors import UnsupportedError
from rlx.ir.location import describe
from rlx.ir.shape import Shape, shape_of
from rlx.ir.signature import bodies, read_arguments
from rlx.passes.base import Pass, option
from rlx.passes.claims import claimed
from rlx.passes.rewrite import block_names, set_stage

# Which operand of an op is its kernel.
_KERNELS = {"conv": 1}


@dataclass(frozen=True)
class CheckLir(Pass, name="rlx-check-lir"):
    """Check that a target takes every op and every tensor of a module, and declare the module LIR.

    It is the last pass of a target's pipeline, which says by the options what the target takes. What it refuses is listed
    with the user's lines.
    """

    edits_ops = False

    for_: str | None = option(None, "the pass that comes next: the target takes the ops that it lowers")
    ops: tuple[str, ...] = option((), "more ops that the target takes; where neither is given, all but blocks")
    unsupported_dtypes: tuple[str, ...] = option((), "dtypes of which there may be no tensor")
    empty: bool = option(True, "whether tensors may have no elements")
    computed_kernels: bool = option(True, "whether the kernel of a convolution may be computed by the program")
    target: str = option("", "the target's name, for messages")
    arch: str = option("", "its architecture, for messages")

    def run(self, module: mlir.Module) -> None:
        functions = bodies(module)
        self._check_ops(functions)
        if self.unsupported_dtypes or not self.empty or not self.computed_kernels:
            self._check_support(functions)
        set_stage(module, "lir")

    @property
    def _target(self) -> str:
        arch = f" ({self.arch})" if self.arch else ""
        return f"target {self.target}{arch}" if self.target else "the target"

    def _check_ops(self, functions: list[mlir.FuncOp]) -> None:
        restricted = self.for_ is not None or bool(self.ops)
        taken = claimed(self.for_, self.ops) if restricted else registry.load().keys() - block_names()
        others: list[str] = []
        for function in functions:
            for op in opview.operations(function.entry_block):
                name = opview.name_of(op)
                if name not in taken and op.name not in opview.TERMINATORS:
                    shown = f"rlx.{name}" if registry.is_ours(op) else name
                    others.append(f"  {describe(op.location) or '<unknown>'}: {shown}")
        if others:
            what = "op has" if len(others) == 1 else "ops have"
            message = f"{len(others)} {what} no lowering for {self._target}:\n" + "\n".join(others)
            raise UnsupportedError(message, hint="give it a decomposition, or a rule of the target's lowering")

    def _check_support(self, functions: list[mlir.FuncOp]) -> None:
        wrong = [line for function in functions for line in self._refused(function)]
        if wrong:
            message = f"{self._target} does not support some dtypes or ops:\n" + "\n".join(wrong)
            raise UnsupportedError(
                message, hint="cast to a dtype that it has, outside of the program; leave out empty tensors"
            )

    def _refused(self, function: mlir.FuncOp) -> Iterator[str]:
        for a in read_arguments(function):
            yield from (f"  {a.kind} '{a.name}' is {what}" for what in self._against(a.shape))
        for op in opview.operations(function.entry_block):
            place = describe(op.location) or "<unknown>"
            against = dict.fromkeys(what for r in op.results for what in self._against(shape_of(r)))
            yield from (f"  {place}: {op.name} gives {what}" for what in against)
            kernel = _KERNELS.get(opview.name_of(op))
            if kernel is not None and not self.computed_kernels and not _is_given(op.operands[kernel]):
                yield f"  {place}: {op.name} by what the program computes, as in gradients, is not right there"

    def _against(self, shape: Shape) -> list[str]:
        """What the target has against tensors of a shape."""
        against = [shape.dtype.name] if shape.dtype.name in self.unsupported_dtypes else []
        return against if self.empty or 0 not in shape.dims else [*against, f"{shape}, which is empty"]


def _is_given(value: mlir.Value) -> bool:
    """Whether a value is an argument or a constant, perhaps seen in another way."""
    while not isinstance(value, mlir.ir.BlockArgument):
        op = value.owner.operation
        if not opview.has_trait(op, "rearranges") and op.name != "rlx.cast":
            return op.name == "rlx.constant"
        value = op.operands[0]
    return True

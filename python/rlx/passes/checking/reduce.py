"""`rlx-opt --reduce`: reduction of a module to the smallest one that still fails, or is interesting to another test.

Each edit is tried on a copy, which is verified and then tested; interesting copies are kept. Large cuts come first, and
all edits are repeated until none helps. The order is fixed, so the same module and test give the same result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from rlx import mlir
from rlx.ir.dims.dim import dim
from rlx.ir.op import opview, signature
from rlx.ir.op.signature import bodies, functions
from rlx.ir.shape import shape_of
from rlx.ir.text.modules import parse_module
from rlx.passes.bind import Bind
from rlx.passes.checking import reduce_edits as edits
from rlx.passes.checking.bisect import Failure, first_failure
from rlx.passes.checking.numerics import Comparison
from rlx.passes.pipeline import PassPipeline
from rlx.passes.rewrite import collect
from rlx.passes.runner import clone_module, run_on_module
from rlx.support.errors import Error

T = TypeVar("T")
# A test of whether a module is interesting. It may change the module.
Test = Callable[[mlir.Module], bool]
# An in-place edit of a module. Returns whether it changed something.
Edit = Callable[[mlir.Module], bool]
_OF_SYMBOL = 1 << 20  # the size of a symbol in comparisons, larger than any replacement
_QUOTED_OR_NUMBER = re.compile(r"'[^']*'|@[\w$.-]+|%[\w#]+|\d[\w.+-]*|\[[^\]]*\]")


def fails_alike(module: mlir.Module, pipeline: str | PassPipeline, comparison: Comparison | None = None) -> Test:
    """Return a test of whether a pipeline fails on a module in the same pass and in the same way as on this one.

    The failure is an error with the same text (without names and numbers), an invalid module, or a different result.

    Args:
        module: The module to reduce; it is not changed.
        pipeline: The passes.
        comparison: The inputs and the comparison of results.

    Raises:
        Error: The pipeline does not fail on the module, or a given array does not fit any argument.
    """
    comparison = comparison or Comparison()
    comparison.check_given(module)
    steps = PassPipeline.of(pipeline).steps
    number, failure = first_failure(module, steps, comparison)
    if failure is None:
        raise Error(
            "there is nothing to reduce: the passes neither fail on this module nor change its results",
            hint="--inputs=SEED tries other inputs; --reduce=COMMAND takes any other test",
        )
    steps, kind = steps[: number + 1], _kind(failure)

    def test(candidate: mlir.Module) -> bool:
        reached, found = first_failure(candidate, steps, comparison)
        return found is not None and reached == number and _kind(found) == kind

    return test


def _kind(failure: Failure) -> tuple[str, str]:
    return failure.kind, _QUOTED_OR_NUMBER.sub("_", failure.message) if failure.kind == "error" else ""


def reduce(module: mlir.Module, test: Test, progress: Callable[[str], None] | None = None) -> mlir.Module:
    """Return a small module for which a test is true. The given module is not changed.

    Args:
        module: A verified module for which the test is true.
        test: Called with a verified module that it may change.
        progress: Called with a line whenever the module has become smaller.

    Raises:
        Error: The test is false for the module itself, or raised an exception.
    """
    with mlir.entered():
        if not test(clone_module(module)):
            raise Error("there is nothing to reduce: the test says that this module is not interesting")
        search = _ReductionSearch(clone_module(module), test, progress)
        return search.run()


class _ReductionSearch:
    def __init__(self, module: mlir.Module, test: Test, progress: Callable[[str], None] | None):
        self.best, self.test, self.progress = module, test, progress
        self.tests = 0
        self.size = _size(module)
        self.sweeps = False  # an op whose results are unused may be the interesting one

    def run(self) -> mlir.Module:
        without_unread = clone_module(self.best)
        edits.clean(without_unread, ops=True)
        self.sweeps = self.test(clone_module(without_unread))
        if self.sweeps:
            self.best, self.size = without_unread, _size(without_unread)
        while True:
            size = self.size
            self.cut(functions, edits.without_functions)
            self.cut(_outputs, edits.without_outputs)
            self.cut(collect, edits.without_ops)
            self.each(_forwardings, edits.forward)
            self.each(_ops_with_regions, edits.inline)
            self.each(_pairs_of_arguments, edits.join_arguments)
            self.shrink()
            if self.size >= size:
                return self.best

    def cut(self, things: Callable[[mlir.Module], Sequence[object]], edit: Callable[..., bool]) -> None:
        """Remove as many items as possible from a module: half of them at once, then a quarter, … and single ones."""
        step = max(1, len(things(self.best)) // 2)
        while True:
            end = len(things(self.best))
            while end > 0:
                chosen = range(max(0, end - step), end)
                self.attempt(lambda m, chosen=chosen: edit(m, chosen))
                end = min(end - step, len(things(self.best)))
            if step == 1:
                return
            step //= 2

    def each(self, choices: Callable[[mlir.Module], Sequence[T]], edit: Callable[[mlir.Module, T], bool]) -> None:
        """Try edits one by one. After a successful edit, continue with the edits of the new module."""
        position = 0
        while position < len(options := choices(self.best)):
            choice = options[position]
            if not self.attempt(lambda m, choice=choice: edit(m, choice)):
                position += 1

    def shrink(self) -> None:
        """Replace symbols by sizes, and reduce sizes one by one, starting with the largest."""
        for symbol in sorted(_symbols(self.best)):
            any(self._bound(symbol, size) for size in (1, 2, 3))
        for size in sorted(_sizes(self.best), reverse=True):
            for smaller in dict.fromkeys(s for s in (1, 2, size // 2) if s < size):
                if any(self._shrunk(size, smaller, multiples) for multiples in (True, False)):
                    break

    def _bound(self, symbol: str, size: int) -> bool:
        candidate = clone_module(self.best)
        try:
            run_on_module(candidate, PassPipeline.of(Bind(sizes={symbol: dim(size)})))
        except Error:
            return False
        return self._accept(candidate)

    def _shrunk(self, size: int, smaller: int, multiples: bool) -> bool:
        text = edits.with_size(self.best.operation.get_asm(print_generic_op_form=True), size, smaller, multiples)
        try:
            return self._accept(parse_module(text, "reduced"))
        except Error:
            return False

    def attempt(self, edit: Edit) -> bool:
        """Edit a copy, and keep it if it is smaller, valid and interesting."""
        candidate = clone_module(self.best)
        return edit(candidate) and self._accept(candidate)

    def _accept(self, candidate: mlir.Module) -> bool:
        edits.clean(candidate, ops=self.sweeps)
        size = _size(candidate)
        if size >= self.size or not _is_valid(candidate):
            return False
        self.tests += 1
        if not self.test(clone_module(candidate)):
            return False
        self.best, self.size = candidate, size
        if self.progress is not None:
            self.progress(f"{self.size[0]} ops after {self.tests} tests")
        return True


def _is_valid(module: mlir.Module) -> bool:
    try:
        module.operation.verify()
        signature.check(module)
    except (mlir.ir.MLIRError, Error):
        return False
    return True


def _size(module: mlir.Module) -> tuple[int, ...]:
    """Return the quantities to minimise, most important first: ops, functions, results, arguments, operands, sizes."""
    ops = collect(module)
    found = bodies(module)
    results = sum(len(f.type.results) for f in found)
    arguments = sum(len(f.type.inputs) for f in found)
    sizes = sum(d if type(d) is int else _OF_SYMBOL for v in _values(module) for d in shape_of(v).dims)
    read = sum(len(op.operands) for op in ops)
    return len(ops), len(functions(module)), results, arguments, read, sizes


# --- candidates for edits ---------------------------------------------------------------------


def _outputs(module: mlir.Module) -> list[int]:
    return [i for f in bodies(module) for i in range(len(f.type.results))]


def _forwardings(module: mlir.Module) -> list[tuple[int, int]]:
    """Return (op, operand) pairs where the operand has the type of the only result."""
    return [
        (i, k)
        for i, op in enumerate(collect(module))
        if len(op.results) == 1
        for k, value in enumerate(op.operands)
        if value.type == op.results[0].type
    ]


def _ops_with_regions(module: mlir.Module) -> list[tuple[int, int]]:
    """Return (op, region) pairs of regions without arguments."""
    found: list[tuple[int, int]] = []
    for i, op in enumerate(collect(module)):
        for k, region in enumerate(op.regions):
            block = opview.block_of(region)
            if block is not None and not len(block.arguments):
                found.append((i, k))
    return found


def _pairs_of_arguments(module: mlir.Module) -> list[tuple[int, int, int]]:
    """Return triples of a function and two of its arguments with the same type."""
    return [
        (number, i, k)
        for number, function in enumerate(bodies(module))
        for arguments in [list(function.entry_block.arguments)]
        for k in range(len(arguments))
        for i in range(k)
        if arguments[i].type == arguments[k].type
    ]


def _sizes(module: mlir.Module) -> set[int]:
    return {d for value in _values(module) for d in shape_of(value).dims if type(d) is int and d > 1}


def _symbols(module: mlir.Module) -> set[str]:
    return {symbol for value in _values(module) for symbol in shape_of(value).symbols}


def _values(module: mlir.Module) -> list[mlir.Value]:
    """Return the arguments of functions and the results of ops."""
    arguments = [a for f in bodies(module) for a in f.entry_block.arguments]
    return [*arguments, *(r for op in collect(module) for r in op.results)]

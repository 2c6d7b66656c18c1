"""In-place edits for `rlx-opt --reduce`. Each edit removes a part of a module. The result may be invalid."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from rlx import mlir
from rlx.ir.interface import Argument, Output
from rlx.ir.op import opview, registry
from rlx.ir.op.signature import bodies, functions, read_arguments, read_outputs, sign_function
from rlx.ir.shape import shape_of
from rlx.passes.rewrite import collect, is_unread


class _EditedSignature:
    """Arguments and results of a function while they are edited; `write` updates the function."""

    def __init__(self, function: mlir.FuncOp):
        self.function, self.block = function, function.entry_block
        self.arguments, self.outputs = read_arguments(function), read_outputs(function)
        self.values = opview.yielded(self.block)

    def add_argument(self, like: mlir.Value) -> mlir.Value:
        """Add an input with the type of a value."""
        name = _free("cut", [a.name for a in self.arguments])
        self.arguments.append(Argument(name, "input", shape_of(like)))
        return self.block.add_argument(like.type, self.function.location)

    def add_output(self, value: mlir.Value) -> None:
        """Add a result."""
        name = _free("kept", [o.name for o in self.outputs])
        self.values.append(value)
        self.outputs.append(Output(name, shape_of(value)))

    def keep_outputs(self, kept: Sequence[int]) -> None:
        """Keep only some of the results."""
        self.values, self.outputs = [self.values[i] for i in kept], [self.outputs[i] for i in kept]

    def drop_unread_arguments(self) -> None:
        """Remove unused arguments, unless a result updates them."""
        updated = {o.updates for o in self.outputs}
        for i in reversed(range(len(self.arguments))):
            if not opview.is_used(self.block.arguments[i]) and self.arguments[i].name not in updated:
                self.block.erase_argument(i)
                del self.arguments[i]

    def write(self) -> None:
        operations = self.block.operations
        old = operations[len(operations) - 1].operation
        place = mlir.ir.InsertionPoint(old)
        mlir.ir.Operation.create(old.name, operands=self.values, loc=old.location, ip=place)
        old.erase()
        sign_function(self.function, self.arguments, self.outputs)


def _free(stem: str, taken: Collection[str]) -> str:
    number = 0
    while (name := f"{stem}{number}") in taken:
        number += 1
    return name


# --- removal --------------------------------------------------------------------------------------


def without_functions(module: mlir.Module, chosen: Collection[int]) -> bool:
    """Remove functions, by index."""
    found = functions(module)
    if len(chosen) == len(found):
        return False
    for number in chosen:
        found[number].operation.erase()
    return True


def without_outputs(module: mlir.Module, chosen: Collection[int]) -> bool:
    """Remove results, counted over all functions."""
    first = 0
    for function in bodies(module):
        signature = _EditedSignature(function)
        count = len(signature.values)
        signature.keep_outputs([i for i in range(count) if first + i not in chosen])
        first += count
        signature.write()
    return True


def without_ops(module: mlir.Module, chosen: Collection[int]) -> bool:
    """Remove ops, by their index in `collect`.

    Their used results become arguments. Values that only they used become results. The other ops therefore compute the
    same values as before.
    """
    ops = [op for i, op in enumerate(collect(module)) if i in chosen]
    gone = {op.results[0] for op in ops}
    ops = [op for op in ops if not _is_inside(op, gone)]  # ops in regions are erased with the enclosing op
    signatures = {f.name.value: _EditedSignature(f) for f in bodies(module)}
    cut_off: dict[mlir.Value, _EditedSignature] = {}
    for op in reversed(ops):
        signature = signatures[_function_of(op).name.value]
        read = [v for v in op.operands if isinstance(v, mlir.ir.OpResult)]
        cut_off |= {v: signature for v in read if v.owner.operation.results[0] not in gone}
        for result in filter(opview.is_used, op.results):
            argument = signature.add_argument(result)
            result.replace_all_uses_with(argument)
            signature.values = [argument if v == result else v for v in signature.values]
        op.erase()
    for value, signature in reversed(cut_off.items()):
        if not opview.is_used(value) and value.owner.operation.block == signature.block:
            signature.add_output(value)
    for signature in signatures.values():
        computed = [i for i, v in enumerate(signature.values) if isinstance(v, mlir.ir.OpResult)]
        signature.keep_outputs(computed or range(len(signature.values)))
        signature.write()
    return True


def _parents(op: mlir.Operation) -> list[mlir.Operation]:
    """Return the ops around an op, innermost first, up to the function."""
    parents: list[mlir.Operation] = []
    while op.name != "func.func":
        op = op.block.owner.operation
        parents.append(op)
    return parents


def _is_inside(op: mlir.Operation, ops: Collection[mlir.Value]) -> bool:
    """Whether an op is in a region of other ops, which are identified by their first results."""
    return any(parent.results[0] in ops for parent in _parents(op)[:-1])


def _function_of(op: mlir.Operation) -> mlir.FuncOp:
    function = _parents(op)[-1].opview
    assert isinstance(function, mlir.FuncOp)
    return function


def clean(module: mlir.Module, *, ops: bool) -> None:
    """Remove unused arguments of functions and, with `ops`, unused ops."""
    for function in bodies(module):
        if ops:
            _sweep(function.entry_block)
        signature = _EditedSignature(function)
        signature.drop_unread_arguments()
        signature.write()


def _sweep(block: mlir.Block) -> None:
    """Erase unused ops of a block, last op first, so that one traversal suffices."""
    for op in reversed([view.operation for view in block.operations]):
        if registry.is_ours(op) and op.name not in opview.TERMINATORS and is_unread(op):
            op.erase()
            continue
        for inner in filter(None, map(opview.block_of, op.regions)):
            _sweep(inner)


# --- simplification -------------------------------------------------------------------------------


def forward(module: mlir.Module, choice: tuple[int, int]) -> bool:
    """Replace the result of an op by an operand. `choice` is the index of the op, and of the operand."""
    op = collect(module)[choice[0]]
    op.results[0].replace_all_uses_with(op.operands[choice[1]])
    op.erase()
    return True


def inline(module: mlir.Module, choice: tuple[int, int]) -> bool:
    """Replace an op by the ops of one of its regions. `choice` is the index of the op, and of the region.

    A loop becomes one step: its arguments are replaced by the initial values.
    """
    op = collect(module)[choice[0]]
    block = opview.block_of(op.regions[choice[1]])
    yielded = opview.yielded(block) if block is not None else []
    if block is None or [v.type for v in yielded] != [r.type for r in op.results]:
        return False
    for argument, operand in zip(block.arguments, op.operands, strict=False):
        if argument.type == operand.type:
            argument.replace_all_uses_with(operand)
    yielded = opview.yielded(block)
    for view in list(block.operations)[:-1]:
        view.operation.move_before(op)
    for result, value in zip(op.results, yielded, strict=True):
        result.replace_all_uses_with(value)
    op.erase()
    return True


def join_arguments(module: mlir.Module, choice: tuple[int, int, int]) -> bool:
    """Replace one argument by another of the same type. `choice` has the function, the argument kept, and the one dropped."""
    number, kept, dropped = choice
    arguments = bodies(module)[number].entry_block.arguments
    arguments[dropped].replace_all_uses_with(arguments[kept])
    return True


_TYPE, _SIZE_IN_TYPE = re.compile(r"tensor<[^>]*"), re.compile(r"(?<=[<x])\d+(?=x)")
_LIST, _SIZE_IN_LIST = re.compile(r"\b(\w+) = \[([^\]]*)\]"), re.compile(r"(?<![\w\"*])\d+(?![\w\"*])")


def with_size(text: str, size: int, smaller: int, multiples: bool) -> str:
    """Replace a size everywhere in a module in generic form: in types and attributes.

    Args:
        text: The module.
        size: The old size.
        smaller: The new size.
        multiples: Whether multiples of the size shrink by the same factor.
    """
    lists = {a.name for spec in registry.SPECS.values() for a in spec.attributes if a.kind == "dims"}

    def replaced(match: re.Match[str]) -> str:
        number = int(match[0])
        fits = number == size or (multiples and number % size == 0)
        return str(number // size * smaller) if fits else match[0]

    def in_list(match: re.Match[str]) -> str:
        name, sizes = match.groups()
        return f"{name} = [{_SIZE_IN_LIST.sub(replaced, sizes)}]" if name in lists else match[0]

    text = _TYPE.sub(lambda match: _SIZE_IN_TYPE.sub(replaced, match[0]), text)
    return _LIST.sub(in_list, text)

"""`rlx-bind`: replacement of symbols by sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.ir.dims.bounds import BOUNDS, bounds_text, bounds_with
from rlx.ir.dims.dim import Dim, dim, substitute
from rlx.ir.location import describe
from rlx.ir.op import attributes, registry
from rlx.ir.op.signature import declared_arguments
from rlx.ir.shape import Shape, shape_of_type
from rlx.passes.base import Pass, option
from rlx.support.errors import Error, PassError
from rlx.support.suggestions import suggestion

_ENCODING = "#rlx.dims<"


@dataclass(frozen=True)
class Bind(Pass, name="rlx-bind"):
    """Give symbols a size: `rlx-bind{seq=128 batch=1}`.

    The pass updates types of arguments and results, dimensions in attributes, bounds of arguments, and the encodings of
    tensor types. A size may be an expression in symbols, `rows=2*batch`. The verifier reports sizes that do not fit. A
    size outside the bounds of an argument is an error here.
    """

    sizes: Mapping[str, Dim] = option({}, "the size of a symbol", rest=True)

    def run(self, module: mlir.Module) -> None:
        values = {name: dim(size) for name, size in self.sizes.items()}
        binder = _Binder(values)
        mlir.walk(module, binder.visit, mlir.ir.WalkOrder.PRE_ORDER)
        if binder.problem is not None:
            raise binder.problem
        for name in values:
            if name not in binder.seen:
                known = ", ".join(sorted(binder.seen)) or "none"
                message = f"{self.name}: the module has no symbol '{name}'{suggestion(name, binder.seen)}"
                raise PassError(message, hint=f"its symbols: {known}")


def bind_hint(symbols: Iterable[str], size: int = 1) -> str:
    """Return the hint for users who must give sizes to all of these symbols: what to type in a command and in Python."""
    names = sorted(symbols)
    options, entries = (" ".join(f"{b}{n}{e}{size}" for n in names) for b, e in (("--bind=", "="), ("", "=")))
    mapping = ", ".join(f"{n!r}: {size}" for n in names)
    return f"give sizes: {options}, bind={{{mapping}}}, or rlx.passes.run(graph, 'rlx-bind{{{entries}}}')"


class _Binder:
    """Rewrites ops one by one. Each type is computed only once."""

    def __init__(self, values: Mapping[str, Dim]):
        self.values = values
        self.seen: set[str] = set()
        self.problem: Error | None = None
        self._types: dict[mlir.Type, Any] = {}

    def visit(self, op: mlir.Operation) -> Any:
        try:
            self._bind(op.operation)
        except Error as problem:
            message = f"{Bind.name}: '{op.operation.name}': {problem.message}"
            self.problem = PassError(message, location=describe(op.location), hint=problem.hint)
            return mlir.ir.WalkResult.INTERRUPT
        return mlir.ir.WalkResult.ADVANCE

    def _bind(self, op: mlir.Operation) -> None:
        for result in op.results:
            self._set(result)
        for region in op.regions:
            for block in region:
                for argument in block.arguments:
                    self._set(argument)
        if registry.is_ours(op):
            self._bind_attributes(op)
        elif "function_type" in op.attributes:
            self._bind_signature(op)

    def _set(self, value: mlir.Value) -> None:
        before = value.type
        after = self.type_of(before)
        if after is not before:
            value.set_type(after)

    def type_of(self, type_: mlir.Type) -> mlir.Type:
        """Return a type with its symbols replaced by sizes, or the same object if there is nothing to replace."""
        bound = self._types.get(type_)
        if bound is None:
            bound = self._types[type_] = self._bound(type_)
        return type_ if bound is True else bound

    def _bound(self, type_: mlir.Type) -> Any:
        if not isinstance(type_, mlir.ir.RankedTensorType) or not str(type_.encoding or "").startswith(_ENCODING):
            return True
        shape = shape_of_type(type_)
        self.seen |= shape.symbols
        if not shape.symbols & self.values.keys():
            return True
        return Shape((substitute(d, self.values) for d in shape.dims), shape.dtype).type

    def _bind_attributes(self, op: mlir.Operation) -> None:
        spec = registry.SPECS[op.name.removeprefix("rlx.")]
        for entry in spec.attributes:
            if entry.kind != "dims" or entry.name not in op.attributes:
                continue
            before = attributes.from_mlir(entry, op.attributes[entry.name])
            after = tuple(substitute(d, self.values) for d in before)
            self.seen |= Shape(before).symbols
            if after != before:
                op.attributes[entry.name] = attributes.to_mlir(entry, after)

    def _bind_signature(self, op: mlir.Operation) -> None:
        ir = mlir.ir
        type_ = op.attributes["function_type"].value
        if isinstance(type_, ir.FunctionType):
            inputs, results = map(self.type_of, type_.inputs), map(self.type_of, type_.results)
            op.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get([*inputs], [*results]))
            self._bind_bounds(op)

    def _bind_bounds(self, op: mlir.Operation) -> None:
        """Update the bounds of arguments to the symbols that remain.

        Raises:
            ShapeError: A size is out of bounds.
        """
        arguments = declared_arguments(op.opview)
        if not any(a.bounds for a in arguments):
            return
        entries: list[mlir.Attribute] = []
        for argument, entry in zip(arguments, op.attributes["arg_attrs"], strict=True):
            kept = {named.name: named.attr for named in entry if named.name != BOUNDS}
            if left := bounds_with(argument.bounds, self.values, f"{argument.kind} '{argument.name}'"):
                kept[BOUNDS] = mlir.ir.StringAttr.get(bounds_text(left))
            entries.append(mlir.ir.DictAttr.get(kept))
        op.attributes["arg_attrs"] = mlir.ir.ArrayAttr.get(entries)

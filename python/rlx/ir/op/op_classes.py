"""Classes of ops for MLIR's bindings, with operands, attributes and results by name.

The classes are generated from the op table, like those of `mlir-tblgen -gen-python-op-bindings`, with two differences:
variadic values are grouped as in `ir/op/grouping.py`, and an accessor whose name MLIR's class already uses gets a
trailing `_`. The bindings use this module as the module of the dialect (`mlir.provide_dialect`). Ops are created by
`Builder`, which infers their results.
"""

from __future__ import annotations

import keyword
from collections.abc import Callable, Sequence
from typing import Any

from rlx import mlir
from rlx.dialect import spec_gen
from rlx.dialect.spec import OpSpec, ValueSpec
from rlx.ir.op.grouping import OPERAND_SEGMENTS, RESULT_SEGMENTS, group_values


def class_name(op_name: str) -> str:
    """Return the class name of an op: `LayerNormOp` for `layer_norm`."""
    return "".join(word.capitalize() for word in op_name.split("_")) + "Op"


def accessors(spec: OpSpec) -> dict[str, property]:
    """Return the properties of an op's class, by name."""
    result: dict[str, property] = {}
    for i, operand in enumerate(spec.operands):
        result[_free(operand.name)] = property(_of_group("operands", spec.operands, i, OPERAND_SEGMENTS))
    for attribute in spec.attributes:
        result[_free(attribute.name)] = property(_of_attribute(attribute.name))
    for i, region in enumerate(spec.regions):
        result[_free(region.name)] = property(_of_region(i))
    for i, value in enumerate(spec.results):
        result[_free(value.name)] = property(_of_group("results", spec.results, i, RESULT_SEGMENTS))
    return result


def _free(name: str) -> str:
    """Return a name that MLIR's op class does not use. The name `result` is allowed: it overrides that of MLIR's class."""
    is_taken = keyword.iskeyword(name) or (name != "result" and hasattr(mlir.ir.OpView, name))
    return name + "_" if is_taken else name


def _of_group(member: str, values: tuple[ValueSpec, ...], index: int, segments: str) -> Callable[[mlir.Operation], Any]:
    kind = member.removesuffix("s")

    def value(self: mlir.Operation) -> Any:
        op = self.operation
        sizes = list(op.attributes[segments]) if segments in op.attributes else None
        return group_values(values, list(getattr(op, member)), kind, sizes)[index]

    return value


def _of_attribute(name: str) -> Callable[[mlir.Operation], mlir.Attribute | None]:
    return lambda self: self.operation.attributes.get(name)


def _of_region(index: int) -> Callable[[mlir.Operation], mlir.Region]:
    return lambda self: self.operation.regions[index]


def _make_classes(specs: Sequence[OpSpec]) -> dict[str, type]:
    register = mlir.op_class_register("rlx")
    classes: dict[str, type] = {}
    for spec in specs:
        members = {"OPERATION_NAME": f"rlx.{spec.name}", "__doc__": spec.description, "__module__": __name__}
        name = class_name(spec.name)
        classes[name] = register(type(name, (mlir.ir.OpView,), members | accessors(spec)))
    return classes


globals().update(_make_classes(spec_gen.OPS))

"""`rlx-iree-unaligned-arguments`: lets a program read arguments at addresses that are not multiples of 64 bytes.

Large NumPy arrays lie at 16 bytes behind a multiple of 64 or more, because the C allocator stores its data before them. IREE
imports memory only at multiples of 64, and its code loads vectors with instructions that need such addresses.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from rlx import mlir
from rlx.ir.dtype import from_mlir
from rlx.ir.op.signature import bodies, prepares
from rlx.passes.base import option
from rlx.targets.iree.memory import ALIGNMENT, COPY_LIMIT, IMPORT_ALIGNMENT
from rlx.targets.iree.names import LENT_WEIGHTS, SUBSPAN
from rlx.targets.iree.passes.base import IreePass, create

# The other properties are IREE's defaults. An attribute, and not a flag, so that the user's flags cannot contradict SUBSPAN.
_RESOURCES = (
    "#stream.resource_config<{{max_allocation_size = 9223372036854775807, min_buffer_offset_alignment = {0}, "
    "max_buffer_range = 9223372036854775807, min_buffer_range_alignment = {0}, index_bits = 64, "
    "alias_mutable_bindings = false, memory_model = {1}}}>"
)

_PARAMETER = "#flow.parameter"


@dataclass(frozen=True)
class UnalignedArguments(IreePass, name="rlx-iree-unaligned-arguments"):
    """Make code assume that buffers lie at multiples of 16 bytes, and add a function that returns a part of a buffer.

    The runtime imports the memory from the multiple of 64 below an argument, and passes the part from the argument on. Small
    arguments are copied, which is faster: a module with small arguments only does not get this function.

    A module with parameters reads them in the memory of the host. As a discrete device, it would have a copy of all of them.
    """

    limit: int = option(COPY_LIMIT, "the size in bytes up to which arguments are copied", least=0)

    def run(self, module: mlir.Module) -> None:
        has_large = any(map(self._is_large, _arguments(module))) or _lends_weights(module)
        has_parameters = _has_parameters(module)
        if has_large or has_parameters:
            model = "Unified" if has_parameters else "Discrete"
            resources = _RESOURCES.format(ALIGNMENT if has_large else IMPORT_ALIGNMENT, model)
            module.operation.attributes["stream.resources"] = mlir.ir.Attribute.parse(resources)
        if has_large:
            _add_subspan(module)

    def _is_large(self, type_: Any) -> bool:
        itemsize = from_mlir(str(type_.element_type)).numpy.itemsize
        return not type_.has_static_shape or prod(type_.shape) * itemsize > self.limit


def _arguments(module: mlir.Module) -> list[Any]:
    """Return the types of the tensors that functions take."""
    types = [t for function in bodies(module) if not prepares(function) for t in function.type.inputs]
    return [type_ for type_ in types if isinstance(type_, mlir.ir.RankedTensorType)]


def _has_parameters(module: mlir.Module) -> bool:
    values = [op.operation.attributes.get("initial_value") for op in module.body.operations]
    return any(value is not None and str(value).startswith(_PARAMETER) for value in values)


def _lends_weights(module: mlir.Module) -> bool:
    return any(function.name.value == LENT_WEIGHTS for function in bodies(module))


def _add_subspan(module: mlir.Module) -> None:
    """Add the function `SUBSPAN`: (buffer, offset, length) -> the part of the buffer, all in bytes."""
    ir, func = mlir.ir, mlir.dialect("func")
    buffer, index = ir.Type.parse("!hal.buffer"), ir.IndexType.get()
    with module.operation.location:
        place = ir.InsertionPoint(module.body)
        function = func.FuncOp(SUBSPAN, ir.FunctionType.get([buffer, index, index], [buffer]), ip=place)
        with ir.InsertionPoint(function.add_entry_block()):
            part = create("hal.buffer.subspan", [buffer], operands=list(function.entry_block.arguments))
            func.ReturnOp([part.result])

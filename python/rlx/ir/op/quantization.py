"""The function attribute that records the scales and zero points of integer inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping

from rlx import mlir
from rlx.support.errors import Error

# Function attribute: for each name of an input or output, its scale (f32) and its zero point.
QUANTIZATION = "rlx.quantized"


def record_quantization(function: mlir.FuncOp, known: Mapping[str, tuple[float, int]]) -> None:
    """Write the scales and zero points of inputs and outputs, by name, as the attribute of a function."""
    if known:
        ir = mlir.ir
        number, whole = ir.F64Type.get(), ir.IntegerType.get_signless(64)
        entries = {
            name: ir.ArrayAttr.get([ir.FloatAttr.get(number, scale), ir.IntegerAttr.get(whole, zero)])
            for name, (scale, zero) in known.items()
        }
        function.attributes[QUANTIZATION] = ir.DictAttr.get(entries)


def quantization_of(function: mlir.FuncOp) -> dict[str, tuple[float, int]]:
    """Return the scales and zero points of integer inputs and outputs, by name.

    Raises:
        Error: The attribute is not in the format of `rlx-quantize-boundary`.
    """
    attributes = function.attributes
    if QUANTIZATION not in attributes:
        return {}
    try:
        stored = mlir.ir.DictAttr(attributes[QUANTIZATION])
        pairs = {named.name: [entry.value for entry in mlir.ir.ArrayAttr(named.attr)] for named in stored}
        return {name: (float(scale), int(zero)) for name, (scale, zero) in pairs.items()}
    except (ValueError, TypeError, AttributeError) as problem:
        raise Error(
            f"'{QUANTIZATION}' is a scale and a zero point for each name, such as {{x = [0.5, 3]}}"
        ) from problem

"""`rlx-iree-argument-affinity`: states the device of the arguments and results of functions with branches.

Otherwise IREE's analysis does not find the device of a block argument. It then copies each block argument that an op reads,
so a loop copies all of its carries in each step. Quirk: `carries-copied`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.ir.op.signature import bodies
from rlx.targets.iree.passes.base import IreePass

_NAME = "iree.abi.affinity"
_DEVICE = "#hal.device.promise<@__device_0>"  # the name that IREE's compiler gives the first device


@dataclass(frozen=True)
class ArgumentAffinity(IreePass, name="rlx-iree-argument-affinity"):
    """Place the arguments and results of functions with several blocks on the first device, for IREE."""

    def run(self, module: mlir.Module) -> None:
        for function in bodies(module):
            if len(function.regions[0].blocks) < 2:
                continue
            arguments, results = function.type.inputs, function.type.results
            function.attributes["arg_attrs"] = _with_device(arguments, function.attributes, "arg_attrs")
            function.attributes["res_attrs"] = _with_device(results, function.attributes, "res_attrs")


def _with_device(types: Sequence[Any], attributes: Any, name: str) -> Any:
    """Return the attributes of arguments or results, with the device of those that are tensors."""
    ir = mlir.ir
    device = ir.Attribute.parse(_DEVICE)
    given = list(attributes[name]) if name in attributes else [ir.DictAttr.get({})] * len(types)
    entries = []
    for type_, entry in zip(types, given, strict=True):
        members = {named.name: named.attr for named in entry}
        entries.append(ir.DictAttr.get(members | ({_NAME: device} if isinstance(type_, ir.RankedTensorType) else {})))
    return ir.ArrayAttr.get(entries)

"""`rlx-iree-set-device`: describes the device in the module if no compiler flag describes it.

Quirk: `storage-of-bytes`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.passes.base import option
from rlx.support.errors import PassError
from rlx.targets.iree.passes.base import IreePass


@dataclass(frozen=True)
class SetDevice(IreePass, name="rlx-iree-set-device"):
    """Set the attribute of a module that describes its devices, for IREE."""

    targets: str = option("", "the attribute `hal.device.targets`")

    def run(self, module: mlir.Module) -> None:
        module.operation.attributes["hal.device.targets"] = self._parsed()

    def _parsed(self) -> Any:
        hint = 'give one, such as targets="[#hal.device.target<vulkan>]"'
        if not self.targets:  # MLIR's parser crashes on an empty string
            raise PassError("targets is empty, and an attribute is expected", hint=hint)
        try:
            return mlir.ir.Attribute.parse(self.targets)
        except (mlir.ir.MLIRError, ValueError) as problem:
            raise PassError(f"targets is no attribute: {problem}", hint=hint) from None

"""`rlx-iree-set-device`: describes the device in the module, if no flag of the compiler describes it.

Quirk: `storage-of-bytes`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.backends.iree.passes.base import IreePass
from rlx.passes.base import option


@dataclass(frozen=True)
class SetDevice(IreePass, name="rlx-iree-set-device"):
    """Set the attribute of a module that describes its devices, for IREE."""

    targets: str = option("", "the attribute `hal.device.targets`")

    def apply(self, module: Any) -> None:
        module.operation.attributes["hal.device.targets"] = mlir.ir.Attribute.parse(self.targets)

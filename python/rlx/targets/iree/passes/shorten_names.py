"""`rlx-iree-shorten-names`: functions have names from which IREE can make names of files."""

from __future__ import annotations

from dataclasses import dataclass

from rlx import mlir
from rlx.ir.op.signature import bodies
from rlx.passes.base import Pass
from rlx.targets.iree.names import exported_name


@dataclass(frozen=True)
class ShortenNames(Pass, name="rlx-iree-shorten-names", exact=True, idempotent=True):
    """Replace the end of the names of functions that are too long for IREE's files by a hash.

    The runtime finds the function of a program by the same rule (`rlx.targets.iree.names.exported`). It is the first pass, so
    that no other function refers to the name yet.
    """

    def run(self, module: mlir.Module) -> None:
        for function in bodies(module):
            function.attributes["sym_name"] = mlir.ir.StringAttr.get(exported_name(function.name.value))

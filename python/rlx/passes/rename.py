"""`rlx-rename`: a new name for the function of a module."""

from __future__ import annotations

from dataclasses import dataclass

from rlx import mlir
from rlx.ir.checks import check_name
from rlx.ir.op.signature import find_function
from rlx.passes.base import Pass, option
from rlx.support.errors import PassError


@dataclass(frozen=True)
class Rename(Pass, name="rlx-rename", idempotent=True):
    """Give the public function of a module another name: `rlx-rename{to=stem}`.

    A program has the name of its function, which is the prefix of names in source code.
    """

    preserves_results = False  # a check finds functions by name, and the old name is gone

    to: str = option("main", "the new name")

    def run(self, module: mlir.Module) -> None:
        check_name(self.to, f"{self.name}: the name")
        function = find_function(module)
        with mlir.entered():
            ir = mlir.ir
            before = function.name.value
            if before == self.to:
                return
            table = ir.SymbolTable(module.operation)
            if self.to in table:
                raise PassError(f"{self.name}: the module has another function '{self.to}'", hint="choose another name")
            ir.SymbolTable.replace_all_symbol_uses(before, self.to, module.operation)
            ir.SymbolTable.set_symbol_name(function.operation, self.to)

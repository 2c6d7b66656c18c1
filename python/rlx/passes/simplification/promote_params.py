"""`rlx-promote-params`: conversion of weights into inputs, which the caller passes in every run."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rlx import mlir
from rlx.ir.op.signature import functions, read_arguments, read_outputs, sign_function
from rlx.passes.base import Pass, option
from rlx.support.errors import PassError
from rlx.support.suggestions import suggestion


@dataclass(frozen=True)
class PromoteParams(Pass, name="rlx-promote-params", exact=True, idempotent=True):
    """Turn parameters into inputs."""

    names: tuple[str, ...] = option((), "the parameters to promote; all when empty")

    def run(self, module: mlir.Module) -> None:
        params: set[str] = set()
        for function in functions(module):
            if not function.is_external:
                params |= self._promote(function)
        for name in self.names:
            if name not in params:
                raise PassError(f"{self.name}: there is no parameter '{name}'{suggestion(name, params)}")

    def _promote(self, function: mlir.FuncOp) -> set[str]:
        arguments = read_arguments(function)
        params = {a.name for a in arguments if a.kind == "param"}
        chosen = params & set(self.names) if self.names else params
        if chosen:
            promoted = [replace(a, kind="input", trainable=True) if a.name in chosen else a for a in arguments]
            sign_function(function, promoted, read_outputs(function))
        return params

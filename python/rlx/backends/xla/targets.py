"""What StableHLO is made for. Importing this imports neither MLIR nor JAX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from rlx.backends.xla.options import Options, from_flag
from rlx.ir.errors import CompileError


@dataclass(frozen=True)
class Target:
    """XLA, or a portable artifact for whoever reads it: the same code.

    Attributes:
        name: `"xla"`, whose programs run here, or `"stablehlo"`, which is a kind of file.
        arch: `"cpu"`, or `"portable"` for `stablehlo`.
        options: XLA's options beside those that every program has.
        unsupported_dtypes: None.
    """

    name: str
    arch: str
    options: Options = ()
    unsupported_dtypes: frozenset[str] = frozenset()

    @property
    def rules(self) -> Mapping[str, Any]:
        """The rules of the lowering to StableHLO, by op name."""
        from rlx.lower.stablehlo.rules import RULES

        return RULES

    @property
    def pipeline(self) -> str:
        """The passes from MIR to what is lowered to StableHLO."""
        return _pipeline(self.name, self.arch)

    def fingerprint(self) -> str:
        """The options."""
        return repr(self.options)


@cache
def _pipeline(name: str, arch: str) -> str:
    from rlx.backends.stages import to_lir
    from rlx.passes.check_lir import CheckLir

    return to_lir(CheckLir("rlx-to-stablehlo", target=name, arch=arch))


PORTABLE = "stablehlo"
_ARCHS = {"xla": "cpu", PORTABLE: "portable"}


def target_names() -> tuple[str, ...]:
    """The names that `target` takes."""
    return tuple(_ARCHS)


def target(name: str, arch: str | None = None, extra_flags: Sequence[str] = ()) -> Target:
    """The target of a name.

    Args:
        name: `"xla"` or `"stablehlo"`.
        arch: None, or the only one there is.
        extra_flags: Options of XLA's, `--xla_cpu_…=value`.

    Raises:
        CompileError: There is no such architecture, or a flag is written otherwise or none that programs carry.
    """
    if arch not in (None, _ARCHS[name]):
        raise CompileError(f"unknown architecture of {name}: {arch!r}", hint=f"known: {_ARCHS[name]}")
    return Target(name, _ARCHS[name], tuple(map(from_flag, extra_flags)))


def device_names() -> tuple[str, ...]:
    """What XLA runs here."""
    return ("xla",)

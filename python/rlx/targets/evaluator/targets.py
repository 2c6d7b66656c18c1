"""The target of the NumPy evaluator. Importing this does not import MLIR."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from rlx.ir.op.costs import Costs
from rlx.support.errors import CompileError

NAME, ARCH = "numpy", "python"


@dataclass(frozen=True)
class Target:
    """NumPy, for all ops and dtypes.

    Attributes:
        name: `"numpy"`.
        arch: `"python"`.
        fusions: Empty: each op is evaluated for itself.
        costs: None: there is no cost model.
        alternatives: Empty.
    """

    name: str = NAME
    arch: str = ARCH
    fusions: tuple[str, ...] = ()
    costs: Costs | None = None
    alternatives: tuple[tuple[str, ...], ...] = ()

    @property
    def pipeline(self) -> str:
        """The passes from MIR to LIR: there are evaluators of all ops."""
        return _pipeline()

    def lowering(self, level: int) -> str:
        """No pass: the evaluator reads LIR."""
        return ""

    def fingerprint(self) -> str:
        """Nothing: there are no flags."""
        return ""


@cache
def _pipeline() -> str:
    from rlx.passes.check_lir import CheckLir
    from rlx.passes.pipeline import PassPipeline

    return str(PassPipeline([CheckLir(target=NAME, arch=ARCH)]))


def target_names() -> tuple[str, ...]:
    """The names that `target` accepts."""
    return (NAME,)


def target(name: str, arch: str | None = None, extra_flags: Sequence[str] = ()) -> Target:
    """Return the target.

    Args:
        name: `"numpy"`.
        arch: None, or `"python"`.
        extra_flags: Must be empty: there are no flags.

    Raises:
        CompileError: There is another architecture, or a flag.
    """
    if arch not in (None, ARCH):
        raise CompileError(f"unknown architecture of {name}: {arch!r}", hint=f"known: {ARCH}")
    if extra_flags:
        raise CompileError(f"{name} has no flag {extra_flags[0]!r}", hint="leave it out")
    return Target()


def device_names() -> tuple[str, ...]:
    """The names of the targets whose programs run on this machine."""
    return (NAME,)

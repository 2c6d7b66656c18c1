"""The TPU targets of libtpu. Importing this imports neither MLIR nor JAX."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from rlx.ir.dtype import DTYPES, f64
from rlx.ir.op.costs import Costs
from rlx.support.errors import CompileError

NAME = "tpu"


@dataclass(frozen=True)
class Chip:
    """A JAX device: a chip, or half a chip for v4 and v7x.

    Attributes:
        topology: The smallest topology of libtpu with this device.
        kind: The device kind in JAX.
        flops: Peak operations per second in bf16. For f32, which takes several passes, the peak is a sixth.
        bytes_per_s: Peak memory bandwidth in bytes per second.
        memory: Memory size in bytes.
    """

    topology: str
    kind: str
    flops: float
    bytes_per_s: float
    memory: int


_GIB = 1 << 30
# From the pages of Google Cloud's documentation on each version ("System architecture").
CHIPS = {
    "v4": Chip("v4:2x2x1", "TPU v4", 275e12 / 2, 1228e9 / 2, 16 * _GIB),
    "v5e": Chip("v5e:1x1", "TPU v5 lite", 197e12, 819e9, 16 * _GIB),
    "v5p": Chip("v5p:2x2x1", "TPU v5", 459e12, 2765e9, 95 * _GIB),
    "v6e": Chip("v6e:1x1", "TPU v6 lite", 918e12, 1638e9, 32 * _GIB),
    "v7x": Chip("tpu7x:2x2x1", "TPU7x", 2307e12 / 2, 7380e9 / 2, 96 * _GIB),
}
_DEFAULT = "v5e"


@dataclass(frozen=True)
class Target:
    """A target that writes files: a program for one TPU.

    Attributes:
        name: `"tpu"`.
        arch: A version: one of `CHIPS`.
        fusions: Empty: XLA performs its own fusion.
        costs: None: there is no cost model.
        alternatives: Empty.
    """

    name: str
    arch: str
    fusions: tuple[str, ...] = ()
    costs: Costs | None = None
    alternatives: tuple[tuple[str, ...], ...] = ()

    @property
    def chip(self) -> Chip:
        """The chip that programs are compiled for."""
        return CHIPS[self.arch]

    @property
    def pipeline(self) -> str:
        """The passes from MIR to LIR."""
        return _pipeline(self.arch)

    def lowering(self, level: int) -> str:
        """The pass from LIR to the StableHLO that libtpu compiles."""
        from rlx.targets.xla.pipeline import to_stablehlo

        return to_stablehlo()

    def fingerprint(self) -> str:
        """The topology."""
        return self.chip.topology


@cache
def _pipeline(arch: str) -> str:
    from rlx.passes.check_lir import CheckLir
    from rlx.targets.stages import to_lir

    return to_lir(CheckLir("rlx-to-stablehlo", unsupported_dtypes=LACKS, target=NAME, arch=arch))


# TPUs emulate f64 by two f32 numbers with the range of f32. This does not satisfy f64, so f64 and c128 are unsupported.
LACKS = tuple(kind.name for kind in DTYPES if kind.part is f64)


def target_names() -> tuple[str, ...]:
    """The names that `target` accepts."""
    return (NAME,)


def target(name: str, arch: str | None = None, extra_flags: Sequence[str] = ()) -> Target:
    """Return the target with a name.

    Args:
        name: `"tpu"`.
        arch: A version; the default is `v5e`.
        extra_flags: Must be empty: there are no flags.

    Raises:
        CompileError: The version is unknown, or there is a flag.
    """
    chosen = _DEFAULT if arch is None else arch
    if chosen not in CHIPS:
        raise CompileError(f"unknown architecture of {name}: {arch!r}", hint=f"known: {', '.join(CHIPS)}")
    if extra_flags:
        raise CompileError(f"{name} has no flag {extra_flags[0]!r}", hint="leave it out")
    return Target(name, chosen)


def device_names() -> tuple[str, ...]:
    """Return no names, because programs do not run on this machine."""
    return ()

"""The TPUs that libtpu compiles for. Importing this imports neither MLIR nor JAX."""

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
    """What JAX calls a device: a chip, or one of the two halves of a chip of v4 and v7x.

    Attributes:
        topology: The smallest of libtpu's topologies that has one.
        kind: What JAX calls it.
        flops: Operations a second in bf16, at most; of f32, which takes several passes, a sixth.
        bytes_per_s: Bytes of its memory a second, at most.
        memory: Bytes of its memory.
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
    """A kind of file: a program for one TPU.

    Attributes:
        name: `"tpu"`.
        arch: A version: one of `CHIPS`.
        fusions: None: XLA fuses by itself.
        costs: Not known.
        alternatives: None.
    """

    name: str
    arch: str
    fusions: tuple[str, ...] = ()
    costs: Costs | None = None
    alternatives: tuple[tuple[str, ...], ...] = ()

    @property
    def chip(self) -> Chip:
        """What it is compiled for."""
        return CHIPS[self.arch]

    @property
    def pipeline(self) -> str:
        """The passes from MIR to LIR."""
        return _pipeline(self.arch)

    def fingerprint(self) -> str:
        """The topology."""
        return self.chip.topology


@cache
def _pipeline(arch: str) -> str:
    from rlx.passes.check_lir import CheckLir
    from rlx.targets.stages import to_lir

    return to_lir(CheckLir("rlx-to-stablehlo", unsupported_dtypes=LACKS, target=NAME, arch=arch))


# f64 is two floats of f32 there, of the range of f32: that is no f64. Nor are there complex numbers of it.
LACKS = tuple(kind.name for kind in DTYPES if kind.part is f64)


def target_names() -> tuple[str, ...]:
    """The names that `target` accepts."""
    return (NAME,)


def target(name: str, arch: str | None = None, extra_flags: Sequence[str] = ()) -> Target:
    """The target of a name.

    Args:
        name: `"tpu"`.
        arch: A version, of which `v5e` is the default.
        extra_flags: None are known.

    Raises:
        CompileError: There is no such version, or a flag.
    """
    chosen = _DEFAULT if arch is None else arch
    if chosen not in CHIPS:
        raise CompileError(f"unknown architecture of {name}: {arch!r}", hint=f"known: {', '.join(CHIPS)}")
    if extra_flags:
        raise CompileError(f"{name} has no flag {extra_flags[0]!r}", hint="leave it out")
    return Target(name, chosen)


def device_names() -> tuple[str, ...]:
    """None: programs are for another machine."""
    return ()

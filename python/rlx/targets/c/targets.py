"""The targets of the C back end. Importing this imports neither MLIR nor a compiler."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from rlx.dialect.dtypes import ROWS
from rlx.ir.op.costs import Costs
from rlx.support.errors import CompileError

CORTEXM, HOST = "cortexm", "c"
# The value of `-mcpu` in GCC and Clang for each core. All cores get the same code; the preprocessor selects instructions.
CORES = {"m4": "cortex-m4", "m7": "cortex-m7", "m33": "cortex-m33", "generic": ""}
_ARCHS = {CORTEXM: tuple(CORES), HOST: ("host",)}


@dataclass(frozen=True)
class Microcontroller:
    """A microcontroller.

    Attributes:
        arch: Its core.
        ram: Bytes of memory.
        flash: Bytes for code and constants.
        mhz: The highest clock of the core.
    """

    arch: str
    ram: int
    flash: int
    mhz: int


_KI = 1024
# Common parts, from their data sheets. RAM is the largest contiguous part, as a linker script can use it.
PARTS = {
    "nrf52832": Microcontroller("m4", 64 * _KI, 512 * _KI, 64),
    "nrf52840": Microcontroller("m4", 256 * _KI, 1024 * _KI, 64),
    "stm32f411": Microcontroller("m4", 128 * _KI, 512 * _KI, 100),
    "stm32l476": Microcontroller("m4", 96 * _KI, 1024 * _KI, 80),
    "stm32f746": Microcontroller("m7", 320 * _KI, 1024 * _KI, 216),
    "stm32h743": Microcontroller("m7", 512 * _KI, 2048 * _KI, 480),
    "rp2350": Microcontroller("m33", 520 * _KI, 4096 * _KI, 150),
    "nrf5340": Microcontroller("m33", 512 * _KI, 1024 * _KI, 128),
}
_HAS = ("i8", "u8", "i16", "i32", "i64", "u32", "bool", "f32")
_LACKS = tuple(d.name for d in ROWS if d.name not in _HAS)


@dataclass(frozen=True)
class Target:
    """C for a kind of processor.

    Attributes:
        name: `"cortexm"`, which writes files, or `"c"`, whose programs run on this machine.
        arch: A core, or `"host"`.
        ram: The limit in bytes for state and arena; None means no limit.
        flash: The limit in bytes for constants; None means no limit.
        mhz: The clock in MHz, for times in the report; 0 if it is not known.
        report: Whether the footprint is reported.
        fusions: Empty. The lowering groups the ops of a kernel.
        costs: None: there is no cost model.
        alternatives: Empty.
    """

    name: str
    arch: str
    ram: int | None = None
    flash: int | None = None
    mhz: int = 0
    report: bool = False
    fusions: tuple[str, ...] = ()
    costs: Costs | None = None
    alternatives: tuple[tuple[str, ...], ...] = ()

    @property
    def pipeline(self) -> str:
        """The passes from MIR to LIR."""
        return _pipeline(self.name, self.arch)

    def lowering(self, level: int) -> str:
        """The pass from LIR to C."""
        from rlx.targets.c.to_c import ToC

        limits = {"ram": self.ram, "flash": self.flash}
        words = [f"--target={self.name}", f"--arch={self.arch}", f"-O{level}"]
        words += [f"--flag=--{name}={size}" for name, size in limits.items() if size is not None]
        return str(ToC(self.ram, self.flash, made_with=" ".join(words)))

    def fingerprint(self) -> str:
        """The limits, since a program that exceeds them is not compiled, and what the report depends on."""
        return f"{self.ram} {self.flash} {self.mhz} {self.report}"


@cache
def _pipeline(name: str, arch: str) -> str:
    from rlx.passes.check_lir import CheckLir
    from rlx.passes.integer.record_quantization import RecordQuantization
    from rlx.targets.stages import to_lir

    check = CheckLir("rlx-to-c", unsupported_dtypes=_LACKS, target=name, arch=arch)
    return to_lir(check, before=[RecordQuantization()])


def target_names() -> tuple[str, ...]:
    """The names that `target` accepts."""
    return tuple(_ARCHS)


def target(name: str, arch: str | None = None, extra_flags: Sequence[str] = ()) -> Target:
    """Return the target with a name.

    Args:
        name: `"cortexm"` or `"c"`.
        arch: A core, by default `m4`, or `host`.
        extra_flags: The limits `--ram=64k` and `--flash=512k`, or `--part=nrf52840`, which sets both; `--report`.

    Raises:
        CompileError: The architecture or part is unknown, or a flag is wrong.
    """
    if arch is not None and arch not in _ARCHS[name]:
        raise CompileError(f"unknown architecture of {name}: {arch!r}", hint=f"known: {', '.join(_ARCHS[name])}")
    limits: dict[str, int] = {}
    mhz, report = 0, False
    for flag in extra_flags:
        key, _, value = flag.partition("=")
        if key == "--part":
            part = _part(value, arch)
            arch = part.arch if name == CORTEXM else arch
            limits = {"--ram": part.ram, "--flash": part.flash} | limits
            mhz = part.mhz
        elif flag == "--report":
            if name != CORTEXM:
                raise CompileError(f"target {name} has no report", hint=f"--target={CORTEXM}")
            report = True
        elif key in ("--ram", "--flash"):
            limits[key] = _bytes(flag, value)
        else:
            raise CompileError(
                f"{name} has no flag {flag!r}", hint="--ram=64k, --flash=512k, --part=nrf52840, --report"
            )
    return Target(name, arch or _ARCHS[name][0], limits.get("--ram"), limits.get("--flash"), mhz, report)


def _part(name: str, arch: str | None) -> Microcontroller:
    part = PARTS.get(name)
    if part is None:
        sizes = "--flag=--ram=64k --flag=--flash=512k, which in Python are flags=('--ram=64k', '--flash=512k')"
        raise CompileError(
            f"unknown part: {name!r}",
            hint=f"known: {', '.join(PARTS)}; for another one, give its sizes instead: {sizes}",
        )
    if arch in CORES and arch not in (part.arch, "generic"):
        raise CompileError(f"{name} has the core {part.arch}, not {arch}")
    return part


def _bytes(flag: str, text: str) -> int:
    match = re.fullmatch(r"(\d{1,12})([kKmM]?)", text)
    if not match:
        raise CompileError(f"{flag}: expected a number of bytes, such as 65536 or 64k")
    return int(match[1]) * {"": 1, "k": _KI, "m": _KI * _KI}[match[2].lower()]


def device_names() -> tuple[str, ...]:
    """The names of the targets whose programs run on this machine."""
    return (HOST,)

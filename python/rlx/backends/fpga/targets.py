"""The targets `fpga`, a kind of file, and `fpga-sim`, a device that simulates it. Importing this imports no compiler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from rlx.ir.attributes import suggestion
from rlx.ir.errors import CompileError

FILES, SIMULATOR = "fpga", "fpga-sim"
# What a design may be made for: `parts.PARTS` and `schedule.PRESETS` have them in full, and a test holds these names to them.
PART_NAMES = ("ecp5-25k", "ice40-up5k", "xc7")
PRESET_NAMES = ("latency", "size", "energy", "precision", "bandwidth")
_LACKS = ("f32", "f16", "bf16", "f64", "i64", "u32", "c64")
# Flags with their values, for messages.
FLAGS = {
    "--preset": "|".join(PRESET_NAMES),
    "--part": "|".join(PART_NAMES),
    "--freq": "the clock, in MHz",
    "--synthesise": "run yosys and nextpnr, and put what they find into the report",
}


@dataclass(frozen=True)
class Target:
    """Hardware for a part, as files or simulated.

    Attributes:
        name: `"fpga"` or `"fpga-sim"`.
        arch: The part.
        preset: What the design is to be good at.
        frequency: The clock in MHz; None for that of the part.
        synthesise: Whether the report says what synthesis finds.
        fusions: None.
        alternatives: None.
    """

    name: str
    arch: str
    preset: str = "precision"
    frequency: float | None = None
    synthesise: bool = False
    fusions: tuple[str, ...] = ()
    alternatives: tuple[tuple[str, ...], ...] = ()

    @property
    def pipeline(self) -> str:
        """The passes from MIR to LIR."""
        return _pipeline(self.name, self.arch)

    def fingerprint(self) -> str:
        """The text of the options."""
        return repr((self.preset, self.frequency, self.synthesise))


@cache
def _pipeline(name: str, arch: str) -> str:
    from rlx.backends.fpga.recognise import CLAIMED
    from rlx.backends.stages import to_lir
    from rlx.passes.check_lir import CheckLir

    return to_lir(CheckLir(ops=CLAIMED, unsupported_dtypes=_LACKS, empty=False, target=name, arch=arch))


def target_names() -> tuple[str, ...]:
    """The names that `target` accepts."""
    return FILES, SIMULATOR


def target(name: str, arch: str | None = None, extra_flags: Sequence[str] = ()) -> Target:
    """The target of a name.

    Args:
        name: `"fpga"` or `"fpga-sim"`.
        arch: The part; None for an ECP5.
        extra_flags: Those of `FLAGS`, as `--preset=latency`.

    Raises:
        CompileError: There is no such part, or a flag or its value is wrong.
    """
    options: dict[str, Any] = {}
    for flag in extra_flags:
        key, equals, value = flag.partition("=")
        if key not in FLAGS or (key == "--synthesise") == bool(equals):
            known = ", ".join(k if k == "--synthesise" else f"{k}={v}" for k, v in FLAGS.items())
            raise CompileError(f"target {name}: unknown flag {flag!r}{suggestion(key, FLAGS)}", hint=f"flags: {known}")
        if key == "--preset":
            options["preset"] = _one_of(value, PRESET_NAMES, "preset")
        elif key == "--part":
            if arch not in (None, value):
                raise CompileError(f"target {name}: --arch={arch} and --part={value} are different parts")
            arch = value
        elif key == "--freq":
            options["frequency"] = _megahertz(value)
        else:
            options["synthesise"] = True
    return Target(name, _one_of(arch or PART_NAMES[0], PART_NAMES, "part"), **options)


def _one_of(value: str, known: Sequence[str], what: str) -> str:
    if value not in known:
        raise CompileError(f"unknown {what}: {value!r}{suggestion(value, known)}", hint=f"known: {', '.join(known)}")
    return value


def _megahertz(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1000:
        raise CompileError(f"--freq={text}: expected megahertz, above 0 and at most 1000")
    return value


def device_names() -> tuple[str, ...]:
    """The device that designs are simulated on."""
    return (SIMULATOR,)

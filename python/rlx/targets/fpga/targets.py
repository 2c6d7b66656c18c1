"""The targets `fpga`, which writes files, and `fpga-sim`, a simulated device. Importing this imports no compiler."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any

from rlx.dialect.dtypes import ROWS
from rlx.support.errors import CompileError
from rlx.targets.fpga.flags import (
    AXI,
    AXI_KINDS,
    AXI_WIDTH,
    AXI_WIDTHS,
    CHOICES,
    COUNTS,
    FLAGS,
    PART_NAMES,
    PRESET_NAMES,
    REPORT,
)

FILES, SIMULATOR = "fpga", "fpga-sim"
_MOST_AT_ONCE = 64
_HAS = ("i8", "u8", "i16", "i32", "bool")
_LACKS = tuple(d.name for d in ROWS if d.name not in _HAS)


@dataclass(frozen=True)
class Target:
    """Hardware for a part, as files or simulated.

    Attributes:
        name: `"fpga"` or `"fpga-sim"`.
        arch: The part.
        preset: The goal of the design.
        frequency: The clock in MHz; None means the default of the part.
        report: Whether a report with synthesis results is requested.
        options: Options that override the preset, by name.
        axi: `"stream"` or `"lite"` for a wrapper with AXI ports; empty for none.
        axi_width: The bits of data of its streams.
        fusions: Empty.
        costs: None.
        alternatives: Empty.
    """

    name: str
    arch: str
    preset: str = "precision"
    frequency: float | None = None
    report: bool = False
    options: tuple[tuple[str, int | bool], ...] = ()
    axi: str = ""
    axi_width: int = AXI_WIDTHS[0]
    fusions: tuple[str, ...] = ()
    costs: None = None
    alternatives: tuple[tuple[str, ...], ...] = ()

    @property
    def pipeline(self) -> str:
        """The passes from MIR to LIR."""
        return _pipeline(self.name, self.arch)

    @property
    def label(self) -> str:
        """The preset, and the options that override it."""
        texts = {True: "yes", False: "no"}
        said = [f" --{n.replace('_', '-')}={texts.get(v, v) if isinstance(v, bool) else v}" for n, v in self.options]
        return self.preset + "".join(said)

    def lowering(self, level: int) -> str:
        """The pass from LIR to the design that CIRCT compiles, or that it simulates."""
        from rlx.targets.fpga.to_hw import ToHw

        said: dict[str, Any] = dict(self.options)
        return str(ToHw(self.arch, self.preset, simulated=self.name == SIMULATOR, **said))

    def fingerprint(self) -> str:
        """The text of the options."""
        return repr((self.preset, self.frequency, self.report, self.options, self.axi, self.axi_width))


@cache
def _pipeline(name: str, arch: str) -> str:
    from rlx.passes.check_lir import CheckLir
    from rlx.targets.fpga.lower.recognise import CLAIMED, UNSUPPORTED_KINDS
    from rlx.targets.stages import to_lir

    lacks: dict[str, Any] = {"unsupported_dtypes": _LACKS, "unsupported_kinds": UNSUPPORTED_KINDS, "empty": False}
    return to_lir(CheckLir(ops=CLAIMED, **lacks, target=name, arch=arch))


def target_names() -> tuple[str, ...]:
    """The names that `target` accepts."""
    return FILES, SIMULATOR


def target(name: str, arch: str | None = None, extra_flags: Sequence[str] = ()) -> Target:
    """Return the target with a name.

    Args:
        name: `"fpga"` or `"fpga-sim"`.
        arch: The part; None for an ECP5.
        extra_flags: Flags of `FLAGS`, such as `--preset=latency`.

    Raises:
        CompileError: The part is unknown, or a flag or its value is wrong.
    """
    options: dict[str, Any] = {}
    said: dict[str, int | bool] = {}
    for flag in extra_flags:
        key, equals, value = flag.partition("=")
        if key not in FLAGS or (key == REPORT) == bool(equals):
            known = ", ".join(f"{k}={v}" if v else k for k, v in FLAGS.items())
            raise CompileError(f"target {name}: unknown flag {flag!r}{_close(key, FLAGS)}", hint=f"flags: {known}")
        if key == "--preset":
            options["preset"] = _one_of(value, PRESET_NAMES, "preset")
        elif key == "--part":
            if arch not in (None, value):
                raise CompileError(f"target {name}: --arch={arch} and --part={value} are different parts")
            arch = value
        elif key == "--freq":
            options["frequency"] = _megahertz(value)
        elif key in COUNTS:
            said[key.removeprefix("--")] = _count(key, value)
        elif key in CHOICES:
            said[key.removeprefix("--").replace("-", "_")] = _one_of(value, ("yes", "no"), f"value of {key}") == "yes"
        elif name == SIMULATOR:
            what = "report" if key == REPORT else "AXI ports"
            raise CompileError(f"target {name} has no {what}", hint=f"--target={FILES}")
        elif key == AXI:
            options["axi"] = _one_of(value, AXI_KINDS, f"value of {AXI}")
        elif key == AXI_WIDTH:
            options["axi_width"] = int(_one_of(value, tuple(map(str, AXI_WIDTHS)), f"value of {AXI_WIDTH}"))
        else:
            options["report"] = True
    if "axi_width" in options and "axi" not in options:
        raise CompileError(f"{AXI_WIDTH} is the width of AXI4-Stream ports, and there are none", hint=f"{AXI}=stream")
    options["options"] = tuple(sorted(said.items()))
    return Target(name, _one_of(PART_NAMES[0] if arch is None else arch, PART_NAMES, "part"), **options)


def _one_of(value: str, known: Sequence[str], what: str) -> str:
    if value not in known:
        raise CompileError(f"unknown {what}: {value!r}{_close(value, known)}", hint=f"known: {', '.join(known)}")
    return value


def _close(given: str, known: Iterable[str]) -> str:
    close = get_close_matches(given, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _count(flag: str, text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= _MOST_AT_ONCE:
        raise CompileError(f"{flag}={text}: expected a whole number from 1 to {_MOST_AT_ONCE}")
    return int(text)


def _megahertz(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1000:
        raise CompileError(f"--freq={text}: expected megahertz, above 0 and at most 1000")
    return value


def device_names() -> tuple[str, ...]:
    """The name of the device that simulates designs."""
    return (SIMULATOR,)

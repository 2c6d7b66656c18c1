"""The CPU features that compiled code needs and the features of this machine's CPU, by LLVM's names.

IREE reports the CPU and the features that it compiles for. An instruction that the CPU lacks ends the process (SIGILL). So the
features that code needs are stored with it, and checked before it is loaded.

With `RLX_CPU_LEVEL=x86-64-v2` (or another level, or an architecture such as `aarch64`), RLX treats this machine as one with
only the features of this level. It compiles for the level where no architecture is given, rejects programs that need more, and
chooses the program for this level from a file with several programs. So programs for another machine can be tested here. The
variable cannot add features that the CPU lacks.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from rlx.support.errors import ExecutionError
from rlx.targets.artifacts.fields import list_of, name, record, text
from rlx.targets.host import host_features


def _table(words: str) -> dict[str, str]:
    """Return a dictionary from words `llvm_name=system_name`. A word without `=` is both names."""
    return {name: system_name or name for name, _, system_name in (word.partition("=") for word in words.split())}


# The levels of the x86-64 ABI. Each level also has the features of the lower levels.
_LEVELS = {
    "x86-64": "",
    "x86-64-v2": "cx16 popcnt sahf sse3 sse4.1 sse4.2 ssse3",
    "x86-64-v3": "avx avx2 bmi bmi2 f16c fma lzcnt movbe",
    "x86-64-v4": "avx512bw avx512cd avx512dq avx512f avx512vl",
}
# System names of LLVM's features, for features that compilers use by default and that the system reports.
_LINUX_X86 = _table(
    "sse3=pni ssse3 sse4.1=sse4_1 sse4.2=sse4_2 sse4a popcnt cx16 sahf=lahf_lm avx avx2 fma fma4 xop tbm f16c bmi=bmi1 bmi2 "
    "lzcnt=abm movbe adx aes vaes pclmul=pclmulqdq vpclmulqdq gfni sha=sha_ni avx512f avx512bw avx512cd avx512dq avx512vl "
    "avx512ifma avx512vbmi avx512vbmi2=avx512_vbmi2 avx512vnni=avx512_vnni avx512bitalg=avx512_bitalg "
    "avx512vpopcntdq=avx512_vpopcntdq avx512vp2intersect=avx512_vp2intersect avx512bf16=avx512_bf16 "
    "avx512fp16=avx512_fp16 avxvnni=avx_vnni amx-tile=amx_tile amx-int8=amx_int8 amx-bf16=amx_bf16"
)
_LINUX_ARM = _table(
    "neon=asimd fp-armv8=fp crc=crc32 lse=atomics rdm=asimdrdm rcpc=lrcpc dotprod=asimddp fullfp16=asimdhp "
    "fp16fml=asimdfhm complxnum=fcma jsconv=jscvt aes sha2 sha3 bf16 i8mm sve sve2"
)
_APPLE_ARM = _table(
    "lse=LSE rdm=RDM rcpc=LRCPC dotprod=DotProd fullfp16=FP16 fp16fml=FHM complxnum=FCMA jsconv=JSCVT aes=AES sha2=SHA256 "
    "bf16=BF16 i8mm=I8MM"
)
_RECORD = record({"architecture": name, "name": name, "features": list_of(name), "host": text})
_ARCHITECTURES = ("x86_64", "aarch64", "riscv64")
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


@dataclass(frozen=True)
class Cpu:
    """The CPU that code was compiled for.

    Attributes:
        architecture: `"x86_64"`, `"aarch64"` …
        name: LLVM's name of the CPU, such as `"znver4"`, or `"generic"`.
        features: The features that the code may use, in LLVM's names.
        host: A hash of the compiling machine's CPU features, for code compiled for that machine; else empty.
    """

    architecture: str
    name: str
    features: frozenset[str]
    host: str = ""

    @classmethod
    def of_ir(cls, ir: str, host: str = "") -> Cpu | None:
        """Return the CPU in IREE's `#hal.executable.target` attribute, or None if the code is not for a CPU."""
        target = re.search(r'#hal\.executable\.target<"llvm-cpu", "[^"]*", \{(?P<config>.*)', ir)
        if target is None:
            return None
        entries: dict[str, str] = dict(re.findall(r'(\w+) = "([^"]*)"', target["config"]))
        features: set[str] = set()
        for feature in entries.get("cpu_features", "").split(","):  # if two contradict each other, the last one applies
            (features.add if feature.startswith("+") else features.discard)(feature[1:])
        architecture = entries.get("target_triple", "").partition("-")[0]
        return cls(
            _MACHINES.get(architecture, architecture), entries.get("cpu") or "generic", frozenset(features), host
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "architecture": self.architecture,
            "name": self.name,
            "features": sorted(self.features),
            "host": self.host,
        }

    @classmethod
    def from_json(cls, data: Any, what: str = "cpu") -> Cpu:
        """The CPU that `to_json` was called on.

        Raises:
            Error: The data has another form.
        """
        entries = _RECORD(data, what)
        return cls(**(entries | {"features": frozenset(entries["features"])}))

    @property
    def level(self) -> str:
        """The highest level of the x86-64 ABI whose features it has; for other architectures, the architecture."""
        return level(self.features) if self.architecture == "x86_64" else self.architecture

    def __str__(self) -> str:
        known = _names(self.architecture)
        more = sorted((self.features & known.keys()) - _features_of(self.level))
        return f"{self.level} with {', '.join(more)}" if more else self.level

    def lacks(self) -> str | None:
        """The reason why this machine's CPU cannot run the code; None if it can, or if this is unknown."""
        level_name = _assumed_level()
        this_machine = machine() if not level_name or level_name in _LEVELS else level_name
        if self.architecture and this_machine and self.architecture != this_machine:
            assumed = f" (RLX_CPU_LEVEL is {level_name})" if this_machine != machine() else ""
            return f"this machine is {this_machine}{assumed}, not {self.architecture}"
        present = host_cpu()
        if level_name in _LEVELS and this_machine == "x86_64":
            present = (present or frozenset()) & _features_of(level_name)
        elif present is None or (self.host and self.host == host_features()):
            return None
        missing = sorted((self.features & _names(this_machine).keys()) - present)
        assumed = f" (RLX_CPU_LEVEL is {level_name})" if level_name else ""
        return f"this machine's CPU{assumed} lacks {', '.join(missing)}" if missing else None

    def check(self, program: str) -> None:
        """Check that this machine's CPU can run the code.

        Args:
            program: The program, for the message.

        Raises:
            ExecutionError: The CPU cannot run it; the message names the missing features.
        """
        if (lacks := self.lacks()) is not None:
            raise ExecutionError(
                f"{program} is compiled for the CPU {self.name} ({self.level}), and {lacks}",
                hint=f"compile it for this machine: `rlx compile --arch={advice()}`, or rlx.Session(arch={advice()!r})"
                + ("; or unset RLX_CPU_LEVEL" if _assumed_level() else ""),
            )


def _assumed_level() -> str:
    """Return the value of `RLX_CPU_LEVEL`, or an empty string if it is not set.

    Raises:
        ExecutionError: The value is neither a level nor an architecture.
    """
    value = os.environ.get("RLX_CPU_LEVEL", "")
    if value and value not in (*_LEVELS, *_ARCHITECTURES):
        known = ", ".join((*_LEVELS, *_ARCHITECTURES))
        raise ExecutionError(f"RLX_CPU_LEVEL is one of {known}, not {value!r:.60}")
    return value


def assumed_arch() -> str | None:
    """Return the level of `RLX_CPU_LEVEL`, if this machine's CPU can run code for it; else None.

    Raises:
        ExecutionError: The value is neither a level nor an architecture.
    """
    value = _assumed_level()
    can_run = machine() == "x86_64" and value in _LEVELS and _features_of(value) <= (host_cpu() or set())
    return value if can_run else None


def level(features: Iterable[str]) -> str:
    """Return the highest level of the x86-64 ABI for a CPU with these features."""
    return [name for name in _LEVELS if _features_of(name) <= set(features)][-1]


def host_level() -> str | None:
    """Return the level of this machine's CPU; None if it is unknown, or if the architecture has no levels."""
    present = host_cpu()
    return level(present) if present is not None and machine() == "x86_64" else None


@cache
def host_cpu() -> frozenset[str] | None:
    """Return the features of this machine's CPU that are in the tables; None if the system does not report them."""
    names, reported = _names(machine()), _reported_by_system()
    return (
        frozenset(name for name, system_name in names.items() if system_name in reported)
        if names and reported
        else None
    )


def _reported_by_system() -> frozenset[str]:
    """Return the features of the CPU by the system's names; empty if the system does not report them."""
    try:
        if sys.platform == "darwin":
            output = subprocess.run(["sysctl", "hw.optional.arm"], capture_output=True, text=True, timeout=10).stdout
            return frozenset(re.findall(r"FEAT_(\w+): 1", output))
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            # The list is `flags` on x86 and `Features` on Arm, and each CPU has its own.
            line = next((line for line in file if re.match(r"(flags|Features)\s*:", line)), "")
    except (OSError, subprocess.SubprocessError):
        return frozenset()
    return frozenset(line.partition(":")[2].split())


def _names(architecture: str) -> dict[str, str]:
    """Return the system's name of each LLVM feature with a known name."""
    if sys.platform == "darwin":
        return _APPLE_ARM if architecture == "aarch64" else {}
    return {"x86_64": _LINUX_X86, "aarch64": _LINUX_ARM}.get(architecture, {}) if os.name == "posix" else {}


def machine() -> str:
    """Return the architecture of this machine, in LLVM's spelling; empty if it is unknown."""
    system_name = platform.machine().lower()
    return _MACHINES.get(system_name, system_name)


def _features_of(name: str) -> set[str]:
    """Return the features of a level; empty for other names."""
    result: set[str] = set()
    for level_name, features in _LEVELS.items():
        result |= set(features.split())
        if level_name == name:
            return result
    return set()


def advice() -> str:
    """Return the architecture to compile for, so that code runs on this machine, with the level of `RLX_CPU_LEVEL`."""
    assumed, own = _assumed_level(), host_level()
    if assumed in _LEVELS and own is not None:
        return min(assumed, own, key=list(_LEVELS).index)
    if assumed and assumed != machine():
        return "x86-64" if assumed == "x86_64" else assumed
    return own or (machine() if machine() in ("aarch64", "riscv64") else "host")


def describe_host(*, brief: bool = False) -> str:
    """Return this machine's CPU in words, and the value of `RLX_CPU_LEVEL` if it is set.

    Args:
        brief: Return the level only, without further features.

    Raises:
        ExecutionError: `RLX_CPU_LEVEL` is neither a level nor an architecture.
    """
    features, assumed = host_cpu(), _assumed_level()
    own = None if features is None else Cpu(machine(), "host", features)
    description = "of unknown features" if own is None else own.level if brief else str(own)
    return (
        f"{description}, but RLX_CPU_LEVEL={assumed}: programs that need more are refused" if assumed else description
    )

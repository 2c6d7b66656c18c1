"""The machine that this process runs on."""

from __future__ import annotations

import hashlib
import os
import platform
from functools import cache


def usable_cpus() -> int:
    """The number of CPUs that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@cache
def host_features() -> str:
    """Return a hash of this machine's CPU features. Code compiled for this machine can run on machines with the same hash."""
    described = [platform.system(), platform.machine()]
    if os.path.exists("/proc/cpuinfo"):  # platform.processor has a lock that a forked process may inherit (Python 3.11)
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            first_cpu = file.read().split("\n\n", 1)[0]
        # The feature list is `flags` on x86, `Features` on Arm and `isa` on RISC-V.
        facts = {
            "flags",
            "Features",
            "isa",
            "vendor_id",
            "cpu family",
            "model",
            "CPU implementer",
            "CPU part",
        }
        described += [line for line in first_cpu.splitlines() if line.split(":")[0].strip() in facts]
    else:
        described.append(platform.processor())
    return hashlib.sha256("\n".join(described).encode()).hexdigest()[:16]

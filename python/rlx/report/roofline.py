"""The roofline model: the minimum time of some work on a machine, from the number of operations and the bytes moved.

The card of each op defines its work (`Card.cost`); this module is independent of ops.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from rlx.ir.dims.dim import TYPICAL_SIZE, Dim, evaluate, symbols
from rlx.ir.op.card import Cost
from rlx.support.errors import Error

# All threads at once, each separately: products of 512 x 512 floats, then copies of 32 MiB and of 128 KiB, which stay in a
# cache; the best of a third of a second.
_MEASURE = """
import sys, time
from concurrent.futures import ThreadPoolExecutor
import numpy as np
threads = int(sys.argv[1])
def best(call):
    seconds, end = [], time.perf_counter() + 0.35
    while time.perf_counter() < end or len(seconds) < 3:
        started = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - started)
    return min(seconds)
def flops(_):
    a, b = np.ones((2, 512, 512), np.float32)
    out = np.empty_like(a)
    return 2 * 512**3 / best(lambda: np.matmul(a, b, out=out))
def moved(_):
    source, target = np.ones((2, 1 << 23), np.float32)
    return 2 * source.nbytes / best(lambda: np.copyto(target, source))
def cached(_):
    source, target = np.ones((2, 1 << 15), np.float32)
    return 2 * source.nbytes / best(lambda: np.copyto(target, source))
with ThreadPoolExecutor(threads) as pool:
    print(*(sum(pool.map(measured, range(threads))) for measured in (flops, moved, cached)))
"""
_ASSUMED_CACHE = 1 << 20
# A call of a kernel that takes less is near the resolution of the clock. A rate further above that of NumPy is not a limit.
_SHORTEST_S, _MOST_ABOVE = 1e-6, 1.5
_THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


@dataclass(frozen=True)
class OpWork:
    """Work with known sizes: operations, and bytes moved."""

    flops: int
    bytes: int

    @classmethod
    def of(cls, cost: Cost | None, sizes: Mapping[str, int]) -> OpWork:
        """Return the work of an op; a symbol without a size counts as 64."""
        return cls(0, 0) if cost is None else cls(number(cost.flops, sizes), number(cost.bytes, sizes))

    @property
    def intensity(self) -> float:
        """Operations per byte."""
        return self.flops / self.bytes if self.bytes else 0.0


@dataclass(frozen=True)
class MachineLimits:
    """The limits of a machine.

    Attributes:
        flops: Operations per second.
        bytes: Bytes per second, read from memory and written.
        threads: The number of threads in the measurement.
        cached_bytes: Bytes per second, if they are in a cache; 0 if unknown.
        cache_size: The largest number of bytes that may be in a cache.
    """

    flops: float
    bytes: float
    threads: int = 1
    cached_bytes: float = 0.0
    cache_size: int = 0

    @property
    def ridge(self) -> float:
        """The operations per byte above which computation takes longer than data movement."""
        return self.flops / self.bytes

    def seconds(self, work: OpWork) -> float:
        """Return the minimum time for some work: the maximum of the times for computation and data movement."""
        return max(work.flops / self.flops, work.bytes / self.bandwidth(work))

    def bandwidth(self, work: OpWork) -> float:
        """Return the bytes per second for some work: those of caches, if its bytes may be in one."""
        return max(self.bytes, self.cached_bytes) if work.bytes <= self.cache_size else self.bytes

    def raised(self, measured: Iterable[tuple[OpWork, float]]) -> MachineLimits:
        """Return limits that are at least the rates of measured work, and at most one and a half times the present ones.

        NumPy does not always reach what the machine can do, so a kernel may be faster than the limits measured with it.
        A rate much above them has another reason: elements that stay in registers or in the nearest cache, or a time that
        the clock does not resolve. Work of less than a microsecond does not count.

        Args:
            measured: Work, and the seconds that it took.
        """
        flops, moved, cached = self.flops, self.bytes, self.cached_bytes
        for work, seconds in measured:
            if seconds >= _SHORTEST_S:
                flops = max(flops, work.flops / seconds)
                if work.bytes <= self.cache_size:
                    cached = max(cached, work.bytes / seconds)
                else:
                    moved = max(moved, work.bytes / seconds)
        return replace(
            self,
            flops=min(flops, _MOST_ABOVE * self.flops),
            bytes=min(moved, _MOST_ABOVE * self.bytes),
            cached_bytes=min(cached, _MOST_ABOVE * (self.cached_bytes or cached)),
        )

    def __str__(self) -> str:
        threads = f"{self.threads} thread{'s' if self.threads > 1 else ''}"
        cached = f", {self.cached_bytes / 1e9:.4g} GB/s from caches" if self.cached_bytes else ""
        return f"{self.flops / 1e9:.4g} Gflop/s and {self.bytes / 1e9:.4g} GB/s{cached} with {threads}"


def number(size: Dim, sizes: Mapping[str, int]) -> int:
    """Return a size as a number; a symbol without a size counts as 64, and an undefined size as 0."""
    try:
        return max(0, evaluate(size, {name: sizes.get(name, TYPICAL_SIZE) for name in symbols(size)}))
    except Error:
        return 0


@cache
def this_machine(threads: int = 1) -> MachineLimits:
    """Measure this machine's CPU with NumPy in a separate process, in about a second.

    Raises:
        Error: It cannot be measured.
    """
    environment = {**os.environ, **dict.fromkeys(_THREAD_VARIABLES, "1")}
    command = [sys.executable, "-c", _MEASURE, str(threads)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=True)
        flops, moved, cached = map(float, done.stdout.split())
    except (OSError, ValueError, subprocess.SubprocessError) as problem:
        raise Error(f"cannot measure what this machine does at most: {problem}") from None
    return MachineLimits(flops, moved, threads, cached, _cache_size())


def _cache_size() -> int:
    """Return the size of the last cache in bytes, where Linux reports it; else that of a small one."""
    sizes = [_ASSUMED_CACHE]
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        with contextlib.suppress(OSError, ValueError, KeyError):
            text = path.read_text().strip()
            sizes.append(int(text[:-1]) * {"K": 1 << 10, "M": 1 << 20}[text[-1]])
    return max(sizes)

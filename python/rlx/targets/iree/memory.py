"""Host memory: settings of the C allocator, alignment, and arrays that keep other objects alive."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from typing import Any

import numpy as np

from rlx.support.locks import holding, make_lock
from rlx.targets.memory_block import array_at

# IREE imports memory at multiples of 64 bytes only.
IMPORT_ALIGNMENT = 64

# Compiled code loads vectors with instructions that need addresses at multiples of this number: memory at any other
# address would cause a segmentation fault. The C allocator and NumPy return such addresses. Code of a module without
# `names.SUBSPAN` needs multiples of IMPORT_ALIGNMENT.
ALIGNMENT = 16

# Up to this number of bytes, copying is faster than the bookkeeping of lending memory (measured: break-even at 128 KiB
# for both directions).
COPY_LIMIT = 128 * 1024

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_TRIM_BYTES, _MMAP_BYTES = (1 << 31) - 1, 1 << 30
_configured = False

# The memory size above which the pool accepts no further buffers, and the maximal number of buffers in it.
_POOLED, _POOLED_BUFFERS = "2gib", 64
_lock = make_lock()


def configure_allocator() -> None:
    """Make glibc keep freed memory instead of returning it to the system. Only the first call has an effect, only with glibc.

    IREE allocates temporary buffers in every call. With glibc's defaults each buffer is mapped, filled page by
    page and unmapped again: an attention layer with 16 MB of scores takes 2.5 times as long. The disadvantage is
    that the process keeps its peak memory. ``RLX_NO_MALLOPT=1`` disables this setting.
    """
    holding(_lock, _configure_once)


def _configure_once() -> None:
    global _configured
    if _configured:
        return
    _configured = True
    if _is_disabled():
        return
    if sys.platform != "linux" or platform.libc_ver()[0] != "glibc":
        return
    libc = ctypes.CDLL(None)
    libc.mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)
    libc.mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES)


def allocator_environment() -> dict[str, str]:
    """Return the same settings for another process, as environment variables."""
    if _is_disabled():
        return {}
    return {"MALLOC_MMAP_THRESHOLD_": str(_MMAP_BYTES), "MALLOC_TRIM_THRESHOLD_": str(_TRIM_BYTES)}


def pools() -> list[str] | None:
    """Return the pools between IREE and the C allocator, in the format of IREE's runtime, or None.

    IREE requests zeroed memory, and glibc writes zeros to reused memory: 3 % of the time of an encoder's gradient. A
    pool reuses buffers without zeroing, for requests of exactly the same size. So `trim` must be called before other
    sizes are needed. With ``RLX_NO_MALLOPT=1`` there is no pool.
    """
    return None if _is_disabled() else [f"caching:*=*;{_POOLED};{_POOLED_BUFFERS}"]


def _is_disabled() -> bool:
    return os.environ.get("RLX_NO_MALLOPT", "0") not in ("", "0")


def address(array: np.ndarray) -> int:
    """Return the address of the array's first element."""
    return array.__array_interface__["data"][0]


def empty_aligned(shape: tuple[int, ...], dtype: np.dtype | type) -> np.ndarray:
    """Like ``np.empty``, at an address that every compiled program can use without a copy."""
    dtype = np.dtype(dtype)
    size = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
    raw = np.empty(size + IMPORT_ALIGNMENT, np.uint8)
    start = -address(raw) % IMPORT_ALIGNMENT
    return raw[start : start + size].view(dtype).reshape(shape)


def array_over(array: np.ndarray, *owners: Any) -> np.ndarray:
    """Return a writable array over the memory of ``array``. This array and all its views keep ``owners`` alive."""
    return array_at(address(array), array.dtype, array.shape, *owners)

"""The cache of XLA's executables on disk: for programs that were compiled before, by this or another process."""

from __future__ import annotations

import os

from rlx.targets.cache import DiskCache
from rlx.targets.hashes import fingerprint
from rlx.targets.host import host_features, usable_cpus
from rlx.targets.xla import soundness
from rlx.targets.xla.options import Options


class StoredExecutable:
    """The entry of one program. It holds for one jaxlib, kind of CPU, number of CPUs and set of options.

    XLA's own check of a serialised executable is not enough: it loads damaged ones, and code for other CPUs. So the checksum of
    the cache and this key must detect them.

    Args:
        cache: The cache.
        program: The program.
        options: All options that XLA gets.
    """

    def __init__(self, cache: DiskCache, program: bytes, options: Options):
        self._cache = cache
        # XLA divides work among the threads that it has when it compiles.
        machine = host_features(), str(usable_cpus()), os.environ.get("NPROC", ""), os.environ.get("XLA_FLAGS", "")
        self._key = fingerprint(
            "executable of XLA", soundness.version(), *machine, repr(sorted(options, key=repr)), program
        )

    def read(self) -> bytes | None:
        """The serialised executable; None if there is none."""
        return self._cache.get(self._key)

    def write(self, executable: bytes) -> None:
        """Store a serialised executable. Disk errors do not raise an exception."""
        self._cache.put(self._key, executable)

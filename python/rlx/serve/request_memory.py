"""`RequestMemory`: the memory that requests use together, with a limit."""

from __future__ import annotations

import threading

from rlx.serve.request_error import RequestError


class RequestMemory:
    """Counts the bytes of requests that arrive, wait and run.

    Args:
        most: The largest number of bytes of all requests. A request that is alone is always accepted.
    """

    def __init__(self, most: int):
        self.most = most
        self._used = 0
        self._lock = threading.Lock()

    @property
    def used(self) -> int:
        """The number of bytes that are in use."""
        return self._used

    def lease(self) -> MemoryLease:
        """Return the memory of a new request."""
        return MemoryLease(self)

    def resize(self, lease: MemoryLease, size: int) -> None:
        """Change the number of bytes of one request.

        Raises:
            RequestError: There are too many with those of other requests (503).
        """
        with self._lock:
            others = self._used - lease.size
            if size > lease.size and others > 0 and others + size > self.most:
                headers = {"Retry-After": "1", "Connection": "close"}
                raise RequestError(503, "Too many large requests at once.", kind="server_error", headers=headers)
            self._used, lease.size = others + size, size


class MemoryLease:
    """The memory of one request. All methods are thread-safe, because the job of a request ends in its own thread.

    Args:
        memory: The memory of all requests.

    Attributes:
        size: The number of bytes, which `RequestMemory.resize` sets.
    """

    def __init__(self, memory: RequestMemory):
        self._memory, self.size = memory, 0

    def resize(self, size: int) -> None:
        """Set the number of bytes.

        Raises:
            RequestError: There are too many with those of other requests (503).
        """
        self._memory.resize(self, size)

    def release(self) -> None:
        """Use no memory any longer. It may be called several times."""
        self.resize(0)

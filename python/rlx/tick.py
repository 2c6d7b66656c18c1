"""`Tick`, a timer based on the processor's cycle counter, for spans too short for the operating system's clocks."""

from __future__ import annotations

from rlx.native import native


class _NativeAttribute:
    """A class attribute that is read from the native module on first use."""

    def __get__(self, instance: Tick | None, owner: type[Tick]) -> str:
        return native().tick_source()


class Tick:
    """A point in time, as a value of the processor's counter.

    Counts are converted to nanoseconds by a rate that is measured once per process against the monotonic clock. The
    first conversion may therefore take 5 ms; `now` never waits. Ticks of different processes or machines cannot be
    compared.

    Attributes:
        source: The counter of this machine: ``"rdtsc"`` (x86-64 with a constant-rate time-stamp counter), ``"cntvct"``
            (64-bit Arm) or ``"steady_clock"`` (elsewhere, the monotonic clock).
    """

    __slots__ = ("_count",)

    source = _NativeAttribute()

    def __init__(self, count: int):
        self._count = count

    @classmethod
    def now(cls) -> Tick:
        """Return the current time.

        Raises:
            rlx.support.errors.Error: The native module is missing; the message explains how to build it.
        """
        return cls(native().tick_count())

    def elapsed_ns(self) -> int:
        """Return the whole nanoseconds since this tick, never less than 0."""
        return native().tick_elapsed_ns(self._count)

    def __sub__(self, earlier: Tick) -> int:
        """Return the whole nanoseconds from `earlier` to this tick, negative if `earlier` is later."""
        if not isinstance(earlier, Tick):
            return NotImplemented
        return native().tick_difference_ns(self._count, earlier._count)

    def __repr__(self) -> str:
        return f"Tick({self._count}, source={self.source!r})"

"""The part of `Program` that replaces its code by optimised code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Self

from rlx.ir.calls import Answered
from rlx.runtime.arguments import checked_seconds
from rlx.runtime.entry_point import CompiledFunction, EntryPoint
from rlx.runtime.shared_data import SharedData
from rlx.support.errors import Error
from rlx.support.locks import holding
from rlx.targets.artifacts.buckets import Sizes
from rlx.targets.protocol import LoadedProgram

_ATTEMPTS = 3


class ProgramTier(Answered):
    """Methods for programs that were compiled with `tier="auto"`."""

    _data: SharedData
    _entries: Mapping[str | None, EntryPoint]
    _function: CompiledFunction | None
    _parts: Mapping[str, Self]
    _sized: Mapping[Sizes, Self]
    # While a program is to be improved, its parts keep it, because all of them are replaced at once.
    _whole: Self | None = None

    @property
    def tier(self) -> str:
        """`"quick"` while the optimised program is being compiled, or if that failed, and then `"best"`."""
        improvement = self._data.improvement
        return "best" if improvement is None or improvement.is_done else "quick"

    def wait_for_best(self, timeout: float | None = None) -> None:
        """Wait until the optimised program is in use. Returns at once if it was compiled with `tier="best"`.

        Args:
            timeout: The longest time to wait, in seconds.

        Raises:
            CompileError: It cannot be compiled.
            Error: It cannot be loaded, or it is not ready after that time.
        """
        timeout = timeout if timeout is None else checked_seconds("timeout", timeout)
        if self._data.improvement is not None:
            self._data.improvement.wait(timeout)

    def _loaded(self, function: CompiledFunction) -> CompiledFunction:
        """Load a function, and return it, or the optimised one if a quick one cannot be loaded here.

        Raises:
            Error: A parameter has not been set.
            ExecutionError: The device is not available.
        """
        data, improvement = self._data, self._data.improvement
        holding(data.lock, data.check_weights, function)
        try:
            if improvement is None or not improvement.is_lost:
                holding(data.lock, data.load, function)
                return function
        except Error:  # also if the package that runs quick programs is not installed
            if improvement is None or improvement.is_done:
                raise
        self.wait_for_best()
        assert self._function is not None
        holding(data.lock, data.load, self._function)
        return self._function

    def _improve(self, entries: Mapping[str | None, EntryPoint]) -> None:
        """Replace the entry points by others with the same signatures. Other threads may run the program meanwhile."""
        data = self._data
        functions = {
            old: entries[name].functions[sizes]
            for name, entry in self._entries.items()
            for sizes, old in entry.functions.items()
        }
        for _ in range(_ATTEMPTS):
            weights = data.content.weights
            complete = [f for f in functions.values() if all(name in weights for name in f.params)]
            programs: dict[CompiledFunction, LoadedProgram] = {}
            for function in complete:  # runs go on meanwhile
                programs[function] = data.loaded(function, weights, programs)
            if holding(data.lock, self._replace, entries, functions, programs, weights):
                return
        holding(data.lock, self._replace, entries, functions, {}, data.content.weights)

    def _replace(
        self,
        entries: Mapping[str | None, EntryPoint],
        functions: Mapping[CompiledFunction, CompiledFunction],
        programs: Mapping[CompiledFunction, LoadedProgram],
        weights: Mapping[str, Any],
    ) -> bool:
        """Replace the entry points, unless weights have been set since some functions were loaded."""
        if programs and self._data.content.weights is not weights:
            return False
        self._data.replace(functions, programs)
        self._set(entries, self._data)
        for part in self._all_parts():
            part._whole = None
        return True

    def _all_parts(self) -> Iterator[Self]:
        """Yield the programs of single entry points and of single buckets."""
        for part in self._parts.values():
            yield part
            yield from part._sized.values()
        yield from self._sized.values()

    def _set(self, entries: Mapping[str | None, EntryPoint], data: SharedData) -> None:
        raise NotImplementedError

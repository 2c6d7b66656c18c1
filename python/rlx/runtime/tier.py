"""`tier="auto"`: a program that compiles quickly, which the optimised program replaces when it is ready."""

from __future__ import annotations

import atexit
import ctypes
import logging
import math
import os
import threading
import time
import weakref
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rlx.ir.graph.graph import Graph
from rlx.ir.op import opview
from rlx.ir.op.signature import bodies
from rlx.runtime.build import Build, NotCachedError
from rlx.runtime.entry_point import EntryPoint
from rlx.support.errors import Error
from rlx.support.short import short_repr
from rlx.targets.building import estimated_flops
from rlx.targets.protocol import Substitute, Substituted
from rlx.targets.registry import target_of
from rlx.targets.stages import graph_of

if TYPE_CHECKING:
    from rlx.runtime.program import Program

TIERS = ("auto", "best")

# The optimised program is compiled after the first run of the quick one, which it would slow down, or after this time.
_DELAY_S = 2.0
_POLL_S = 0.02
_EXIT_S = 10.0  # the longest wait for a thread when Python exits

_log = logging.getLogger("rlx")
Entries = Mapping[str | None, EntryPoint]


def check_tier(tier: Any, tuning: Any = None) -> None:
    """Check the option `tier`.

    Raises:
        Error: It is unknown, or does not go with tuning.
    """
    if not isinstance(tier, str) or tier not in TIERS:
        raise Error(f"tier={short_repr(tier)} is not one of {', '.join(map(repr, TIERS))}")
    if tier == "auto" and tuning is not None:
        raise Error("tune goes with tier='best': it measures optimised programs")


def first_entries(build: Build) -> tuple[Entries, Mapping[str, Any], Build | None]:
    """Return entry points that are ready soon, the weights that came with the graphs, and the build that is to replace them.

    The last is None if these entry points are optimised: they were in the cache, or the target has no quick substitute, or
    that cannot express the graph.

    Raises:
        CompileError: A graph cannot be expressed or compiled for the target.
        Error: As for `Build.entries`.
    """
    substitutes = build.target.quick if isinstance(build.target, Substituted) else ()
    if not substitutes:
        return *build.entries(), None
    if build.cache is not None:
        try:
            return *replace(build, only_cached=True).entries(), None
        except NotCachedError:
            pass
    for substitute in substitutes:
        if (quick := _quick_entries(build, substitute)) is not None:
            return *quick, replace(build, graph=_copy(build.graph))
    return *build.entries(), None


def _quick_entries(build: Build, substitute: Substitute) -> tuple[Entries, Mapping[str, Any]] | None:
    """Return the result of a build for another target; None if that is not possible, or the graph has too many operations."""
    options = replace(build.options, kernels="auto", dispatch=None)
    most, cache = substitute.most_operations, build.cache
    if most is not None:  # a program that runs a few times is not worth the time to optimise and store it
        options, cache = replace(options, opt=0), None
    try:
        target = target_of(substitute.name, None, substitute.flags)
        entries, weights = replace(build, target=target, options=options, cache=cache, threads=None).entries()
    except Error as problem:
        _log.info("there is no quick program for %s: %s", substitute.name, problem)
        return None
    return (entries, weights) if most is None or _operations(entries) <= most else None


def _operations(entries: Entries) -> float:
    """Return the estimated operations of the largest function. A loop counts as infinitely many."""
    modules = [f.checked_compilation().lir.module for entry in entries.values() for f in entry.functions.values()]
    has_loops = any(
        len(op.regions) for module in modules for f in bodies(module) for op in opview.operations(f.entry_block)
    )
    return math.inf if has_loops else max(map(estimated_flops, modules), default=0)


def _copy(graph: Graph | Mapping[str, Any]) -> Graph | dict[str, Graph]:
    """Return graphs that the user cannot change."""
    if isinstance(graph, Mapping):
        return {name: graph_of(g, "compile").clone() for name, g in graph.items()}
    return graph.clone()


def improve(program: Program, build: Build) -> None:
    """Let an optimised program replace the code of a program when it is ready."""
    for part in program._all_parts():
        part._whole = program
    program._data.improvement = Improvement(program, build)
    program._data.improvement.start()


class Improvement:
    """The compilation of an optimised program in a separate thread, and its result.

    Args:
        program: The program that is to be improved.
        build: Compiles the optimised program.
    """

    def __init__(self, program: Program, build: Build):
        self._program, self._build = weakref.ref(program), build
        self._ended, self._awaited = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        # The number of a thread may be that of another one as soon as it has ended.
        self._leaving = threading.Lock()
        self._thread_id: int | None = None
        self._is_stopped = False
        self._error: BaseException | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="rlx-tier", daemon=True)
        _running[self] = None
        self._thread.start()

    @property
    def is_done(self) -> bool:
        """Whether the optimised program is in use."""
        return self._ended.is_set() and self._error is None

    @property
    def is_lost(self) -> bool:
        """Whether the thread is in the parent of this process, which was forked. The next `wait` does its work."""
        return self._thread is None

    def wait(self, timeout: float | None = None) -> None:
        """Wait for the optimised program.

        Raises:
            CompileError: It cannot be compiled.
            Error: It is not ready after that time, or it cannot be loaded.
        """
        self._awaited.set()
        if self.is_lost and not self._ended.is_set():
            self._run()
        if not self._ended.wait(timeout):
            raise Error(f"the optimised program is not ready after {timeout:g} s")
        if self._error is not None:
            raise self._error.with_traceback(None)  # otherwise the tracebacks of all calls are kept

    def _run(self) -> None:
        self._thread_id = threading.get_ident()
        try:
            try:
                if self._has_turn():
                    self._improve()
            finally:
                with self._leaving:
                    self._thread_id = None
        except Exception as problem:
            self._error = problem
            if not self._is_stopped:  # the bindings of MLIR replace exceptions
                _log.warning("a program stays as it was first compiled, because the optimised one failed: %s", problem)
        except BaseException as exit:
            self._error = exit
        finally:
            self._ended.set()
            _running.pop(self, None)

    def _improve(self) -> None:
        entries, _ = self._build.entries()
        if (program := self._program()) is not None:
            program._improve(entries)

    def _has_turn(self) -> bool:
        """Wait until the program has run, and no other one is compiled in the background. False if it is not in use any more.

        A program that is waited for does not wait.
        """
        end = time.monotonic() + _DELAY_S
        while not self._awaited.wait(_POLL_S):
            if (program := self._program()) is None:
                return False
            first, *_ = _running
            if first is self and (program._data.ready or time.monotonic() > end):
                return True
            del program
        return True

    def stop(self) -> None:
        """Interrupt the thread, and wait until it has ended. All of RLX can be interrupted at any step."""
        thread = self._thread
        if thread is None:
            return
        self._is_stopped = True
        with self._leaving:
            if self._thread_id is not None:
                number, kind = ctypes.c_ulong(self._thread_id), ctypes.py_object(SystemExit)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(number, kind)
        thread.join(_EXIT_S)

    def leave_to_child(self) -> None:
        """Take over in a forked process, where the thread does not exist, and perhaps neither the quick program's."""
        self._thread, self._ended, self._awaited = None, threading.Event(), threading.Event()
        if (program := self._program()) is not None:
            program._data.ready = {}


# In the order of their start. The first one compiles.
_running: dict[Improvement, None] = {}


def _stop_all() -> None:
    for improvement in list(_running):
        improvement.stop()


def _after_fork_in_child() -> None:
    for improvement in list(_running):
        improvement.leave_to_child()
    _running.clear()


# Handlers of `atexit` may run later than the one that ends the compiler's processes.
getattr(threading, "_register_atexit", atexit.register)(_stop_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)

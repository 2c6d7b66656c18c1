"""Loaded modules, and calls of their functions with NumPy arrays. Memory is shared only if this is declared.

IREE updates argument buffers in place and may return them. So the type of an argument declares the access to
its memory (``ArgumentType.access``); by default the program gets a copy. Small arguments are copied into buffers
that are created once, and small results are copied out. Large results are returned without a copy, unless they
are in the memory of an argument.
"""

from __future__ import annotations

import json
import os
import re
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from rlx.ir.packing import pack
from rlx.support.errors import ExecutionError
from rlx.support.locks import holding, is_abandoned, make_lock
from rlx.targets.iree import transfer
from rlx.targets.iree.abi import TensorType, agreed_types, compiled_types
from rlx.targets.iree.devices import LOCAL_DRIVERS, abandon_devices, device, short_reason
from rlx.targets.iree.lapack import lapack_pointers
from rlx.targets.iree.lent_memory import lend, readable, reclaim
from rlx.targets.iree.names import LENT_KEY, LENT_WEIGHTS, PARAMETER_SCOPE, POINTERS
from rlx.weights.mapped import release_pages

# The exceptions that IREE's bindings raise.
_FAILURES = (ValueError, RuntimeError, IndexError, MemoryError, TypeError)


class IreeExecutable:
    """A loaded module. Its functions share state. Any thread may call them, but calls run one at a time.

    Args:
        vmfb: The compiled module.
        driver: The driver to run it with, such as ``"local-sync"``, or a device of it: ``"cuda://1"``.
        parameters: The weights, by key. The program uses them without a copy if possible, so they must not be
            changed afterwards. The program does not write to them.
        parameter_types: The types that the weights must have. If given, the weights are checked first, because
            IREE accepts a weight that is too long.
        scope: The scope of the parameters in the module.
        threads: The number of threads of the ``local-task`` driver; by default one per CPU.

    Raises:
        ExecutionError: The device cannot be opened, the module is not for it, or a parameter is missing or
            has the wrong size.
    """

    def __init__(
        self,
        vmfb: bytes,
        *,
        driver: str = "local-sync",
        parameters: Mapping[str, np.ndarray] | None = None,
        parameter_types: Mapping[str, TensorType] | None = None,
        scope: str = PARAMETER_SCOPE,
        threads: int | None = None,
    ) -> None:
        parameters = parameters or {}
        check_parameters(parameters, parameter_types or {})
        self.driver = driver
        self.device = device(driver, threads)
        self.trim()  # free buffers of programs that no longer exist
        self.lock = make_lock()
        self.functions: weakref.WeakSet[IreeFunction] = weakref.WeakSet()
        from iree.runtime import _binding

        try:
            instance = _instance()
            self.module = _binding.VmModule.copy_buffer(instance, vmfb)
            lent = json.loads(self.note(LENT_WEIGHTS, LENT_KEY) or "[]")  # see `rlx-iree-lend-weights`
            index = _binding.ParameterIndex()
            for key, array in parameters.items():
                if key not in lent:
                    index.add_buffer(key, lend(pack(array)))
            providers = [index.create_provider(scope=scope)]
            if POINTERS.encode() in vmfb:
                pointers = _binding.ParameterIndex()
                pointers.add_buffer(POINTERS, lend(lapack_pointers()))
                providers.append(pointers.create_provider(scope=POINTERS))
            modules = [
                _binding.create_io_parameters_module(instance, *providers),
                _binding.create_hal_module(instance, self.device),
                self.module,
            ]
            self.context = _binding.VmContext(instance, modules)
            self.subspan = transfer.make_subspan(self.module, self.context) if self.local else None
            if lent and self.subspan is not None:
                self._lend(lent, parameters, self.subspan)
        except _FAILURES as error:
            raise _load_error(error, driver, parameters) from error
        # Files of weights have been read to check, convert or copy them: IREE reads in place only what is at a multiple of 64.
        for array in parameters.values():
            release_pages(array)
        _executables.add(self)

    def _lend(self, names: Sequence[str], parameters: Mapping[str, np.ndarray], subspan: transfer.Subspan) -> None:
        """Pass the weights that the module takes as buffers."""
        from iree.runtime import VmVariantList

        if missing := [name for name in names if name not in parameters]:
            raise _missing_parameter(missing[0], parameters)
        # IREE does not keep the memory of a part of a buffer alive. These are deleted after the context, which is set first.
        self._weights = [readable(parameters[name]) for name in names]
        buffers = VmVariantList(len(names))
        for array in self._weights:
            buffers.push_ref(transfer.lent_view(self.device, subspan, array))
        function = self.module.lookup_function(LENT_WEIGHTS)
        assert function is not None
        self.context.invoke(function, buffers, VmVariantList(0))

    def trim(self) -> None:
        """Free the unused buffers in the device's pool, and parameters of programs that no longer exist."""
        self.device.allocator.trim()
        reclaim()

    @property
    def local(self) -> bool:
        """Whether programs run on this machine's CPU, in the memory that NumPy uses."""
        return self.driver in LOCAL_DRIVERS

    @property
    def function_names(self) -> list[str]:
        """The names of the functions that can be called."""
        return [name for name in self.module.function_names if not name.startswith("__")]

    def note(self, function: str, key: str) -> str | None:
        """An entry of a function's `iree.reflection`, which was set when the module was compiled."""
        compiled = self.module.lookup_function(function)
        return None if compiled is None else dict(compiled.reflection).get(key)

    def function(
        self,
        name: str,
        argument_types: Sequence[TensorType] | None = None,
        result_types: Sequence[TensorType] | None = None,
        *,
        copy_results: bool = False,
    ) -> IreeFunction:
        """Return a callable function of the module.

        Args:
            name: Its name.
            argument_types: Dtype, shape and access of its arguments; by default as compiled, with copies.
            result_types: Dtype and shape of its results; by default as compiled. IREE has no unsigned types,
                so an ``i8`` is ``int8`` unless its type here is ``uint8``.
            copy_results: Copy every result, even large ones.

        Raises:
            ExecutionError: The function does not exist, or its types differ.
        """
        compiled = self.module.lookup_function(name)
        if compiled is None:
            names = ", ".join(self.function_names) or "none"
            raise ExecutionError(f"the module has no function @{name}", hint=f"it has {names}")
        types = compiled_types(dict(compiled.reflection).get("iree.abi.declaration", ""))
        arguments = agreed_types(name, "argument", argument_types, types and types[0])
        results = agreed_types(name, "result", result_types, types and types[1])
        staged = self.local and all(map(transfer.is_small, arguments))
        kind = StagedFunction if staged else IreeFunction
        function = kind(self, name, compiled, arguments, results, copy_results)
        self.functions.add(function)
        return function


class IreeFunction:
    """A compiled function: it takes a list of arrays, and returns a list of arrays that own their memory.

    The caller must ensure that the arrays are C-contiguous and have the declared dtypes and shapes.

    Attributes:
        name: Its name.
        argument_types: The types of its arguments.
        result_types: The types of its results.
    """

    def __init__(
        self,
        executable: IreeExecutable,
        name: str,
        function: Any,
        arguments: Sequence[TensorType],
        results: Sequence[TensorType],
        copy_results: bool,
    ) -> None:
        from iree.runtime import VmVariantList

        self.name = name
        self.argument_types = tuple(arguments)
        self.result_types = tuple(results)
        self._executable = executable
        self._function = function
        self._lock = executable.lock
        self._invoke: Callable[[Any, Any, Any], None] = executable.context.invoke
        self._new_list: Any = VmVariantList
        # With dynamic sizes, the next call may need buffers of other sizes.
        self._trims = any(t.static_shape is None for t in (*arguments, *results))
        target, local = executable.device, executable.local
        self._passers = [transfer.Lender(target, local, argument, executable.subspan) for argument in arguments]
        self._takers = [
            transfer.make_taker(target, local, index, result, copy_results) for index, result in enumerate(results)
        ]
        self._last = _Trimmer(
            executable
        )  # attributes are deleted in the order in which they were set: this one after the context

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Run it.

        Raises:
            ExecutionError: The number of arrays is wrong, or the program failed.
        """
        if len(arrays) != len(self._passers):
            raise self._count_error(arrays)
        try:  # like `holding`, without the overhead of a call
            with self._lock: return self._run(arrays)  # noqa: E701  # fmt: skip
        except _FAILURES as error:
            raise self._failure(error) from error

    def _run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        loans = transfer.Loans()
        arguments = self._new_list(len(arrays))
        for pass_in, array in zip(self._passers, arrays, strict=True):
            arguments.push_ref(pass_in(array, loans))
        results = self._new_list(len(self._takers))
        self._invoke(self._function, arguments, results)
        outputs = [take(results, loans) for take in self._takers]
        loans.settle()
        if self._trims:
            self._executable.trim()
        return outputs

    def pass_on(self, source: IreeFunction) -> None:
        """Run it on the results of another function without arguments, without converting them to arrays.

        Raises:
            ExecutionError: One of the two functions failed.
        """
        try:
            views = holding(source._lock, source._results)
            holding(self._lock, self._call_on, views)
        except _FAILURES as error:
            raise self._failure(error) from error

    def _results(self) -> list[Any]:
        """The results of a call without arguments, as buffers on the device."""
        from iree.runtime import HalBufferView

        results = self._new_list(len(self._takers))
        self._invoke(self._function, self._new_list(0), results)
        return [results.get_as_object(index, HalBufferView) for index in range(len(self._takers))]

    def _call_on(self, views: Sequence[Any]) -> None:
        arguments = self._new_list(len(views))
        for view in views:
            arguments.push_ref(view)
        self._invoke(self._function, arguments, self._new_list(len(self._takers)))

    def refuse(self, reason: str) -> None:
        """Raise an error in all later calls."""

        def invoke(*_: Any) -> None:
            raise RuntimeError(reason)

        self._invoke = invoke

    def _count_error(self, arrays: Sequence[np.ndarray]) -> ExecutionError:
        return ExecutionError(f"@{self.name} takes {len(self.argument_types)} arguments, and {len(arrays)} were given")

    def _failure(self, error: Exception) -> ExecutionError:
        return ExecutionError(f"@{self.name} failed: {short_reason(error)}")


class _Trimmer:
    """Empties a device's pool when it is deleted."""

    def __init__(self, executable: IreeExecutable) -> None:
        # The functions are stored here: when this is deleted at exit, Python may have cleared the modules `os` and `sys`.
        # One line stores all of them, so that an interrupt leaves none or all.
        self._at_end = executable.device.allocator.trim, os.getpid(), os.getpid, sys.is_finalizing

    _at_end: tuple[Callable[[], Any], int, Callable[[], int], Callable[[], bool]] | None = None

    def __del__(self) -> None:
        if self._at_end is None:  # an interrupt has stopped `__init__`
            return
        trim, process, this_process, is_at_exit = self._at_end
        if this_process() == process:  # in a forked process the lock of the pool may never be released
            trim()
            if not is_at_exit():
                reclaim()


class StagedFunction(IreeFunction):
    """A function with only small arguments, which are copied into buffers that are created once, while the lock is held."""

    def __init__(self, executable: IreeExecutable, *arguments: Any) -> None:
        super().__init__(executable, *arguments)
        stages = [transfer.Stage(executable.device, argument) for argument in self.argument_types]
        self._staged = [stage.array for stage in stages]
        self._arguments: Any = self._new_list(len(stages))
        for stage in stages:
            self._arguments.push_ref(stage.view)
        self._lends = not all(map(transfer.is_small, self.result_types))

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Run it. Raises like ``IreeFunction``."""
        if len(arrays) != len(self._staged):
            raise self._count_error(arrays)
        try:  # like `holding`, without the overhead of a call
            with self._lock: return self._run(arrays)  # noqa: E701  # fmt: skip
        except _FAILURES as error:
            raise self._failure(error) from error

    def _run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        loans = transfer.Loans() if self._lends else None
        for stage, array in zip(self._staged, arrays):  # noqa: B905  (the lengths are equal; `strict` costs 0.1 µs)
            stage[...] = array
        results = self._new_list(len(self._takers))
        self._invoke(self._function, self._arguments, results)
        return [take(results, loans) for take in self._takers]


def check_parameters(parameters: Mapping[str, np.ndarray], types: Mapping[str, TensorType]) -> None:
    """Check that weights have the types that a module needs. Other keys are ignored.

    Raises:
        ExecutionError: A weight is missing, or has another dtype or size; the message lists all of them.
    """
    problems = []
    for key, expected in types.items():
        array = parameters.get(key)
        if array is None:
            problems.append(f"{key!r} is missing: expected {expected}")
        elif array.dtype != expected.dtype or array.nbytes != expected.nbytes:
            problems.append(f"{key!r} is {array.dtype}{list(array.shape)}: expected {expected}")
    if problems:
        raise ExecutionError("the parameters do not fit the module:\n  " + "\n  ".join(problems))


def _missing_parameter(name: str, parameters: Mapping[str, np.ndarray]) -> ExecutionError:
    known = ", ".join(sorted(parameters)[:20]) or "none"
    return ExecutionError(f"the parameter {name!r} is missing", hint=f"given were: {known}")


def _load_error(error: Exception, driver: str, parameters: Mapping[str, np.ndarray]) -> ExecutionError:
    text = str(error)
    if match := re.search(r"no parameter found in index with key '([^']*)'", text):
        return _missing_parameter(match[1], parameters)
    pattern = r"parameter `([^`]*)` range out of bounds \(offset=\d+, length=(\d+), size=(\d+)\)"
    if match := re.search(pattern, text):
        needed = f"and the module needs {match[2]}"
        return ExecutionError(f"the parameter {match[1]!r} has {match[3]} bytes, {needed}")
    return ExecutionError(f"IREE cannot load the module on {driver!r}: {short_reason(error)}")


_LOADED_BEFORE = "it was loaded before this process was forked; load the module again here"
_ANOTHER_RAN = (
    "another thread was running a program when this process was forked; load the module again here, or start processes with "
    "multiprocessing's 'spawn'"
)
_executables: weakref.WeakSet[IreeExecutable] = weakref.WeakSet()
_instance_lock = make_lock()


def _instance() -> Any:
    return holding(_instance_lock, _make_instance)


@cache
def _make_instance() -> Any:
    from iree.runtime import VmInstance

    return VmInstance()


def _after_fork_in_child() -> None:
    """Make programs raise errors if they would otherwise hang: a fork does not copy threads.

    All programs on devices with threads raise errors. If another thread was running a program during the fork, programs on
    all devices do: that thread may hold the locks of the device, which all programs share, and no thread releases them.
    """
    abandon_devices()
    executables = list(_executables)
    was_running = any(is_abandoned(executable.lock) for executable in executables)
    for executable in executables:
        if was_running or executable.driver != "local-sync":
            for function in list(executable.functions):
                function.refuse(_ANOTHER_RAN if was_running else _LOADED_BEFORE)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)

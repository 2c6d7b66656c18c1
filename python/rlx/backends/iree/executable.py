"""Loading compiled modules and calling their functions with NumPy arrays, which never share memory unasked.

IREE updates argument buffers in place and may return them, so what may become of an argument's memory is
declared with its type (``ArgumentType.access``), and by default the program gets a copy. Small arguments are
copied into buffers that are made once; small results are copied out. Large results are handed out as they
are, unless they are memory of an argument.
"""

from __future__ import annotations

import os
import re
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from rlx.backends.iree import transfer
from rlx.backends.iree.abi import TensorType, agreed_types, compiled_types
from rlx.backends.iree.devices import LOCAL_DRIVERS, abandon_devices, device, short_reason
from rlx.backends.iree.names import PARAMETER_SCOPE
from rlx.ir.errors import ExecutionError
from rlx.ir.locks import holding, make_lock

# What IREE's bindings raise.
_FAILURES = (ValueError, RuntimeError, IndexError, MemoryError, TypeError)


class Executable:
    """A loaded module. Its functions share state: any thread may call them, and one call runs at a time.

    Args:
        vmfb: The compiled module.
        driver: The driver to run it with, such as ``"local-sync"``, or a device of it: ``"cuda://1"``.
        parameters: The weights, by key. They are not copied where the program can use them as they are, so
            they must not be changed afterwards. They are never written to.
        parameter_types: What the weights have to be. If given, they are checked before IREE sees them, which
            takes a weight that is too long.
        scope: The scope of the parameters in the module.
        threads: How many threads the ``local-task`` driver works with; by default one per CPU.

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
        self.trim()  # what programs that are gone have left
        self.lock = make_lock()
        self.functions: weakref.WeakSet[Function] = weakref.WeakSet()
        from iree.runtime import _binding

        try:
            instance = _instance()
            index = _binding.ParameterIndex()
            for key, array in parameters.items():
                index.add_buffer(key, np.ascontiguousarray(array))
            provider = index.create_provider(scope=scope)
            self.module = _binding.VmModule.copy_buffer(instance, vmfb)
            modules = [
                _binding.create_io_parameters_module(instance, provider),
                _binding.create_hal_module(instance, self.device),
                self.module,
            ]
            self.context = _binding.VmContext(instance, modules)
        except _FAILURES as error:
            raise _load_error(error, driver, parameters) from error
        _executables.add(self)

    def trim(self) -> None:
        """Free the buffers that the device's pool holds for programs that want some of their size."""
        self.device.allocator.trim()

    @property
    def local(self) -> bool:
        """Whether programs run on this machine's CPU, in the memory that NumPy uses."""
        return self.driver in LOCAL_DRIVERS

    @property
    def function_names(self) -> list[str]:
        """The names of the functions that can be called."""
        return [name for name in self.module.function_names if not name.startswith("__")]

    def note(self, function: str, key: str) -> str | None:
        """What `iree.reflection` said of a function when the module was compiled."""
        found = self.module.lookup_function(function)
        return None if found is None else dict(found.reflection).get(key)

    def function(
        self,
        name: str,
        argument_types: Sequence[TensorType] | None = None,
        result_types: Sequence[TensorType] | None = None,
        *,
        copy_results: bool = False,
    ) -> Function:
        """A function of the module, ready to be called.

        Args:
            name: Its name.
            argument_types: Dtype, shape and access of its arguments; by default as compiled, each one copied.
            result_types: Dtype and shape of its results; by default as compiled. IREE has no unsigned types,
                so an ``i8`` is ``int8`` unless a type here says ``uint8``.
            copy_results: Copy every result, also large ones.

        Raises:
            ExecutionError: There is no such function, or its types are others.
        """
        found = self.module.lookup_function(name)
        if found is None:
            names = ", ".join(self.function_names) or "none"
            raise ExecutionError(f"the module has no function @{name}", hint=f"it has {names}")
        compiled = compiled_types(dict(found.reflection).get("iree.abi.declaration", ""))
        arguments = agreed_types(name, "argument", argument_types, compiled and compiled[0])
        results = agreed_types(name, "result", result_types, compiled and compiled[1])
        staged = self.local and all(map(transfer.is_small, arguments))
        kind = StagedFunction if staged else Function
        function = kind(self, name, found, arguments, results, copy_results)
        self.functions.add(function)
        return function


class Function:
    """A compiled function: takes a list of arrays, returns a list of arrays that own their memory.

    The arrays must be C-contiguous and of the declared dtypes and shapes; whoever calls has checked that.

    Attributes:
        name: Its name.
        argument_types: The types of its arguments.
        result_types: The types of its results.
    """

    def __init__(
        self,
        executable: Executable,
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
        # The next call will want buffers of other sizes.
        self._trims = any(t.static_shape is None for t in (*arguments, *results))
        target, local = executable.device, executable.local
        self._passers = [transfer.Lender(target, local, argument) for argument in arguments]
        self._takers = [
            transfer.make_taker(target, local, index, result, copy_results) for index, result in enumerate(results)
        ]
        self._last = _Trimmer(executable)  # attributes go in the order in which they came: this one after the context

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Run it.

        Raises:
            ExecutionError: The number of arrays is wrong, or the program failed.
        """
        if len(arrays) != len(self._passers):
            raise self._count_error(arrays)
        try:  # `holding` without the time of its call
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

    def refuse(self, reason: str) -> None:
        """From now on raise instead of running."""

        def invoke(*_: Any) -> None:
            raise RuntimeError(reason)

        self._invoke = invoke

    def _count_error(self, arrays: Sequence[np.ndarray]) -> ExecutionError:
        return ExecutionError(f"@{self.name} takes {len(self.argument_types)} arguments, and {len(arrays)} were given")

    def _failure(self, error: Exception) -> ExecutionError:
        return ExecutionError(f"@{self.name} failed: {short_reason(error)}")


class _Trimmer:
    """Empties a device's pool when it goes itself."""

    def __init__(self, executable: Executable) -> None:
        # With the function that tells the process: Python may have taken modules apart when this goes.
        self._at_end = executable.device.allocator.trim, os.getpid(), os.getpid

    _at_end: tuple[Callable[[], Any], int, Callable[[], int]] | None = None

    def __del__(self) -> None:
        if self._at_end is None:  # an interrupt came before
            return
        trim, process, this_process = self._at_end
        if this_process() == process:  # in a forked one its lock may be held for ever
            trim()


class StagedFunction(Function):
    """A function all of whose arguments are small: they are copied into buffers made once, under the lock."""

    def __init__(self, executable: Executable, *rest: Any) -> None:
        super().__init__(executable, *rest)
        stages = [transfer.Stage(executable.device, argument) for argument in self.argument_types]
        self._staged = [stage.array for stage in stages]
        self._arguments: Any = self._new_list(len(stages))
        for stage in stages:
            self._arguments.push_ref(stage.view)
        self._lends = not all(map(transfer.is_small, self.result_types))

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Run it; raises as ``Function`` does."""
        if len(arrays) != len(self._staged):
            raise self._count_error(arrays)
        try:  # `holding` without the time of its call
            with self._lock: return self._run(arrays)  # noqa: E701  # fmt: skip
        except _FAILURES as error:
            raise self._failure(error) from error

    def _run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        loans = transfer.Loans() if self._lends else None
        for stage, array in zip(self._staged, arrays):  # noqa: B905  (compared before; it costs 0.1 µs)
            stage[...] = array
        results = self._new_list(len(self._takers))
        self._invoke(self._function, self._arguments, results)
        return [take(results, loans) for take in self._takers]


def check_parameters(parameters: Mapping[str, np.ndarray], types: Mapping[str, TensorType]) -> None:
    """Compare weights with what a module needs; keys that it does not need are ignored.

    Raises:
        ExecutionError: Names every key that is missing, or that has another dtype or size.
    """
    wrong = []
    for key, expected in types.items():
        array = parameters.get(key)
        if array is None:
            wrong.append(f"{key!r} is missing: expected {expected}")
        elif array.dtype != expected.dtype or array.nbytes != expected.nbytes:
            wrong.append(f"{key!r} is {array.dtype}{list(array.shape)}: expected {expected}")
    if wrong:
        raise ExecutionError("the parameters do not fit the module:\n  " + "\n  ".join(wrong))


def _load_error(error: Exception, driver: str, parameters: Mapping[str, np.ndarray]) -> ExecutionError:
    text = str(error)
    if match := re.search(r"no parameter found in index with key '([^']*)'", text):
        known = ", ".join(sorted(parameters)[:20]) or "none"
        return ExecutionError(f"the parameter {match[1]!r} is missing", hint=f"given were: {known}")
    pattern = r"parameter `([^`]*)` range out of bounds \(offset=\d+, length=(\d+), size=(\d+)\)"
    if match := re.search(pattern, text):
        needed = f"and the module needs {match[2]}"
        return ExecutionError(f"the parameter {match[1]!r} has {match[3]} bytes, {needed}")
    return ExecutionError(f"IREE cannot load the module on {driver!r}: {short_reason(error)}")


_executables: weakref.WeakSet[Executable] = weakref.WeakSet()
_instance_lock = make_lock()


def _instance() -> Any:
    return holding(_instance_lock, _make_instance)


@cache
def _make_instance() -> Any:
    from iree.runtime import VmInstance

    return VmInstance()


def _after_fork_in_child() -> None:
    """A fork copies no threads: what was loaded on a device that has some would wait for ever."""
    abandon_devices()
    for executable in list(_executables):
        if executable.driver != "local-sync":
            for function in list(executable.functions):
                function.refuse("it was loaded before this process was forked; load the module again here")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)

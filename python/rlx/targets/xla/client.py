"""XLA's CPU client, through jaxlib. JAX is imported when something is compiled or run, and only here."""

from __future__ import annotations

import importlib
import logging
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np

from rlx.support.cached_property import cached_property
from rlx.support.errors import CompileError, Error, ExecutionError
from rlx.support.locks import holding, make_lock
from rlx.targets.cache import DiskCache
from rlx.targets.memory_block import array_at
from rlx.targets.xla import soundness
from rlx.targets.xla.defects import WORKAROUNDS
from rlx.targets.xla.executables import StoredExecutable
from rlx.targets.xla.options import Options

_log = logging.getLogger("rlx")

# Options for exact semantics: operations are not reordered, f16 and bf16 values are not kept in higher precision, and min and
# max of a NaN are NaN.
_STRICT: dict[str, bool] = {
    "xla_allow_excess_precision": False,
    "xla_cpu_enable_fast_math": False,
    "xla_cpu_enable_fast_min_max": False,
}
# XLA's message for an unknown option.
_NO_OPTION = "No such compile option"
_NOTHING = "func.func @main() { return }"
# The names of jaxlib's handlers that call LAPACK.
_LAPACK = "lapack_[sdcz][a-z]+_ffi"
# The number of compiled programs in the cache. Loading one of them with other weights does not compile it again.
_KEPT_EXECUTABLES = 64
# The number of array types in the cache of JAX's descriptions.
_KEPT_TYPES = 1024
# Up to this number of bytes, results are copied from XLA's memory, and larger ones are arrays over it.
_COPY_LIMIT = 16 * 1024
# The maximal number of characters of an XLA message in an error. Messages may contain a whole module.
_LONGEST = 2_000

Type = tuple[tuple[int, ...], np.dtype]

# JAX's modules import each other in cycles. A thread that imports them while another thread does so could see them half
# initialised.
_lock = make_lock()
# Whether this process has started to create a client.
_begun = False
# Whether the parent had done so before the fork. The client's threads do not exist here, and a lock of JAX may be held.
_lost = False


def jax() -> Any:
    """Return the package `jax`.

    Raises:
        Error: JAX is not installed.
    """
    return _once(_import_jax)


@cache
def _import_jax() -> Any:
    try:
        package = importlib.import_module("jax")
        importlib.import_module("jax.extend.backend")
        importlib.import_module("jaxlib.xla_client")
    except ImportError as problem:
        raise Error(f"XLA needs JAX, which cannot be imported: {problem}", hint="pip install 'rlx[jax]'") from None
    return package


def _xla_client() -> Any:
    """Return the bindings of jaxlib. JAX is imported first, because it disables their logging to standard error."""
    jax()
    return importlib.import_module("jaxlib.xla_client")


def client() -> Any:
    """Return the CPU client, which JAX itself also uses.

    Raises:
        ExecutionError: There is no client, or it was created before this process was forked.
    """
    _check_process()
    return _once(_make_client)


def _check_process() -> None:
    """Check that this process can run programs.

    Raises:
        ExecutionError: The client was created before this process was forked.
    """
    if _lost:
        raise ExecutionError(
            "XLA was started before this process was forked, and its threads are not here",
            hint="start processes with multiprocessing's 'spawn' or 'forkserver', or use XLA in the children only",
        )


@cache
def _make_client() -> Any:
    global _begun
    _begun = True
    try:
        return jax().extend.backend.get_backend("cpu")
    except RuntimeError as problem:
        raise ExecutionError(f"XLA has no CPU client: {problem}") from None


def _once(make: Callable[[], Any]) -> Any:
    """Call a function without arguments while other threads wait, and return its result."""
    return holding(_lock, make)


@cache
def _placement() -> tuple[Any, Any, Any]:
    """Return the CPU device, its sharding, and the function that puts a NumPy array there: JAX's own without its checks."""
    device = client().devices()[0]
    return device, jax().sharding.SingleDeviceSharding(device), _xla_client().batched_device_put


@lru_cache(_KEPT_TYPES)
def _aval(shape: tuple[int, ...], dtype: np.dtype) -> Any:
    """Return JAX's description of an array type."""
    with jax().enable_x64(True):  # otherwise f64 becomes f32
        return jax().core.ShapedArray(shape, dtype)


class XlaExecutable:
    """A compiled function of arrays on the device. It may be called from several threads.

    Args:
        program: A portable artifact with one function, `main`, or its text.
        options: XLA's options, by name.
        workarounds: The options that avoid known defects; by default, those of this jaxlib, which must be sound with them.
        cache: The cache of executables on disk; None compiles the program in any case.

    Raises:
        CompileError: XLA cannot compile it, or does not know an option.
        ExecutionError: This jaxlib has defects that cannot be avoided.
    """

    def __init__(
        self,
        program: bytes | str,
        options: Options = (),
        workarounds: Options | None = None,
        cache: DiskCache | None = None,
    ):
        if re.search(_LAPACK, program) if isinstance(program, str) else re.search(_LAPACK.encode(), program):
            _once(_prepare_lapack)
        avoiding = _once(_sound_options) if workarounds is None else workarounds
        every = _STRICT | dict(avoiding) | dict(options)
        if cache is None or isinstance(program, str):
            self._loaded = _compile_and_load(program, every)
        else:
            self._loaded = _loaded(StoredExecutable(cache, program, tuple(every.items())), program, every)

    @cached_property
    def types(self) -> tuple[list[Type], list[Type]]:
        """Shapes and dtypes of its arguments and of its results."""
        (module,) = self._loaded.hlo_modules()
        shape = _xla_client().XlaComputation(module.as_serialized_hlo_module_proto()).program_shape()
        result = shape.result_shape()
        results = result.tuple_shapes() if result.is_tuple() else [result]
        argument_types, result_types = (
            [(s.dimensions(), s.numpy_dtype()) for s in side] for side in (shape.parameter_shapes(), results)
        )
        return argument_types, result_types

    @property
    def text(self) -> str:
        """The program after XLA's compilation, as text."""
        (module,) = self._loaded.hlo_modules()
        return module.to_string()

    def __call__(self, arrays: Sequence[Any]) -> list[Any]:
        """Run it on arrays on the device. The results are on the device as well.

        Raises:
            ExecutionError: The run failed.
        """
        _check_process()
        try:
            return self._loaded.execute_sharded(arrays).consume_with_handlers(self._handlers)
        except jax().errors.JaxRuntimeError as problem:
            raise ExecutionError(f"XLA: {problem}") from None

    @cached_property
    def _handlers(self) -> list[Any]:
        """For each result, the function that makes a JAX array of the executable's own buffers."""
        _, sharding, _ = _placement()
        make = _xla_client().array_result_handler
        return [make(_aval(*t), sharding, committed=True, _skip_checks=True) for t in self.types[1]]


def _arrangement(options: Mapping[str, bool | int | str]) -> tuple[Any, Any]:
    """Return the devices and the options of a compilation, as JAX's objects."""
    chosen = jax().extend.backend.get_compile_options(num_replicas=1, num_partitions=1)
    chosen.env_option_overrides = list(options.items())
    return _xla_client().DeviceList((client().devices()[0],)), chosen


def _loaded(stored: StoredExecutable, program: bytes, options: Mapping[str, bool | int | str]) -> Any:
    """Load an executable from the cache, or compile and store it."""
    serialised = stored.read()
    errors = jax().errors.JaxRuntimeError, ValueError
    if serialised is not None:
        try:
            return client().deserialize_executable(serialised, *_arrangement(options))
        except errors as problem:
            _log.info("XLA cannot load an executable from the cache, and compiles it: %s", _shortened(str(problem)))
    executable = _compile_and_load(program, options)
    try:
        serialised = client().serialize_executable(executable)
    except errors as problem:
        _log.info("XLA cannot store an executable in the cache: %s", _shortened(str(problem)))
    else:
        stored.write(serialised)
    return executable


@cache
def _prepare_lapack() -> None:
    """Let jaxlib look LAPACK's routines up in SciPy. Its handlers call null pointers in a process that has not done so.

    Raises:
        Error: SciPy, or this part of jaxlib, is not installed.
    """
    jax()
    try:
        importlib.import_module("jaxlib.cpu._lapack").initialize()
    except (ImportError, AttributeError) as problem:
        hint = "compile it with lapack='off'"
        raise Error(f"the program calls LAPACK, which jaxlib does not find: {problem}", hint=hint) from None


def _compile_and_load(program: bytes | str, options: Mapping[str, bool | int | str]) -> Any:
    try:
        return client().compile_and_load(program, *_arrangement(options))
    except (jax().errors.JaxRuntimeError, ValueError) as problem:
        raise CompileError(f"XLA: {_shortened(str(problem))}") from None


def known_options(options: Options) -> Options:
    """Return the options that the installed jaxlib knows.

    Raises:
        CompileError: The value of an option is not valid.
    """

    def is_known(option: tuple[str, bool | int | str]) -> bool:
        try:
            _compile_and_load(_NOTHING, dict([option]))
        except CompileError as problem:
            if _NO_OPTION in problem.message:
                return False
            raise
        return True

    return tuple(filter(is_known, options))


@cache
def _sound_options() -> Options:
    """Return the options that avoid the defects of `defects.py`. With all of them, this jaxlib is sound.

    Raises:
        ExecutionError: This jaxlib lacks some of the options, and has the defects.
    """
    known = known_options(WORKAROUNDS)
    if known != WORKAROUNDS:
        soundness.expect_sound()
    return known


@lru_cache(_KEPT_EXECUTABLES)
def slot(program: bytes, options: Options) -> list[XlaExecutable]:
    """Return the list that holds the executable of a program, once it has been compiled."""
    return []


def compiled(program: bytes, options: Options = (), cache: DiskCache | None = None) -> XlaExecutable:
    """Return the executable of a program, of this process, of a cache on disk, or compiled now."""
    place = slot(program, options)
    if not place:
        place.append(XlaExecutable(program, options, cache=cache))
    return place[0]


def to_device(arrays: Sequence[Any]) -> list[Any]:
    """Return arrays on the device. Some may already be there. They may use the caller's memory, which is only read."""
    _check_process()
    device, sharding, put = _placement()
    return [
        put(_aval(array.shape, array.dtype), sharding, (array,), (device,), True, enable_x64=True)
        if isinstance(array, np.ndarray)
        else jax().device_put(array, device)
        for array in arrays
    ]


def wait(arrays: Sequence[Any]) -> None:
    """Wait until arrays on the device have been computed.

    Raises:
        ExecutionError: Computing one failed.
    """
    _check_process()
    try:
        for array in arrays:
            array.block_until_ready()
    except jax().errors.JaxRuntimeError as problem:
        raise ExecutionError(f"XLA: {problem}") from None


def to_host(array: Any) -> np.ndarray:
    """Return a writable host copy of an array on the device, after waiting until it has been computed.

    Raises:
        ExecutionError: Computing it failed.
    """
    wait([array])
    return np.array(array)


def released(array: Any) -> np.ndarray:
    """Return a result of an executable, which has been computed and nothing else refers to, as a writable array.

    A large one is not copied. XLA gives each result its own memory, which the returned array keeps.
    """
    view = np.asarray(array)
    if view.nbytes <= _COPY_LIMIT:
        return view.copy()
    start = array.unsafe_buffer_pointer()
    # NumPy's view has other memory if it had to unpack elements of less than a byte.
    is_shared = view.__array_interface__["data"][0] == start
    return array_at(start, view.dtype, view.shape, array) if is_shared else view.copy()


def _after_fork_in_child() -> None:
    global _lost
    bridge = sys.modules.get("jax._src.xla_bridge")  # other code may have used JAX without RLX
    is_starting = bridge is not None and bridge._backend_lock.locked()
    _lost = _lost or _begun or is_starting or bool(getattr(bridge, "_backends", None))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def _shortened(text: str) -> str:
    """Return a message without the module that XLA may print after it."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} … ({len(text) - _LONGEST} more characters)"

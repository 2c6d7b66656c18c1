"""Transfer of arrays into a program and of results out of it, with ownership of their memory.

A program may write to its arguments: quirk `arguments-overwritten`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlx.targets.iree.abi import ArgumentType, TensorType, element_type
from rlx.targets.iree.memory import ALIGNMENT, COPY_LIMIT, IMPORT_ALIGNMENT, address, array_over
from rlx.targets.iree.names import SUBSPAN
from rlx.targets.memory_block import bytes_at

# The number of calls in which a program gets a copy of a borrowed argument, to check that it does not write to it.
_TRIALS = 2
# This multiple of COPY_LIMIT is the limit for arrays that IREE does not import at their own address (measured).
_UNALIGNED_FACTOR = 2


# Returns the part of a buffer that begins at an offset and has a length, in bytes.
Subspan = Callable[[Any, int, int], Any]


class Loans:
    """The memory of the caller that one call may use, and the memory of its results, as ranges of addresses."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int, np.ndarray | None]] = []
        self._watched: list[tuple[Lender, np.ndarray, np.ndarray]] = []

    def lend(self, start: int, array: np.ndarray, donated: bool) -> None:
        """Record that the program uses ``array``, whose memory begins at ``start``, and whether it was donated."""
        self._ranges.append((start, start + array.nbytes, array if donated else None))

    def clashes(self, start: int, nbytes: int, donated: bool) -> bool:
        """Whether these bytes overlap with another argument, so that the program could write to memory that it also reads."""
        return bool(self._ranges) and any(
            start < stop and first < start + nbytes and (donated or owner is not None)
            for first, stop, owner in self._ranges
        )

    def watch(self, lender: Lender, original: np.ndarray, copy: np.ndarray) -> None:
        """Record that the program got ``copy``, a copy of the bytes of ``original``, to check whether it writes to it."""
        self._watched.append((lender, original, copy))

    def claim(self, result: np.ndarray) -> tuple[bool, np.ndarray | None]:
        """Whether ``result`` may be returned without a copy, and the donated array that its memory belongs to."""
        start = address(result)
        stop = start + result.nbytes
        overlapping = [entry for entry in self._ranges if start < entry[1] and entry[0] < stop]
        if not overlapping:
            self._ranges.append((start, stop, None))
            return True, None
        if len(overlapping) > 1 or overlapping[0][2] is None:
            return False, None
        self._ranges.remove(overlapping[0])
        self._ranges.append((*overlapping[0][:2], None))  # a second result in the same memory must be copied
        return True, overlapping[0][2]

    def settle(self) -> None:
        """After the call: tell the lenders whether the program modified the copies."""
        for lender, original, copy in self._watched:
            lender.judge(np.array_equal(_content(original), copy))


class Stage:
    """A buffer that is created once, and into which a small argument is copied at each call.

    Attributes:
        array: The memory of the buffer as a NumPy array.
        view: The same memory as an argument of the program.
    """

    def __init__(self, device: Any, argument: TensorType) -> None:
        from iree.runtime import HalBufferView

        size, shape = argument.nbytes, argument.static_shape
        assert size is not None and shape is not None
        buffer = device.allocator.allocate_buffer(*_host_memory(), size)
        mapping = buffer.map()
        self.array = np.ndarray(shape, argument.dtype, mapping)
        self.view = HalBufferView(buffer, list(shape), element_type(argument.dtype))


class Lender:
    """Passes an argument: as a copy, or as the caller's own memory if that is allowed and faster.

    IREE itself decides which buffers it updates in place, even if the program has copies. So a borrowed argument is
    passed as a copy in the first calls, and in all calls if the program writes to it.
    """

    def __init__(self, device: Any, local: bool, argument: TensorType, subspan: Subspan | None = None) -> None:
        from iree.runtime import BufferUsage, HalBufferView, MemoryType

        self._device = device
        self._subspan = subspan
        self._alignment = IMPORT_ALIGNMENT if subspan is None else ALIGNMENT
        self._allocator = device.allocator
        self._element = element_type(argument.dtype)
        self._view_type: Any = HalBufferView
        self._params = _host_memory() if local else (int(MemoryType.DEVICE_LOCAL), int(BufferUsage.DEFAULT))
        access = argument.access if isinstance(argument, ArgumentType) else "copy"
        self._donated = access == "donate"
        self._lends = local and access != "copy"
        self._trials = 0 if self._donated else _TRIALS

    def __call__(self, array: np.ndarray, loans: Loans) -> Any:
        """The buffer view that the program gets for ``array``."""
        # Up to the limit a copy is faster. IREE rejects arrays with other flags, and compiled code would crash on them.
        if not self._lends or array.nbytes <= COPY_LIMIT or not array.flags.carray:
            return self._view(self._copy(array), array)
        start = address(array)
        if start % IMPORT_ALIGNMENT and array.nbytes <= _UNALIGNED_FACTOR * COPY_LIMIT:
            return self._view(self._copy(array), array)
        if start % self._alignment or loans.clashes(start, array.nbytes, self._donated):
            return self._view(self._copy(array), array)
        if self._trials:
            buffer = self._copy(array)
            loans.watch(self, array, np.frombuffer(buffer.map(), np.uint8))
        else:
            buffer = _imported(self._allocator, self._params, self._subspan, array)
            loans.lend(start, array, self._donated)
        return self._view(buffer, array)

    def judge(self, unchanged: bool) -> None:
        """Record whether the program left a copy unchanged."""
        self._trials -= 1
        self._lends = self._lends and unchanged

    def _copy(self, array: np.ndarray) -> Any:
        return self._allocator.allocate_buffer_copy(*self._params, self._device, _content(array))

    def _view(self, buffer: Any, array: np.ndarray) -> Any:
        return self._view_type(buffer, array.shape, self._element)


def make_subspan(module: Any, context: Any) -> Subspan | None:
    """Return the function of a module that returns a part of a buffer; None if the module has none.

    IREE's bindings have no such function.
    """
    from iree.runtime import HalBuffer, VmVariantList

    function = module.lookup_function(SUBSPAN)
    if function is None:
        return None
    invoke, new_list, buffer_type = context.invoke, VmVariantList, HalBuffer

    def subspan(buffer: Any, offset: int, length: int) -> Any:
        arguments, results = new_list(3), new_list(1)
        arguments.push_ref(buffer)
        arguments.push_int(offset)
        arguments.push_int(length)
        invoke(function, arguments, results)
        return results.get_as_object(0, buffer_type)

    return subspan


def lent_view(device: Any, subspan: Subspan, array: np.ndarray) -> Any:
    """Return a buffer view over the memory of weights. It does not keep them alive: the caller must."""
    from iree.runtime import HalBufferView

    buffer = _imported(device.allocator, _host_memory(), subspan, array)
    return HalBufferView(buffer, array.shape, element_type(array.dtype))


def _imported(allocator: Any, params: tuple[int, int], subspan: Subspan | None, array: np.ndarray) -> Any:
    """Return a buffer over the memory of an array."""
    start = address(array)
    offset = start % IMPORT_ALIGNMENT
    if not offset and array.flags.writeable:  # IREE refuses arrays that are read-only
        return allocator.import_host_allocation(array, *params)
    # The bytes before the array are in the same cache line, and so in the same page. Nothing reads them.
    block = bytes_at(start - offset, offset + array.nbytes, array)
    buffer = allocator.import_host_allocation(block, *params)
    return subspan(buffer, offset, array.nbytes) if offset and subspan is not None else buffer


Taker = Callable[[Any, "Loans | None"], np.ndarray]


def make_taker(device: Any, local: bool, index: int, result: TensorType, always_copy: bool) -> Taker:
    """Return a function that converts one result of a call to an array that owns its memory.

    The function does not need ``Loans`` if ``is_small(result)``, or if it always copies.
    """
    from iree.runtime import HalBufferView

    dtype, ndarray = result.dtype, np.ndarray
    shape = result.static_shape or ()

    def copy(results: Any, _: Loans | None) -> np.ndarray:
        return ndarray(shape, dtype, results.get_as_object(index, HalBufferView).map()).copy()

    def take(results: Any, loans: Loans | None) -> np.ndarray:
        view = results.get_as_object(index, HalBufferView)
        mapping = view.map()
        # IREE's own `mapping.asarray` does not keep the mapping alive for views of the array; this does.
        array = ndarray(tuple(view.shape), dtype, mapping)
        if always_copy or array.nbytes <= COPY_LIMIT or loans is None:
            return array.copy()
        is_free, donated = loans.claim(array)
        if not is_free:
            return array.copy()
        if donated is not None:
            return array_over(array, mapping, donated, device)
        # When Python ends, the device must not be closed before the array is deleted: owners are released last to first.
        block = bytes_at(address(array), array.nbytes, (device, mapping))
        return ndarray(array.shape, dtype, block)

    def read_back(results: Any, _: Loans | None) -> np.ndarray:
        return _read_back(device, results.get_as_object(index, HalBufferView), dtype)

    if not local:
        return read_back
    copies = always_copy and result.static_shape is not None
    return copy if copies or is_small(result) else take


def is_small(tensor: TensorType) -> bool:
    """Whether copying a tensor of this type is faster than sharing its memory."""
    return tensor.nbytes is not None and tensor.nbytes <= COPY_LIMIT


def _read_back(device: Any, view: Any, dtype: np.dtype) -> np.ndarray:
    """Copy a result out of a device's own memory, through a buffer that the host can map.

    The runtime's own ``to_host`` uses NumPy's memory directly, which Vulkan rejects at most addresses.
    """
    from iree.runtime import BufferUsage, HalFence, MemoryType

    if view.byte_length == 0:
        return np.empty(tuple(view.shape), dtype)
    source = view.get_buffer()
    staging = device.allocator.allocate_buffer(
        int(MemoryType.HOST_LOCAL) | int(MemoryType.DEVICE_VISIBLE),
        int(BufferUsage.TRANSFER_TARGET) | int(BufferUsage.MAPPING_SCOPED),
        source.byte_length(),
    )
    semaphore = device.create_semaphore(0)
    begin, end = HalFence.create_at(semaphore, 0), HalFence.create_at(semaphore, 1)
    device.queue_copy(source, staging, wait_semaphores=begin, signal_semaphores=end)
    end.wait()
    return np.ndarray(tuple(view.shape), dtype, staging.map()).copy()


def _content(array: np.ndarray) -> np.ndarray:
    """Return the array's bytes. Arrays are passed to IREE in this form, because the buffer protocol has no bfloat16."""
    return array.reshape(-1).view(np.uint8)


def _host_memory() -> tuple[int, int]:
    """Return memory type and usage of a buffer in host memory."""
    from iree.runtime import BufferUsage, MemoryType

    memory = int(MemoryType.HOST_LOCAL) | int(MemoryType.DEVICE_VISIBLE)
    return memory, int(BufferUsage.DEFAULT) | int(BufferUsage.MAPPING)

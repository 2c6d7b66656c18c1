"""How arrays get into a program and results out of it, and who owns their memory meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlx.backends.iree.abi import ArgumentType, TensorType, element_type
from rlx.backends.iree.memory import ALIGNMENT, COPY_LIMIT, address, array_over


class Loans:
    """The callers' memory that one call may use, and the results that it handed out, as ranges of addresses."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int, np.ndarray | None]] = []

    def lend(self, start: int, array: np.ndarray, donated: bool) -> None:
        """Note that the program uses ``array``, which lies at ``start``, and whether the caller gave it up."""
        self._ranges.append((start, start + array.nbytes, array if donated else None))

    def claim(self, result: np.ndarray) -> tuple[bool, np.ndarray | None]:
        """Whether ``result`` may be handed out uncopied, and the donated array that its memory belongs to."""
        start = address(result)
        stop = start + result.nbytes
        touched = [entry for entry in self._ranges if start < entry[1] and entry[0] < stop]
        if not touched:
            self._ranges.append((start, stop, None))
            return True, None
        if len(touched) > 1 or touched[0][2] is None:
            return False, None
        self._ranges.remove(touched[0])
        self._ranges.append((*touched[0][:2], None))  # a second result in the same memory is a copy
        return True, touched[0][2]


class Stage:
    """A buffer that is made once, into which a small argument is copied at each call.

    Attributes:
        array: The buffer's memory as NumPy sees it.
        view: The same as the program sees it.
    """

    def __init__(self, device: Any, argument: TensorType) -> None:
        from iree.runtime import HalBufferView

        size, shape = argument.nbytes, argument.static_shape
        assert size is not None and shape is not None
        buffer = device.allocator.allocate_buffer(*_host_memory(), size)
        mapping = buffer.map()
        block = np.ndarray(shape, argument.dtype, mapping)
        self.array = array_over(block, mapping)
        self.view = HalBufferView(buffer, list(shape), element_type(argument.dtype))


Passer = Callable[[np.ndarray, Loans], Any]
Taker = Callable[[Any, "Loans | None"], np.ndarray]


def make_passer(device: Any, local: bool, argument: TensorType) -> Passer:
    """A function from the caller's array to the buffer view that a program gets."""
    from iree.runtime import BufferUsage, HalBufferView, MemoryType

    allocator = device.allocator
    element = element_type(argument.dtype)
    memory, usage = _host_memory()
    if not local:
        memory, usage = int(MemoryType.DEVICE_LOCAL), int(BufferUsage.DEFAULT)
    access = argument.access if isinstance(argument, ArgumentType) else "copy"

    def copy(array: np.ndarray, _: Loans) -> Any:
        content = array.reshape(-1).view(np.uint8)  # by bytes: the buffer protocol knows no bfloat16
        buffer = allocator.allocate_buffer_copy(memory, usage, device, content)
        return HalBufferView(buffer, array.shape, element)

    def lend(array: np.ndarray, loans: Loans) -> Any:
        if array.nbytes <= COPY_LIMIT or not array.flags.writeable:
            return copy(array, loans)
        start = address(array)
        if start % ALIGNMENT:
            return copy(array, loans)
        loans.lend(start, array, access == "donate")
        return HalBufferView(allocator.import_host_allocation(array, memory, usage), array.shape, element)

    return lend if local and access != "copy" else copy


def make_taker(device: Any, local: bool, index: int, result: TensorType, always_copy: bool) -> Taker:
    """A function from the list of results to the array, which owns its memory, that the caller gets.

    It needs no ``Loans`` if ``is_small(result)``, or if it always copies.
    """
    from iree.runtime import HalBufferView

    dtype, static, ndarray = result.dtype, result.static_shape, np.ndarray

    def copy(results: Any, _: Loans | None) -> np.ndarray:
        return ndarray(static, dtype, results.get_as_object(index, HalBufferView).map()).copy()

    def take(results: Any, loans: Loans | None) -> np.ndarray:
        view = results.get_as_object(index, HalBufferView)
        mapping = view.map()
        array = ndarray(tuple(view.shape), dtype, mapping)
        if always_copy or array.nbytes <= COPY_LIMIT or loans is None:
            return array.copy()
        free, donated = loans.claim(array)
        return array_over(array, mapping, donated) if free else array.copy()

    def read_back(results: Any, _: Loans | None) -> np.ndarray:
        return _read_back(device, results.get_as_object(index, HalBufferView), dtype)

    if not local:
        return read_back
    return copy if static is not None and (always_copy or is_small(result)) else take


def is_small(tensor: TensorType) -> bool:
    """Whether copying a tensor of this type is faster than not copying it."""
    return tensor.nbytes is not None and tensor.nbytes <= COPY_LIMIT


def _read_back(device: Any, view: Any, dtype: np.dtype) -> np.ndarray:
    """Copy a result out of a device's own memory, through a buffer that the host can map.

    The runtime's ``to_host`` imports NumPy's memory instead, which Vulkan refuses at most addresses.
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


def _host_memory() -> tuple[int, int]:
    """Memory type and usage of a buffer in the host's own memory."""
    from iree.runtime import BufferUsage, MemoryType

    memory = int(MemoryType.HOST_LOCAL) | int(MemoryType.DEVICE_VISIBLE)
    return memory, int(BufferUsage.DEFAULT) | int(BufferUsage.MAPPING)

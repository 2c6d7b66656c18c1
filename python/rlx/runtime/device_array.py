"""`DeviceArray`: a result that stays in the memory of its device."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlx.ir import dlpack
from rlx.ir.calls import Answered
from rlx.ir.dtype import dtype as rlx_dtype
from rlx.support.errors import Error
from rlx.support.locks import holding, make_lock
from rlx.support.printable import printable


class _NotLent(Error, BufferError):
    """The error for an array that DLPack cannot export; consumers expect a `BufferError`."""

    __str__ = Exception.__str__


class DeviceArray(Answered):
    """An immutable array in the memory of a device. Created by `Program.run_device`.

    Programs on the same device take it without a copy, all others and NumPy (`np.asarray(a)`) through the host. If the
    device is the CPU, NumPy shares its memory. After it is passed for a donated input, using it is an error.

    Args:
        buffer: The buffer of the back end: a NumPy array, or an object with `__array__` and `__dlpack__`.
        device: The name of the device.
        name: The name of the output.
    """

    __slots__ = ("_buffer", "_lock", "_shared", "device", "dtype", "name", "shape")

    shape: tuple[int, ...]
    dtype: np.dtype

    def __init__(self, buffer: Any, device: str, name: str):
        self._buffer, self.device, self.name = buffer, device, name
        self.shape, self.dtype = tuple(buffer.shape), np.dtype(buffer.dtype)
        self._shared = False  # whether others share its memory; if so, it must not be overwritten
        self._lock = make_lock()

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The bytes of its elements."""
        return self.size * self.dtype.itemsize

    @property
    def is_donated(self) -> bool:
        """Whether it was passed for a donated input, and cannot be used any more."""
        return self._buffer is None

    def _present(self, what: str = "") -> Any:
        buffer = self._buffer
        if buffer is None:
            raise Error(
                f"{what + ': ' if what else ''}this device array (output '{self.name}', {self.dtype}{list(self.shape)}) was "
                "donated to a run, and its memory may hold other numbers now",
                hint="declare the input without donate=True, or take np.array(a) before",
            )
        return buffer

    def lent(self, for_device: bool, what: str) -> Any:
        """Return the value for a program that only reads it: the buffer itself if possible.

        Args:
            for_device: Whether the program accepts buffers of this kind; otherwise it gets a NumPy array.
            what: The argument that it is for.

        Raises:
            Error: It has been donated.
        """
        buffer = self._present(what)
        return buffer if for_device or isinstance(buffer, np.ndarray) else np.asarray(buffer)

    def given_away(self, for_device: bool, what: str) -> Any:
        """Return the value for a program that may write to it.

        The memory then belongs to the program. If others share the memory, the program gets a copy.
        """
        return holding(self._lock, self._give_away, for_device, what)

    def _give_away(self, for_device: bool, what: str) -> Any:
        buffer = self.lent(for_device, what)
        self._buffer = None
        return buffer.copy() if self._shared and isinstance(buffer, np.ndarray) else buffer

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(holding(self._lock, self._read_only), dtype, copy=copy)

    def _read_only(self) -> np.ndarray:
        view = np.asarray(self._share()).view()
        view.flags.writeable = False
        return view

    def _share(self) -> Any:
        buffer = self._present()
        self._shared = True
        return buffer

    def __dlpack__(self, **options: Any) -> Any:
        """Export the memory of the array to another library, which must not write to it.

        Raises:
            Error: It has been donated, or the protocol lacks its dtype.
        """
        buffer = holding(self._lock, self._share)
        try:
            return dlpack.lent(buffer, **options) if isinstance(buffer, np.ndarray) else buffer.__dlpack__(**options)
        except BufferError as problem:
            raise _NotLent(
                f"output '{self.name}' is {rlx_dtype(self.dtype).name}, which DLPack cannot pass on here: {problem}",
                hint="np.asarray(a) gives an array of NumPy; its .view(np.uint8) has the bits",
            ) from problem

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._present().__dlpack_device__()

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a device array without axes")
        return self.shape[0]

    def __reduce__(self) -> tuple[Any, ...]:
        return DeviceArray, (np.array(self), self.device, self.name)

    def __repr__(self) -> str:
        donated = ", donated" if self.is_donated else ""
        text = f"<DeviceArray {self.name}: {self.dtype}{list(self.shape)} on {self.device}{donated}>"
        return printable(text, keep="")

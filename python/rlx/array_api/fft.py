"""The extension `fft` of the array API, of complex64 and float32: the transforms that there are helpers of."""

from __future__ import annotations

from typing import Any

from rlx.array_api.arrays import builder, check_device
from rlx.ir.dtype import dtype as dtype_named
from rlx.ir.dtype import f32
from rlx.ops.signal.fft import resized

__all__ = ["fft", "fftfreq", "fftn", "fftshift", "ifft", "ifftn", "ifftshift", "irfft", "rfft", "rfftfreq"]


def fft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
    """The discrete Fourier transform of an axis."""
    return builder(x).fft(x, n, axis, norm)


def ifft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
    """The inverse of `fft`."""
    return builder(x).ifft(x, n, axis, norm)


def fftn(x: Any, /, *, s: Any = None, axes: Any = None, norm: str = "backward") -> Any:
    """The discrete Fourier transform of several axes."""
    return builder(x).fftn(x, s, axes, norm)


def ifftn(x: Any, /, *, s: Any = None, axes: Any = None, norm: str = "backward") -> Any:
    """The inverse of `fftn`."""
    return builder(x).ifftn(x, s, axes, norm)


def rfft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
    """The first half of the transform of real numbers."""
    return builder(x).rfft(x, n, axis, norm)


def irfft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
    """The inverse of `rfft`."""
    count = 2 * (x.shape.dims[axis] - 1) if n is None else n
    return builder(x).irfft(resized(builder(x), x, count // 2 + 1, axis % x.rank), length=count, axis=axis, norm=norm)


def fftshift(x: Any, /, *, axes: Any = None) -> Any:
    """Frequency 0 moved to the middle."""
    return builder(x).fftshift(x, axes)


def ifftshift(x: Any, /, *, axes: Any = None) -> Any:
    """The inverse of `fftshift`."""
    return builder(x).ifftshift(x, axes)


def fftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Any:
    """The frequencies of `fft`, in cycles per unit of the sample spacing `d`."""
    check_device(device)
    return builder().cast(builder().fftfreq(n, d), f32 if dtype is None else dtype_named(dtype))


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Any:
    """The frequencies of `rfft`."""
    check_device(device)
    return builder().cast(builder().rfftfreq(n, d), f32 if dtype is None else dtype_named(dtype))

"""The extension `fft` of the array API, of complex64 and float32: the transforms that there are helpers of."""

from __future__ import annotations

from typing import Any

from rlx.array_api.arrays import builder, check_device
from rlx.ir.dtype import dtype as dtype_named
from rlx.ir.dtype import f32

__all__ = ["fft", "fftfreq", "fftn", "fftshift", "ifft", "ifftn", "ifftshift", "irfft", "rfft", "rfftfreq"]


def fft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
    """The discrete Fourier transform of an axis."""
    return builder(x).fft(_sized(x, n, axis), axis, norm=norm)


def ifft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
    """The inverse of `fft`."""
    return builder(x).ifft(_sized(x, n, axis), axis, norm=norm)


def fftn(x: Any, /, *, s: Any = None, axes: Any = None, norm: str = "backward") -> Any:
    """The discrete Fourier transform of several axes."""
    return builder(x).fftn(_sized_axes(x, s, axes), axes=_axes(x, s, axes), norm=norm)


def ifftn(x: Any, /, *, s: Any = None, axes: Any = None, norm: str = "backward") -> Any:
    """The inverse of `fftn`."""
    return builder(x).ifftn(_sized_axes(x, s, axes), axes=_axes(x, s, axes), norm=norm)


def rfft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
    """The first half of the transform of real numbers."""
    return builder(x).rfft(_sized(x, n, axis), axis, norm=norm)


def irfft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
    """The inverse of `rfft`."""
    count = 2 * (x.shape.dims[axis] - 1) if n is None else n
    return builder(x).irfft(_sized(x, count // 2 + 1, axis), length=count, axis=axis, norm=norm)


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


def _sized(x: Any, n: int | None, axis: int) -> Any:
    """An axis cut to `n`, or zeros behind it."""
    size = x.shape.dims[axis]
    if n is None or n == size:
        return x
    b = builder(x)
    if n < size:
        return b.narrow(x, axis, 0, n)
    return b.pad(x, [(0, n - size) if i == axis % x.rank else (0, 0) for i in range(x.rank)])


def _axes(x: Any, s: Any, axes: Any) -> Any:
    return axes if axes is not None or s is None else tuple(range(x.rank - len(s), x.rank))


def _sized_axes(x: Any, s: Any, axes: Any) -> Any:
    for n, axis in zip(s or (), _axes(x, s, axes) or (), strict=False):
        x = _sized(x, n, axis)
    return x

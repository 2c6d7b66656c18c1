"""The `fft` extension of the array API, for complex and real floats."""

from __future__ import annotations

from collections.abc import Sequence

from rlx.array_api.arrays import builder, check_device
from rlx.ir.dtype import dtype as dtype_named
from rlx.ir.dtype import f32
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.typing import Axes, DTypeLike
from rlx.ops.signal.fft import resize_axis

__all__ = [
    "fft",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "ifft",
    "ifftn",
    "ifftshift",
    "ihfft",
    "irfft",
    "irfftn",
    "rfft",
    "rfftfreq",
    "rfftn",
]

# The scale of a transform is that of its inverse with these norms swapped.
_EXCHANGED = {"backward": "forward", "forward": "backward"}


def fft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The discrete Fourier transform along an axis."""
    return builder(x).fft(x, axis, norm=norm, n=n)


def ifft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The inverse of `fft`."""
    return builder(x).ifft(x, axis, norm, n=n)


def fftn(
    x: Tensor, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward"
) -> Tensor:
    """The discrete Fourier transform along several axes."""
    return builder(x).fftn(x, axes, norm, s=s)


def ifftn(
    x: Tensor, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward"
) -> Tensor:
    """The inverse of `fftn`."""
    return builder(x).ifftn(x, axes, norm, s=s)


def rfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The first half of the transform of real numbers."""
    return builder(x).rfft(x, axis, norm, n=n)


def irfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The inverse of `rfft`."""
    count = 2 * (x.shape.dims[axis] - 1) if n is None else n
    return builder(x).irfft(
        resize_axis(builder(x), x, count // 2 + 1, axis % x.rank), length=count, axis=axis, norm=norm
    )


def rfftn(
    x: Tensor, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward"
) -> Tensor:
    """`rfft` of the last of several axes, and `fft` of the others."""
    *others, last = _all_axes(x, s, axes)
    return _others(rfft(_sized_axes(x, s, axes), axis=last, norm=norm), others, False, norm)


def irfftn(
    x: Tensor, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward"
) -> Tensor:
    """The inverse of `rfftn`."""
    *others, last = _all_axes(x, s, axes)
    x = _sized_axes(x, s[:-1], others) if s is not None else x
    return irfft(_others(x, others, True, norm), n=None if s is None else s[-1], axis=last, norm=norm)


def hfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The real transform of a Hermitian signal, given by its first half."""
    return irfft(x.builder.conjugate(x), n=n, axis=axis, norm=_EXCHANGED.get(norm, norm))


def ihfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The inverse of `hfft`."""
    return x.builder.conjugate(rfft(x, n=n, axis=axis, norm=_EXCHANGED.get(norm, norm)))


def fftshift(x: Tensor, /, *, axes: Axes | None = None) -> Tensor:
    """Frequency 0 moved to the middle."""
    return builder(x).fftshift(x, axes)


def ifftshift(x: Tensor, /, *, axes: Axes | None = None) -> Tensor:
    """The inverse of `fftshift`."""
    return builder(x).ifftshift(x, axes)


def fftfreq(n: int, /, *, d: float = 1.0, dtype: DTypeLike | None = None, device: str | None = None) -> Tensor:
    """The frequencies of `fft`, in cycles per unit of the sample spacing `d`."""
    check_device(device)
    return builder().cast(builder().fftfreq(n, d), f32 if dtype is None else dtype_named(dtype))


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: DTypeLike | None = None, device: str | None = None) -> Tensor:
    """The frequencies of `rfft`."""
    check_device(device)
    return builder().cast(builder().rfftfreq(n, d), f32 if dtype is None else dtype_named(dtype))


def _axes(x: Tensor, s: Sequence[int] | None, axes: Sequence[int] | None) -> Sequence[int] | None:
    return axes if axes is not None or s is None else tuple(range(x.rank - len(s), x.rank))


def _all_axes(x: Tensor, s: Sequence[int] | None, axes: Sequence[int] | None) -> list[int]:
    """Return the axes of a transform as integers.

    Raises:
        ValueError: There are none.
    """
    found = _axes(x, s, axes)
    numbers = list(range(x.rank)) if found is None else list(found)
    if not numbers:
        raise ValueError("a transform of real numbers needs an axis")
    return numbers


def _others(x: Tensor, axes: list[int], inverse: bool, norm: str) -> Tensor:
    """Return the transform of complex numbers along axes, possibly none."""
    b = builder(x)
    return (b.ifftn if inverse else b.fftn)(x, axes=tuple(axes), norm=norm) if axes else x


def _sized_axes(x: Tensor, s: Sequence[int] | None, axes: Sequence[int] | None) -> Tensor:
    for n, axis in zip(s or (), _axes(x, s, axes) or (), strict=False):
        x = resize_axis(builder(x), x, n, axis % x.rank)
    return x

"""Functions based on Fourier transforms: multidimensional transforms, frames, spectral densities, convolution."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx.ir.dims.dim import Dim, maximum
from rlx.ir.dtype import f32
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import TensorLike, Window
from rlx.ops.elementwise.complex import as_complex, as_part
from rlx.ops.lift import axes_of, axis_of, cast, tensor_like
from rlx.ops.signal.fft import resize_axis
from rlx.ops.signal.fourier import convolution_length, multiplicities
from rlx.ops.surface import helper
from rlx.support.errors import ShapeError
from rlx.support.guards import is_integer

# --- transforms -------------------------------------------------------------------------------------


@helper
def ifft(b: Builder, x: TensorLike, axis: int = -1, norm: str | None = "backward", *, n: int | None = None) -> Tensor:
    """NumPy's `ifft`: the inverse of `fft` along an axis."""
    return b.fft(x, axis, True, norm, n=n)


@helper
def fft_axis(b: Builder, x: TensorLike, axis: int, inverse: bool = False, norm: str = "backward") -> Tensor:
    """`fft` along a given axis."""
    return b.fft(x, axis=axis, inverse=inverse, norm=norm)


@helper
def fftn(
    b: Builder,
    x: TensorLike,
    axes: int | Sequence[int] | None = None,
    norm: str | None = "backward",
    *,
    s: Sequence[int] | None = None,
) -> Tensor:
    """NumPy's `fftn`: the transform along several axes, by default along all."""
    return _over_axes(b, x, s, axes, False, norm)


@helper
def ifftn(
    b: Builder,
    x: TensorLike,
    axes: int | Sequence[int] | None = None,
    norm: str | None = "backward",
    *,
    s: Sequence[int] | None = None,
) -> Tensor:
    """NumPy's `ifftn`: the inverse of `fftn`."""
    return _over_axes(b, x, s, axes, True, norm)


def _over_axes(
    b: Builder,
    x: TensorLike,
    s: int | Sequence[int] | None,
    axes: int | Sequence[int] | None,
    inverse: bool,
    norm: str | None,
) -> Tensor:
    x = as_complex(b, x)
    if s is not None:
        sizes = [s] if isinstance(s, int) else list(s)
        places: Sequence[int] = range(x.rank - len(sizes), x.rank) if axes is None else np.atleast_1d(axes).tolist()
        if len(places) != len(sizes) or len(sizes) > x.rank:
            raise ShapeError(
                f"{len(sizes)} sizes for {len(places)} axes of {x.shape}", hint="the axes are given as axes=…"
            )
        axes = tuple(places)
        for n, axis in zip(sizes, places, strict=True):
            x = resize_axis(b, x, n, axis_of(axis, x.rank))
    for axis in reversed(axes_of(axes, x.rank)):
        x = b.fft(x, axis=axis, inverse=inverse, norm=norm)
    return x


@helper
def fft_real(b: Builder, x: TensorLike, axis: int = -1, norm: str = "backward") -> Tensor:
    """`fft` of real numbers: all N elements of the spectrum, c64. The upper half mirrors the lower half.

    It takes half the work of `fft` if the axis has a known length.
    """
    x = _real(b, x, "fft_real")
    axis = axis_of(axis, x.rank)
    n = x.shape.dims[axis]
    if type(n) is not int or n < 3:
        return b.fft(x, axis=axis, norm=norm)
    lower = b.rfft(x, axis=axis, norm=norm)
    upper = b.gather(lower, b.constant(np.arange((n - 1) // 2, 0, -1, dtype=np.int32)), axis)
    return b.concat([lower, b.conjugate(upper)], axis)


def _real(b: Builder, value: object, name: str) -> Tensor:
    """Return a real tensor in f32 or f64."""
    x = tensor_like(b, value, f32)
    if x.dtype.is_complex:
        raise ShapeError(f"{name} takes real numbers, not {x.dtype.name}")
    return as_part(b, x)


@helper
def split_spectrum(b: Builder, x: TensorLike) -> tuple[Tensor, Tensor]:
    """The real and imaginary part of a spectrum, f32 or f64."""
    x = as_complex(b, x)
    return b.real(x), b.imag(x)


@helper
def ifft_spectrum(b: Builder, real: TensorLike, imag: TensorLike, axis: int = -1, norm: str = "backward") -> Tensor:
    """The complex signal of a spectrum in two parts, as returned by `split_spectrum`."""
    return b.fft(b.complex(real, imag), axis=axis, inverse=True, norm=norm)


# --- frames and convolution -------------------------------------------------------------------------


@helper
def stft(b: Builder, x: TensorLike, frame_length: int, hop: int, window: TensorLike | None = None) -> Tensor:
    """Short-time Fourier transform along the last axis.

    Args:
        b: The builder.
        x: `[…, T]`, real or complex.
        frame_length: The number of elements of a frame. Frames that would exceed the end are omitted.
        hop: The distance between the starts of two frames.
        window: A factor for each element of a frame: an array or tensor of `frame_length` numbers; None means all ones.

    Returns:
        Complex `[…, frames, bins]` with `frames = (T - frame_length)//hop + 1`. `bins` is `frame_length//2 + 1` for a
        real signal, `frame_length` for a complex one. It is not scaled. With a symbolic length there may be no frame.

    Raises:
        ShapeError: The signal is known to be shorter than a frame, or a size is not positive.
    """
    x = tensor_like(b, x, f32)
    x = x if x.dtype.is_complex else as_part(b, x)
    axis = axis_of(-1, x.rank)
    total = x.shape.dims[axis]
    for name, size in (("frame_length", frame_length), ("hop", hop)):
        if not is_integer(size) or size < 1:
            raise ShapeError(f"{name} must be a positive integer, got {size!r}")
    if type(total) is int and total < frame_length:
        raise ShapeError(f"a signal of {total} elements has no frame of {frame_length}", hint="pad it at the end")
    count = (total - frame_length) // hop + 1
    if type(total) is not int:
        count = maximum(count, 0)
    starts = b.iota((count, 1), dtype="i32") * int(hop)
    frames = b.gather(x, starts + b.iota((1, frame_length), axis=1, dtype="i32"), axis)
    if window is not None:
        window = as_part(b, window if isinstance(window, Tensor) else np.asarray(window, x.dtype.part.numpy))
        if window.shape.dims != (frame_length,):
            raise ShapeError(f"the window must have {frame_length} elements, got {window.shape}")
        frames = frames * window
    return b.fft(frames) if x.dtype.is_complex else b.rfft(frames)


@helper
def fft_conv1d(b: Builder, x: TensorLike, kernel: Window) -> Tensor:
    """SciPy's `fftconvolve(x, kernel, "full")`: the full linear convolution along the last axis, by Fourier transforms.

    Args:
        b: The builder.
        x: `[…, T]`, real or complex.
        kernel: `[…, K]`; the leading axes broadcast with those of x.

    Returns:
        `[…, T + K - 1]`: real, or complex if one of the two is.
    """
    tensors = [tensor_like(b, value, f32) for value in (x, kernel)]
    is_complex = any(t.dtype.is_complex for t in tensors)
    signals = [as_complex(b, t) if is_complex else as_part(b, t) for t in tensors]
    sizes = [s.shape.dims[axis_of(-1, s.rank)] for s in signals]
    if 0 in sizes:
        raise ShapeError("neither the signal nor the kernel may be empty")
    size = sizes[0] + sizes[1] - 1
    length = convolution_length(size) if type(size) is int else size
    signals = [_grown(b, s, length) for s in signals]
    if is_complex:
        convolved = b.ifft(b.fft(signals[0]) * b.fft(signals[1]))
    else:
        convolved = b.irfft(b.rfft(signals[0]) * b.rfft(signals[1]), length)
    return b.narrow(convolved, -1, 0, size)


def _grown(b: Builder, x: Tensor, length: Dim) -> Tensor:
    """Return the tensor with zeros after the last axis."""
    dims = x.shape.dims
    missing = length - dims[-1]
    if missing == 0:
        return x
    zeros = b.expand(b.constant(np.zeros((), x.dtype.numpy)), (*dims[:-1], missing))
    return b.concat([x, zeros], x.rank - 1)


@helper
def pad_last_axis_to_pow2(b: Builder, x: TensorLike) -> Tensor:
    """The tensor with zeros after the last axis, up to the next power of two.

    Raises:
        ShapeError: The size of the axis is symbolic.
    """
    x = tensor_like(b, x, f32)
    size = x.shape.dims[axis_of(-1, x.rank)]
    if type(size) is not int:
        raise ShapeError(f"the next power of two is not known for the size {size}", hint="bind it first")
    return _grown(b, x, 1 << max(size - 1, 0).bit_length())


# --- densities --------------------------------------------------------------------------------------


@helper
def psd(b: Builder, x: TensorLike, sample_rate: float = 1.0, axis: int = -1) -> Tensor:
    """Power spectral density `|X[k]|²/(sample_rate·N)` for all N frequencies.

    It is SciPy's `signal.periodogram(x, sample_rate, detrend=False, return_onesided=False, scaling="density")`. Its sum
    times `sample_rate/N` is the mean power. Frequencies are in the order of `fftfreq`.
    """
    x = as_complex(b, x)
    return _density(b, b.fft(x, axis=axis), x, sample_rate, axis)


@helper
def psd_real(b: Builder, x: TensorLike, sample_rate: float = 1.0, axis: int = -1) -> Tensor:
    """Power spectral density of real numbers, one-sided: `N//2 + 1` frequencies, in the order of `rfftfreq`.

    Elements that represent two frequencies count twice, as in SciPy's
    `signal.periodogram(x, sample_rate, detrend=False, scaling="density")`.
    """
    x = _real(b, x, "psd_real")
    axis = axis_of(axis, x.rank)
    spectrum = b.rfft(x, axis=axis)
    density = _density(b, spectrum, x, sample_rate, axis)
    return density * multiplicities(b, x.shape.dims[axis], x.rank - 1 - axis, density.dtype)


def _density(b: Builder, spectrum: Tensor, x: Tensor, sample_rate: float, axis: int) -> Tensor:
    if isinstance(sample_rate, (bool, Tensor)) or not sample_rate > 0:
        raise ShapeError(f"sample_rate must be a positive number, got {sample_rate!r}")
    n = x.shape.dims[axis_of(axis, x.rank)]
    power = b.complex_norm_sq(spectrum)
    if type(n) is int:
        return power * (1 / (float(sample_rate) * n))
    return power / (cast(b, b.dim_size(n), power.dtype) * float(sample_rate))


# --- frequencies ------------------------------------------------------------------------------------


@helper
def fftfreq(b: Builder, n: int, d: float = 1.0) -> Tensor:
    """NumPy's `fftfreq`: the frequencies of a transform of n samples that are `d` apart; an f32 constant."""
    return b.constant(np.fft.fftfreq(_count(n), d).astype(np.float32))


@helper
def rfftfreq(b: Builder, n: int, d: float = 1.0) -> Tensor:
    """NumPy's `rfftfreq`: the frequencies of `rfft` of n samples that are `d` apart; an f32 constant."""
    return b.constant(np.fft.rfftfreq(_count(n), d).astype(np.float32))


def _count(n: object) -> int:
    if not is_integer(n) or n < 1:
        raise ShapeError(f"n must be a positive integer, got {n!r}")
    return int(n)


@helper
def fftshift(b: Builder, x: TensorLike, axes: int | Sequence[int] | None = None) -> Tensor:
    """NumPy's `fftshift`: frequency 0 moved to the middle of the axes, by default of all axes."""
    x = tensor_like(b, x, f32)
    for axis in axes_of(axes, x.rank):
        size = x.shape.dims[axis]
        x = _rotated(b, x, axis, size - size // 2)
    return x


@helper
def ifftshift(b: Builder, x: TensorLike, axes: int | Sequence[int] | None = None) -> Tensor:
    """NumPy's `ifftshift`: the inverse of `fftshift`."""
    x = tensor_like(b, x, f32)
    for axis in axes_of(axes, x.rank):
        x = _rotated(b, x, axis, x.shape.dims[axis] // 2)
    return x


def _rotated(b: Builder, x: Tensor, axis: int, start: Dim) -> Tensor:
    """Return the elements from `start` on, followed by the elements before it."""
    size = x.shape.dims[axis]
    return b.concat([b.narrow(x, axis, start, size - start), b.narrow(x, axis, 0, start)], axis)

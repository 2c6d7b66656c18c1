"""Fourier transforms and spectrograms. Complex numbers are represented by a last axis of size two."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.importers.onnx.rules import (
    Static,
    element_count,
    imports,
    integers,
    known_elements,
    static_dims,
)
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.op.argument_groups import ArgumentGroup
from rlx.support.errors import UnsupportedError


def _complex(g: Graph, x: Tensor) -> Tensor:
    """Return a tensor with real numbers, or (real, imaginary) pairs, along the last axis as a complex tensor."""
    parts = [g.squeeze(g.narrow(x, -1, i, 1), -1) for i in range(static_dims(x, -1)[0])]
    parts = [g.cast(p, "f32") for p in parts]
    return g.complex(parts[0], parts[1] if len(parts) > 1 else g.zeros_like(parts[0]))


def _pairs(g: Graph, x: Tensor, dtype: Any) -> Tensor:
    return g.cast(g.stack([g.real(x), g.imag(x)], -1), dtype)


def _fitted(g: Graph, x: Tensor, axis: int, length: int) -> Tensor:
    """Return the tensor with an axis cut or zero-padded to a length."""
    (size,) = static_dims(x, axis)
    if length <= size:
        return g.narrow(x, axis, 0, length)
    return g.pad(x, [(0, length - size if a == axis else 0) for a in range(x.shape.rank)])


@dataclass(frozen=True)
class DftOperands(ArgumentGroup):
    """The operands of `DFT` after the tensor, in its order."""

    dft_length: Tensor | None = None
    axis: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class DftAttributes(ArgumentGroup):
    """The attributes of `DFT`, with ONNX's names."""

    axis: int | None = None
    inverse: int = 0
    onesided: int = 0


@imports("DFT")
def dft(g: Graph, x: Tensor, operands: DftOperands, *, static: Static, opset: int, transform: DftAttributes) -> Tensor:
    axis, inverse, onesided = transform.axis, transform.inverse, transform.onesided
    given = integers(static, 2, "axis")
    where = given[0] if given else axis if axis is not None else (1 if opset < 20 else -2)
    where = where % x.shape.rank
    length = integers(static, 1, "dft_length")
    dtype = x.dtype
    if dtype.name == "f64":
        raise UnsupportedError("of f64 cannot be imported: complex numbers are of f32")
    if onesided and inverse:  # only half of a spectrum is computed: the other half is its mirror image
        count = length[0] if length else 2 * (static_dims(x, where)[0] - 1)
        half = _fitted(g, _complex(g, x), where, count // 2 + 1)
        return g.cast(g.expand_dims(g.irfft(half, count, where), -1), dtype)
    values = _complex(g, x)
    if length:
        values = _fitted(g, values, where, length[0])
    result = g.fft(values, axis=where, inverse=bool(inverse))
    if onesided:
        result = g.narrow(result, where, 0, result.shape.dims[where] // 2 + 1)
    return _pairs(g, result, dtype)


@dataclass(frozen=True)
class FrameOperands(ArgumentGroup):
    """The operands of `STFT` after the signal, in its order."""

    frame_step: Tensor
    window: Tensor | None = None
    frame_length: Tensor | None = None


@imports("STFT")
def stft(g: Graph, signal: Tensor, frame: FrameOperands, *, static: Static, onesided: int = 1) -> Tensor:
    window = frame.window
    step, length = int(known_elements(static, 1, "frame_step").reshape(())), integers(static, 3, "frame_length")
    size = length[0] if length else static_dims(window, 0)[0] if window is not None else 0
    if not size:
        raise UnsupportedError("without a window and a length of frames cannot be imported")
    values = signal if signal.shape.rank == 3 else g.expand_dims(signal, -1)
    count = (static_dims(values, 1)[0] - size) // step + 1
    element_count(count * size, "elements of frames")
    places = np.arange(count)[:, None] * step + np.arange(size)[None]
    frames = _complex(g, g.gather(values, g.constant(places.astype(np.int32)), axis=1))
    if window is not None:
        frames = g.mul(frames, g.complex(g.cast(window, "f32"), g.zeros(window.shape, dtype="f32")))
    result = g.fft(frames, axis=-1)
    if onesided:
        result = g.narrow(result, -1, 0, size // 2 + 1)
    return _pairs(g, result, signal.dtype)


@dataclass(frozen=True)
class MelOperands(ArgumentGroup):
    """The operands of `MelWeightMatrix`, in its order."""

    num_mel_bins: Tensor
    dft_length: Tensor
    sample_rate: Tensor
    lower_edge_hertz: Tensor
    upper_edge_hertz: Tensor


@imports("MelWeightMatrix")
def mel_weight_matrix(g: Graph, operands: MelOperands, *, static: Static, output_datatype: int = 1) -> Tensor:
    names = ("num_mel_bins", "dft_length", "sample_rate", "lower_edge_hertz", "upper_edge_hertz")
    count, size, sampled, least, most = (float(known_elements(static, i, n).reshape(())) for i, n in enumerate(names))
    spectrum = int(size) // 2 + 1
    element_count(int(count) * spectrum, "weights")
    mel = 2595 * np.log10(1 + np.array([least, most]) / 700)
    edges = mel[0] + np.arange(int(count) + 2) * ((mel[1] - mel[0]) / (count + 2))
    places = ((700 * (10 ** (edges / 2595) - 1)) * (size + 1) // sampled).astype(np.int64)
    result = np.zeros((spectrum, int(count)))
    for i in range(int(count)):
        first, middle, last = places[i : i + 3]
        if middle == first:
            result[middle, i] = 1
        else:
            result[first : middle + 1, i] = np.arange(middle - first + 1) / (middle - first)
        if last > middle:
            result[middle:last, i] = np.arange(last - middle, 0, -1) / (last - middle)
    return g.constant(result.astype(np.float64 if output_datatype == 11 else np.float32))

"""Functions based on Fourier transforms, against the NumPy and SciPy functions of the same names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir.dtype import dtype
from rlx.ir.graph.evaluate import evaluate
from rlx.ir.graph.graph import Graph
from rlx.ir.shape import Shape
from rlx.support.errors import ShapeError
from tests.ops.references import random

LIMIT = 5e-7
WINDOW = np.asarray(0.5 - 0.5 * np.cos(2 * np.pi * np.arange(8) / 8), np.float32)  # Hann's


def built(function: Callable[..., Any], *arrays: np.ndarray, dims: Any = None) -> list[np.ndarray]:
    """Return the results of a function of a graph and its tensors; `dims` declares sizes other than those of the arrays."""
    graph = Graph()
    declared = [a.shape for a in arrays] if dims is None else dims
    tensors = [
        graph.input(f"x{i}", Shape(d, dtype(a.dtype))) for i, (a, d) in enumerate(zip(arrays, declared, strict=True))
    ]
    results = function(graph, *tensors)
    graph.set_outputs(list(results) if isinstance(results, (list, tuple)) else results)
    return evaluate(graph, {f"x{i}": a for i, a in enumerate(arrays)})


def same(got: np.ndarray, expected: Any) -> None:
    """Assert that a result has f32 accuracy."""
    expected = np.asarray(expected)
    assert got.shape == expected.shape and got.dtype.kind == expected.dtype.kind
    assert np.linalg.norm(got - expected) <= LIMIT * np.linalg.norm(expected)


def exact(x: np.ndarray) -> np.ndarray:
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
@pytest.mark.parametrize("axes", [None, 1, (0, -1), (2, 1)])
def test_several_axes(axes: Any, norm: Any) -> None:
    z = random("c64", (3, 4, 10))
    listed = (axes,) if isinstance(axes, int) else axes
    same(built(lambda g, x: g.fftn(x, axes, norm), z)[0], np.fft.fftn(exact(z), axes=listed, norm=norm))
    same(built(lambda g, x: g.ifftn(x, axes, norm), z)[0], np.fft.ifftn(exact(z), axes=listed, norm=norm))


def test_one_axis() -> None:
    z = random("c64", (3, 4, 10))
    same(built(lambda g, x: g.ifft(x, 1, "ortho"), z)[0], np.fft.ifft(exact(z), axis=1, norm="ortho"))
    same(built(lambda g, x: g.fft_axis(x, 0), z)[0], np.fft.fft(exact(z), axis=0))
    same(built(lambda g, x: g.fft_axis(x, -2, inverse=True), z)[0], np.fft.ifft(exact(z), axis=1))
    x = random("f32", (3, 4), seed=1)
    same(built(lambda g, v: rlx.ops.ifft(v), x)[0], np.fft.ifft(exact(x)))


@pytest.mark.parametrize("n", range(1, 9))
def test_whole_spectrum_of_real_numbers(n: int) -> None:
    x = random("f32", (2, n, 3))
    same(built(lambda g, v: g.fft_real(v, 1, "ortho"), x)[0], np.fft.fft(exact(x), axis=1, norm="ortho"))
    flat = random("f32", (4, n), seed=2)
    same(built(lambda g, v: g.fft_real(v), flat, dims=[("b", "n")])[0], np.fft.fft(exact(flat)))


def test_parts_of_a_spectrum() -> None:
    z = random("c64", (2, 9))
    real, imag = built(lambda g, x: g.split_spectrum(g.fft(x)), z)
    same(real, np.fft.fft(exact(z)).real)
    same(imag, np.fft.fft(exact(z)).imag)
    same(built(lambda g, x: g.ifft_spectrum(*g.split_spectrum(g.fft(x))), z)[0], z)


@pytest.mark.parametrize(("length", "hop"), [(8, 1), (8, 3), (8, 8), (8, 50)])
@pytest.mark.parametrize("name", ["f32", "c64"])
def test_stft(name: str, length: int, hop: int) -> None:
    x = random(name, (2, 3, 50))
    frames = np.lib.stride_tricks.sliding_window_view(exact(x), length, axis=-1)[..., ::hop, :] * WINDOW
    expected = np.fft.fft(frames) if name == "c64" else np.fft.rfft(frames)
    for dims in (None, [("b", 3, "t")]):
        same(built(lambda g, v: g.stft(v, length, hop, WINDOW), x, dims=dims)[0], expected)
    without = np.lib.stride_tricks.sliding_window_view(exact(x), 7, axis=-1)[..., ::hop, :]
    expected = np.fft.fft(without) if name == "c64" else np.fft.rfft(without)
    same(built(lambda g, v: g.stft(v, 7, hop), x)[0], expected)


def test_stft_is_scipys() -> None:
    import scipy.signal

    x = random("f32", (200,))
    ours = built(lambda g, v: g.stft(v, 8, 4, WINDOW), x)[0]
    theirs = scipy.signal.ShortTimeFFT(exact(WINDOW), hop=4, fs=1.0, phase_shift=None).stft(exact(x))
    middle = theirs.T[theirs.shape[1] - ours.shape[0] - 1 :][: len(ours)]  # SciPy has frames beyond both ends too
    same(ours, middle)


@pytest.mark.parametrize("sizes", [(50, 7), (7, 50), (1, 1), (33, 32), (5, 1)])
@pytest.mark.parametrize("names", [("f32", "f32"), ("c64", "f32"), ("f32", "c64")])
def test_convolution(sizes: tuple[int, int], names: tuple[str, str]) -> None:
    import scipy.signal

    x, kernel = random(names[0], (2, 3, sizes[0]), seed=1), random(names[1], (1, sizes[1]), seed=2)
    expected = scipy.signal.fftconvolve(exact(x), exact(kernel)[None], axes=-1)
    same(built(lambda g, v, k: g.fft_conv1d(v, k), x, kernel)[0], expected)
    symbolic = [("b", 3, "t"), (1, sizes[1])]
    same(built(lambda g, v, k: g.fft_conv1d(v, k), x, kernel, dims=symbolic)[0], expected)


@pytest.mark.parametrize("n", [2, 3, 8, 15, 64])
def test_densities(n: int) -> None:
    import scipy.signal

    x, z = random("f32", (2, n, 3), seed=1), random("c64", (2, n, 3), seed=2)
    told: dict[str, Any] = {"detrend": False, "axis": 1}
    for dims in (None, [("b", "n", 3)]):
        _, one_sided = scipy.signal.periodogram(exact(x), 2.5, **told)
        same(built(lambda g, v: g.psd_real(v, 2.5, 1), x, dims=dims)[0], one_sided)
        _, whole = scipy.signal.periodogram(exact(z), 2.5, return_onesided=False, **told)
        same(built(lambda g, v: g.psd(v, 2.5, axis=1), z, dims=dims)[0], whole)
    total = built(lambda g, v: g.psd(v, 2.5, axis=1), z)[0].sum(1) * 2.5 / n
    same(total, np.mean(np.abs(exact(z)) ** 2, axis=1))


@pytest.mark.parametrize("n", [1, 2, 7, 8])
def test_frequencies(n: int) -> None:
    same(built(lambda g: g.fftfreq(n, 0.1))[0], np.fft.fftfreq(n, 0.1))
    same(built(lambda g: g.rfftfreq(n, 0.1))[0], np.fft.rfftfreq(n, 0.1))
    for x in (random("f32", (n, 5)), random("i32", (n, 5))):
        for name in ("fftshift", "ifftshift"):
            for axes in (None, 0, (1,)):
                expected = getattr(np.fft, name)(x, axes)
                for dims in (None, [("n", 5)]):
                    got = built(lambda g, v, f=name, a=axes: getattr(g, f)(v, a), x, dims=dims)[0]
                    assert np.array_equal(got, expected)


@pytest.mark.parametrize(("size", "grown"), [(0, 1), (1, 1), (2, 2), (3, 4), (9, 16), (16, 16)])
def test_padding_to_a_power_of_two(size: int, grown: int) -> None:
    for name in ("f32", "c64", "i8"):
        x = random(name, (2, size))
        got = built(lambda g, v: g.pad_last_axis_to_pow2(v), x)[0]
        assert got.dtype == x.dtype and np.array_equal(got, np.pad(x, ((0, 0), (0, grown - size))))


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda g, x, n: g.stft(x, 9, 1), "a signal of 4 elements has no frame of 9"),
        (lambda g, x, n: g.stft(x, 4, 0), "hop must be a positive integer"),
        (lambda g, x, n: g.stft(x, 3, 1, WINDOW), "the window must have 3 elements"),
        (lambda g, x, n: g.fft_real(g.cast(x, "c64")), "fft_real takes real numbers"),
        (lambda g, x, n: g.psd_real(g.cast(x, "c64")), "psd_real takes real numbers"),
        (lambda g, x, n: g.psd(x, 0.0), "sample_rate must be a positive number"),
        (lambda g, x, n: g.fft_conv1d(x, g.input("e", (0,))), "may be empty"),
        (lambda g, x, n: g.pad_last_axis_to_pow2(n), "not known for the size n"),
        (lambda g, x, n: g.fftfreq(0), "n must be a positive integer"),
        (lambda g, x, n: g.fftn(x, (0, 0)), "name an axis twice"),
        (lambda g, x, n: g.fftshift(x, 3), "axes 3 is out of range"),
        (lambda g, x, n: g.ifft(x, 5), "axis 5 is out of range"),
    ],
)
def test_refusals(call: Any, expected: str) -> None:
    graph = Graph()
    x, n = graph.input("x", (2, 4)), graph.input("y", (2, "n"))
    with pytest.raises(ShapeError, match=expected) as caught:
        call(graph, x, n)
    assert caught.value.location


@pytest.mark.parametrize("length", [0, 3, 4, 7, 8, 11, 12])
def test_a_symbolic_signal_has_as_many_frames_as_fit(length: int) -> None:
    g = rlx.Graph("frames")
    g.set_outputs([g.stft(g.input("x", ("t",)), 8, 4)])
    (frames,) = rlx.evaluate(g, {"x": np.ones(length, np.float32)})
    assert frames.shape == (max((length - 8) // 4 + 1, 0), 5)

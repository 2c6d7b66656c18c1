"""Integer models with realistic shapes and random weights."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx
from rlx.ops.quantization.requantize import fixed_point

_LIMITS = {8: 127, 4: 7, 2: 1}


class Quantised:
    """A graph of layers in the form that quantisers write: products in i32, biases, scales for each channel.

    Attributes:
        g: The graph.
        bits: The bits of weights.
    """

    def __init__(self, name: str, bits: int = 8):
        self.g: Any = rlx.Graph(name)
        self.bits = bits
        self._draw = np.random.default_rng(7)

    def weights(self, *shape: int) -> Any:
        limit = _LIMITS[self.bits]
        return self.g.constant(self._draw.integers(-limit, limit + 1, shape).astype(np.int8))

    def requantised(self, x: Any, shape: tuple[int, ...], products: int, zero_point: int = -128) -> Any:
        scale = 1.2 / (np.sqrt(products) * _LIMITS[self.bits]) * self._draw.uniform(0.5, 2, shape)
        multiplier, shift = fixed_point(scale)
        return self.g.requantize(x, self.g.constant(multiplier), self.g.constant(shift), zero_point=zero_point)

    def bias(self, count: int) -> Any:
        return self.g.constant(self._draw.integers(-3000, 3000, count).astype(np.int32))

    def conv(self, x: Any, results: int, kernel: int, groups: int = 1, stride: int = 1, zero_point: int = -128) -> Any:
        depth = x.shape.static[1] // groups
        w = self.weights(results, depth, kernel, kernel)
        total = self.g.q_conv2d(
            x, w, self.bias(results), padding=kernel // 2, stride=stride, groups=groups, x_zero_point=-128, dtype="i32"
        )
        return self.requantised(total, (results, 1, 1), depth * kernel**2, zero_point)

    def dense(self, x: Any, results: int, zero_point: int = -128) -> Any:
        length = x.shape.static[1]
        total = self.g.q_matmul(x, self.weights(length, results), self.bias(results), x_zero_point=-128, dtype="i32")
        return self.requantised(total, (results,), length, zero_point)

    def mean(self, x: Any) -> Any:
        height, width = x.shape.static[2:]
        total = self.g.sum(self.g.cast(x, "i32"), axes=(2, 3))
        multiplier, shift = fixed_point(1 / (height * width))
        return self.g.requantize(total + 128 * height * width, multiplier, shift, zero_point=-128)

    def sum(self, x: Any, y: Any) -> Any:
        sides = [
            self.g.requantize(self.g.cast(v, "i32") + 128, *fixed_point(s), dtype="i32")
            for v, s in ((x, 700.0), (y, 900.0))
        ]
        return self.g.requantize(sides[0] + sides[1], *fixed_point(0.0008), zero_point=-128)


def tinyconv(size: int = 28, bits: int = 8) -> Any:
    """Two convolutions with pooling, and a product: an image classifier with one input channel."""
    q = Quantised("tinyconv", bits)
    h = q.g.input("image", (1, 1, size, size), "i8")
    for results in (8, 16):
        h = q.g.pool(q.conv(h, results, 3), "max", kernel=2)
    q.g.set_outputs({"scores": q.dense(q.g.reshape(h, (1, -1)), 10, zero_point=0)})
    return q.g


def keywords() -> Any:
    """A convolution, depthwise-separable convolutions, a mean, a product and the class: a small keyword spotter."""
    q = Quantised("keywords")
    h = q.conv(q.g.input("features", (1, 1, 12, 10), "i8"), 8, 3, stride=2)
    for _ in range(2):
        h = q.conv(q.conv(h, 8, 3, groups=8), 8, 1)
    q.g.set_outputs({"word": q.g.argmax(q.dense(q.mean(h), 12, zero_point=0), axis=1)})
    return q.g


def residual() -> Any:
    """Blocks with a sum of two paths, one of them with a convolution: a small ResNet."""
    q = Quantised("residual")
    h = q.conv(q.g.input("image", (1, 3, 10, 10), "i8"), 4, 3)
    h = q.sum(q.conv(q.conv(h, 4, 3), 4, 3), h)
    h = q.sum(q.conv(q.conv(h, 8, 3, stride=2), 8, 3), q.conv(h, 8, 1, stride=2))
    q.g.set_outputs({"scores": q.dense(q.mean(h), 10, zero_point=0)})
    return q.g


def autoencoder() -> Any:
    """Products that become narrow and wide again."""
    q = Quantised("autoencoder")
    h = q.g.input("spectrum", (1, 64), "i8")
    for width in (24, 24, 8, 24, 64):
        h = q.dense(h, width)
    q.g.set_outputs({"again": h})
    return q.g


MODELS = {f.__name__: f for f in (tinyconv, keywords, residual, autoencoder)}

"""Recognition of norms of channel groups and of norms along several axes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.passes.test_recognize import B, S, check


@pytest.mark.parametrize("weights", ["none", "scale", "both"])
def test_norms_of_groups_of_channels(weights: str) -> None:
    """As a reshape to `[N, G, …]` and back."""

    def build(g: Any, x: Any, scale: Any, bias: Any) -> Any:
        y = g.reshape(x, (B, 2, -1))
        y = y - g.mean(y, -1, keep_dims=True)
        y = g.reshape(y * g.rsqrt(g.mean(y * y, -1, keep_dims=True) + 1e-5), x.shape.dims)
        y = y if weights == "none" else y * g.reshape(scale, (1, S, 1, 1))
        return y if weights != "both" else y + g.reshape(bias, (S, 1, 1))

    check(build, [(B, S, 3, 5), (S,), (S,)], {"group_norm"})


@pytest.mark.parametrize("way", ["differences", "moments", "sums"])
@pytest.mark.parametrize("groups", [1, 2, S])
def test_norms_of_groups_with_all_their_axes(groups: int, way: str) -> None:
    """With statistics over the channels of a group and space together; S groups are an instance norm."""

    def build(g: Any, x: Any, scale: Any, bias: Any) -> Any:
        y, axes = g.reshape(x, (B, groups, S // groups, 3, 5)), (2, 3, 4)
        if way == "moments":
            mean = g.mean(y, axes, keep_dims=True)
            variance = g.mean(y * y, axes, keep_dims=True) - mean * mean
            y = (y - mean) * g.rsqrt(variance + 1e-5)
        elif way == "sums":
            count = float(S // groups * 15)
            y = y - g.sum(y, axes, keep_dims=True) / count
            y = y / g.sqrt(g.sum(y * y, axes, keep_dims=True) / count + 1e-5)
        else:
            y = y - g.mean(y, axes, keep_dims=True)
            y = y * g.rsqrt(g.mean(y * y, axes, keep_dims=True) + 1e-5)
        y = g.reshape(y, x.shape.dims)
        return y * g.reshape(scale, (1, S, 1, 1)) + g.reshape(bias, (S, 1, 1))

    check(build, [(B, S, 3, 5), (S,), (S,)], {"group_norm"})


def test_norms_along_several_axes() -> None:
    """A layer norm over all but the batch, an RMS norm of images, and means that do not match their tensor."""

    def layer(g: Any, x: Any, scale: Any, bias: Any) -> Any:
        y = x - g.mean(x, (1, 2, 3), keep_dims=True)
        return y * g.rsqrt(g.mean(y * y, (1, 2, 3), keep_dims=True) + 1e-5) * scale + bias

    check(layer, [(B, S, 3, 5), (S, 3, 5), (S, 3, 5)], {"layer_norm", "binary"})  # the weights are not vectors
    check(lambda g, x: x * g.rsqrt(g.mean(x * x, (2, 3), keep_dims=True) + 1e-6), [(B, S, 3, 5)], {"rms_norm"})

    def apart(g: Any, x: Any) -> Any:  # along the first two axes, which are not the last
        y = x - g.mean(x, (0, 1), keep_dims=True)
        return y * g.rsqrt(g.mean(y * y, (0, 1), keep_dims=True) + 1e-5)

    check(apart, [(B, S, 3)], {"reduce", "binary", "activation"})

    def mixed(g: Any, x: Any) -> Any:  # a mean over fewer axes than the variance
        y = x - g.mean(x, (2, 3), keep_dims=True)
        return y * g.rsqrt(g.mean(y * y, (1, 2, 3), keep_dims=True) + 1e-5)

    check(mixed, [(B, S, 3, 5)], {"reduce", "binary", "rms_norm"})


def test_what_is_no_norm_of_groups() -> None:
    """Groups over samples, and a result of another shape."""

    def normal(g: Any, y: Any) -> Any:
        y = y - g.mean(y, -1, keep_dims=True)
        return y * g.rsqrt(g.mean(y * y, -1, keep_dims=True) + 1e-5)

    check(lambda g, x: g.reshape(normal(g, g.reshape(x, (2 * B, 1, -1))), x.shape.dims), [(B, S, 6)], {"layer_norm"})
    check(lambda g, x: g.reshape(normal(g, g.reshape(x, (B, 2, -1))), (B, -1)), [(B, S, 6)], {"layer_norm"})

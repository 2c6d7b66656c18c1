"""Normalisations, with PyTorch's names, layouts and definitions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rlx.ir.dims.dim import Dim
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.typing import DTypeLike
from rlx.nn import init
from rlx.nn.module import Module, expect
from rlx.nn.parameter import Buffer, Parameter
from rlx.nn.sizes import as_tuple, check_sizes
from rlx.ops.norm import statistics_input
from rlx.support.errors import Error, ShapeError


class LayerNorm(Module):
    """Layer normalisation over the last axes.

    Args:
        normalized_shape: Sizes of these axes, or the size of the last axis.
        eps: Added to the variance.
        affine: Whether to scale and shift.
        dtype: The dtype of the parameters; f32 by default.

    Parameters: `weight`, `bias`, both of `normalized_shape`.
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        affine: bool = True,
        dtype: DTypeLike | None = None,
    ):
        self.normalized_shape = as_tuple("normalized_shape", normalized_shape)
        self.eps = eps
        self.weight: Parameter | None = Parameter(self.normalized_shape, init.ones, dtype) if affine else None
        self.bias: Parameter | None = Parameter(self.normalized_shape, init.zeros, dtype) if affine else None

    def forward(self, x: Tensor) -> Tensor:
        sizes = self.normalized_shape
        count = len(sizes)
        wanted = f"[…, {', '.join(map(str, sizes))}]"
        expect(x, wanted)
        if x.rank < count or x.shape.dims[x.rank - count :] != sizes:
            raise ShapeError(f"takes {wanted}, got {x.shape}")
        weights = _in_dtype(x, self.weight, self.bias)
        return x.builder.layer_norm(x, *weights, axis=tuple(range(-count, 0)), eps=self.eps)


class RMSNorm(Module):
    """Root mean square normalisation over the last axis.

    Args:
        size: Size of the last axis.
        eps: Added to the mean square.
        dtype: The dtype of the parameter; f32 by default.

    Parameters: `weight [size]`.
    """

    def __init__(self, size: int, eps: float = 1e-5, dtype: DTypeLike | None = None):
        check_sizes(size=size)
        self.size, self.eps = size, eps
        self.weight = Parameter((size,), init.ones, dtype)

    def forward(self, x: Tensor) -> Tensor:
        expect(x, f"[…, {self.size}]", last=self.size)
        return x.builder.rms_norm(x, x.builder.cast(self.weight, x.dtype), eps=self.eps)


class GroupNorm(Module):
    """Group normalisation of `[N, num_channels, spatial…]`.

    Args:
        num_groups: The number of groups that the channels are divided into.
        num_channels: Size of axis 1.
        eps: Added to the variance.
        affine: Whether to scale and shift each channel.
        dtype: The dtype of the parameters; f32 by default.

    Parameters: `weight [num_channels]`, `bias [num_channels]`.
    """

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, dtype: DTypeLike | None = None
    ):
        check_sizes(1, num_groups=num_groups)
        check_sizes(num_channels=num_channels)
        if num_channels % num_groups:
            raise Error(f"{num_channels} channels do not divide into {num_groups} groups")
        self.num_groups, self.num_channels, self.eps = num_groups, num_channels, eps
        self.weight: Parameter | None = Parameter((num_channels,), init.ones, dtype) if affine else None
        self.bias: Parameter | None = Parameter((num_channels,), init.zeros, dtype) if affine else None

    def forward(self, x: Tensor) -> Tensor:
        expect(x, f"[N, {self.num_channels}, …]", channels=self.num_channels)
        weights = _in_dtype(x, self.weight, self.bias)
        return x.builder.group_norm(x, *weights, num_groups=self.num_groups, eps=self.eps)


def _in_dtype(x: Tensor, *weights: Parameter | None) -> list[Tensor | None]:
    """Return weights, where they are given, in the dtype of x."""
    return [weight if weight is None else x.builder.cast(weight, x.dtype) for weight in weights]


class BatchNorm(Module):
    """Batch normalisation of `[N, num_features, spatial…]` (S. Ioffe and C. Szegedy, 2015).

    In training it uses the mean and variance of the batch, and moves the running statistics by `momentum` towards them
    (towards the variance with n - 1 in place of n). Outside training it uses the running statistics.

    Args:
        num_features: Size of axis 1.
        eps: Added to the variance.
        momentum: The fraction by which the running statistics move.
        affine: Whether to scale and shift each channel.
        dtype: The dtype of the parameters; f32 by default.

    Parameters: `weight`, `bias`. Buffers: `running_mean`, `running_var`. All `[num_features]`.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = True,
        dtype: DTypeLike | None = None,
    ):
        check_sizes(num_features=num_features)
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.weight: Parameter | None = Parameter((num_features,), init.ones, dtype) if affine else None
        self.bias: Parameter | None = Parameter((num_features,), init.zeros, dtype) if affine else None
        self.running_mean = Buffer((num_features,), 0.0, dtype)
        self.running_var = Buffer((num_features,), 1.0, dtype)

    def forward(self, x: Tensor) -> Tensor:
        expect(x, f"[N, {self.num_features}, …]", channels=self.num_features)
        statistics = self._of_batch(x) if self.training else (self.running_mean, self.running_var)
        return x.builder.batch_norm(x, *statistics, self.weight, self.bias, eps=self.eps)

    def _of_batch(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance of the batch, and update the running statistics."""
        b = x.builder
        wide = statistics_input(b, x)
        axes = [axis for axis in range(x.rank) if axis != 1]
        mean = b.mean(wide, axes, keep_dims=True)
        variance = b.mean((wide - mean) * (wide - mean), axes)
        mean = b.reshape(mean, (self.num_features,))
        count: Dim = math.prod(x.shape.dims[axis] for axis in axes)
        if type(count) is int:
            if count < 2:
                raise ShapeError(f"takes more than one value for each channel in training, got {x.shape}")
            unbiased = variance * (count / (count - 1))
        else:
            number = b.cast(b.emit("dim_size", (), size=(count,)), variance.dtype)
            unbiased = variance * (number / (number - 1.0))
        for name, new in (("running_mean", mean), ("running_var", unbiased)):
            old = getattr(self, name)
            self.update(name, b.cast(old * (1 - self.momentum) + b.cast(new, old.dtype) * self.momentum, old.dtype))
        return mean, variance


BatchNorm1d = BatchNorm2d = BatchNorm3d = BatchNorm

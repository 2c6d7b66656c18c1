"""Stateless layers: linear maps, convolutions, tables, dropout, and chains of layers.

Weights have PyTorch's names, layouts and initial distributions.
"""

# Users may pass values that the annotations do not allow.
# pyright: reportUnnecessaryIsInstance=false

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias, TypeVar

from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.typing import DTypeLike, Padding, Window
from rlx.nn import init
from rlx.nn.init import Initializer
from rlx.nn.module import Module, expect
from rlx.nn.parameter import Parameter
from rlx.nn.sizes import as_tuple, check_sizes
from rlx.support.caller import caller_place
from rlx.support.errors import Error, ShapeError
from rlx.support.guards import is_real
from rlx.support.short import short_repr

Value = TypeVar("Value")
# stride, padding, dilation, groups
_WindowOptions: TypeAlias = tuple[Window, Padding, Window, int]


class Identity(Module):
    """Returns its argument."""

    def forward(self, x: Value) -> Value:
        return x


class Linear(Module):
    """`x @ weightᵀ + bias`, `[…, in_features]` to `[…, out_features]`.

    Args:
        in_features: Size of the last axis.
        out_features: Size of the last axis of the result.
        bias: Whether to add a bias.
        dtype: The dtype of the parameters; f32 by default.
        weight_init: The initialiser of the weight. By default it is uniform within 1/√in_features, like the bias.

    Parameters: `weight [out, in]`, `bias [out]`.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        dtype: DTypeLike | None = None,
        weight_init: Initializer | None = None,
    ):
        check_sizes(in_features=in_features, out_features=out_features)
        self.in_features, self.out_features = in_features, out_features
        bound = 1 / math.sqrt(in_features) if in_features else 0.0
        self.weight = Parameter((out_features, in_features), weight_init or init.within(bound), dtype)
        self.bias: Parameter | None = Parameter((out_features,), init.within(bound), dtype) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        expect(x, f"[…, {self.in_features}]", last=self.in_features)
        return _plus(x.builder.matmul(x, x.builder.transpose(self.weight)), self.bias)


def _plus(y: Tensor, bias: Parameter | None) -> Tensor:
    return y if bias is None else y.builder.add(y, bias)


class Embedding(Module):
    """Looks up rows of a table: integers `[…]` to `[…, embedding_dim]`. Integers out of range are clamped.

    Args:
        num_embeddings: Number of rows.
        embedding_dim: Size of a row.
        dtype: The dtype of the table; f32 by default.
        weight_init: The initialiser of the table; by default normally distributed with standard deviation 1.

    Parameters: `weight [num_embeddings, embedding_dim]`.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        dtype: DTypeLike | None = None,
        weight_init: Initializer | None = None,
    ):
        check_sizes(num_embeddings=num_embeddings, embedding_dim=embedding_dim)
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.weight = Parameter((num_embeddings, embedding_dim), weight_init or init.normal(), dtype)

    def forward(self, ids: Tensor) -> Tensor:
        expect(ids, "of integers", floats=False)
        if not ids.dtype.is_integer:
            raise ShapeError(f"takes integers, got {ids.shape}")
        return ids.builder.embedding(self.weight, ids)


class _ConvLayer(Module):
    """Common base of both convolutions, which differ in the layout of the weight and in the op."""

    dimensions: int | None = None  # of the layer; None for the number of axes of the kernel
    _first: int  # which channels are the first axis of the weight: 0 for those of the input, 1 for those of the result

    def _declare(
        self,
        channels: tuple[int, int],
        kernel_size: Window,
        window: _WindowOptions,
        bias: bool,
        dtype: DTypeLike | None,
        weight_init: Initializer | None,
    ) -> None:
        """Set attributes and parameters; the weight is `[channels[first], those of the other side in a group, kernel…]`."""
        first = self._first
        self.in_channels, self.out_channels = channels
        self.kernel_size = self._kernel(kernel_size)
        self.stride, self.padding, self.dilation, self.groups = window
        check_sizes(in_channels=channels[0], out_channels=channels[1])
        check_sizes(1, groups=self.groups)
        _check_groups(*channels, self.groups)
        of_group = channels[1 - first] // self.groups
        fan_in = of_group * math.prod(self.kernel_size)
        bound = 1 / math.sqrt(fan_in) if fan_in else 0.0
        self.weight = Parameter(
            (channels[first], of_group, *self.kernel_size), weight_init or init.within(bound), dtype
        )
        self.bias: Parameter | None = Parameter((self.out_channels,), init.within(bound), dtype) if bias else None

    def _kernel(self, size: Window) -> tuple[int, ...]:
        kernel = as_tuple("kernel_size", size, self.dimensions or 2)
        check_sizes(1, **{f"kernel_size[{axis}]": entry for axis, entry in enumerate(kernel)})
        if len(kernel) not in ((1, 2, 3) if self.dimensions is None else (self.dimensions,)):
            wanted = f"{self.dimensions or '1 to 3'} of them"
            message = f"{type(self).__name__}: kernel_size must be an integer or {wanted}, got {list(kernel)}"
            raise Error(message, location=caller_place())
        return kernel


class Conv(_ConvLayer):
    """Convolution of `[N, in_channels, spatial…]` in one, two or three dimensions: the length of `kernel_size`.

    Args:
        in_channels: Channels of the input.
        out_channels: Channels of the result.
        kernel_size: A size for each dimension: `(3, 3)`. One number means an image, that is, two dimensions.
        stride: A number, or one for each dimension.
        padding: A number, one for each dimension, pairs (before, after), or `"same"`.
        dilation: A number, or one for each dimension.
        groups: The number of independent groups that the channels are divided into.
        bias: Whether to add a bias.
        dtype: The dtype of the parameters; f32 by default.
        weight_init: The initialiser of the weight. By default it is uniform within 1/√fan_in, like the bias.

    Parameters: `weight [out, in/groups, kernel…]`, `bias [out]`.
    """

    _first = 1

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Window,
        stride: Window = 1,
        padding: Padding = 0,
        dilation: Window = 1,
        groups: int = 1,
        bias: bool = True,
        dtype: DTypeLike | None = None,
        weight_init: Initializer | None = None,
    ):
        window = stride, padding, dilation, groups
        self._declare((in_channels, out_channels), kernel_size, window, bias, dtype, weight_init)

    def forward(self, x: Tensor) -> Tensor:
        rank = len(self.kernel_size) + 2
        expect(x, f"[N, {self.in_channels}, {rank - 2} spatial axes]", rank=rank, channels=self.in_channels)
        window = {"stride": self.stride, "padding": self.padding, "dilation": self.dilation, "groups": self.groups}
        return x.builder.conv(x, self.weight, **window, bias=self.bias)


class ConvTranspose(_ConvLayer):
    """Transposed convolution of `[N, in_channels, spatial…]`, with the arguments of `Conv`.

    Args:
        in_channels: Channels of the input.
        out_channels: Channels of the result.
        kernel_size: A size for each dimension; one number means an image.
        stride: A number, or one for each dimension.
        padding: The amount cut off at each edge of the result.
        output_padding: The amount added at the end of each axis.
        groups: The number of groups that the channels are divided into.
        bias: Whether to add a bias.
        dilation: A number, or one for each dimension.
        dtype: The dtype of the parameters; f32 by default.
        weight_init: The initialiser of the weight, as in `Conv`.

    Parameters: `weight [in, out/groups, kernel…]`, `bias [out]`.
    """

    _first = 0

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Window,
        stride: Window = 1,
        padding: Padding = 0,
        output_padding: Window = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Window = 1,
        dtype: DTypeLike | None = None,
        weight_init: Initializer | None = None,
    ):
        self.output_padding = output_padding
        window = stride, padding, dilation, groups
        self._declare((in_channels, out_channels), kernel_size, window, bias, dtype, weight_init)

    def forward(self, x: Tensor) -> Tensor:
        rank = len(self.kernel_size) + 2
        expect(x, f"[N, {self.in_channels}, {rank - 2} spatial axes]", rank=rank, channels=self.in_channels)
        window = {"stride": self.stride, "padding": self.padding, "dilation": self.dilation, "groups": self.groups}
        return x.builder.conv_transpose(x, self.weight, output_padding=self.output_padding, **window, bias=self.bias)


class Conv1d(Conv):
    """`Conv` of one dimension."""

    dimensions = 1


class Conv2d(Conv):
    """`Conv` of two dimensions."""

    dimensions = 2


class Conv3d(Conv):
    """`Conv` of three dimensions."""

    dimensions = 3


class ConvTranspose1d(ConvTranspose):
    """`ConvTranspose` of one dimension."""

    dimensions = 1


class ConvTranspose2d(ConvTranspose):
    """`ConvTranspose` of two dimensions."""

    dimensions = 2


class ConvTranspose3d(ConvTranspose):
    """`ConvTranspose` of three dimensions."""

    dimensions = 3


def _check_groups(in_channels: int, out_channels: int, groups: int) -> None:
    if in_channels % groups or out_channels % groups:
        raise Error(f"{in_channels} and {out_channels} channels do not divide into {groups} groups")


class Dropout(Module):
    """In training, sets each element to 0 with probability `p` and multiplies the others by 1/(1 - p).

    Outside training it returns its argument. The random numbers depend only on the seed of the call (see
    `Module.__call__`), so they are the same on every device.

    Args:
        p: In [0, 1].
    """

    def __init__(self, p: float = 0.5):
        if not is_real(p) or not 0 <= p <= 1:
            raise Error(f"p must be in [0, 1], got {short_repr(p)}", location=caller_place())
        self.p = float(p)

    @property
    def random(self) -> bool:
        return self.p > 0

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.p:
            return x
        return x.builder.dropout(x, self.p, self.seed())


class Flatten(Module):
    """Joins all axes from `start_axis` on to one.

    Args:
        start_axis: The first joined axis; 1 keeps the batch.
    """

    def __init__(self, start_axis: int = 1):
        check_sizes(start_axis=start_axis)
        self.start_axis = start_axis

    def forward(self, x: Tensor) -> Tensor:
        expect(x, "", floats=False)
        return x.builder.flatten(x, self.start_axis)


class Sequential(Module):
    """Modules and functions applied one after the other: `Sequential(Linear(4, 8), rlx.ops.relu, Linear(8, 1))`.

    Functions count in the parameter names: `0.weight`, `2.weight`. A `Sequential` has a length and can be indexed.

    Args:
        steps: Modules, and functions of a tensor.
    """

    def __init__(self, *steps: Callable[..., Any]):
        for i, step in enumerate(steps):
            if not callable(step):
                hint = "Sequential(a, b), not Sequential([a, b])" if isinstance(step, (list, tuple)) else None
                raise Error(f"step {i} of Sequential is no module or function, but {type(step).__name__}", hint=hint)
        self.steps = steps

    def members(self) -> Iterator[tuple[str, Module]]:
        yield from ((str(i), step) for i, step in enumerate(self.steps) if isinstance(step, Module))

    def forward(self, x: Any) -> Any:
        for step in self.steps:
            x = step(x)
        return x

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[Callable[..., Any]]:
        return iter(self.steps)

    def __getitem__(self, index: int | slice) -> Any:
        return Sequential(*self.steps[index]) if isinstance(index, slice) else self.steps[index]

"""Layers over sequences `[batch, steps, features]`: attention and recurrent layers, with PyTorch's names and layouts."""

# Users may pass values that the annotations do not allow.
# pyright: reportUnnecessaryIsInstance=false

from __future__ import annotations

import math
from collections.abc import Sequence

from rlx.functions.recurrent import stacked
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.typing import DTypeLike, TensorLike
from rlx.nn import init
from rlx.nn.layers import Dropout, Linear
from rlx.nn.module import Module, expect
from rlx.nn.parameter import Parameter
from rlx.nn.sizes import check_sizes
from rlx.ops.lift import tensor_like
from rlx.support.errors import Error, ShapeError


class MultiHeadAttention(Module):
    """Multi-head attention (A. Vaswani et al., Attention is all you need, 2017), `[B, S, embed_dim]` to the same shape.

    Args:
        embed_dim: Size of the last axis; a multiple of `num_heads`.
        num_heads: Number of heads.
        bias: Whether the projections have a bias.
        causal: Whether a query sees only the keys up to its own position.
        dtype: The dtype of the parameters; f32 by default.

    Parameters: `in_proj_weight [3·E, E]`, `in_proj_bias [3·E]` (queries, keys, values), `out_proj.weight [E, E]`,
    `out_proj.bias [E]`.
    """

    def __init__(
        self, embed_dim: int, num_heads: int, bias: bool = True, causal: bool = False, dtype: DTypeLike | None = None
    ):
        check_sizes(1, num_heads=num_heads)
        check_sizes(embed_dim=embed_dim)
        if embed_dim % num_heads:
            raise Error(f"embed_dim {embed_dim} is no multiple of num_heads {num_heads}")
        self.embed_dim, self.num_heads, self.causal = embed_dim, num_heads, causal
        self.in_proj_weight = Parameter((3 * embed_dim, embed_dim), init.glorot_uniform(), dtype)
        self.in_proj_bias: Parameter | None = Parameter((3 * embed_dim,), init.zeros, dtype) if bias else None
        self.out_proj = Linear(embed_dim, embed_dim, bias, dtype)
        if bias:
            self.out_proj.bias = Parameter((embed_dim,), init.zeros, dtype)

    def forward(
        self, query: Tensor, key: Tensor | None = None, value: Tensor | None = None, mask: TensorLike | None = None
    ) -> Tensor:
        """Compute attention.

        Args:
            query: `[B, S, E]`.
            key: `[B, T, E]`; by default the queries.
            value: `[B, T, E]`; by default the keys.
            mask: Bools or integers, `[B, T]` or broadcastable to `[B, H, S, T]`: true marks the keys that are seen. Or
                floats, broadcastable to `[B, H, S, T]`, which are added to the scores.
        """
        size = self.embed_dim
        wanted = f"[B, S, {size}]"
        key, value = query if key is None else key, (query if key is None else key) if value is None else value
        for tensor in (query, key, value):
            expect(tensor, wanted, rank=3, last=size)
        b = query.builder
        if key is query and value is query:
            projected = self._projected(query, 0, 3 * size)
            q, k, v = (b.narrow(projected, -1, i * size, size) for i in range(3))
        else:
            q, k, v = (self._projected(t, i * size, size) for i, t in enumerate((query, key, value)))
        mask, kind = self._mask(q, k, mask)
        heads = {"num_heads": self.num_heads, "head_dim": size // self.num_heads}
        return self.out_proj(b.attention(q, k, v, mask, mask_kind=kind, **heads))

    def _projected(self, x: Tensor, start: int, length: int) -> Tensor:
        b = x.builder
        whole = length == 3 * self.embed_dim
        weight = self.in_proj_weight if whole else b.narrow(self.in_proj_weight, 0, start, length)
        result = b.matmul(x, b.transpose(weight))
        if self.in_proj_bias is None:
            return result
        return result + (self.in_proj_bias if whole else b.narrow(self.in_proj_bias, 0, start, length))

    def _mask(self, q: Tensor, k: Tensor, mask: TensorLike | None) -> tuple[Tensor | None, str]:
        """Return the mask of `attention` and its kind. An array becomes a constant."""
        b = q.builder
        mask = mask if mask is None else tensor_like(b, mask, q.dtype)
        if not self.causal:
            if mask is None:
                return None, "none"
            return mask, "bias" if mask.dtype.is_float else "custom"
        if mask is None:
            return None, "causal"
        queries, keys = q.shape.dims[1], k.shape.dims[1]
        row, column = b.iota((queries, 1)), b.iota((1, keys), axis=1)
        offset = b.emit("dim_size", (), size=(keys - queries,)) if type(keys - queries) is not int else keys - queries
        seen = column <= row + offset
        if mask.dtype.is_float:
            return mask + b.where(seen, 0.0, -math.inf), "bias"
        mask = b.reshape(mask, (mask.shape.dims[0], 1, 1, mask.shape.dims[1])) if mask.rank == 2 else mask
        return seen & (mask != 0), "custom"


class _Recurrent(Module):
    """Common base of LSTM and GRU: weights of layers and directions, and the stacking of layers."""

    gates = 0

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        dropout: float = 0.0,
        bidirectional: bool = False,
        dtype: DTypeLike | None = None,
    ):
        check_sizes(input_size=input_size, hidden_size=hidden_size)
        check_sizes(1, num_layers=num_layers)
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bidirectional = bidirectional
        self.dropout = Dropout(dropout)
        start = init.within(1 / math.sqrt(hidden_size) if hidden_size else 0.0)
        rows = self.gates * hidden_size
        for layer in range(num_layers):
            width = hidden_size * len(self._directions) if layer else input_size
            for suffix in self._directions:
                end = f"_l{layer}{suffix}"
                setattr(self, f"weight_ih{end}", Parameter((rows, width), start, dtype))
                setattr(self, f"weight_hh{end}", Parameter((rows, hidden_size), start, dtype))
                for name in ("bias_ih", "bias_hh"):
                    setattr(self, name + end, Parameter((rows,), start, dtype) if bias else None)

    @property
    def _directions(self) -> tuple[str, ...]:
        return ("", "_reverse") if self.bidirectional else ("",)

    def _run(self, x: Tensor, states: Sequence[Tensor | None]) -> tuple[Tensor, list[Tensor]]:
        """Return the sequence and the last states, each `[layers·directions, B, H]`.

        Args:
            x: `[B, S, input_size]`.
            states: Initial states `[layers·directions, B, H]`; None for zeros.
        """
        expect(x, f"[B, S, {self.input_size}]", rank=3, last=self.input_size)
        b, size = x.builder, self.hidden_size
        shape = (self.num_layers * len(self._directions), x.shape.dims[0], size)
        for state in states:
            if state is not None and (not isinstance(state, Tensor) or state.shape.dims != shape):
                got = state.shape if isinstance(state, Tensor) else type(state).__name__
                raise ShapeError(f"takes states [{', '.join(map(str, shape))}], got {got}")
        zeros = b.full(shape[1:], 0.0, dtype=x.dtype)

        def layer(x: Tensor, first: Sequence[Tensor | None], number: int, direction: int) -> tuple[Tensor, ...]:
            given = [zeros if state is None else state for state in first]
            return self._layer(x, given, f"_l{number}{self._directions[direction]}", direction == 1)

        return stacked(b, x, states, layer, self.num_layers, len(self._directions), self.dropout)

    def _layer(self, x: Tensor, states: list[Tensor], end: str, reverse: bool) -> tuple[Tensor, ...]:
        raise NotImplementedError

    def _weights(self, x: Tensor, end: str) -> tuple[Tensor, ...]:
        """Return the weights of one layer as the ops take them, `[in, gates·H]`, and both biases; zeros if absent."""
        b = x.builder
        weights = (b.transpose(getattr(self, f"weight_{kind}{end}")) for kind in ("ih", "hh"))
        biases = (getattr(self, f"bias_{kind}{end}") for kind in ("ih", "hh"))
        rows = (self.gates * self.hidden_size,)
        filled = (b.full(rows, 0.0, dtype=x.dtype) if bias is None else bias for bias in biases)
        return *weights, *filled


class LSTM(_Recurrent):
    """Long short-term memory. `lstm(x)` is `(y, (h, c))`: the sequence, and the last states of every layer and direction.

    Args:
        input_size: Size of the last axis of `x [B, S, input_size]`: the batch comes first.
        hidden_size: Size of the last axis of the result; twice that with two directions.
        num_layers: The number of stacked layers.
        bias: Whether to add biases.
        dropout: Probability of `Dropout` between layers.
        bidirectional: Whether each layer also processes the sequence backwards.
        dtype: The dtype of the parameters; f32 by default.

    Parameters: `weight_ih_l<k> [4·H, in]`, `weight_hh_l<k> [4·H, H]`, `bias_ih_l<k>`, `bias_hh_l<k>`; the names of the
    backward direction end in `_reverse`. The gates are i, f, g, o.
    """

    gates = 4

    def forward(self, x: Tensor, state: Sequence[Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Return the sequence and the last states. `state` is `(h, c)`, each `[layers·directions, B, H]`; default zeros."""
        if state is not None and (not isinstance(state, (tuple, list)) or len(state) != 2):
            raise ShapeError(f"takes the states as (h, c), got {type(state).__name__}")
        y, (h, c) = self._run(x, [None, None] if state is None else [*state])
        return y, (h, c)

    def _layer(self, x: Tensor, states: list[Tensor], end: str, reverse: bool) -> tuple[Tensor, ...]:
        w_input, w_hidden, *biases = self._weights(x, end)
        return x.builder.lstm(x, *states, w_input, w_hidden, biases[0] + biases[1], reverse=reverse)


class GRU(_Recurrent):
    """Gated recurrent unit. `gru(x)` is `(y, h)`: the sequence, and the last states of every layer and direction.

    The arguments and parameters are those of `LSTM`; the gates are r, z, n.
    """

    gates = 3

    def forward(self, x: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the sequence and the last states. The initial state `[layers·directions, B, H]` defaults to zeros."""
        y, (h,) = self._run(x, [state])
        return y, h

    def _layer(self, x: Tensor, states: list[Tensor], end: str, reverse: bool) -> tuple[Tensor, ...]:
        return x.builder.gru(x, *states, *self._weights(x, end), reverse=reverse)

"""Attention and rotary embeddings."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from rlx.importers.onnx.rules import extent, imports, static_dims
from rlx.importers.onnx.sizes import sign
from rlx.ir.dims.dim import Dim
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.op.argument_groups import ArgumentGroup
from rlx.support.errors import UnsupportedError


def _heads(g: Graph, x: Tensor, count: int | None) -> Tensor:
    """Return [batch, sequence, heads · head_dim] as [batch, heads, sequence, head_dim]; a rank-4 tensor unchanged."""
    if x.shape.rank == 4:
        return x
    if not count:
        raise UnsupportedError("of three axes without a number of heads cannot be imported")
    batch, length, width = x.shape.dims
    return g.transpose(g.reshape(x, (batch, length, count, width // count)), (0, 2, 1, 3))


def _bias(g: Graph, mask: Tensor, dtype: Any, length: Dim) -> Tensor:
    """Return the bias that a mask adds to the scores. Keys beyond the end of the mask are masked."""
    bias = g.where(mask, g.constant(0.0, dtype=dtype), -math.inf) if mask.dtype.is_bool else g.cast(mask, dtype)
    missing = length - bias.shape.dims[-1]
    return (
        g.pad(bias, [(0, 0)] * (bias.shape.rank - 1) + [(0, missing)], value=-math.inf) if sign(missing) == 1 else bias
    )


@dataclass(frozen=True)
class AttentionOperands(ArgumentGroup):
    """The operands of `Attention`, in its order; `lengths` are the numbers of valid keys of each sequence."""

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None = None
    past_key: Tensor | None = None
    past_value: Tensor | None = None
    lengths: Tensor | None = None

    def masked(self, g: Graph, scores: Tensor, before: Dim | None) -> Tensor:
        """Scores without those of keys that do not count.

        Args:
            g: The graph.
            scores: The scores.
            before: The number of keys before the first query, where a query sees no keys after it; else None.
        """
        rows, columns = scores.shape.dims[-2:]
        lengths = self.lengths
        biased = scores if self.mask is None else g.add(scores, _bias(g, self.mask, scores.dtype, columns))
        if lengths is not None:
            used = g.lt(g.iota((1, 1, 1, columns), 3, lengths.dtype), g.reshape(lengths, (-1, 1, 1, 1)))
            biased = g.where(used, biased, -math.inf)
        if before is None:
            return biased
        if lengths is None:
            first = g.iota((rows, 1), 0) if before == 0 else g.add(g.iota((rows, 1), 0), extent(g, before, "i32"))
            allowed = g.le(g.iota((1, columns), 1), first)
        else:
            first = g.sub(
                g.reshape(lengths, (-1, 1, 1, 1)), extent(g, rows, lengths.dtype)
            )  # the queries are the last positions of each sequence
            row = g.add(g.iota((1, 1, rows, 1), 2, lengths.dtype), first)
            allowed = g.le(g.iota((1, 1, 1, columns), 3, lengths.dtype), row)
        return g.where(allowed, biased, -math.inf)


@dataclass(frozen=True, kw_only=True)
class AttentionAttributes(ArgumentGroup):
    """The attributes of attention, with ONNX's names."""

    is_causal: int = 0
    kv_num_heads: int | None = None
    q_num_heads: int | None = None
    qk_matmul_output_mode: int = 0
    scale: float | None = None
    softcap: float = 0.0
    softmax_precision: int = 0


@imports("Attention")
def attention(g: Graph, operands: AttentionOperands, *, outputs: int, heads: AttentionAttributes) -> list[Tensor]:
    is_flat, dtype, softcap = operands.q.shape.rank == 3, operands.q.dtype, heads.softcap
    q = _heads(g, operands.q, heads.q_num_heads)
    k, v = (_heads(g, t, heads.kv_num_heads) for t in (operands.k, operands.v))
    before: Dim = 0
    if operands.past_key is not None and operands.past_value is not None:
        before = operands.past_key.shape.dims[2]
        k, v = g.concat([operands.past_key, k], 2), g.concat([operands.past_value, v], 2)
    present = [k, v]
    groups = static_dims(q, 1)[0] // static_dims(k, 1)[0]
    if groups > 1:
        k, v = g.repeat(k, groups, 1), g.repeat(v, groups, 1)
    wide = "f64" if dtype.name == "f64" else "f32"
    factor = 1 / math.sqrt(static_dims(q, -1)[0]) if heads.scale is None else heads.scale
    scores = g.mul(g.matmul(g.cast(q, wide), g.transpose(g.cast(k, wide), (0, 1, 3, 2))), factor)
    stages = [scores]
    capped = g.mul(g.tanh(g.div(scores, softcap)), softcap) if softcap else scores
    biased = operands.masked(g, capped, before if heads.is_causal else None)
    # A row that is masked whole gives zeros.
    some = g.any(g.gt(biased, -math.inf), -1, True)
    weights = g.where(some, g.softmax(g.where(some, biased, 0.0), -1), 0.0)
    stages += [capped, biased, weights]
    result = g.cast(g.matmul(weights, g.cast(v, wide)), dtype)
    if is_flat:
        batch, count, length, size = result.shape.dims
        result = g.reshape(g.transpose(result, (0, 2, 1, 3)), (batch, length, count * size))
    return [result, *present, g.cast(stages[heads.qk_matmul_output_mode], dtype)][:outputs]


@dataclass(frozen=True, kw_only=True)
class RotaryAttributes(ArgumentGroup):
    """The attributes of a rotary embedding, with ONNX's names."""

    interleaved: int = 0
    num_heads: int | None = None
    rotary_embedding_dim: int = 0


@imports("RotaryEmbedding")
def rotary_embedding(
    g: Graph,
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    positions: Tensor | None = None,
    *,
    rotation: RotaryAttributes,
) -> Tensor:
    dims, interleaved = x.shape.dims, rotation.interleaved
    heads = _heads(g, x, rotation.num_heads)
    width = rotation.rotary_embedding_dim or static_dims(heads, -1)[0]
    if positions is not None:
        cos, sin = g.gather(cos, positions), g.gather(sin, positions)
    half = width // 2
    cos, sin = (g.expand_dims(g.narrow(t, 2, 0, half), 1) for t in (cos, sin))
    if interleaved:
        first, second = heads[..., 0:width:2], heads[..., 1:width:2]
    else:
        first, second = heads[..., :half], heads[..., half:width]
    real = g.sub(g.mul(cos, first), g.mul(sin, second))
    imaginary = g.add(g.mul(sin, first), g.mul(cos, second))
    if interleaved:
        rotated = g.reshape(g.stack([real, imaginary], -1), (*heads.shape.dims[:-1], width))
    else:
        rotated = g.concat([real, imaginary], -1)
    result = g.concat([rotated, heads[..., width:]], -1)
    return result if x.shape.rank == 4 else g.reshape(g.transpose(result, (0, 2, 1, 3)), dims)

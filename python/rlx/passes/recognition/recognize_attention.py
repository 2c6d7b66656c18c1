"""`rlx-recognize-attention`: creation of attention from two products, a softmax and the ops between them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from rlx import mlir
from rlx.ir.dims.dim import Dim, product
from rlx.ir.op import views
from rlx.ir.shape import shape_of
from rlx.passes.fusion.base import Fusion
from rlx.passes.pattern import Rewriter, pattern
from rlx.passes.recognition.attention_masks import Mask, is_causal
from rlx.passes.recognition.attention_scores import Contraction, Scores, contraction_of, scores_of
from rlx.passes.recognition.recognize_heads import grouped_heads, packed_heads, scaled_operands
from rlx.passes.simplification.identities import KNOWN_CHOICES
from rlx.passes.simplification.simplify_shape_rules import shape_chain, transpose_chain

# Scores as low as this have weight 0 next to any other score, for all realistic added values.
_LOWEST = -1e30


@dataclass(frozen=True)
class _ScoreAxes:
    """The roles of the axes of the scores, as positions among the axes of the first product's result.

    Attributes:
        batch: Rows and key heads, including those of size 1.
        group: The heads that share a key head, if any.
        query: The queries; None if there is only one.
        key: The keys.
    """

    batch: tuple[int, ...]
    group: int | None
    query: int | None
    key: int

    @property
    def order(self) -> list[int]:
        """The axes in the order of `attention`: rows, heads, queries, without the keys."""
        return [a for a in (*self.batch, self.group, self.query) if a is not None]


@pattern
def attention_of_primitives(op: views.Matmul | views.DotGeneral, rewriter: Rewriter) -> Any:
    """`softmax(mask(q·kᵀ·scale))·v`, with heads anywhere among the axes."""
    second = contraction_of(op)
    if second is None or not shape_of(op.result).dtype.is_float:
        return None
    for weights, values in ((0, 1), (1, 0)):
        scores = scores_of(second.operands[weights])
        if scores is None:
            continue
        if scores.softmax_axis != second.contracting[weights]:
            return rewriter.miss("the softmax is along another axis than the product", "multiply along the keys")
        layout = _layout(scores, second, weights)
        if layout is None:
            return rewriter.miss("the axes of the two products do not go together", "use one batch of heads for both")
        return _emitted(rewriter, op, second, values, scores, layout)
    return None


def _layout(scores: Scores, second: Contraction, weights: int) -> _ScoreAxes | None:
    first = scores.product
    key = scores.axes[second.contracting[weights]]
    dims = shape_of(first.result).dims
    side = None if key is None else first.side_of(key)
    if key is None or side is None or first.free_axes(side) != [key]:
        return None
    free = [a for a in first.free_axes(1 - side) if dims[a] != 1]
    if len(free) > 2:
        return None
    query, group = (free[0] if free else None), (free[1] if len(free) > 1 else None)
    if group is not None and scores.mask is not None and scores.mask.varies_along(group):
        query, group = group, query
        if group is not None and scores.mask.varies_along(group):
            return None
    batch = tuple(range(first.num_batch))
    shared = {name for a in second.batch[weights] if (name := scores.axes[a]) is not None and dims[name] != 1}
    return _ScoreAxes(batch, group, query, key) if shared == {a for a in batch if dims[a] != 1} else None


def _emitted(
    rewriter: Rewriter,
    op: views.Matmul | views.DotGeneral,
    second: Contraction,
    values: int,
    scores: Scores,
    layout: _ScoreAxes,
) -> Any:
    first, weights = scores.product, 1 - values
    side = first.side_of(layout.key)
    dims = shape_of(first.result).dims
    masked = _masked(rewriter, scores, layout)
    if side is None or masked is None:
        return None
    rows, heads = product(dims[a] for a in layout.batch[:-1]), dims[layout.batch[-1]] if layout.batch else 1
    if len(layout.batch) == 1:
        rows, heads = heads, 1
    group = 1 if layout.group is None else dims[layout.group]
    if type(heads) is not int or type(group) is not int or not abs(scores.scale) < 1e30:
        return None
    query, key, value = first.operands[1 - side], first.operands[side], second.operands[values]
    width, value_width = shape_of(query).dims[first.contracting[1 - side]], _value_width(second, values)
    if type(width) is not int or value_width is None:
        return None
    queries = 1 if layout.query is None else dims[layout.query]
    keys = dims[layout.key]
    names = [_names(first, 1 - side), _names(first, side), _value_names(second, values, scores)]
    q = _arranged(rewriter, query, names[0], [*layout.order, "d"], (rows, heads * group, queries, width))
    k = _arranged(rewriter, key, names[1], [*layout.batch, layout.key, "d"], (rows, heads, keys, width))
    v = _arranged(rewriter, value, names[2], [*layout.batch, layout.key, "d"], (rows, heads, keys, value_width))
    kind, mask, empty = masked
    scale = None if math.isclose(scores.scale, width**-0.5, rel_tol=1e-6) else scores.scale
    attributes = {"num_heads": heads * group, "head_dim": width, "mask_kind": kind, "score_scale": scale}
    rest = {"window": None, "softcap": None, "empty_rows": empty}
    result = rewriter.emit("attention", [q, k, v, mask], **attributes, **rest)
    whole = rewriter.emit("reshape", [result], shape=(*(dims[a] for a in layout.order), value_width))
    final = shape_of(op.result).dims
    order = [name for name, d in zip(_result_names(second, weights, scores), final, strict=True) if d != 1]
    return _arranged(rewriter, whole, [*layout.order, "d"], order, final)


def _value_width(second: Contraction, values: int) -> Dim | None:
    free = second.free_of(values)
    return shape_of(second.operands[values]).dims[free[0]] if len(free) == 1 else None


# --- axes -------------------------------------------------------------------------------------------


def _names(first: Contraction, side: int) -> list[Any]:
    """Return the role of each axis of an operand of the first product: an axis of the scores, or `d`."""
    batch = dict(zip(first.batch[side], range(first.num_batch), strict=True))
    free = dict(zip(first.free_of(side), first.free_axes(side), strict=True))
    rank = shape_of(first.operands[side]).rank
    return ["d" if a == first.contracting[side] else batch.get(a, free.get(a)) for a in range(rank)]


def _value_names(second: Contraction, values: int, scores: Scores) -> list[Any]:
    """Return the role of each axis of the values."""
    weights = 1 - values
    pairs = dict(zip(second.batch[values], second.batch[weights], strict=True))
    key = scores.axes[second.contracting[weights]]
    rank = shape_of(second.operands[values]).rank
    return [
        key if a == second.contracting[values] else (scores.axes[pairs[a]] if a in pairs else "d") for a in range(rank)
    ]


def _arranged(rewriter: Rewriter, value: mlir.Value, names: list[Any], order: list[Any], dims: tuple[Dim, ...]) -> Any:
    """Transpose a tensor to an order of axes, ignoring those of size 1, and reshape it to `dims`."""
    shape = shape_of(value).dims
    kept = [(name, d) for name, d in zip(names, shape, strict=True) if d != 1]
    if len(kept) < len(shape):
        value = rewriter.emit("reshape", [value], shape=tuple(d for _, d in kept))
    present = [name for name, _ in kept]
    perm = tuple(present.index(name) for name in order if name in present)
    if perm != tuple(range(len(perm))):
        value = rewriter.emit("transpose", [value], perm=perm)
    return value if shape_of(value).dims == dims else rewriter.emit("reshape", [value], shape=dims)


def _result_names(second: Contraction, weights: int, scores: Scores) -> list[Any]:
    """Return the meaning of each axis of the second product's result: an axis of the scores, or `d`."""
    batch = [scores.axes[a] for a in second.batch[weights]]
    free: list[Any] = [[], []]
    free[weights] = [scores.axes[a] for a in second.free_of(weights)]
    free[1 - weights] = ["d"]
    return [*batch, *free[0], *free[1]]


# --- masks ------------------------------------------------------------------------------------------


def _masked(rewriter: Rewriter, scores: Scores, layout: _ScoreAxes) -> tuple[str, Any, str] | None:
    """Return the kind of mask, its tensor, and the result of a query that sees no key; None if no kind fits."""
    mask = scores.mask
    if mask is None:
        return "none", None, "zeros"
    dims = shape_of(scores.product.result).dims
    if mask.fill is not None and mask.fill > _LOWEST:
        return rewriter.miss(f"scores that are masked become {mask.fill:g}, which may count", "make them -inf")
    if mask.fill is not None and _is_causal(mask, layout, dims):
        return "causal", None, "nan"  # every query sees a key, so a plain softmax suffices
    tensor = mask.tensor
    if mask.inverted:
        tensor = rewriter.emit("compare", [tensor, rewriter.builder.constant(False).value], kind="eq")
    if mask.fill is not None and mask.fill != -math.inf:
        dtype = shape_of(scores.product.result).dtype
        zero, low = (rewriter.builder.constant(v, dtype).value for v in (0.0, mask.fill))
        tensor = rewriter.emit("where", [tensor, zero, low])
    laid_out = _laid_out(rewriter, tensor, mask, layout, dims)
    kind = "custom" if mask.fill == -math.inf else "bias"
    return None if laid_out is None else (kind, laid_out, "nan")


def _is_causal(mask: Mask, layout: _ScoreAxes, dims: tuple[Dim, ...]) -> bool:
    """Whether a mask is causal in the sense of `attention`, and every query sees a key."""
    if layout.query is None:
        return False
    ahead = dims[layout.key] - dims[layout.query]
    return isinstance(ahead, int) and ahead >= 0 and is_causal(mask, layout.query, layout.key, ahead)


def _laid_out(rewriter: Rewriter, tensor: mlir.Value, mask: Mask, layout: _ScoreAxes, dims: tuple[Dim, ...]) -> Any:
    """Return a mask that broadcasts to `[B, H, S, T]`."""
    shape = shape_of(tensor).dims
    names = mask.axes[len(mask.axes) - len(shape) :]
    sizes = {name: d for name, d in zip(names, shape, strict=True) if name is not None and d != 1}

    def size(axis: int | None) -> Dim:
        return sizes.get(axis, 1) if axis is not None else 1

    *rows, heads = layout.batch if len(layout.batch) > 1 else (*layout.batch, None)
    whole = [a for a in rows if size(a) != 1]
    if whole and len(whole) < len([a for a in rows if dims[a] != 1]):
        return rewriter.miss("the mask varies along some of the rows", "give it all axes of the batch")
    if layout.group is not None and size(heads) != 1:
        return rewriter.miss("the mask varies along the heads of groups", "give it one entry for all heads")
    order = [a for a in (*layout.order, layout.key) if size(a) != 1]
    target = (product(size(a) for a in rows), size(heads), size(layout.query), size(layout.key))
    return _arranged(rewriter, tensor, list(names), order, target)


@dataclass(frozen=True)
class RecognizeAttention(Fusion, name="rlx-recognize-attention"):
    """Create `attention` from two products and a softmax between them, with the usual forms of scaling and masking.

    Run rlx-recognize-softmax first. Masks may be added, selected by a bool, or causal by a comparison of positions.
    Queries that see no key keep their result. Repeated heads for groups of queries become shared heads, and heads that
    are split and joined again stay packed.
    """

    makes = "attention"
    patterns = (attention_of_primitives, scaled_operands, grouped_heads, packed_heads)
    helpers = (KNOWN_CHOICES, transpose_chain, shape_chain)

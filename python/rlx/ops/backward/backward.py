"""Gradient ops. A `*_backward` op is a name for one cotangent returned by the `vjp` of the forward card.

One line in the table at the end of this file declares the card of a gradient op. Everything else is derived from the
forward card. Reverse mode (`cotangents`) emits this op if the gradient has one. This keeps gradients short, lets the op
compute in its own precision, and lets a target provide a kernel for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

from rlx.ir.dims.dim import Dim
from rlx.ir.dtype import COMPLEXES, FLOATS
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import Flags, Tangents, Tensors
from rlx.ir.op import registry
from rlx.ir.op.card import Card, Groups
from rlx.ir.shape import Shape
from rlx.ops import rules
from rlx.ops.attention.attention import Attention
from rlx.ops.attention.rope import Rope
from rlx.ops.backward.card import Backward, ShapeOf, SizesAttribute, build_like
from rlx.ops.convolution.convolution import Conv, per_axis
from rlx.ops.convolution.geometry import PoolGeometry
from rlx.ops.convolution.pool import Pool
from rlx.ops.convolution.pool_gradient import taken_from_winners
from rlx.ops.elementwise.activation import STEPS, UNIT
from rlx.ops.elementwise.complex import ComplexNormSq
from rlx.ops.elementwise.elementwise import Activation
from rlx.ops.elementwise.slopes import second_derivative
from rlx.ops.lift import cast
from rlx.ops.loss import SoftmaxCrossEntropyWithLogits
from rlx.ops.norm import GroupNorm, LayerNorm, RmsNorm, statistics_input
from rlx.ops.quantization.fake_quant import FakeQuantize, FakeQuantizeLsq
from rlx.ops.reduction.reduce import Cumsum
from rlx.ops.shape.index import Gather
from rlx.support.errors import ShapeError
from rlx.support.guards import is_sequence

# --- reverse mode ---------------------------------------------------------------------------------------

# The gradient ops that reverse mode emits, by forward op and operand.
_NAMES: dict[str, dict[str, Backward]] = {}


def cotangents(
    b: Builder, card: Card, operands: Groups, results: Tensors, dys: Tangents, **attributes: Any
) -> rules.Cotangents:
    """Return the cotangents that `card.vjp` computes, as `*_backward` ops if these exist."""
    names = _NAMES.get(card.name)
    if names is None or dys[0] is None or any(d is not None for d in dys[1:]):
        return card.vjp(b, operands, results, dys, **attributes)
    rule: Callable[[], Sequence[Any]] = cache(lambda: card.vjp(b, operands, results, dys, **attributes))

    def of_rule(i: int) -> rules.Cotangent:
        entry: Any = rule()[i]
        result: Any = entry() if callable(entry) else entry
        return result

    entries: list[Callable[[], Any]] = []
    for i, entry in enumerate(card.spec.operands):
        name = names.get(entry.name)
        if name is not None and name.stands_for(entry.name, operands, attributes):
            entries.append(partial(name.emitted, b, entry.name, operands, dys[0], attributes))
        else:
            entries.append(partial(of_rule, i))
    return entries


# --- gradients with their own derivatives ---------------------------------------------------------------


class _OfLinear(Backward):
    """The gradient with respect to an operand `x` in which the forward op is linear.

    The gradient is itself linear. Since `<g, f*(dy)> = <f(g), dy>`, its adjoints are the forward op and its gradients.
    """

    def vjp(self, b: Builder, operands: Tensors, results: Tensors, dys: Any, **attributes: Any) -> rules.Cotangents:
        primals, shared, wrt = self._by_name(operands), self.shared(attributes), self.wrt_of(attributes)
        dy = primals.pop(self.cotangent)
        names = self.forward_names
        moved = [dys[0] if n == wrt else primals[n] for n in names]
        pulled = dict(zip(names, cotangents(b, self.forward, moved, (), [dy], **shared), strict=True))
        pulled[self.cotangent] = lambda: b.emit(self.forward.name, moved, **shared)
        return [pulled[o.name] if o.name in self.linear else None for o in self.spec.operands]


class _OfActivation(Backward):
    """The gradient of an activation, with explicit formulas for second derivatives.

    Some formulas for the first derivative choose between branches; differentiating them would give wrong values.
    """

    def vmap(self, b: Builder, operands: Tensors, batched: Flags, *, size: Dim, kind: str) -> Tensor:
        full = [rules.batch(b, x, is_batched, size) for x, is_batched in zip(operands, batched, strict=True)]
        return b.emit(self.name, full, kind=kind)

    def jvp(self, b: Builder, operands: Tensors, tangents: Tangents, results: Tensors, *, kind: str) -> Tensor | None:
        (x, dy), (dx, d) = operands, tangents
        along = None if d is None else b.emit(self.name, (x, d), kind=kind)
        return rules.total(b, [along, None if dx is None else _second_order_term(b, kind, x, dy, dx)])

    def vjp(self, b: Builder, operands: Tensors, results: Tensors, dys: Any, *, kind: str) -> rules.Cotangents:
        (x, dy), (d,) = operands, dys
        return lambda: _second_order_term(b, kind, x, dy, d), lambda: b.emit(self.name, (x, d), kind=kind)


def _second_order_term(b: Builder, kind: str, x: Tensor, dy: Tensor, d: Tensor) -> Tensor | None:
    """Return `d·dy·f''(x)`, rounded once."""
    second = second_derivative(b, kind, statistics_input(b, x))
    return None if second is None else cast(b, statistics_input(b, d) * statistics_input(b, dy) * second, x.dtype)


class _OfMaximum(Backward):
    """The gradient of a maximum: linear in the cotangent and piecewise constant in `x`.

    Its adjoint gathers the elements that this op writes to, so no scatter is needed.
    """

    linear = ("dy",)

    def vjp(
        self, b: Builder, operands: Tensors, results: Tensors, dys: Any, *, geometry: PoolGeometry
    ) -> rules.Cotangents:
        (x, dy), (g,) = operands, dys
        return None, lambda: taken_from_winners(b, x, g, dy.shape, geometry)


class _OfAttention(Backward):
    def refusal(self, wrt: str, attributes: Mapping[str, Any]) -> str | None:
        kind = attributes["mask_kind"]
        if wrt != "mask" or kind == "bias":
            return None
        return f"wrt 'mask' needs mask_kind 'bias': one of kind '{kind}' has no gradient"


# --- the table ------------------------------------------------------------------------------------------


def _gradient(
    op: str,
    forward: type[Card],
    wrt: str | Mapping[str, str],
    *,
    card: type[Backward] | None = None,
    written: bool = True,
    rank: int | None = None,
    unless: Mapping[str, Sequence[Any]] | None = None,
    absent: Mapping[str, ShapeOf] | None = None,
    sizes: Mapping[str, SizesAttribute] | None = None,
    **fixed: Any,
) -> None:
    """Create the card of a gradient op.

    Args:
        op: The name of the op.
        forward: The card of the forward op.
        wrt: As in `Backward`.
        card: A subclass of `Backward` with rules that do not follow from the forward op.
        written: Whether reverse mode emits this op for the gradient.
        rank: As in `Backward`.
        unless: As in `Backward`.
        absent: As in `Backward`.
        sizes: As in `Backward`.
        fixed: As in `Backward`.
    """
    spec, forward_operands = registry.SPECS[op], forward.spec.operands
    operands = {o.name for o in spec.operands}
    members: dict[str, Any] = {
        "__module__": __name__,  # the file of the family
        "forward": registry.card(forward.spec.name),
        "wrt": wrt,
        "rank": rank,
        "fixed": fixed,
        "unless": unless or {},
        "absent": absent or {},
        "sizes": sizes or {},
    }
    moving = [o.name for o in forward_operands if o.name in operands and _INEXACT & set(o.dtypes)]
    if card is None and all(name in forward.linear for name in (wrt, *moving)):
        card = _OfLinear
        constant = {o.name for o in forward_operands} - {*moving}
        members["linear"] = tuple(o.name for o in spec.operands if o.name not in constant)
    if forward.build is not Card.build:
        members["build"] = build_like(forward, spec)
    name = "".join(part.capitalize() for part in op.split("_"))
    type(name, (card or Backward,), members, op=op)
    if written:
        for operand in [wrt] if isinstance(wrt, str) else wrt.values():
            _NAMES.setdefault(forward.spec.name, {})[operand] = registry.card(op)  # type: ignore[assignment]


_INEXACT = {*FLOATS, *COMPLEXES}


def _like(name: str) -> ShapeOf:
    return lambda shapes, _: shapes[name]


def _along(shapes: Mapping[str, Shape], attributes: Mapping[str, Any]) -> Shape:
    """Return the shape of the scale or bias of a normalisation, which varies along one axis."""
    x, axis = shapes["x"], attributes.get("axis", 1)
    return x.with_dims(x.dims[axis : axis + 1])


def _table(shapes: Mapping[str, Shape], attributes: Mapping[str, Any]) -> Shape:
    """Return the shape of the table that the forward op gathers from."""
    dy, indices, axis, size = shapes["dy"], shapes["indices"], attributes["axis"], attributes["size"]
    rank = dy.rank - indices.rank + 1
    if len(size) != 1:
        raise ShapeError(f"size is a list of one dimension, got {list(size)}")
    if not -rank <= axis < rank:
        raise ShapeError(f"axis {axis} of the table leaves no room in {dy} for the axes of the indices {indices}")
    before = axis % rank
    return dy.with_dims((*dy.dims[:before], size[0], *dy.dims[before + indices.rank :]))


def _image(shapes: Mapping[str, Shape], attributes: Mapping[str, Any]) -> Shape:
    """Return the shape of the image. Its convolution with `w` has the shape of `dy`."""
    dy, w, size = shapes["dy"], shapes["w"], attributes["size"]
    if len(size) != 2:
        raise ShapeError(f"size gives height and width, got {list(size)}")
    return dy.with_dims((dy.dims[0], w.dims[1] * attributes["groups"], *size))


def _kernel(shapes: Mapping[str, Shape], attributes: Mapping[str, Any]) -> Shape:
    """Return the shape of the kernel. The convolution of `x` with it has the shape of `dy`."""
    x, dy, kernel, groups = shapes["x"], shapes["dy"], attributes["kernel"], attributes["groups"]
    if len(kernel) != 2:
        raise ShapeError(f"kernel gives the height and width of the kernel; got {list(kernel)}")
    channels = x.dims[1]
    if type(channels) is not int or channels % groups:
        raise ShapeError(f"the {channels} channels of {x} do not divide into {groups} groups")
    return x.with_dims((dy.dims[1], channels // groups, *kernel))


def _as_sizes(value: object) -> tuple[Any, ...]:
    return tuple(value) if is_sequence(value) else (value,)


_SIZE = SizesAttribute(_as_sizes, lambda shapes, _: shapes["x"].dims[2:])
_ROWS = SizesAttribute(_as_sizes, lambda shapes, attributes: (shapes["table"].dims[attributes["axis"]],))
_KERNEL = SizesAttribute(lambda value: per_axis(value, 2, "kernel"), lambda shapes, _: shapes["w"].static[2:])
_ATTENTION = {"query": "q", "key": "k", "value": "v", "mask": "mask"}
_WEIGHTS: Mapping[str, ShapeOf] = {"scale": _along, "bias": _along}

_gradient("activation_backward", Activation, "x", card=_OfActivation, unless={"kind": UNIT + STEPS})
_gradient("relu_backward", Activation, "x", kind="relu", written=False)
_gradient("complex_norm_sq_backward", ComplexNormSq, "x")
_gradient("cumsum_backward", Cumsum, "x", absent={"x": _like("dy")})
_gradient("gather_backward", Gather, "table", absent={"table": _table}, sizes={"size": _ROWS})
_gradient("softmax_cross_entropy_backward", SoftmaxCrossEntropyWithLogits, "logits")
_gradient("rope_backward", Rope, "x", absent={"x": _like("dy")})
_gradient("attention_backward", Attention, _ATTENTION, card=_OfAttention)
_gradient("layer_norm_backward_input", LayerNorm, "x", absent={"bias": _like("scale")})
_gradient("layer_norm_backward_gamma", LayerNorm, "scale", absent=_WEIGHTS)
_gradient("rms_norm_backward_input", RmsNorm, "x")
_gradient("rms_norm_backward_gamma", RmsNorm, "scale")
_gradient("rms_norm_backward_beta", RmsNorm, "bias", written=False)
_gradient("group_norm_backward_input", GroupNorm, "x")
_gradient("group_norm_backward_gamma", GroupNorm, "scale", absent=_WEIGHTS)
_gradient("group_norm_backward_beta", GroupNorm, "bias", absent=_WEIGHTS, written=False)
_gradient("max_pool2d_backward", Pool, "x", card=_OfMaximum, rank=4, kind="max")
_gradient("conv2d_backward_input", Conv, "x", rank=4, absent={"x": _image}, sizes={"size": _SIZE}, written=False)
_gradient("conv2d_backward_weight", Conv, "w", rank=4, absent={"w": _kernel}, sizes={"kernel": _KERNEL})
_gradient("fake_quantize_backward", FakeQuantize, "x", scale_mode="per_batch", unless={"ste": ("identity",)})
_gradient("fake_quantize_lsq_backward_x", FakeQuantizeLsq, "x")
_gradient("fake_quantize_lsq_backward_scale", FakeQuantizeLsq, "scale")

"""Activations, and dropout, which is the identity outside of training."""

from __future__ import annotations

from rlx.importers.torch.rules import Results, as_tensors, aten, axis_of
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.support.errors import UnsupportedError


@aten("gelu")
def gelu(g: Graph, x: Tensor, *, approximate: str = "none") -> Tensor:
    return g.gelu(x) if approximate == "none" else g.gelu_approx(x)


@aten("leaky_relu")
def leaky_relu(g: Graph, x: Tensor, negative_slope: float = 0.01) -> Tensor:
    return g.leaky_relu(x, negative_slope)


@aten("elu")
def elu(g: Graph, x: Tensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Tensor:
    if scale == 1 and input_scale == 1:
        return g.elu(x, alpha)
    below = g.mul(g.expm1(g.mul(g.minimum(x, 0.0), input_scale)), alpha * scale)
    return g.where(g.gt(x, 0.0), g.mul(x, scale), below)


@aten("celu")
def celu(g: Graph, x: Tensor, alpha: float = 1.0) -> Tensor:
    return g.celu(x, alpha)


@aten("hardtanh")
def hardtanh(g: Graph, x: Tensor, low: float = -1.0, high: float = 1.0) -> Tensor:
    return g.clamp(x, *as_tensors(g, x.dtype, low, high))


@aten("relu6")
def relu6(g: Graph, x: Tensor) -> Tensor:
    return hardtanh(g, x, 0.0, 6.0)


@aten("prelu", "_prelu_kernel")
def prelu(g: Graph, x: Tensor, weight: Tensor) -> Tensor:
    if weight.rank == 1 and x.rank != 1:
        weight = g.reshape(weight, () if x.rank == 0 else (weight.shape.dims[0], *(1 for _ in range(x.rank - 2))))
    return g.where(g.gt(x, 0.0), x, g.mul(weight, x))


@aten("glu")
def glu(g: Graph, x: Tensor, dim: int = -1) -> Tensor:
    return g.glu(x, axis=dim)


@aten("threshold")
def threshold(g: Graph, x: Tensor, threshold: float, value: float) -> Tensor:
    return g.where(g.le(x, threshold), g.cast(value, x.dtype), x)


@aten("softshrink")
def softshrink(g: Graph, x: Tensor, lambd: float = 0.5) -> Tensor:
    inside = g.mul(x, 0.0)  # NaN stays
    return g.where(g.gt(x, lambd), g.sub(x, lambd), g.where(g.lt(x, -lambd), g.add(x, lambd), inside))


@aten("hardshrink")
def hardshrink(g: Graph, x: Tensor, lambd: float = 0.5) -> Tensor:
    return g.where(g.logical_and(g.ge(x, -lambd), g.le(x, lambd)), g.cast(0.0, x.dtype), x)


@aten("softplus")
def softplus(g: Graph, x: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    """Return softplus. PyTorch returns x itself above the threshold; in f32 both are equal from 20 on."""
    soft = g.softplus(x, float(beta))
    if threshold >= 20 and x.dtype.name != "f64":
        return soft
    return g.where(g.gt(g.mul(x, float(beta)), float(threshold)), x, soft)


@aten("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")
def dropout(g: Graph, x: Tensor, p: float, train: bool) -> Tensor:
    if train and p > 0:
        raise UnsupportedError(
            "in training mode cannot be imported: PyTorch's random numbers are its own", hint="module.eval() before it"
        )
    return x


@aten("native_dropout")
def native_dropout(g: Graph, x: Tensor, p: float, train: bool | None, *, results: Results) -> list[Tensor]:
    return [dropout(g, x, p, bool(train)), g.full(results[1].dims, True)]


@aten("_softmax", "softmax")
def softmax(g: Graph, x: Tensor, dim: int, half_to_float: bool | None = None, *, results: Results) -> Tensor:
    x = g.cast(x, results[0].dtype)
    return g.softmax(x, axis_of(dim, x.rank)) if x.rank else g.full((), 1.0, x.dtype)


@aten("_log_softmax", "log_softmax")
def log_softmax(g: Graph, x: Tensor, dim: int, half_to_float: bool | None = None, *, results: Results) -> Tensor:
    x = g.cast(x, results[0].dtype)
    return g.log_softmax(x, axis_of(dim, x.rank)) if x.rank else g.full((), 0.0, x.dtype)


@aten("_safe_softmax")
def safe_softmax(g: Graph, x: Tensor, dim: int, dtype: object = None, *, results: Results) -> Tensor:
    """Return softmax, with zeros where all elements are -inf."""
    made = softmax(g, x, dim, results=results)
    some = g.any(g.gt(x, -float("inf")), axis_of(dim, x.rank), True)
    return g.where(some, made, g.cast(0.0, made.dtype))

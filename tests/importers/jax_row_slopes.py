"""Functions of rows by name, in addition to `jax_slopes`: softmax with masks, losses, norms, reductions, scans, orders."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.special as special
import jax.scipy.stats as stats
import numpy as np
from jax import lax, nn

from tests.importers.jax_slopes import CASES, HUGE, add

__all__ = ["CASES"]

_inf, _nan = np.inf, np.nan
ROWS = np.array(
    [
        *(
            [0.0, 0.0, 0.0, 0.0],
            [1.0, 1.0, 1.0, 1.0],
            [1.0, 2.0, 2.0, -1.0],
            [0.0, 2.0, 3.0, 4.0],
            [0.0, -0.0, 3.0, 4.0],
        ),
        *(
            [0.0, 0.0, 0.0, 1.0],
            [-1.0, 1.0, -1.0, 1.0],
            [1e-30, 1e-30, 1e-30, 0.0],
            [1e30, 1e30, -1e30, 1.0],
            [-89.0, 0.0, 89.0, 104.0],
        ),
        *(
            [-1e9, -1e9, -1e9, -1e9],
            [-1e9, 0.5, 1.0, -1e9],
            [-_inf, 0.5, 1.0, -_inf],
            [-_inf, -_inf, -_inf, -_inf],
            [_inf, 0.0, 1.0, 2.0],
        ),
        *(
            [_inf, _inf, 1.0, 2.0],
            [_inf, -_inf, 1.0, 2.0],
            [_nan, 0.0, 1.0, 2.0],
            [_nan, _nan, _nan, _nan],
            [0.3, 0.3, 0.1, 0.3],
        ),
        *([1e-40, 2e-40, 0.0, 1e-38], [0.5, -0.5, 1.5, -1.5], [-2.0, -3.0, -2.0, -5.0], [HUGE, HUGE, 1.0, -HUGE]),
    ],
    np.float64,
)
_KEPT = np.array([True, False, True, False])
_TARGET = np.array([0.0, 1.0, 0.0, 0.0])


def _attention(fill: float, x: Any) -> Any:
    """Attention of four queries and keys. The rows of `x` are both scores and values."""
    mask = jnp.tril(jnp.ones((4, 4), bool))
    scores = jnp.where(mask, x[:, :, None] * x[:, None, :] * 0.5, fill)
    return jnp.einsum("rqk,rk->rq", nn.softmax(scores, axis=-1), x)


def _layer_norm(x: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred * lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)


def _online_softmax(x: Any) -> Any:
    """Softmax with running maxima, as a scan."""

    def step(carry: Any, column: Any) -> Any:
        most, total = carry
        larger = jnp.maximum(most, column)
        return (larger, total * jnp.exp(most - larger) + jnp.exp(column - larger)), column

    (most, total), _ = lax.scan(step, (x[:, 0], jnp.ones_like(x[:, 0])), x[:, 1:].T)
    return most + jnp.log(total)


def _rows(*, is_smooth: bool = True, **functions: Callable[..., Any]) -> None:
    add((ROWS,), is_smooth=is_smooth, **functions)


_rows(
    softmax=nn.softmax,
    log_softmax=nn.log_softmax,
    logsumexp=partial(nn.logsumexp, axis=-1),
    logmeanexp=partial(nn.logmeanexp, axis=-1),
    logsumexp_weighted=lambda x: nn.logsumexp(x, axis=-1, b=jnp.asarray(_TARGET, x.dtype)),
    logsumexp_where=lambda x: nn.logsumexp(x, axis=-1, where=jnp.asarray(_KEPT)),
    softmax_where=lambda x: nn.softmax(x, where=jnp.asarray(_KEPT)),
    log_softmax_where=lambda x: nn.log_softmax(x, where=jnp.asarray(_KEPT)),
    softmax_masked=lambda x: nn.softmax(jnp.where(jnp.asarray(_KEPT), x, -1e9)),
    softmax_infinite=lambda x: nn.softmax(jnp.where(jnp.asarray(_KEPT), x, -jnp.inf)),
    softmax_all_masked=lambda x: nn.softmax(jnp.where(x > 0, x, -jnp.inf)),
    softmax_by_hand=lambda x: jnp.exp(x) / jnp.exp(x).sum(-1, keepdims=True),
    softmax_shifted=lambda x: (
        jnp.exp(x - x.max(-1, keepdims=True)) / jnp.exp(x - x.max(-1, keepdims=True)).sum(-1, keepdims=True)
    ),
    cross_entropy=lambda x: -(nn.log_softmax(x) * jnp.asarray(_TARGET, x.dtype)).sum(-1),
    cross_entropy_picked=lambda x: -nn.log_softmax(x)[:, 1],
    cross_entropy_masked=lambda x: -nn.log_softmax(jnp.where(jnp.asarray(_KEPT), x, -1e9))[:, 0],
    sigmoid_cross_entropy=lambda x: (
        jnp.maximum(x, 0) - x * jnp.asarray(_TARGET, x.dtype) + jnp.log1p(jnp.exp(-jnp.abs(x)))
    ),
    log_sigmoid_loss=lambda x: (
        -(
            jnp.asarray(_TARGET, x.dtype) * nn.log_sigmoid(x) + (1 - jnp.asarray(_TARGET, x.dtype)) * nn.log_sigmoid(-x)
        ).sum(-1)
    ),
    gate_masked=lambda x: nn.sigmoid(jnp.where(jnp.asarray(_KEPT), x, -1e9)) * x,
    glu=nn.glu,
    standardize=nn.standardize,
    layer_norm=_layer_norm,
    rms_norm=lambda x: x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6),
    attention=partial(_attention, -1e9),
    attention_infinite=partial(_attention, -np.inf),
    attention_of_nn=lambda x: nn.dot_product_attention(*[x.reshape(1, -1, 1, 4)] * 3, is_causal=True),
    norm=lambda x: jnp.linalg.norm(x, axis=-1),
    normalised=lambda x: x / jnp.linalg.norm(x, axis=-1, keepdims=True),
    norm_1=lambda x: jnp.linalg.norm(x, 1, axis=-1),
    norm_infinite=lambda x: jnp.linalg.norm(x, jnp.inf, axis=-1),
    norm_3=lambda x: jnp.linalg.norm(x, 3, axis=-1),
    var=lambda x: x.var(-1),
    std=lambda x: x.std(-1),
    mean=lambda x: x.mean(-1),
    sum_of_squares=lambda x: (x * x).sum(-1),
    prod=lambda x: x.prod(-1),
    cumsum=lambda x: jnp.cumsum(x, -1),
    cumprod=lambda x: jnp.cumprod(x, -1),
    cumlogsumexp=lambda x: lax.cumlogsumexp(x, axis=1),
    online_softmax=_online_softmax,
    scan_of_products=lambda x: lax.associative_scan(jnp.multiply, x, axis=1),
    entropy=lambda x: special.entr(nn.softmax(x)).sum(-1),
    kl_of_softmax=lambda x: special.rel_entr(nn.softmax(x), jnp.full_like(x, 0.25)).sum(-1),
    tempered=lambda x: nn.softmax(x / 1e-3),
    dirichlet=lambda x: stats.dirichlet.logpdf(jnp.full(4, 0.25, x.dtype), jnp.abs(x[3]) + 1) * x,
    gumbel_like=lambda x: nn.softmax(x - jnp.log(-jnp.log(jnp.asarray([0.1, 0.5, 0.9, 1.0], x.dtype)))),
    trapezoid=lambda x: jnp.trapezoid(x),
    polyval=lambda x: jnp.polyval(jnp.asarray([1.0, -2.0, 3.0], x.dtype), x),
    matmul=lambda x: x @ jnp.asarray(ROWS[:4], x.dtype),
    outer=lambda x: x[:, :, None] * x[:, None, :],
    nansum=lambda x: jnp.nansum(x, -1),
    nanmean=lambda x: jnp.nanmean(x, -1),
    cosine=lambda x: (x * x[:, ::-1]).sum(-1) / (jnp.linalg.norm(x, axis=-1) * jnp.linalg.norm(x[:, ::-1], axis=-1)),
)
_rows(
    is_smooth=False,
    max=lambda x: x.max(-1),
    min=lambda x: x.min(-1),
    amax_pair=lambda x: jnp.max(x, (0, 1)),
    cummax=lambda x: lax.cummax(x, axis=1),
    cummin=lambda x: lax.cummin(x, axis=1),
    sort=lambda x: jnp.sort(x, -1),
    sort_descending=lambda x: jnp.sort(x, -1, descending=True),
    top_k=lambda x: lax.top_k(x, 2)[0],
    median=lambda x: jnp.median(x, -1),
    quantile=lambda x: jnp.quantile(x, 0.3, axis=-1),
    ptp=lambda x: jnp.ptp(x, -1),
    nanmax=lambda x: jnp.nanmax(x, -1),
    take_max=lambda x: jnp.take_along_axis(x, x.argmax(-1)[:, None], -1),
    max_pool=lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 2), (1, 1), "SAME"),
    segment_max=lambda x: jax.ops.segment_max(x.T, np.array([0, 1, 0, 1]), 2),
    scatter_max=lambda x: x.at[:, 0].max(x[:, 1]),
    scatter_min=lambda x: x.at[:, 0].min(x[:, 1]),
    scatter_mul=lambda x: x.at[:, 0].mul(x[:, 1]),
    huber=lambda x: jnp.where(jnp.abs(x) < 1, 0.5 * x * x, jnp.abs(x) - 0.5),
    hinge=lambda x: jnp.maximum(0, 1 - x * jnp.asarray([1.0, -1.0, 1.0, -1.0], x.dtype)),
    interp=lambda x: jnp.interp(x, jnp.asarray([0.0, 1.0, 2.0], x.dtype), jnp.asarray([0.0, 3.0, 1.0], x.dtype)),
    maxout=lambda x: x.reshape(-1, 2, 2).max(-1),
)

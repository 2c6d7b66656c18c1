"""JAX functions by name, and the points at which their derivatives are compared: extremes, poles, integers and zeros."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax.numpy as jnp
import jax.scipy.special as special
import jax.scipy.stats as stats
import numpy as np
from jax import lax, nn

HUGE = float(np.finfo(np.float32).max)
_TINY = float(np.finfo(np.float32).tiny)
_POSITIVE = (
    *(
        0.0,
        1e-40,
        _TINY,
        1e-30,
        1e-9,
        1e-4,
        0.25,
        0.5,
        0.75,
        0.99999994,
        1.0,
        1.0000001,
        1.5,
        2.0,
        2.5,
        3.0,
        4.0,
        5.5,
        6.0,
    ),
    *(
        7.5,
        8.0,
        9.0,
        15.0,
        20.0,
        30.0,
        50.0,
        80.0,
        87.0,
        88.0,
        89.0,
        100.0,
        104.0,
        1e3,
        1e4,
        1e9,
        1e20,
        1e30,
        HUGE,
        np.inf,
    ),
)
POINTS = np.array([*(-p for p in reversed(_POSITIVE)), *_POSITIVE, np.nan], np.float64)
_FEWER = np.array(
    [
        *(-np.inf, -HUGE, -1e30, -1e9, -104.0, -89.0, -2.0, -1.5, -1.0, -0.5, -_TINY, -0.0),
        *(0.0, 1e-40, _TINY, 0.5, 1.0, 1.5, 2.0, 3.0, 89.0, 104.0, 1e9, 1e30, HUGE, np.inf, np.nan),
    ],
    np.float64,
)
PAIRS = np.stack([v.ravel() for v in np.meshgrid(_FEWER, _FEWER)])


@dataclass(frozen=True)
class Case:
    """A function with the arguments at which it is differentiated.

    Attributes:
        function: The function, of arrays, with one array as its result.
        args: Its arguments.
        is_smooth: Whether second derivatives are compared.
    """

    function: Callable[..., Any]
    args: tuple[np.ndarray, ...]
    is_smooth: bool = True


CASES: dict[str, Case] = {}


def add(args: tuple[np.ndarray, ...], *, is_smooth: bool = True, **functions: Callable[..., Any]) -> None:
    for name, function in functions.items():
        assert name not in CASES, name
        CASES[name] = Case(function, args, is_smooth)


def _unary(*, is_smooth: Any = True, **functions: Any) -> None:
    add((POINTS,), is_smooth=is_smooth, **functions)


_unary(
    # Functions with an op in StableHLO or CHLO.
    **{
        name: getattr(lax, name)
        for name in ("exp", "exp2", "expm1", "log", "log1p", "sqrt", "rsqrt", "cbrt", "square", "reciprocal")
    },
    **{
        name: getattr(lax, name)
        for name in ("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh")
    },
    **{
        name: getattr(lax, name)
        for name in ("erf", "erfc", "erf_inv", "lgamma", "digamma", "bessel_i0e", "bessel_i1e", "logistic")
    },
    **{f"integer_pow_{n}": partial(lambda n, x: lax.integer_pow(x, n), n) for n in (-3, -2, -1, 0, 1, 2, 3, 7)},
    **{f"pow_{n}": partial(lambda n, x: x**n, n) for n in (-1.5, 0.0, 0.5, 1.0, 1.5, 2.0, 2.5)},
    **{f"pow_of_{n}": partial(lambda n, x: jnp.power(n, x), n) for n in (0.0, 0.5, 2.0, -1.0)},
)
_unary(
    is_smooth=False,
    **{name: getattr(lax, name) for name in ("abs", "neg", "sign", "floor", "ceil", "round")},
    trunc=jnp.trunc,
    rint=jnp.rint,
    fabs=jnp.fabs,
    positive=jnp.positive,
    nan_to_num=jnp.nan_to_num,
    remainder_2=lambda x: jnp.remainder(x, 2.0),
    fmod_2=lambda x: lax.rem(x, jnp.full_like(x, 2)),
    modf=lambda x: jnp.modf(x)[0],
    relu=nn.relu,
    relu6=nn.relu6,
    leaky_relu=nn.leaky_relu,
    elu=nn.elu,
    celu=nn.celu,
    selu=nn.selu,
    hard_sigmoid=nn.hard_sigmoid,
    hard_silu=nn.hard_silu,
    hard_tanh=nn.hard_tanh,
    soft_sign=nn.soft_sign,
    squareplus=nn.squareplus,
    sparse_plus=nn.sparse_plus,
    sparse_sigmoid=nn.sparse_sigmoid,
    clip_scalar=lambda x: jnp.clip(x, -1.0, 1.0),
    clamp_scalar=lambda x: lax.clamp(-1.0, x, 1.0),
    clip_array=lambda x: jnp.clip(x, jnp.full_like(x, -1.0), jnp.full_like(x, 1.0)),
    clip_below=lambda x: jnp.clip(x, min=0.5),
    clip_above=lambda x: jnp.clip(x, max=0.5),
    clip_empty=lambda x: jnp.clip(x, 1.0, -1.0),
    maximum_0=lambda x: jnp.maximum(x, 0.0),
    minimum_1=lambda x: jnp.minimum(x, 1.0),
    nextafter_0=lambda x: jnp.nextafter(lax.stop_gradient(x), 0.0) * x,
    reduce_precision=lambda x: lax.reduce_precision(x, 8, 7),
    to_bf16=lambda x: x.astype(jnp.bfloat16).astype(x.dtype),
    stop_gradient=lambda x: lax.stop_gradient(x) * x,
    where_sqrt=lambda x: jnp.where(x > 0, jnp.sqrt(x), 0.0),
    double_where=lambda x: jnp.where(x > 0, jnp.sqrt(jnp.where(x > 0, x, 1.0)), 0.0),
    is_zero=lambda x: jnp.where(x == 0, 1.0, x),
    frexp=lambda x: jnp.frexp(x)[0],
    copysign=lambda x: jnp.copysign(2.0, x),
    heaviside=lambda x: jnp.heaviside(x, 0.5) * x,
)
_unary(
    sigmoid=nn.sigmoid,
    log_sigmoid=nn.log_sigmoid,
    softplus=nn.softplus,
    silu=nn.silu,
    mish=nn.mish,
    gelu=nn.gelu,
    gelu_exact=partial(nn.gelu, approximate=False),
    log1mexp=nn.log1mexp,
    tanh_of_nn=nn.tanh,
    expit=special.expit,
    logit=special.logit,
    ndtr=special.ndtr,
    log_ndtr=special.log_ndtr,
    ndtri=special.ndtri,
    entr=special.entr,
    erfcx=special.erfcx,
    dawsn=special.dawsn,
    i0=special.i0,
    i1=special.i1,
    i0e=special.i0e,
    i1e=special.i1e,
    spence=special.spence,
    gamma=special.gamma,
    gammaln=special.gammaln,
    loggamma=special.loggamma,
    factorial=special.factorial,
    sici=lambda x: special.sici(x)[0],
    sici_cosine=lambda x: special.sici(x)[1],
    polygamma_1=lambda x: special.polygamma(1, x),
    fresnel=lambda x: special.fresnel(x)[0],
    fresnel_cosine=lambda x: special.fresnel(x)[1],
    poch_2=lambda x: special.poch(x, 2.5),
    zeta_2=lambda x: special.zeta(x, 2.0),
    zeta_of_3=lambda x: special.zeta(3.0, x),
    multigammaln=lambda x: special.multigammaln(x, 2),
    boxcox_0=lambda x: special.boxcox(x, 0.0),
    boxcox1p=lambda x: special.boxcox1p(x, 0.5),
    sinc=jnp.sinc,
    i0_of_numpy=jnp.i0,
    log2=jnp.log2,
    log10=jnp.log10,
    exp2_of_numpy=jnp.exp2,
    deg2rad=jnp.deg2rad,
    float_power=lambda x: jnp.float_power(x, 1.5),
    arcsinh=jnp.arcsinh,
    arccosh=jnp.arccosh,
    arctanh=jnp.arctanh,
    hypot_1=lambda x: jnp.hypot(x, 1.0),
    atan2_1=lambda x: jnp.arctan2(x, 1.0),
    logaddexp_0=lambda x: jnp.logaddexp(x, 0.0),
    logaddexp2_0=lambda x: jnp.logaddexp2(x, 0.0),
    log_of_sigmoid=lambda x: jnp.log(nn.sigmoid(x)),
    bce=lambda x: -jnp.log(nn.sigmoid(x)) - jnp.log1p(-nn.sigmoid(x)),
    one_minus_sigmoid=lambda x: 1 - nn.sigmoid(x),
    sigmoid_by_hand=lambda x: 1 / (1 + jnp.exp(-x)),
    sigmoid_turned=lambda x: jnp.exp(x) / (1 + jnp.exp(x)),
    tanh_by_hand=lambda x: (jnp.exp(x) - jnp.exp(-x)) / (jnp.exp(x) + jnp.exp(-x)),
    softplus_by_hand=lambda x: jnp.log1p(jnp.exp(x)),
    gaussian=lambda x: jnp.exp(-x * x),
    inverse_square=lambda x: 1 / (1 + x * x),
    x_log_x=lambda x: x * jnp.log(x),
    norm_logpdf=stats.norm.logpdf,
    norm_cdf=stats.norm.cdf,
    norm_logcdf=stats.norm.logcdf,
    logistic_logpdf=stats.logistic.logpdf,
    logistic_cdf=stats.logistic.cdf,
    cauchy_logpdf=stats.cauchy.logpdf,
    laplace_cdf=stats.laplace.cdf,
    t_logpdf=lambda x: stats.t.logpdf(x, 3.0),
    gumbel_logpdf=stats.gumbel_r.logpdf,
    expon_logpdf=stats.expon.logpdf,
    gammainc_2=lambda x: special.gammainc(2.0, x),
    gammaincc_2=lambda x: special.gammaincc(2.0, x),
    betainc_23=lambda x: special.betainc(2.0, 3.0, x),
    bessel_jn=lambda x: special.bessel_jn(x, v=2, n_iter=20)[2],
)


def _binary(*, is_smooth: bool = True, **functions: Callable[..., Any]) -> None:
    add((PAIRS[0], PAIRS[1]), is_smooth=is_smooth, **functions)


_binary(
    add=lax.add,
    sub=lax.sub,
    mul=lax.mul,
    div=lax.div,
    pow=lax.pow,
    power=jnp.power,
    atan2=lax.atan2,
    hypot=jnp.hypot,
    logaddexp=jnp.logaddexp,
    logaddexp2=jnp.logaddexp2,
    xlogy=special.xlogy,
    xlog1py=special.xlog1py,
    rel_entr=special.rel_entr,
    kl_div=special.kl_div,
    betaln=special.betaln,
    beta=special.beta,
    zeta=special.zeta,
    true_divide=jnp.divide,
    boxcox=special.boxcox,
    norm_logpdf_scaled=lambda x, s: stats.norm.logpdf(x, 0.0, s),
    norm_of_two=lambda x, y: jnp.sqrt(x * x + y * y),
    geometric=lambda x, y: jnp.sqrt(jnp.abs(x)) * y,
)
_binary(
    is_smooth=False,
    maximum=jnp.maximum,
    minimum=jnp.minimum,
    fmax=jnp.fmax,
    fmin=jnp.fmin,
    rem=lax.rem,
    remainder=jnp.remainder,
    fmod=jnp.fmod,
    floor_divide=lambda x, y: jnp.floor_divide(x, y) + x,
    clamp=lambda x, y: lax.clamp(-y, x, y),
    select=lambda x, y: jnp.where(x > y, x, y),
    copysign_of=jnp.copysign,
    divmod=lambda x, y: jnp.divmod(x, y)[1],
)

"""Initialisers: functions from a key and a shape to the initial values of a parameter.

A key is an integer. The same key and shape give the same values on every machine, up to the last bits of logarithm and
sine, because the values are derived from the words of RLX's own generator. Any function `(key, shape) -> array` is an
initialiser, for example `lambda key, shape: np.random.default_rng(key).gumbel(size=shape)`.

The sizes of a weight are `[out, in, kernel…]`, as in PyTorch. `fan_in` is the number of terms that are summed for one
output, `fan_out` the number of outputs that read one input.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

import numpy as np

from rlx.ir.calls import with_call_errors
from rlx.ir.dtype import f64
from rlx.ops.random import RngNormal
from rlx.ops.random import words as random_words
from rlx.support.answers import answers
from rlx.support.errors import Error

Initializer = Callable[[int, tuple[int, ...]], Any]

_GAINS = {"linear": 1.0, "sigmoid": 1.0, "tanh": 5 / 3, "relu": math.sqrt(2), "selu": 0.75}


def key_of(seed: int, name: str) -> int:
    """Return the key of one parameter. It depends only on the seed and the name of the parameter."""
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1  # as a signed 64-bit integer


@with_call_errors
def constant(value: float) -> Initializer:
    """One value everywhere."""
    return partial(_constant, value)


def _constant(value: float, key: int, shape: tuple[int, ...]) -> np.ndarray:
    return np.full(shape, value, np.float64)


@with_call_errors
def zeros(key: int, shape: tuple[int, ...]) -> np.ndarray:
    """0 everywhere."""
    return np.zeros(shape)


@with_call_errors
def ones(key: int, shape: tuple[int, ...]) -> np.ndarray:
    """1 everywhere."""
    return np.ones(shape)


@with_call_errors
def uniform(low: float = 0.0, high: float = 1.0) -> Initializer:
    """Uniform numbers in `[low, high)`."""
    return partial(_uniform, low, high)


def _uniform(low: float, high: float, key: int, shape: tuple[int, ...]) -> np.ndarray:
    return low + (high - low) * 2.0**-32 * _words(key, shape)


@with_call_errors
def normal(std: float = 1.0, mean: float = 0.0) -> Initializer:
    """Normally distributed numbers."""
    return partial(_shifted_normal, std, mean)


def _shifted_normal(std: float, mean: float, key: int, shape: tuple[int, ...]) -> np.ndarray:
    return mean + std * _normal(key, shape)


@with_call_errors
def truncated_normal(std: float = 1.0, mean: float = 0.0, low: float = -2.0, high: float = 2.0) -> Initializer:
    """Normally distributed numbers in `[low, high]`.

    Numbers outside of the interval are drawn again, as in PyTorch's `trunc_normal_`.

    Args:
        std: Standard deviation before truncation.
        mean: Mean before truncation.
        low: The smallest value; not in units of the standard deviation.
        high: The largest value; not in units of the standard deviation.

    Raises:
        Error: Less than one number in a thousand would be between the limits.
    """
    lower, upper = (0.5 * (1 + math.erf((limit - mean) / (std * math.sqrt(2)))) for limit in (low, high))
    if upper - lower < 1e-3:
        raise Error(f"truncated_normal: few normal numbers of mean {mean} and deviation {std} lie in [{low}, {high}]")
    return partial(_truncated, std, mean, low, high)


def _truncated(std: float, mean: float, low: float, high: float, key: int, shape: tuple[int, ...]) -> np.ndarray:
    result, draw = mean + std * _normal(key, shape), 0
    while (outside := (result < low) | (result > high)).any():
        draw += 1
        result[outside] = mean + std * _normal(key_of(key, f"draw {draw}"), (int(outside.sum()),))
    return result


@with_call_errors
def glorot_uniform(gain: float = 1.0) -> Initializer:
    """Uniform numbers with variance `gain²·2/(fan_in + fan_out)` (X. Glorot and Y. Bengio, 2010)."""
    return partial(_scaled, partial(_glorot, gain), _even)


@with_call_errors
def glorot_normal(gain: float = 1.0) -> Initializer:
    """Normally distributed numbers with variance `gain²·2/(fan_in + fan_out)` (X. Glorot and Y. Bengio, 2010)."""
    return partial(_scaled, partial(_glorot, gain), _normal)


def _glorot(gain: float, fan_in: int, fan_out: int) -> float:
    return gain * math.sqrt(2 / (fan_in + fan_out))


@with_call_errors
def kaiming_uniform(nonlinearity: str = "relu", mode: str = "fan_in", negative_slope: float = 0.0) -> Initializer:
    """Uniform numbers with variance `gain²/fan` (K. He et al., Delving deep into rectifiers, 2015).

    Args:
        nonlinearity: The following activation, which determines the gain: `relu`, `leaky_relu`, `tanh`, `sigmoid`,
            `selu` or `linear`.
        mode: `fan_in` preserves the variance of values, `fan_out` that of gradients.
        negative_slope: The negative slope of `leaky_relu`.
    """
    return partial(_scaled, _kaiming(nonlinearity, mode, negative_slope), _even)


@with_call_errors
def kaiming_normal(nonlinearity: str = "relu", mode: str = "fan_in", negative_slope: float = 0.0) -> Initializer:
    """Normally distributed numbers with variance `gain²/fan`; see `kaiming_uniform`."""
    return partial(_scaled, _kaiming(nonlinearity, mode, negative_slope), _normal)


@with_call_errors
def orthogonal(gain: float = 1.0) -> Initializer:
    """A matrix whose rows or columns, whichever are fewer, are orthogonal with norm `gain`.

    Tensors of higher rank are treated as `[rows, all others]`. The matrix comes from the QR decomposition of a normal
    matrix, with signs that make the distribution uniform (F. Mezzadri, How to generate random matrices from the
    classical compact groups, 2007).
    """
    return partial(_orthogonal, gain)


def _orthogonal(gain: float, key: int, shape: tuple[int, ...]) -> np.ndarray:
    if len(shape) < 2:
        raise Error(f"orthogonal needs rank 2 or more, got {list(shape)}")
    rows, columns = shape[0], math.prod(shape[1:])
    q, r = np.linalg.qr(_normal(key, (max(rows, columns), min(rows, columns))))
    q = q * np.where(np.diag(r) < 0, -1.0, 1.0)
    return gain * (q if rows >= columns else q.T).reshape(shape)


xavier_uniform, xavier_normal, he_uniform, he_normal = glorot_uniform, glorot_normal, kaiming_uniform, kaiming_normal


def within(bound: float) -> Initializer:
    """Uniform numbers in `[-bound, bound)`, the initialisation of PyTorch's layers."""
    return uniform(-bound, bound)


def fans(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return `fan_in` and `fan_out` of a weight `[out, in, kernel…]`.

    Raises:
        Error: The rank is less than 2.
    """
    if len(shape) < 2:
        raise Error(f"a weight of shape {list(shape)} has no fans: its rank must be 2 or more")
    kernel = math.prod(shape[2:])
    return shape[1] * kernel, shape[0] * kernel


def _kaiming(nonlinearity: str, mode: str, slope: float) -> Callable[[int, int], float]:
    if mode not in ("fan_in", "fan_out"):
        raise Error(f"mode is 'fan_in' or 'fan_out', got {mode!r}")
    gain = math.sqrt(2 / (1 + slope * slope)) if nonlinearity == "leaky_relu" else _GAINS.get(nonlinearity)
    if gain is None:
        raise Error(f"nonlinearity {nonlinearity!r} is not one of {', '.join(_GAINS)}, leaky_relu")
    return partial(_by_one_fan, gain, mode)


def _by_one_fan(gain: float, mode: str, fan_in: int, fan_out: int) -> float:
    return gain / math.sqrt(fan_in if mode == "fan_in" else fan_out)


def _scaled(std: Callable[[int, int], float], unit: Initializer, key: int, shape: tuple[int, ...]) -> np.ndarray:
    """Return numbers of variance 1, multiplied by the standard deviation for the fans of the shape."""
    return std(*fans(shape)) * unit(key, shape)


def _even(key: int, shape: tuple[int, ...]) -> np.ndarray:
    """Return uniform numbers with mean 0 and variance 1."""
    return math.sqrt(3) * (2.0**-31 * _words(key, shape) - 1)


def _normal(key: int, shape: tuple[int, ...]) -> np.ndarray:
    return RngNormal().evaluate(np.asarray(key, np.int64), shape=shape, mean=0.0, std=1.0, dtype=f64)


def _words(key: int, shape: tuple[int, ...]) -> np.ndarray:
    return random_words(np.asarray(key, np.int64), math.prod(shape)).reshape(shape)


def __getattr__(name: str) -> NoReturn:
    if name.startswith("_"):
        raise AttributeError(f"module 'rlx.nn.init' has no attribute '{name}'")
    raise answers().module_problem("rlx.nn.init", name, [n for n in globals() if not n.startswith("_")])

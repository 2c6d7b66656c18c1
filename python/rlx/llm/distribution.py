"""The likeliest tokens of a distribution, and log-probabilities."""

from __future__ import annotations

import math

import numpy as np

_PART = (
    1 << 13
)  # scores whose exponentials are computed at a time: to allocate an array for all takes longer than they do
_BLOCK = 64  # scores whose maxima bound the likeliest ones from below
_FEW = 1024  # likeliest tokens that have most of the probability in texts
_BINS, _BINS_OF_ONE = 1024, 32  # intervals of scores, and those between scores that differ by 1


def log_sum_exp(scores: np.ndarray) -> float:
    """Return the logarithm of the sum of the exponentials. It does not overflow.

    Args:
        scores: f32 or f64 `[vocab_size]`.
    """
    return math.log(_sums(scores, 1.0).sum()) + float(scores.max())


def drawn(scores: np.ndarray, temperature: float, number: float) -> int:
    """Return the index that a random number selects with the probabilities `softmax(scores / temperature)`.

    The probabilities are intervals in the order of the indices. An index of probability 0 is never selected.

    Args:
        scores: f64 `[n]`, without NaN, and one of them finite.
        temperature: More than 0.
        number: A random number from 0 to 1, without 1.
    """
    totals = np.cumsum(_sums(scores, temperature))
    target = number * totals[-1]
    part = _interval(totals, target)
    before = totals[part - 1] if part else 0.0
    begin = part * _PART
    inside = np.cumsum(_powers(scores[begin : begin + _PART], scores.max(), temperature))
    return begin + _interval(inside, target - before)


def _interval(totals: np.ndarray, target: float) -> int:
    """Return the first index whose total exceeds a number or, if rounding has made the number too large, the last that adds."""
    return min(int(np.searchsorted(totals, target, side="right")), int(np.searchsorted(totals, totals[-1])))


def _sums(scores: np.ndarray, temperature: float) -> np.ndarray:
    """Return the sums of the exponentials of parts, relative to the greatest score."""
    greatest = scores.max()
    begins = range(0, len(scores), _PART)
    return np.array([_powers(scores[begin : begin + _PART], greatest, temperature).sum() for begin in begins])


def _powers(scores: np.ndarray, greatest: float, temperature: float) -> np.ndarray:
    with np.errstate(over="ignore"):  # of a tiny temperature: all except the likeliest are minus infinity
        powers = np.subtract(scores, greatest, dtype=np.float64)
        powers /= temperature
    return np.exp(powers, out=powers)


def top_logprobs(scores: np.ndarray, count: int, token: int) -> dict[int, float]:
    """Return the log-probabilities of the likeliest tokens, and of the one taken, likeliest first.

    Args:
        scores: f32 or f64 `[vocab_size]`.
        count: The number of likeliest tokens; of equal scores, the lower id comes first.
        token: The token that is taken. It comes last, if it is not among the likeliest.
    """
    best = likeliest(scores, count)
    ids = best[np.argsort(-scores[best], kind="stable")].tolist()
    total = log_sum_exp(scores)
    return {i: float(scores[i]) - total for i in (ids if token in ids else [*ids, token])}


def likeliest(scores: np.ndarray, count: int) -> np.ndarray:
    """Return the ids of the greatest scores in ascending order; of equal scores, those of the lower ids.

    Args:
        scores: f32 or f64 `[vocab_size]`, without NaN.
        count: Their number. All are returned if there are fewer.
    """
    if count >= len(scores):
        return np.arange(len(scores))
    if count <= 0:
        return np.zeros(0, np.int64)
    whole = len(scores) // _BLOCK * _BLOCK
    if count <= whole // _BLOCK:
        # At least `count` scores are not less than the maxima of `count` blocks. A sort of all scores takes 20 times as long.
        maxima = scores[:whole].reshape(-1, _BLOCK).max(1)
        candidates = np.flatnonzero(scores >= np.partition(maxima, -count)[-count])
    else:
        candidates = np.arange(len(scores))
    values = scores[candidates]
    least = np.partition(values, -count)[-count]
    above, equal = candidates[values > least], candidates[values == least]
    return np.sort(np.concatenate([above, equal[: count - len(above)]]))


def nucleus(scores: np.ndarray, share: float) -> np.ndarray:
    """Return the ids of the likeliest tokens whose probabilities add up to a share, at least one, in ascending order.

    Of equal scores, the lower ids come first. Source: Holtzman et al., The curious case of neural text degeneration (2020).

    Args:
        scores: f64 `[n]`, without NaN, and one of them finite.
        share: From 0 to 1.
    """
    greatest, target = scores.max(), share * _sums(scores, 1.0).sum()
    candidates, inside, before = likeliest(scores, _FEW), np.zeros(0, np.int64), 0.0
    if len(candidates) < len(scores) and _powers(scores[candidates], greatest, 1.0).sum() < target:
        # Tokens of one interval have similar scores: whole intervals belong to the nucleus, and only the last one is sorted.
        with np.errstate(over="ignore"):
            bins = np.minimum((greatest - scores) * _BINS_OF_ONE, _BINS - 1).astype(np.intp)
        totals = np.cumsum(np.bincount(bins, weights=_powers(scores, greatest, 1.0), minlength=_BINS))
        last = min(int(np.searchsorted(totals, target)), _BINS - 1)
        inside, candidates = np.flatnonzero(bins < last), np.flatnonzero(bins == last)
        before = float(totals[last - 1]) if last else 0.0
    candidates = candidates[np.argsort(-scores[candidates], kind="stable")]
    totals = before + np.cumsum(_powers(scores[candidates], greatest, 1.0))
    count = int(np.searchsorted(totals, target)) + 1
    return np.sort(np.concatenate([inside, candidates[:count]]))

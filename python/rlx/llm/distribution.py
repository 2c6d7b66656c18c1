"""The likeliest tokens of a distribution, and log-probabilities."""

from __future__ import annotations

import numpy as np

_BLOCK = 64  # scores whose maxima bound the likeliest ones from below
_FEW = 1024  # likeliest tokens that have most of the probability in texts
_BINS, _BINS_OF_ONE = 1024, 32  # intervals of scores, and those between scores that differ by 1


def log_sum_exp(scores: np.ndarray) -> np.ndarray:
    """Return the logarithm of the sum of the exponentials over the last axis, f64. It does not overflow.

    Args:
        scores: f32 or f64 `[..., vocab_size]`.
    """
    greatest = scores.max(-1, keepdims=True).astype(np.float64)
    powers = np.subtract(scores, greatest, dtype=np.float64)
    np.exp(powers, out=powers)
    return np.log(powers.sum(-1)) + greatest[..., 0]


def top_logprobs(scores: np.ndarray, count: int, token: int) -> dict[int, float]:
    """Return the log-probabilities of the likeliest tokens, and of the one taken, likeliest first.

    Args:
        scores: f32 or f64 `[vocab_size]`.
        count: The number of likeliest tokens; of equal scores, the lower id comes first.
        token: The token that is taken. It comes last, if it is not among the likeliest.
    """
    best = likeliest(scores, count)
    ids = best[np.argsort(-scores[best], kind="stable")].tolist()
    total = float(log_sum_exp(scores))
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
    greatest = scores.max()
    with np.errstate(over="ignore"):
        below = greatest - scores
    powers = np.negative(below)
    np.exp(powers, out=powers)
    powers /= powers.sum()
    candidates, inside, before = likeliest(scores, _FEW), np.zeros(0, np.int64), 0.0
    if len(candidates) < len(scores) and powers[candidates].sum() < share:
        # Tokens of one interval have similar scores: whole intervals belong to the nucleus, and only the last one is sorted.
        bins = np.minimum(below * _BINS_OF_ONE, _BINS - 1).astype(np.intp)
        totals = np.cumsum(np.bincount(bins, weights=powers, minlength=_BINS))
        last = min(int(np.searchsorted(totals, share)), _BINS - 1)
        inside, candidates = np.flatnonzero(bins < last), np.flatnonzero(bins == last)
        before = float(totals[last - 1]) if last else 0.0
    candidates = candidates[np.argsort(below[candidates], kind="stable")]
    count = int(np.searchsorted(before + np.cumsum(powers[candidates]), share)) + 1
    return np.sort(np.concatenate([inside, candidates[:count]]))

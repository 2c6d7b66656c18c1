"""SciPy functions for any array API, called on tensors: an error if a result differs from that for NumPy arrays.

This is a separate program because SciPy reads `SCIPY_ARRAY_API` when it is imported.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import constants, fft, integrate, optimize, signal, special, stats
from scipy.cluster import vq
from scipy.signal import windows

import rlx

X = np.random.default_rng(0).uniform(0.1, 1.0, (6, 4)).astype(np.float32)
# Functions that read no values, and therefore also build graphs.
IN_GRAPHS: dict[str, Any] = {
    "softmax": lambda x: special.softmax(x, axis=1),
    "xlogy": lambda x: special.xlogy(x, x),
    "skew": lambda x: stats.skew(x, axis=0),
    "kurtosis": lambda x: stats.kurtosis(x, axis=0),
    "variation": lambda x: stats.variation(x, axis=0),
    "gmean": lambda x: stats.gmean(x, axis=1),
    "describe": lambda x: stats.describe(x).variance,
    "sem": lambda x: stats.sem(x),
    "trim_mean": lambda x: stats.trim_mean(x, 0.2),
    "circmean": lambda x: stats.circmean(x, axis=0),
    "differential_entropy": lambda x: stats.differential_entropy(x, axis=0),
    "fftconvolve": lambda x: signal.fftconvolve(x, x),
    "hann": lambda x: x[:, 0] * windows.hann(6, xp=x.__array_namespace__()),
    "rfftn": lambda x: fft.rfftn(x),
    "trapezoid": lambda x: integrate.trapezoid(x),
    "cumulative_trapezoid": lambda x: integrate.cumulative_trapezoid(x),
    "rosen": lambda x: optimize.rosen(x),
    "lambda2nu": lambda x: constants.lambda2nu(x),
}
OF_VALUES: dict[str, Any] = {
    "gammaln": lambda x: special.gammaln(x),
    "ndtr": lambda x: special.ndtr(x),
    "entropy": lambda x: stats.entropy(x),
    "hmean": lambda x: stats.hmean(x),
    "moment": lambda x: stats.moment(x, order=3),
    "ttest_ind": lambda x: stats.ttest_ind(x, x[:, ::-1])[1],
    "chisquare": lambda x: stats.chisquare(x).statistic,
    "rankdata": lambda x: stats.rankdata(x, axis=1),
    "detrend": lambda x: signal.detrend(x),
    "convolve": lambda x: signal.convolve(x, x[:2, :2]),
    "dct": lambda x: fft.dct(x),
    "vq": lambda x: vq.vq(x, x[:2, :])[0],
}


def main() -> None:
    """Compare all functions."""
    g: Any = rlx.Graph()
    x = g.input("x", X.shape)
    g.set_outputs([rlx.jit(call)(x) for call in IN_GRAPHS.values()])
    found = dict(zip(IN_GRAPHS, rlx.evaluate(g, {"x": X}), strict=True))
    with rlx.eager():
        of_values = {name: call(rlx.ops.constant(X)) for name, call in (IN_GRAPHS | OF_VALUES).items()}
    assert all(isinstance(value, rlx.Tensor) for value in of_values.values()), of_values
    for results in (found, of_values):
        for name, result in results.items():
            np.testing.assert_allclose(result, (IN_GRAPHS | OF_VALUES)[name](X), rtol=2e-4, atol=1e-5, err_msg=name)


if __name__ == "__main__":
    main()

"""argsort, compiled for this machine: one block, merged blocks, and dynamic sizes."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from tests.targets.linalg.helpers import Case, assert_agrees, case, run

_RANDOM = np.random.default_rng(5)


def _check(cases: list[Case]) -> None:
    for one, result in zip(cases, run(cases), strict=True):
        assert_agrees(one, result)


def _ties(shape: tuple[int, ...], count: int, dtype: type = np.float32) -> np.ndarray:
    return _RANDOM.integers(0, count, shape).astype(dtype)


def _special(shape: tuple[int, ...], dtype: type) -> np.ndarray:
    """Ordinary numbers with ties, both zeros, infinities and NaN of both signs."""
    x = _RANDOM.standard_normal(shape).astype(dtype)
    flat = x.reshape(-1)
    for value in (0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1.0):
        flat[_RANDOM.integers(0, flat.size, flat.size // 20)] = value
    return x


def test_runs_of_every_size():
    """Sizes near the block size and near powers of two blocks, where last runs are short or missing."""
    sizes = (1, 2, 31, 32, 33, 63, 64, 65, 96, 97, 160, 1000)
    _check([case("argsort", _ties((2, n), 9), axis=1, descending=n % 2 == 0) for n in sizes])


def test_every_dtype():
    dtypes = (np.float32, np.float64, np.float16, ml_dtypes.bfloat16)
    cases = [case("argsort", _special((2, 150), dtype), axis=1, descending=False) for dtype in dtypes]
    cases += [case("argsort", _special((150, 2), np.float32), axis=0, descending=True)]
    for dtype in (np.int8, np.uint8, np.int16, np.int32, np.uint32, np.int64):
        limits = np.iinfo(dtype)
        x = _RANDOM.integers(limits.min, limits.max, (2, 150), dtype=dtype, endpoint=True)
        x[:, ::7], x[:, ::11] = limits.min, limits.max
        cases += [case("argsort", x, axis=1, descending=descending) for descending in (False, True)]
    _check([*cases, case("argsort", _ties((2, 150), 2, np.bool_), axis=1, descending=True)])


def test_what_is_filled_in_stays_behind():
    """Keys as low as the padding's, in a last block that is not full."""
    lowest = np.full((1, 70), np.iinfo(np.int32).min, np.int32)
    _check(
        [
            case("argsort", lowest, axis=1, descending=True),
            case("argsort", -1 - lowest, axis=1, descending=False),
            case("argsort", np.full((1, 70), np.nan, np.float32), axis=1, descending=False),
            case("argsort", np.full((1, 70), np.nan, np.float32), axis=1, descending=True),
        ]
    )


def test_many_elements():
    _check([case("argsort", _ties((1, 100000), 5000), axis=1, descending=False)])


def test_sizes_that_are_known_late():
    sizes = (0, 1, 64, 65, 1000, 9000)
    cases = [case("argsort", _ties((2, n), 50), axis=1, descending=False, dims=[(2, "n")]) for n in sizes]
    cases += [case("argsort", _ties((n, 3, 2), 50), axis=0, descending=True, dims=[("n", "m", 2)]) for n in (5, 200)]
    _check(cases)

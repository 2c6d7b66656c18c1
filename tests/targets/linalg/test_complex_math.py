"""c64: functions, arithmetic and ops that move complex numbers, compiled for this machine."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.targets.linalg.helpers import assert_agrees, case, run

_COUNT = 3000
_UNIT = 2.0**-24

# kind -> reference, greatest error relative to the magnitude of the result, in units of 2^-24
_FUNCTIONS: dict[str, tuple[Callable[..., np.ndarray], float]] = {
    "neg": (np.negative, 0),
    "abs": (np.abs, 2),
    "exp": (np.exp, 6),
    "log": (np.log, 4),
    "sqrt": (np.sqrt, 3),
    "sin": (np.sin, 5),
    "cos": (np.cos, 5),
    "tanh": (np.tanh, 7),
    "add": (np.add, 2),
    "sub": (np.subtract, 2),
    "mul": (np.multiply, 3),
    "div": (np.divide, 4),
    "pow": (np.power, 5),
}
_BINARY = ("add", "sub", "mul", "div", "pow")
_SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 2.5, np.inf, -np.inf, np.nan, 1e30, 1e-30, 3e38], np.float32)


def _spread(low: float, high: float) -> np.ndarray:
    """Numbers whose parts have magnitudes from 2^low to 2^high and any sign."""
    random = np.random.default_rng(5)

    def part() -> np.ndarray:
        return np.exp2(random.uniform(low, high, _COUNT)) * random.choice([-1.0, 1.0], _COUNT)

    return (part() + 1j * part()).astype(np.complex64)


def _circle() -> np.ndarray:
    """Numbers next to the unit circle, where log cancels."""
    angles = np.random.default_rng(6).uniform(-np.pi, np.pi, _COUNT)
    return np.exp(1j * angles).astype(np.complex64)


def _operands(kind: str) -> list[np.ndarray]:
    reach = 8 if kind == "pow" else 60
    x = np.concatenate([_spread(-3, 2), _spread(-reach, min(reach, 6) if kind == "pow" else reach), _circle()])
    if kind in ("abs", "sqrt", "log", "div", "neg"):
        x = np.concatenate([x, _spread(60, 126), _spread(-120, -60)])
    y = np.random.default_rng(8).permutation(x)
    if kind == "pow":
        y = np.clip(np.real(y), -4, 4) + 1j * np.clip(np.imag(y), -4, 4)
    return [x, y.astype(np.complex64)] if kind in _BINARY else [x]


def _case(kind: str, operands: list[np.ndarray]):
    return case("binary" if kind in _BINARY else "activation", *operands, kind=kind)


@pytest.fixture(scope="module")
def compiled() -> dict[str, tuple[list[np.ndarray], np.ndarray]]:
    operands = {kind: _operands(kind) for kind in _FUNCTIONS}
    results = run([_case(kind, arrays) for kind, arrays in operands.items()])
    return {kind: (arrays, result[0]) for (kind, arrays), result in zip(operands.items(), results, strict=True)}


@pytest.mark.parametrize("kind", _FUNCTIONS)
def test_results_are_accurate_relative_to_their_size(kind, compiled):
    operands, result = compiled[kind]
    reference, limit = _FUNCTIONS[kind]
    with np.errstate(all="ignore"):
        exact = reference(*(o.astype(np.complex128) for o in operands))
        normal = (np.abs(exact) < 1e38) & (np.abs(exact) > 1e-30)
        error = np.abs(result.astype(np.complex128) - exact) / np.abs(exact) / _UNIT
    assert normal.sum() > _COUNT
    worst = int(np.argmax(np.where(normal, error, 0)))
    at = [o[worst] for o in operands]
    assert error[worst] <= limit, f"{error[worst]:.3g} units at {at}: {result[worst]}, not {exact[worst]}"


def test_the_real_part_of_log_keeps_its_digits_near_the_unit_circle():
    x = _circle()
    ((result,),) = run([case("activation", x, kind="log")])
    exact = 0.5 * np.log1p(_size_squared_less_one(x))
    # Where x² + y² - 1 itself cancels twice, x and y do not have enough digits.
    np.testing.assert_allclose(np.real(result), exact, rtol=1e-5, atol=1e-14)


def _size_squared_less_one(x: np.ndarray) -> np.ndarray:
    re, im = np.real(x).astype(np.longdouble), np.imag(x).astype(np.longdouble)
    return (re * re + im * im - 1).astype(np.float64)


def test_special_values_are_those_of_numpy():
    grid = np.array([complex(a, b) for a in _SPECIAL for b in _SPECIAL], np.complex64)
    kinds = [kind for kind in _FUNCTIONS if kind not in _BINARY]
    results = run([case("activation", grid, kind=kind) for kind in kinds])
    for kind, (result,) in zip(kinds, results, strict=True):
        with np.errstate(all="ignore"):
            wanted = _FUNCTIONS[kind][0](grid.astype(np.complex128)).astype(result.dtype)
        for x, found, exact in zip(grid, result, wanted, strict=True):
            finite = bool(np.isfinite(x))
            # C does not specify the sign of an infinity with the sine of an infinity as a factor.
            open_sign = kind == "sin" and np.isinf(exact.imag) and np.isnan(exact.real)
            imaginary = (abs(found.imag), abs(exact.imag)) if open_sign else (found.imag, exact.imag)
            alike = _alike(found.real, exact.real, finite) and _alike(*imaginary, finite)
            assert alike, f"{kind}({x}) is {found}, not {exact}"


def _alike(a: np.floating, b: np.floating, signed_zeros: bool) -> bool:
    """Equal up to rounding; NaN for NaN."""
    if np.isnan(a) or np.isnan(b):
        return bool(np.isnan(a) and np.isnan(b))
    if a == b:
        return not signed_zeros or bool(np.signbit(a) == np.signbit(b))
    return abs(float(a) - float(b)) <= 8 * _UNIT * abs(float(b)) or max(abs(float(a)), abs(float(b))) < 1e-37


def test_division_neither_overflows_nor_loses_its_digits_on_the_way():
    a = np.array([1e38 + 1e38j, 3e38 + 3e38j, 1e-37 + 1e-37j, 3e38, 1, 2 + 3j, 1j, 0j], np.complex64)
    b = np.array([2e38 + 1e38j, 3e38 - 3e38j, 3e-37 - 1e-37j, 3e38j, 0, 0, 1e-30, 1 + 1j], np.complex64)
    ((result,),) = run([case("binary", a, b, kind="div")])
    with np.errstate(all="ignore"):
        exact = np.divide(a.astype(np.complex128), b.astype(np.complex128)).astype(np.complex64)
    np.testing.assert_allclose(result, exact, rtol=4 * _UNIT)


def test_powers_of_zero_and_whole_powers():
    a = np.array([0, 0, 0, 0, 2 + 1j, 2 + 1j, 2 + 1j, np.nan, -1], np.complex64)
    b = np.array([0, 2, 1 + 1j, -1, 0, 1, 2, 0, 0.5], np.complex64)
    ((result,),) = run([case("binary", a, b, kind="pow")])
    wanted = [1, 0, 0, complex(np.nan, np.nan), 1, 2 + 1j, 3 + 4j, 1, 1j]
    np.testing.assert_allclose(result, np.array(wanted, np.complex64), rtol=4 * _UNIT, atol=1e-7)


def test_ops_that_carry_complex_numbers_agree_with_their_evaluators():
    random = np.random.default_rng(9)

    def array(*shape: int) -> np.ndarray:
        return (random.standard_normal(shape) + 1j * random.standard_normal(shape)).astype(np.complex64)

    x, y = array(3, 40), array(40, 5)
    mask = random.integers(0, 2, (3, 40)).astype(np.bool_)
    copy = np.where(mask, x, array(3, 40))
    cases = [
        case("matmul", x, y),
        case("matmul", array(2, 3, 4), array(2, 4, 5)),
        case("matmul", array(2, 1, 3, 4), array(5, 4, 2)),
        *(case("reduce", x, kind=kind, axes=(1,), keep_dims=False) for kind in ("sum", "prod", "mean")),
        case("cumsum", x, axis=1, exclusive=False),
        case("cumsum", y, axis=0, exclusive=True, dims=[("n", 5)]),
        case("where", mask, x, copy),
        case("compare", x, copy, kind="eq"),
        case("compare", x, copy, kind="ne"),
        case("gather", x, np.array([2, 0, 7, -1], np.int32), axis=0),
        case("transpose", array(2, 3, 4), perm=(2, 0, 1)),
        case("concat", x, array(3, 2), axis=1),
        case("reshape", x, shape=(8, 15)),
        case("narrow", x, axis=1, start=(5,), length=(7,)),
        case("expand", array(3, 1), shape=(2, 3, 4)),
    ]
    for one, result in zip(cases, run(cases), strict=True):
        assert_agrees(one, result, 4e-6)

"""The array API namespace: the results of NumPy's own namespace for the same calls, on eager tensors and in graphs."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import array_api
from rlx.array_api import elementwise

X = np.array([[0.5, -1.5, 2.0], [3.0, 0.25, -0.75]], np.float32)
POSITIVE = np.abs(X) + 1
INTEGERS = np.array([[3, -5, 2], [7, 0, -1]], np.int32)
BOOLS = INTEGERS > 0
LIKE: dict[str, np.ndarray] = dict.fromkeys(("acos", "asin", "atanh"), X / 4)
LIKE |= dict.fromkeys(("acosh", "log", "log1p", "log2", "log10", "sqrt"), POSITIVE)
OF_INTEGERS = {"bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_invert"}
SHIFTS = {"bitwise_left_shift", "bitwise_right_shift"}
OF_BOOLS = {"logical_and", "logical_or", "logical_xor", "logical_not"}


def _operand(name: str) -> np.ndarray:
    if name in OF_INTEGERS | SHIFTS:
        return INTEGERS
    return BOOLS if name in OF_BOOLS else LIKE.get(name, X)


ELEMENTWISE = [n for n in elementwise.__all__ if n not in ("clip", "positive", "conj", "imag", "real")]
# Calls, where `xp` is the namespace, with their array.
CALLS: dict[str, Any] = {
    **{
        name: (lambda xp, x, n=name: getattr(xp, n)(x), _operand(name))
        for name in ELEMENTWISE
        if len(inspect.signature(getattr(array_api, name)).parameters) == 1
    },
    **{
        name: (
            lambda xp, x, n=name: getattr(xp, n)(x, xp.abs(x[::-1, :]) % 8 if n in SHIFTS else x[::-1, :]),
            np.abs(_operand(name)) if name == "pow" else _operand(name),
        )
        for name in ELEMENTWISE
        if len(inspect.signature(getattr(array_api, name)).parameters) == 2
    },
    **{
        name: (lambda xp, x, n=name: getattr(xp, n)(x, axis=1, keepdims=True), X)
        for name in (
            "sum",
            "prod",
            "mean",
            "max",
            "min",
            "var",
            "std",
            "all",
            "any",
            "argmax",
            "argmin",
            "count_nonzero",
        )
    },
    "sum of i8": (lambda xp, x: xp.sum(xp.astype(x, xp.int8)), INTEGERS),
    "cumulative_sum": (lambda xp, x: xp.cumulative_sum(x, axis=1, include_initial=True), X),
    "cumulative_prod": (lambda xp, x: xp.cumulative_prod(x, axis=0), X),
    "diff": (lambda xp, x: xp.diff(x, axis=1, prepend=x[:, :1]), X),
    "sort": (lambda xp, x: xp.sort(x, axis=0), X),
    "argsort": (lambda xp, x: xp.argsort(x), X),
    "clip": (lambda xp, x: xp.clip(x, -1.0, 1.0), X),
    "concat": (lambda xp, x: xp.concat([x, x], axis=None), X),
    "stack": (lambda xp, x: xp.stack([x, x], axis=1), X),
    "unstack": (lambda xp, x: xp.unstack(x, axis=1), X),
    "expand_dims": (lambda xp, x: xp.expand_dims(x, axis=1), X),
    "flip": (lambda xp, x: xp.flip(x, axis=0), X),
    "moveaxis": (lambda xp, x: xp.moveaxis(x, 0, 1), X),
    "permute_dims": (lambda xp, x: xp.permute_dims(x, (1, 0)), X),
    "repeat": (lambda xp, x: [xp.repeat(x, 2, axis=1), xp.repeat(x, [2], axis=1), xp.repeat(x[:0, :], [], axis=0)], X),
    "reshape": (lambda xp, x: xp.reshape(x, (3, 2)), X),
    "roll": (lambda xp, x: xp.roll(x, 1, axis=1), X),
    "tile": (lambda xp, x: xp.tile(x, (2, 1)), X),
    "broadcast_to": (lambda xp, x: xp.broadcast_to(x, (2, 2, 3)), X),
    "take": (lambda xp, x: xp.take(x, xp.asarray([1, 0]), axis=1), X),
    "take_along_axis": (lambda xp, x: xp.take_along_axis(x, xp.argsort(x, axis=1), axis=1), X),
    "matmul": (lambda xp, x: xp.matmul(x, xp.matrix_transpose(x)), X),
    "tensordot": (lambda xp, x: xp.tensordot(x, x, axes=((1,), (1,))), X),
    "vecdot": (lambda xp, x: xp.vecdot(x, x), X),
    "where": (lambda xp, x: xp.where(x > 0, x, 0.0), X),
    "isin": (lambda xp, x: xp.isin(x, xp.asarray([3, 7], dtype=xp.int32)), INTEGERS),
    "searchsorted": (lambda xp, x: xp.searchsorted(xp.asarray([0.0, 1.0, 2.0], dtype=xp.float32), x), X),
    "linalg": (
        lambda xp, x: [
            xp.linalg.trace(x @ x.T),
            xp.linalg.matrix_norm(x),
            xp.linalg.vector_norm(x, axis=0),
            xp.linalg.inv(x @ x.T),
            xp.linalg.matrix_power(x @ x.T, 3),
            xp.linalg.solve(x @ x.T, x),
            xp.linalg.outer(x[0, :], x[1, :]),
            xp.linalg.cross(x, x[::-1, :]),
        ],
        X,
    ),
    "fft": (lambda xp, x: [xp.fft.rfft(x), xp.fft.irfft(xp.fft.rfft(x, n=4)), xp.fft.fftshift(x)], X),
    "fft of several axes": (
        lambda xp, x: [
            xp.fft.rfftn(x),
            xp.fft.rfftn(x, s=(4, 2), axes=(0, 1), norm="ortho"),
            xp.fft.irfftn(xp.fft.rfftn(x), s=(2, 3), axes=(0, 1)),
            xp.fft.irfftn(xp.fft.rfftn(x), axes=(0, 1), norm="forward"),
            *(xp.fft.ihfft(x, n=5, axis=0, norm=norm) for norm in ("backward", "ortho", "forward")),
            *(xp.fft.hfft(xp.fft.ihfft(x), n=3, norm=norm) for norm in ("backward", "ortho", "forward")),
        ],
        X,
    ),
    "creation": (
        lambda xp, x: [
            xp.zeros_like(x),
            xp.full((2,), 1.5, dtype=xp.float32),
            xp.eye(2, 3, k=1, dtype=xp.float32),
            xp.arange(2, 9, 3, dtype=xp.int32),
            xp.linspace(0.0, 1.0, 5, dtype=xp.float32),
            xp.tril(x, k=-1),
            xp.eye(2, k=2**40, dtype=xp.float32),
            xp.full_like(xp.astype(x, xp.int64), 2**40),
            *xp.meshgrid(x[0, :], x[:, 0]),
        ],
        X,
    ),
}
VALUES = {
    "nonzero": (lambda xp, x: xp.nonzero(x > 0), X),
    "unique_all": (lambda xp, x: xp.unique_all(x), INTEGERS % 3),
    "unique_values": (lambda xp, x: xp.sort(xp.unique_values(x)), INTEGERS % 3),
    "mask": (lambda xp, x: [x[x > 0], x[xp.any(x > 0)], x[xp.all(x > 0)], x[xp.asarray([], dtype=xp.bool)]], X),
    "repeat by a tensor": (lambda xp, x: xp.repeat(x, xp.asarray([2, 0], dtype=xp.int8), axis=0), X),
    "repeat by a scalar tensor": (lambda xp, x: xp.repeat(x, xp.asarray(2), axis=0), X),
}


def _same(got: Any, expected: Any, name: str) -> None:
    mine, theirs = ([v] if not isinstance(v, (list, tuple)) else list(v) for v in (got, expected))
    assert len(mine) == len(theirs), name
    for a, b in zip(mine, theirs, strict=True):
        array = np.asarray(a)
        assert array.dtype.kind == np.asarray(b).dtype.kind or name.startswith("sum"), name
        np.testing.assert_allclose(array, b, rtol=2e-5, atol=1e-6, err_msg=name)


def test_tensors_with_values_give_what_numpy_gives() -> None:
    with rlx.eager():
        for name, (call, array) in {**CALLS, **VALUES}.items():
            x = rlx.ops.constant(array)
            _same(call(x.__array_namespace__(), x), call(np, array), name)


def test_graphs_give_what_numpy_gives() -> None:
    g: Any = rlx.Graph()
    outputs: list[Any] = []
    expected: list[Any] = []
    for name, (call, array) in CALLS.items():
        with g.named(name.replace(" ", "_")):
            result = rlx.jit(lambda x, call=call: call(x.__array_namespace__(), x))(g.constant(array))
        outputs += list(result) if isinstance(result, (list, tuple)) else [result]
        wanted = call(np, array)
        expected += list(wanted) if isinstance(wanted, (list, tuple)) else [wanted]
    g.set_outputs(outputs)
    for got, want in zip(rlx.evaluate(g, {}), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-6)


def test_dtypes_and_what_is_said_of_them() -> None:
    xp = array_api
    assert xp.isdtype(xp.int32, "integral") and not xp.isdtype(xp.float32, ("integral", "bool"))
    assert xp.finfo(xp.float32).bits == 32 and xp.iinfo(xp.int8).max == 127
    assert xp.result_type(xp.int8, xp.uint8) is xp.int16 and xp.result_type(xp.float32, 1.0) is xp.float32
    assert xp.can_cast(xp.int8, xp.int16) and not xp.can_cast(xp.int16, xp.int8)
    info = xp.__array_namespace_info__()
    assert info.default_dtypes()["real floating"] is xp.float32
    assert set(info.dtypes(kind="bool")) == {"bool"}


def test_what_depends_on_values_says_so_in_a_graph() -> None:
    g = rlx.Graph()
    x = g.input("x", (3,))
    for name in ("nonzero", "unique_all"):
        with pytest.raises(rlx.Error, match=r"test_namespace\.py:\d+: .*depends on values"):
            getattr(array_api, name)(x)
    with pytest.raises(rlx.Error, match=r"x\.at\[index\]\.set"):
        x[0] = 1.0


def test_functions_of_numpy_take_tensors() -> None:
    g = rlx.Graph()
    x: Any = g.input("x", X.shape)
    calls = [
        lambda x: np.sin(x),
        lambda x: np.concatenate([x, x], axis=1),
        lambda x: np.ones((2, 3), np.float32) - x,
        lambda x: np.sum(x, axis=0),
        lambda x: np.mean(x, axis=1, keepdims=True),
        lambda x: np.where(x > 0, x, 0),
        lambda x: np.clip(x, 0, 1),
        lambda x: np.transpose(x),
        lambda x: np.einsum("ij,kj->ik", x, x),
        lambda x: np.linalg.norm(x),
        lambda x: np.add.reduce(x),
        lambda x: np.float64(2) * x,
        lambda x: np.vstack([x, x]),
        lambda x: np.broadcast_to(x, (2, 2, 3)),
        lambda x: np.ones(3) * x,
        lambda x: np.round(x),
    ]
    g.set_outputs([call(x) for call in calls])
    for got, call in zip(rlx.evaluate(g, {"x": X}), calls, strict=True):
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, call(X), rtol=1e-6)
    for call, message in (
        (lambda: np.roots(x), "numpy.roots has no form for tensors"),
        (lambda: np.exp(x, out=np.ones((2, 3))), "there is no out="),
        (lambda: np.hsplit(x, 3), r"g\.split"),
    ):
        with pytest.raises(rlx.Error, match=message) as caught:
            call()
        assert "test_namespace.py" in str(caught.value)


def test_arrays_of_numbers_without_a_dtype_do_not_widen() -> None:
    """f64 and i64 are NumPy's dtypes of these arrays; next to f32 and i32 they count as f32 and i32, as in JAX."""
    g: Any = rlx.Graph()
    f, i, d = g.input("f", (3,)), g.input("i", (3,), dtype="i32"), g.input("d", (3,), dtype="f64")
    h, long = g.input("h", (3,), dtype="f16"), g.input("long", (3,), dtype="i64")
    floats, integers = np.array([0.1, 0.2, 0.3]), np.arange(3)
    assert (f + floats).dtype is (floats * f).dtype is g.where(f > 0, f, floats).dtype is rlx.f32
    assert (i + integers).dtype is (i + np.int64(1)).dtype is rlx.i32
    assert (i + integers * 2**40).dtype is (long + integers).dtype is rlx.i64
    assert (d + floats).dtype is rlx.f64 and (h + floats).dtype is (i + floats).dtype is rlx.f32
    assert (f + g.constant(floats)).dtype is rlx.f64, "a constant has its own dtype"
    g.set_outputs([d + floats])
    zeros = {a.name: np.zeros(3, a.shape.dtype.numpy) for a in g.inputs}
    np.testing.assert_array_equal(rlx.evaluate(g, zeros)[0], floats)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda xp: xp.asarray([300], dtype=xp.uint8), "300 does not fit u8"),
        (lambda xp: xp.asarray(2**70), f"{2**70} does not fit i64"),
        (lambda xp: xp.asarray([[1], [2, 3]]), "asarray: the list is no array of numbers"),
        (lambda xp: xp.asarray("a"), "asarray must be an array .*got str"),
        (lambda xp: xp.linalg.inv(xp.ones((3,))), r"inv: expected square matrices .*got f32\[3\]"),
        (lambda xp: xp.linalg.matrix_power(xp.ones((2, 3)), 2), "matrix_power: expected square matrices"),
        (lambda xp: xp.arange(0, 3, 0), "the step must not be 0"),
        (lambda xp: xp.arange(300, dtype=xp.uint8), "256 does not fit u8"),
    ],
)
def test_what_does_not_fit_is_an_error_at_the_users_line(call: Any, message: str) -> None:
    with rlx.eager(), pytest.raises(rlx.Error, match=rf"test_namespace\.py:\d+: .*{message}"):
        call(array_api)


def test_written_numbers_get_the_standards_dtypes() -> None:
    with rlx.eager():
        kinds = [array_api.asarray(v).dtype for v in (True, 2, 2**31, 0.5, 2j, [], [1, 2.5], np.inf, 1e40, [1e40, 1])]
        assert kinds == [rlx.bool_, rlx.i32, rlx.i64, rlx.f32, rlx.c64, *[rlx.f32] * 3, *[rlx.f64] * 2]
        assert array_api.arange(2**31, 2**31 + 2).dtype is rlx.i64
        complexes = (2j, 1e40j, complex(np.inf, 1), [1, 2j], [1e40, 2j], complex(-1e300, np.nan))
        for make in (array_api.asarray, lambda v: array_api.full((2,), v)):
            some = [v for v in complexes if make is array_api.asarray or not isinstance(v, list)]
            assert [make(v).dtype is rlx.c128 for v in some] == ["e" in str(v) for v in some]
        assert array_api.asarray([1.7, -1.7], dtype=rlx.i32).tolist() == [1, -1]


def test_quotients_of_infinities_are_those_of_the_standard() -> None:
    """NumPy, and `//` of tensors, return NaN and -1 here."""
    pairs = [(np.inf, 2.0), (np.inf, -2.0), (-np.inf, 2.0), (3.0, -np.inf), (-3.0, np.inf), (3.0, np.inf), (7.0, -2.0)]
    a, b = (np.array(x, np.float32) for x in zip(*pairs, strict=True))
    wanted = np.array([np.inf, -np.inf, -np.inf, -0.0, -0.0, 0.0, -4.0], np.float32)
    with rlx.eager():
        found = np.asarray(array_api.floor_divide(rlx.ops.constant(a), rlx.ops.constant(b)))
        of_integers = np.asarray(array_api.floor_divide(rlx.ops.constant(INTEGERS), 2))
    assert np.array_equal(found.view(np.uint32), wanted.view(np.uint32))
    assert np.array_equal(of_integers, INTEGERS // 2)


def test_signs_and_sign_bits() -> None:
    x = np.array([1.0, -0.0, np.nan, -np.nan, -np.inf])
    for dtype in (np.float16, np.float32, np.float64):
        with rlx.eager():
            found = np.asarray(array_api.signbit(rlx.ops.constant(x.astype(dtype))))
            signs = np.asarray(array_api.sign(rlx.ops.constant(x.astype(dtype))))
        assert signs.dtype == dtype and np.array_equal(signs, [1, 0, np.nan, np.nan, -1], equal_nan=True)
        assert not np.signbit(signs[1])
        assert found.tolist() == [False, True, False, True, True]


def test_tanh_of_infinities_has_the_zero_of_the_imaginary_part() -> None:
    """In C99, NumPy and `rlx.ops.tanh` it has the sign of sin 2y."""
    z = np.array([complex(x, y) for x in (np.inf, -np.inf) for y in (2.0, -2.0, 0.0, -0.0)], np.complex64)
    with rlx.eager():
        found: Any = np.asarray(array_api.tanh(rlx.ops.constant(z)))
    np.testing.assert_array_equal(found, np.sign(z.real))
    np.testing.assert_array_equal(np.signbit(found.imag), np.signbit(z.imag))


def test_indices_that_do_not_fit_are_index_errors() -> None:
    with rlx.eager():
        x = rlx.ops.constant(X)
        for index in (2, (0, 0, 0), rlx.ops.constant(BOOLS[:, :2]), rlx.ops.constant(np.ones(3, bool))):
            with pytest.raises(IndexError, match=r"test_namespace\.py:\d+: indexing f32\[2, 3\]"):
                x[index]
    with pytest.raises(ValueError, match="do not broadcast"):
        array_api.broadcast_shapes((2,), (3,))
    assert array_api.broadcast_shapes() == ()


def test_values_are_given_to_other_libraries_as_what_cannot_change_them() -> None:
    with rlx.eager():
        x: Any = rlx.ops.constant(X)
        array = np.from_dlpack(x)
        array[:] = 0
        np.testing.assert_array_equal(np.asarray(x), X)
        assert not np.from_dlpack(x, copy=False).flags.writeable
        with pytest.raises(BufferError, match="readonly"):
            x.__dlpack__(copy=False)

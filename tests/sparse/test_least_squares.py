"""LSQR and LSMR, judged by SciPy, dense least squares and derivatives of the normal equations."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse.linalg as scipy_linalg

import rlx
from rlx.sparse import linalg

RNG = np.random.default_rng(1)
TALL, WIDE, SQUARE = RNG.normal(size=(9, 4)), RNG.normal(size=(3, 7)), RNG.normal(size=(5, 5))


def _graph(name, a, b, *, as_function=False, x0=None, **options):
    g: Any = rlx.Graph("least")
    matrix, side = g.param("a", a.shape, dtype=a.dtype), g.input("b", b.shape, dtype=b.dtype)
    result = getattr(linalg, name)((lambda x: matrix @ x) if as_function else matrix, side, x0=x0, **options)
    g.set_outputs(dict(zip(result._fields, result, strict=True)))
    return g


@pytest.mark.parametrize("name", ["lsqr", "lsmr"])
def test_scipys_results(name):
    for a in (TALL, WIDE, SQUARE):
        for damp in (0.0, 0.7):
            for options in ({}, {"x0": RNG.normal(size=a.shape[1])}, {"as_function": True, "x0": np.zeros(a.shape[1])}):
                b = RNG.normal(size=len(a))
                got = rlx.evaluate(_graph(name, a, b, damp=damp, **options), {"a": a, "b": b})
                expected = getattr(scipy_linalg, name)(a, b, damp, x0=options.get("x0"))
                for position, (value, right) in enumerate(zip(got, expected, strict=True)):
                    if name == "lsqr" and position == 9:  # `var`, which SciPy computes on request
                        continue
                    np.testing.assert_allclose(value, right, rtol=1e-5, atol=1e-7, err_msg=f"{name} {position} {damp}")


@pytest.mark.parametrize("name", ["lsqr", "lsmr"])
def test_edges(name):
    tight: Any = {"atol": 1e-13, "btol": 1e-13}
    x, istop, itn, *_ = rlx.evaluate(_graph(name, TALL, np.zeros(9)), {"a": TALL, "b": np.zeros(9)})
    assert (x == 0).all() and istop == 0 and itn == 0
    b = TALL @ np.arange(4.0)
    x, istop, *_ = rlx.evaluate(_graph(name, TALL, b, **tight), {"a": TALL, "b": b})
    np.testing.assert_allclose(x, np.arange(4.0), atol=1e-9)
    assert istop in (1, 4)
    limit: Any = {"iter_lim" if name == "lsqr" else "maxiter": 1}
    x, istop, itn, *_ = rlx.evaluate(_graph(name, TALL, b, **limit), {"a": TALL, "b": b})
    assert istop == 7 and itn == 1
    x, istop, *_ = rlx.evaluate(_graph(name, TALL, b), {"a": TALL * np.nan, "b": b})
    assert istop == -1
    one = np.array([[2.0]])
    x, istop, *_ = rlx.evaluate(_graph(name, one, one[0]), {"a": one, "b": one[0]})
    np.testing.assert_allclose(x, [1.0])


@pytest.mark.parametrize("name", ["lsqr", "lsmr"])
@pytest.mark.parametrize(("a", "damp"), [(TALL, 0.0), (TALL, 0.5), (WIDE, 0.0), (WIDE, 0.5)], ids=str)
def test_derivatives(name, a, damp):
    b, w = RNG.normal(size=len(a)), RNG.normal(size=a.shape[1])
    options = {"atol": 1e-13, "btol": 1e-13, "damp": damp, **({"iter_lim": 60} if name == "lsqr" else {"maxiter": 60})}
    g: Any = rlx.Graph("least")
    matrix, side = g.param("a", a.shape, "f64"), g.param("b", b.shape, "f64")
    g.set_outputs({"y": g.sum(getattr(linalg, name)(matrix, side, **options).x ** 2 * w)})
    h = rlx.Graph("dense")
    matrix, side = h.param("a", a.shape, "f64"), h.param("b", b.shape, "f64")
    turned = h.transpose(matrix)
    if len(a) < a.shape[1]:
        x = turned @ h.solve(matrix @ turned + damp**2 * np.eye(len(a)), side)
    else:
        x = h.solve(turned @ matrix + damp**2 * np.eye(a.shape[1]), turned @ side)
    h.set_outputs({"y": h.sum(x**2 * w)})
    values = {"a": a, "b": b}
    for derived in (lambda q: rlx.grad(q, ["a", "b"]), lambda q: rlx.jacfwd(q, ["a"]), lambda q: rlx.hessian(q, ["b"])):
        for got, right in zip(rlx.evaluate(derived(g), values), rlx.evaluate(derived(h), values), strict=True):
            np.testing.assert_allclose(got, right, rtol=1e-6, atol=1e-7)


def test_a_function_needs_the_shape_of_its_domain():
    g = rlx.Graph("domain")
    a, b = g.input("a", (5, 3)), g.input("b", (5,))
    with pytest.raises(rlx.Error):
        linalg.lsqr(lambda x: a @ x, b)
    assert linalg.lsqr(lambda x: a @ x, b, x0=np.zeros(3, np.float32)).x.shape == (3,)

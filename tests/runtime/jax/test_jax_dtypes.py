"""Graphs in JAX and JAX functions in graphs, of every dtype: values, batches, derivatives, constants, exports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir.dtype import DTYPES, DType
from tests.drawing import drawn, shares

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

INEXACT = [d for d in DTYPES if d.is_inexact]
WIDE = [d for d in DTYPES if d.part.bits == 64]


@pytest.fixture(autouse=True)
def wide_numbers() -> Any:
    with jax.enable_x64(True):
        yield


def array(kind: DType, number: int, *shape: int) -> np.ndarray:
    """Return small floats, or integers of all sizes. Sums of floats of 8 bits or fewer are rounded only once anywhere."""
    random = np.random.default_rng(number)
    if kind.is_bool:
        return random.integers(0, 2, shape).astype(bool)
    if kind.is_integer:
        low, high = max(kind.min, -(2**63)), min(int(kind.max), 2**63 - 1)
        return random.integers(int(low), high, shape, endpoint=True).astype(kind.numpy)
    if kind.is_complex:
        return (random.integers(-4, 5, shape) + 1j * random.integers(-4, 5, shape)).astype(kind.numpy)
    if kind.min > 0:  # only powers of two
        return np.exp2(random.integers(-3, 4, shape)).astype(kind.numpy)
    return random.integers(-3, 4, shape).astype(kind.numpy)


ARGUMENTS: dict[str, Any] = {f"x_{d.name}": array(d, 1, 2, 4) for d in DTYPES}
PARAMS: dict[str, Any] = {f"w_{d.name}": array(d, 2, 2, 4) for d in DTYPES}


def given(prefix: str, kinds: Sequence[DType]) -> dict[str, Any]:
    return {f"{prefix}_{d.name}": (ARGUMENTS | PARAMS)[f"{prefix}_{d.name}"] for d in kinds}


def every_dtype(kinds: Sequence[DType]) -> rlx.Graph:
    """Build moves, constants, casts and arithmetic of tensors of each dtype."""
    g = rlx.Graph("every")
    outputs: dict[str, Any] = {}
    for d in kinds:
        x = g.input(f"x_{d.name}", (2, 4), d)
        w = g.param(f"w_{d.name}", (2, 4), d, value=PARAMS[f"w_{d.name}"])
        outputs |= {
            f"moved {d.name}": g.concat([g.swapaxes(x, 0, 1), g.constant(array(d, 3, 5, 2))], 0),
            f"chosen {d.name}": g.where(g.constant(np.arange(8).reshape(2, 4) % 3 == 0), x, g.reverse(w, [1])),
            f"cast {d.name}": g.cast(x, "f32"),
            f"sum {d.name}": g.bitwise_or(x, w) if d.is_bool else x + w,
        }
    g.set_outputs(outputs)
    return g


def check(graph: rlx.Graph, found: Any, wanted: Any) -> None:
    for output, f, w in zip(graph.outputs, found, wanted, strict=True):
        f, w = np.asarray(f), np.asarray(w)
        assert (f.dtype, f.shape) == (w.dtype, w.shape), output.name
        wide = np.complex128 if w.dtype.kind == "c" else w.dtype if w.dtype.kind in "iub" else np.float64
        np.testing.assert_array_equal(f.astype(wide), w.astype(wide), err_msg=output.name)


@drawn("share", range(4))
def test_values_and_batches_of_every_dtype(share: int) -> None:
    kinds = tuple(shares(DTYPES, 4, lambda d: (d.kind, d.storage))[share])
    graph = every_dtype(kinds)
    arguments, params = given("x", kinds), given("w", kinds)
    function, wanted = graph.to_jax(), rlx.evaluate(graph, arguments | params)
    check(graph, jax.jit(function)(**arguments, params=params), wanted)
    check(graph, jax.jit(lambda: function(**arguments))(), wanted)  # NumPy arrays in a closure
    batch = {n: np.stack([v, params[n.replace("x_", "w_")]]) for n, v in arguments.items()}
    found = jax.vmap(lambda arguments: function(**arguments))({n: jnp.asarray(v) for n, v in batch.items()})
    for i in range(2):
        check(graph, [f[i] for f in found], rlx.evaluate(graph, {n: v[i] for n, v in batch.items()} | params))


def test_states_of_every_dtype() -> None:
    g = rlx.Graph("states")
    for d in DTYPES:
        x, s = g.input(f"x_{d.name}", (2, 4), d), g.state(f"s_{d.name}", (2, 4), d, init=1)
        g.update(s, x)
    g.set_outputs([g.reverse(g.argument(f"s_{d.name}"), [0]) for d in DTYPES])
    outputs, states = g.to_jax()(**ARGUMENTS)
    check(g, outputs, [np.ones((2, 4), d.numpy) for d in DTYPES])
    check(g, states.values(), ARGUMENTS.values())


def loss(kinds: Sequence[DType], *, with_products: bool) -> rlx.Graph:
    """JAX differentiates the sum of products in a wide dtype, but not the products, which are a second result."""
    g = rlx.Graph("loss")
    total, products = [], {}
    for d in kinds:
        x, w = g.input(f"x_{d.name}", (2, 4), d), g.param(f"w_{d.name}", (2, 4), d)
        wide = g.cast(x, "c128" if d.is_complex else "f64") * g.cast(w, "c128" if d.is_complex else "f64")
        total.append(g.sum(g.real(wide) if d.is_complex else wide))
        products[f"product {d.name}"] = x * w
    g.set_outputs({"total": sum(total[1:], total[0])} | (products if with_products else {}))
    return g


@drawn("share", range(3))
def test_derivatives_of_every_dtype(share: int) -> None:
    """RLX derivatives have the dtypes of the arguments. Undifferentiated results have zeros, which f8e8m0fnu lacks."""
    kinds = tuple(shares(INEXACT, 3, lambda d: (d.kind, d.storage))[share])
    function = loss(kinds, with_products=True).to_jax()
    arguments, params = ({n: jnp.asarray(v) for n, v in given(prefix, kinds).items()} for prefix in "xw")
    alone = loss(kinds, with_products=False)
    names = [*arguments, *params]
    derived = rlx.grad(alone, names)
    wanted = rlx.evaluate(derived, arguments | params)

    def value(arguments: Any, params: Any) -> Any:
        return function(**arguments, params=params)[0]

    for gradient in (jax.grad(value, (0, 1)), jax.jit(jax.grad(value, (0, 1)))):
        found = {n: v for part in gradient(arguments, params) for n, v in part.items()}
        check(derived, [np.conj(found[n]) for n in names], wanted)
    # Forward mode: the value is linear in the parameters, so its tangent along them is the value itself.
    total, tangent = jax.jvp(lambda p: value(arguments, p), (params,), (params,))
    np.testing.assert_allclose(tangent, total, rtol=1e-12)
    batch = jax.tree.map(lambda v: jnp.stack([v, v]), arguments)
    batched = jax.vmap(jax.grad(value), (0, None))(batch, params)
    for n, v in batched.items():
        for part in v:
            np.testing.assert_array_equal(*(np.asarray(t).astype(np.complex128) for t in (part, found[n])), err_msg=n)


def test_exports_of_every_dtype() -> None:
    """All dtypes except those without a name in JAX's files."""
    kinds = tuple(d for d in DTYPES if d.bits > 2)
    graph = every_dtype(kinds)
    arguments = [ARGUMENTS[a.name] for a in graph.inputs]
    data = graph.to_jax().export(params={a.name: PARAMS[a.name] for a in graph.params})
    check(graph, jax.export.deserialize(bytearray(data)).call(*arguments), rlx.evaluate(graph, given("x", kinds)))
    for d in (d for d in DTYPES if d.bits == 2):
        with pytest.raises(rlx.UnsupportedError, match=f"hold no arguments and results of {d.name}"):
            every_dtype((d,)).to_jax().export()


def test_functions_of_jax_take_every_dtype() -> None:
    """Imported with parameters and large constants, and called with tensors."""
    tables = {d.name: array(d, 4, 300, 4) for d in DTYPES}

    def function(xs: Any, ws: Any) -> Any:
        return [
            (jnp.where(np.arange(4) % 2 == 0, x, w), jnp.asarray(table).T, x[::-1], (x.T, jnp.asarray(table[:2])))
            for x, w, table in zip(xs, ws, tables.values(), strict=True)
        ]

    xs, ws = list(ARGUMENTS.values()), list(PARAMS.values())
    wanted = [
        part
        for x, w, t in zip(xs, ws, tables.values(), strict=True)
        for part in (np.where(np.arange(4) % 2 == 0, x, w), t.T, x[::-1], x.T, t[:2])
    ]
    graph = rlx.from_jax(function, xs, ws, param_argnums=1)
    assert [o.shape.dtype.numpy for o in graph.outputs] == [w.dtype for w in wanted]
    inputs = {f"arg0[{i}]": x for i, x in enumerate(xs)}
    check(graph, rlx.evaluate(graph, inputs), wanted)
    tensors = rlx.Graph("tensors")
    given = [tensors.input(n, x.shape, x.dtype) for n, x in inputs.items()]
    tensors.set_outputs([t for group in rlx.jax_function(function)(given, ws) for t in jax.tree.leaves(group)])
    check(tensors, rlx.evaluate(tensors, inputs), wanted)


@pytest.mark.parametrize("kind", WIDE)
def test_dtypes_that_jax_is_set_to_lack_are_named(kind: DType) -> None:
    g = rlx.Graph("wide")
    g.set_outputs([g.reverse(g.input("x", (2,), kind), [0])])
    function = g.to_jax()
    with jax.enable_x64(False):
        for call in (g.to_jax, lambda: function(array(kind, 1, 2))):
            with pytest.raises(rlx.Error, match=rf"is {kind.name}\[2\], and JAX is set to have no {kind.name}"):
                call()

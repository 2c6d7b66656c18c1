"""The target `numpy`: programs are evaluated op by op."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import rlx


def _counter() -> rlx.Graph:
    g = rlx.Graph("counter")
    x, total = g.input("x", ("n", 3)), g.state("total", (3,), init=1.0)
    new = total + g.sum(x @ g.param("w", (3, 3)), 0)
    g.update(total, new)
    g.set_outputs([g.softmax(x, axis=1), new])
    return g


W = np.eye(3, dtype=np.float32) * 2


def test_states_weights_and_symbols() -> None:
    program = rlx.Session("numpy").compile(_counter(), params={"w": W}, cache=False)
    for n in (1, 4, 0):
        x = np.ones((n, 3), np.float32)
        before = program.state("total")
        first, new = program.run({"x": x})
        assert first.shape == (n, 3) and np.allclose(first, 1 / 3)
        np.testing.assert_array_equal(new, before + 2 * n)
        np.testing.assert_array_equal(program.state("total"), new)
    program.set_state("total", np.zeros(3, np.float32))
    np.testing.assert_array_equal(program.run({"x": np.ones((1, 3), np.float32)})[1], 2.0)


def test_files_and_the_cache(tmp_path: Path) -> None:
    x = np.ones((2, 3), np.float32)
    session = rlx.Session("numpy")
    program = session.compile(_counter(), params={"w": W}, cache=tmp_path / "cache")
    program.save(tmp_path / "counter.rlxa")
    for other in (rlx.load(tmp_path / "counter.rlxa"), session.compile(_counter(), cache=tmp_path / "cache")):
        other.set_params({"w": W})
        np.testing.assert_array_equal(other.run({"x": x})[1], 5.0)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f64", "i8", "u64", "bool", "c64", "f8e4m3fn"])
def test_every_dtype_has_an_evaluator(dtype: str) -> None:
    g = rlx.Graph("dtypes")
    x = g.input("x", (2, 3), dtype)
    g.set_outputs([g.transpose(x, (1, 0)), x == x])
    values = np.ones((2, 3), rlx.dtype(dtype).numpy)
    transposed, equal = rlx.Session("numpy").compile(g, cache=False).run({"x": values})
    assert transposed.dtype == values.dtype and transposed.shape == (3, 2) and equal.all()


def test_blocks_loops_and_custom_functions() -> None:
    g = rlx.Graph("blocks")
    x = g.input("x", (2, 4))
    last, _ = g.scan(lambda carry, _: (carry * 2.0, carry), x, length=5)
    g.set_outputs([last, g.layer_norm(x, g.constant(np.ones(4, "f4")), g.constant(np.zeros(4, "f4")))])
    values = {"x": np.arange(8, dtype=np.float32).reshape(2, 4)}
    results = rlx.Session("numpy").compile(g, cache=False).run(values)
    for result, expected in zip(results, rlx.evaluate(g, values), strict=True):
        np.testing.assert_array_equal(result, expected)


def test_there_are_no_flags_and_one_architecture() -> None:
    with pytest.raises(rlx.CompileError, match="unknown architecture of numpy: 'avx'"):
        rlx.Session("numpy", arch="avx")
    with pytest.raises(rlx.CompileError, match="numpy has no flag '--fast'"):
        rlx.Session("numpy", flags=("--fast",))

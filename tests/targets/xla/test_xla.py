"""The XLA back end: programs with every dtype, states, symbols, strict arithmetic, and errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import rlx
from rlx.ir.dtype import DTYPES
from rlx.targets.artifacts.artifact import Artifact
from rlx.targets.registry import backend_of, backends
from rlx.targets.xla import backend, client
from tests.drawing import drawn


def session(**options: Any) -> rlx.Session:
    return rlx.Session(rlx.Device.XLA, **options)


def compiled(graph: rlx.Graph, **options: Any) -> rlx.Program:
    return session().compile(graph, cache=False, **options)


@pytest.mark.parametrize("dims", [(), (0, 3), (5,), (1, 2, 3)], ids=str)
def test_every_dtype_goes_in_and_out(dims: tuple[int, ...]) -> None:
    g = rlx.Graph("every")
    values = {}
    for kind in DTYPES:
        values[kind.name] = (
            (np.arange(np.prod(dims, dtype=int)) + 1).reshape(dims).astype(kind.numpy)
        )  # f8e8m0fnu has no 0
        x = g.input(kind.name, rlx.Shape(dims, kind))
        g.set_outputs([*g.output_tensors, x, g.reshape(x, (-1,))])
    program = compiled(g)
    results = iter(program.run(values))
    for name, value in values.items():
        for expected, result in ((value, next(results)), (value.reshape(-1), next(results))):
            assert (result.dtype, result.shape) == (expected.dtype, expected.shape), name
            np.testing.assert_array_equal(result, expected)
            assert result.flags.owndata and result.flags.writeable
            assert not np.shares_memory(result, value)


def test_arguments_are_not_changed_even_if_donated() -> None:
    g = rlx.Graph("donated")
    x = g.input("x", (64, 64), donate=True)
    g.set_outputs([x + 1])
    program = compiled(g)
    value = np.zeros((64, 64), np.float32)
    for _ in range(3):
        np.testing.assert_array_equal(program.run({"x": value})[0], 1)
        np.testing.assert_array_equal(value, 0)


def test_results_of_one_run_survive_the_next() -> None:
    g = rlx.Graph("kept")
    g.set_outputs([g.input("x", (1000,)) * 2])
    program = compiled(g)
    first = program.run({"x": np.ones(1000, np.float32)})[0]
    program.run({"x": np.zeros(1000, np.float32)})
    np.testing.assert_array_equal(first, 2)


@pytest.mark.parametrize("size", [1, 1000, 100_000])
@pytest.mark.parametrize("kind", ["f32", "bf16", "i8", "bool", "c64", "i4"])
def test_results_have_their_own_memory(kind: str, size: int) -> None:
    """Whatever the caller writes to results changes no other result, no input, no weight, no state and no later run."""
    g = rlx.Graph("own")
    x, w = g.input("x", (size,), kind), g.param("w", (size,), kind)
    state = g.state("s", (size,), kind)
    g.set_outputs([x, x, w, state, g.reshape(x, (1, size)), g.zeros((size,), kind), w])
    g.update(state, x)
    value = (np.arange(size) % 2 + 1).astype(rlx.dtype(kind).numpy)
    program = compiled(g, params={"w": value.copy()})
    earlier: list[np.ndarray] = []
    for previous in (np.zeros_like(value), value, value):
        results = program.run({"x": value})
        expected = [value, value, value, previous, value.reshape(1, size), np.zeros_like(value), value]
        for i, (result, wanted) in enumerate(zip(results, expected, strict=True)):
            np.testing.assert_array_equal(result, wanted)
            result[...] = 0
            for other, unchanged in zip(results[i + 1 :], expected[i + 1 :], strict=True):
                np.testing.assert_array_equal(other, unchanged)
        assert not any(np.shares_memory(result, other) for result in results for other in (*earlier, value))
        np.testing.assert_array_equal(program.state("s"), value)
        earlier += results


def test_views_of_results_keep_their_memory() -> None:
    g = rlx.Graph("kept")
    g.set_outputs([g.input("x", (100_000,)) + 1])
    program = compiled(g)
    last = program.run({"x": np.ones(100_000, np.float32)})[0][-1:]
    for _ in range(5):
        program.run({"x": np.zeros(100_000, np.float32)})
    np.testing.assert_array_equal(last, 2)


# --- weights and states -------------------------------------------------------------------------------


def linear() -> rlx.Graph:
    g = rlx.Graph("linear")
    g.set_outputs({"y": g.input("x", (2, 3)) @ g.param("w", (3, 4))})
    return g


X, W = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((3, 4), np.float32)


def test_other_weights_do_not_compile_again(monkeypatch: pytest.MonkeyPatch) -> None:
    program = compiled(linear())
    with pytest.raises(rlx.Error, match="1 parameters are not set: 'w'"):
        program.run({"x": X})
    weights = {"w": W.copy()}
    program.set_params(weights)
    np.testing.assert_array_equal(program.run({"x": X})[0], X @ W)
    monkeypatch.setattr(client, "XlaExecutable", None)
    weights["w"][:] = 5  # what the caller does to his array later is his own business
    np.testing.assert_array_equal(program.run({"x": X})[0], X @ W)
    program.set_param("w", 2 * W)
    np.testing.assert_array_equal(program.run_named({"x": X})["y"], X @ (2 * W))


def counter() -> rlx.Graph:
    """Outputs and updates in mixed order, and a state that does not depend on inputs."""
    g = rlx.Graph("counter")
    total, steps = g.state("total", (3,), init=1), g.state("steps", (), "i64", init=5)
    x = g.input("x", (3,))
    g.update(total, total + x)
    g.set_outputs({"before": total, "twice": x * 2})
    g.update(steps, steps + 1)
    return g


def test_states() -> None:
    program = compiled(counter())
    x = np.array([1, 2, 3], np.float32)
    assert program.state("steps") == 5
    for n in range(3):
        before, twice = program.run({"x": x})
        np.testing.assert_array_equal(before, 1 + n * x)
        np.testing.assert_array_equal(twice, 2 * x)
    np.testing.assert_array_equal(program.state("total"), 1 + 3 * x)
    assert program.state("steps") == 8
    assert program.state("steps").dtype == np.int64
    program.reset_state()
    assert program.state("steps") == 5
    np.testing.assert_array_equal(program.run({"x": x})[0], 1)


def test_a_state_outlives_a_change_of_weights() -> None:
    g = rlx.Graph("weighted")
    s = g.state("s", ())
    g.set_outputs([s])
    g.update(s, s + g.param("w", ()))
    program = compiled(g, params={"w": np.float32(2)})
    program.run({})
    program.set_param("w", np.float32(10))
    program.run({})
    assert program.state("s") == 12


# --- symbols ------------------------------------------------------------------------------------------


def windows() -> rlx.Graph:
    g = rlx.Graph("windows")
    x, y = g.input("x", ("n", "2*m")), g.input("y", ("n",), "f64")
    g.set_outputs({"tail": g.narrow(x, 0, 2, "n-2"), "mean": g.mean(x, 1), "size": g.sum(g.cast(y, "f32") * 0 + 1)})
    return g


def test_symbols_are_specialised_for_each_set_of_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    program = compiled(windows())
    sizes = []
    original = backend.specialised

    def recorded(graph: rlx.Graph, function: Any) -> bytes:
        sizes.append(graph.arguments[0].shape)
        return original(graph, function)

    monkeypatch.setattr(backend, "specialised", recorded)
    for n, m in ((3, 1), (5, 2), (3, 1), (5, 2), (2, 4)):
        x = np.random.default_rng(n).standard_normal((n, 2 * m)).astype(np.float32)
        tail, mean, size = program.run({"x": x, "y": np.zeros(n)})
        np.testing.assert_array_equal(tail, x[2:])
        np.testing.assert_allclose(mean, x.mean(1), rtol=1e-6)
        assert size == n
    assert sizes == [(3, 2), (5, 4), (2, 8)]
    with pytest.raises(rlx.ShapeError, match="the size n-2 of its result is negative"):
        program.run({"x": np.zeros((1, 2), np.float32), "y": np.zeros(1)})
    with pytest.raises(rlx.ShapeError, match=r"symbol 'n' is 3 from .* but 4 from"):
        program.run({"x": np.zeros((3, 2), np.float32), "y": np.zeros(4)})
    with pytest.raises(rlx.ShapeError):
        program.run({"x": np.zeros((3, 3), np.float32), "y": np.zeros(3)})
    assert len(sizes) == 3


def test_bound_symbols_are_fixed() -> None:
    program = compiled(windows(), bind={"n": 4, "m": 1})
    assert program.artifact.info["form"] == "stablehlo"
    with pytest.raises(rlx.ShapeError):
        program.run({"x": np.zeros((5, 2), np.float32), "y": np.zeros(5)})


@pytest.mark.parametrize("make", [linear, counter, windows])
def test_saved_programs_are_loaded(make: Any, tmp_path: Path) -> None:
    arrays = {"x": X} if make is linear else {"x": np.arange(3, dtype=np.float32)}
    if make is windows:
        arrays = {"x": np.ones((3, 4), np.float32), "y": np.ones(3)}
    program = compiled(make(), params={"w": W} if make is linear else None)
    program.save(tmp_path / "program")
    again = rlx.load(tmp_path / "program", params={"w": W} if make is linear else None)
    assert again.artifact.target == "xla"
    for a, b in zip(program.run(arrays), again.run(arrays), strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_cache_gives_the_same_program(tmp_path: Path) -> None:
    first = session().compile(linear(), cache=tmp_path)
    second = session().compile(linear(), cache=tmp_path)
    assert "cached" not in first.phases and second.phases["cached"]
    assert first.artifact == second.artifact


# --- strictness ---------------------------------------------------------------------------------------


def test_nothing_is_kept_in_more_bits_than_it_has() -> None:
    g = rlx.Graph("rounded")
    x = g.input("x", (1000,))
    g.set_outputs([g.cast(g.cast(x, kind), "f32") - x for kind in ("bf16", "f16")])
    values = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    for result, kind in zip(compiled(g).run({"x": values}), (ml_dtypes.bfloat16, np.float16), strict=True):
        np.testing.assert_array_equal(result, values.astype(kind).astype(np.float32) - values)
        assert result.any()


def test_arithmetic_is_not_reordered() -> None:
    g = rlx.Graph("ordered")
    x, y = g.input("x", (4,)), g.input("y", (4,))
    g.set_outputs([(x + y) - x, x * 0.0, g.maximum(x, y), x / x])
    values = {"x": np.array([1e8, np.inf, np.nan, -0.0], np.float32), "y": np.array([1, 1, 1, np.nan], np.float32)}
    with np.errstate(all="ignore"):
        for result, expected in zip(compiled(g).run(values), rlx.evaluate(g, values), strict=True):
            np.testing.assert_array_equal(result, expected)


# --- mistakes -----------------------------------------------------------------------------------------


def test_options() -> None:
    flags = ("--xla_cpu_enable_fast_math=true", "--xla_backend_optimization_level=0")
    program = session(flags=flags, threads=1).compile(linear(), params={"w": W}, cache=False)
    assert program.artifact.info["options"] == [
        ["xla_cpu_enable_fast_math", True],
        ["xla_backend_optimization_level", 0],
    ]
    np.testing.assert_array_equal(program.run({"x": X})[0], X @ W)


def test_mistakes() -> None:
    with pytest.raises(rlx.CompileError, match="unknown architecture of xla: 'sm_80'"):
        session(arch="sm_80")
    with pytest.raises(rlx.CompileError, match="expected an option of XLA,"):
        session(flags=("-O3",))
    for flag in ("--xla_no_such_thing=1", "--xla_dump_to=/tmp/dump"):
        with pytest.raises(rlx.CompileError, match=r"programs cannot have the option .* of XLA\n  hint: .*XLA_FLAGS"):
            session(flags=(flag,))
    for flag in ("--xla_cpu_prefer_vector_width=-1", "--xla_cpu_enable_fast_math=2", "--xla_cpu_max_isa=../x"):
        with pytest.raises(rlx.CompileError, match=f"flag '{flag}': expected"):
            session(flags=(flag,))
    with pytest.raises(rlx.Error, match="XLA uses one thread or one for each core, not 3"):
        session(threads=3).compile(linear(), params={"w": W}, cache=False).run({"x": X})
    with pytest.raises(rlx.CompileError, match="XLA: "):
        client.XlaExecutable("module {")
    broken = Artifact("xla", "cpu", compiled(linear()).artifact.signature, b"ML\xefR", compiled(linear()).artifact.info)
    with pytest.raises(rlx.CompileError, match="XLA: "):
        backend.load(broken, {"w": W})


def test_back_ends_are_found_by_target() -> None:
    iree, xla, *_ = backends()
    assert backend_of("xla") is backend_of("stablehlo") is xla
    assert backend_of("hip") is backend_of("cpu") is iree
    with pytest.raises(rlx.CompileError, match="unknown target: 'stablhlo'") as caught:
        backend_of("stablhlo")
    assert "did you mean 'stablehlo'?" in str(caught.value)


def _in_a_fresh_process(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout


def test_jax_is_imported_when_a_program_is_loaded() -> None:
    code = """
import sys, rlx
def state(): print("jax" in sys.modules or "jaxlib" in sys.modules)
session = rlx.Session(rlx.Device.XLA); state()
g = rlx.Graph("g"); g.set_outputs([g.input("x", (2,)) + 1])
program = session.compile(g, cache=False); rlx.Session("cpu"); state()
program.load(); state()
"""
    assert _in_a_fresh_process(code).split() == ["False", "False", "True"]


def test_nothing_is_logged_to_standard_error() -> None:
    code = """
import numpy, rlx
g = rlx.Graph("g"); g.set_outputs([g.input("x", (2,)) + 1])
rlx.Session("xla").compile(g, cache=False).run({"x": numpy.ones(2, "f")})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not done.stderr


def test_without_jax_the_message_says_what_to_install() -> None:
    code = """
import sys
sys.modules["jax"] = None
import rlx
from rlx.targets.xla.backend import devices
g = rlx.Graph("g"); g.set_outputs([g.input("x", (2,)) + 1])
program = rlx.Session("xla").compile(g, cache=False)
try:
    program.load()
except rlx.Error as problem:
    print(problem)
(device,) = devices()
print(device.available, device.reason)
"""
    out = _in_a_fresh_process(code)
    assert "pip install 'rlx[jax]'" in out
    assert "False XLA needs JAX" in out


@pytest.mark.parametrize("level", [0, 2])
@drawn("device", ["xla", "cpu"])
@pytest.mark.parametrize("dtype", ["c64", "f32"])
def test_sums_of_repeated_elements_keep_infinities_apart(dtype: str, device: str, level: int) -> None:
    """Compilers replace sums of repeated elements by products with their number, which are NaN for complex infinities."""
    g = rlx.Graph("repeated")
    x = g.input("x", (2, 3), dtype)
    repeated = g.expand(g.reshape(x, (1, 2, 3)), (4, 2, 3))
    twice = g.concat([x, x], 0)
    g.set_outputs([f(v, axes) for v, axes in ((repeated, 0), (twice, 0), (twice, None)) for f in (g.sum, g.mean)])
    values = np.array([[np.inf, 2, 1], [-1, np.nan, 0.5]], np.complex64 if dtype == "c64" else np.float32)
    if dtype == "c64":
        values.imag = np.array([[1, 3, -np.inf], [0.0, 2, np.inf]])
    ours = rlx.Session(device).compile(g, opt=level, cache=False).run({"x": values})
    for result, expected in zip(ours, rlx.evaluate(g, {"x": values}), strict=True):
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(("rank", "groups"), [(1, 1), (2, 1), (2, 2), (2, 6), (3, 1)])
def test_kernels_of_convolutions_are_kept_as_xla_reads_them(rank: int, groups: int) -> None:
    # A kernel that two convolutions (one in a loop) and another op read, and a kernel that is computed from a parameter.
    g: Any = rlx.Graph("kernels")
    x = g.input("x", (2, 6, *(7,) * rank))
    w, v = (g.param(name, (6, 6 // groups, *(3, 5, 1)[:rank])) for name in "wv")

    def conv(x: Any, w: Any) -> Any:
        return g.conv(x, w, groups=groups, padding=(1, 2, 0)[:rank])

    looped = g.scan(lambda c, _: (g.tanh(conv(c, w)), ()), x, length=3)[0]
    g.set_outputs([conv(x, w), looped, conv(x, -v), g.sum(w)])
    rng = np.random.default_rng(rank)
    weights = {name: rng.standard_normal(tuple(a.shape)).astype(np.float32) for name, a in (("w", w), ("v", v))}
    values = {"x": rng.standard_normal(tuple(x.shape)).astype(np.float32)}
    expected = rlx.evaluate(g, values | weights)
    for level in (0, 2):
        program = session().compile(g, params=weights, cache=False, opt=level)
        for result, value in zip(program.run(values), expected, strict=True):
            np.testing.assert_allclose(result, value, rtol=1e-4, atol=1e-4)

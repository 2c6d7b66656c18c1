"""CPU levels: the code for each level is complete, and results are the same at all levels."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import mlir
from rlx.dialect.dtypes import GROUPS
from rlx.ir.dtype import dtype
from rlx.ir.graph.evaluate import evaluate
from rlx.native import native
from rlx.passes.runner import run_on_module
from rlx.targets.iree.backend import module_text
from rlx.targets.iree.compiler import ModuleCompileError, compile_module
from rlx.targets.iree.executable import IreeExecutable
from rlx.targets.iree.passes.emulate import EMULATED, Emulate
from rlx.targets.iree.targets import target
from tests.conformance.compiled import compile_graphs, cpu
from tests.conformance.elf import shared_objects, undefined_symbols
from tests.conformance.failures import Failures
from tests.conformance.levels import FOREIGN, LEVELS, at_any_level, skip_if_not_run
from tests.drawing import drawn

# Not named `level`, because a run draws only some values of that parameter.
every_level = pytest.mark.parametrize("arch", LEVELS)


# --- completeness of the code -----------------------------------------------------------------------


@pytest.mark.parametrize("arch", [*LEVELS, FOREIGN])
def test_code_that_calls_what_is_not_there_does_not_compile(arch: str) -> None:
    text = """
    func.func @main(%x: tensor<4xf64>) -> tensor<4xf64> {
      %y = math.sin %x : tensor<4xf64>
      return %y : tensor<4xf64>
    }"""
    with pytest.raises(ModuleCompileError, match="undefined symbol: sin"):
        compile_module(text, cpu(arch))


def test_undefined_symbols_are_found() -> None:
    code = Path(native().__file__ or "").read_bytes()
    if next(shared_objects(code), None) != 0:
        pytest.skip("this system's shared objects are of another format")
    assert [name for name in undefined_symbols(code) if name.startswith("Py")]


# --- equality of the results ------------------------------------------------------------------------


def _special(kind: str) -> np.ndarray:
    """Return numbers next to and in the middle of two f16, bf16 or f32, of all magnitudes."""
    rng = np.random.default_rng(0)
    if kind == "bool":
        return np.array([False, True] * 8)
    exponents = rng.integers(-160 if kind == "f64" else -140, 130, 2048).astype(np.float64)
    digits = rng.choice([8, 9, 11, 12, 24, 25], 2048)
    halves = np.floor(rng.uniform(1, 2, 2048) * 2.0 ** (digits - 1)) * 2.0 ** (1 - digits)
    nudged = halves + rng.choice([0, 2.0**-30, -(2.0**-30), 2.0**-51], 2048)
    floats = nudged * 2.0**exponents * rng.choice([-1, 1], 2048)
    floats[:6] = [0, -0.0, np.inf, -np.inf, np.nan, 65520]
    with np.errstate(over="ignore"):
        if kind.startswith("f") or kind == "bf16":
            return floats.astype(dtype(kind).numpy)
    limits = np.iinfo(kind.replace("i", "int").replace("u", "uint"))
    whole = np.trunc(nudged * 2.0 ** rng.integers(0, limits.bits, 2048)) * rng.choice([-1, 1], 2048)
    fitting = whole[(whole >= float(limits.min)) & (whole < float(limits.max))].astype(limits.dtype)
    return np.concatenate([fitting, np.array([limits.min, limits.max, 0, 1], limits.dtype)])


_INTEGERS = ("bool", *GROUPS["integers"])
# Chains of conversions, which are in one loop when ops are fused.
_CHAINS = [
    *((kind, to) for kind in (*_INTEGERS, "f64", "f32") for to in ("bf16", "f16", "f32")),
    *((kind, "f32", to) for kind in _INTEGERS for to in ("bf16", "f16")),
    *((kind, "f64", to) for kind in ("i32", "i64") for to in ("bf16", "f16", "f32")),
    *((kind, "c64", "bf16") for kind in ("i32", "f64")),
    ("f16", "f32"), ("bf16", "f32"), ("f16", "bf16"), ("bf16", "f16"),
]  # fmt: skip


@at_any_level()
def test_conversions_round_alike(level: str) -> None:
    failures = Failures()
    graphs, values = [], []
    for kind, *steps in _CHAINS:
        g: Any = rlx.Graph("chain")
        array = _special(kind)
        y = g.input("x", array.shape, kind)
        for step in steps:
            y = g.cast(y, step)
        g.set_outputs([y])
        graphs.append(g)
        values.append(array)
    programs = compile_graphs(graphs, level=level)
    for chain, graph, array, program in zip(_CHAINS, graphs, values, programs, strict=True):
        label = " -> ".join(chain)
        if program.problem is not None or program.lacks is not None:
            failures.expect(label, program.problem is None, str(program.problem))
            continue
        (expected,) = evaluate(graph, {"x": array})
        (got,) = program.run([array])
        same = (got == expected) | (np.isnan(got) & np.isnan(expected))
        if expected.dtype.name != "float16":  # denormals may be 0, except in f16
            with np.errstate(all="ignore"):
                same |= (np.abs(expected.astype(np.float64)) < 2.0**-126) & (np.abs(got.astype(np.float64)) < 2.0**-125)
        wrong = np.flatnonzero(~same)[:3]
        failures.expect(label, not wrong.size, f"{array[wrong]!r} gives {got[wrong]!r}, not {expected[wrong]!r}")
    failures.check()
    skip_if_not_run(level, programs)


@every_level
def test_every_f16_is_kept(arch: str) -> None:
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    g: Any = rlx.Graph("halves")
    x = g.input("x", halves.shape, "f16")
    g.set_outputs(
        [g.cast(x, "f32"), g.neg(g.neg(x)), g.relu(x), g.cast(g.cast(x, "f32") * np.float32(1 + 2.0**-12), "f16")]
    )
    (program,) = compile_graphs([g], level=arch)
    assert program.problem is None
    skip_if_not_run(arch, [program])
    for got, expected in zip(program.run([halves]), evaluate(g, {"x": halves}), strict=True):
        np.testing.assert_array_equal(got, expected)


def _applied(body: str, arch: str, emulated: Any, *arrays: np.ndarray) -> np.ndarray:
    """Apply an elementwise f64 op in linalg, with the instructions that a CPU lacks expanded."""
    size = len(arrays[0])
    kinds = ", ".join(["tensor<?xf64>".replace("?", str(size))] * len(arrays))
    maps = ", ".join(["affine_map<(i) -> (i)>"] * (len(arrays) + 1))
    names = [f"%a{i}" for i in range(len(arrays))]
    text = f"""
    func.func @main({", ".join(f"{n}: tensor<{size}xf64>" for n in names)}) -> tensor<{size}xf64> {{
      %e = tensor.empty() : tensor<{size}xf64>
      %r = linalg.generic {{indexing_maps = [{maps}], iterator_types = ["parallel"]}}
          ins({", ".join(names)} : {kinds}) outs(%e : tensor<{size}xf64>) {{
      ^bb0({", ".join(f"%x{i}: f64" for i in range(len(arrays)))}, %o: f64):
        {body}
        linalg.yield %y : f64
      }} -> tensor<{size}xf64>
      return %r : tensor<{size}xf64>
    }}"""
    with mlir.entered():
        module = mlir.ir.Module.parse(text)
    run_on_module(module, str(Emulate(tuple(emulated))))
    compiled = compile_module(module_text(module), target("cpu", arch))
    if compiled.cpu is not None and (lacks := compiled.cpu.lacks()):
        pytest.skip(lacks)
    return IreeExecutable(compiled.vmfb).function("main")(list(arrays))[0]


@pytest.mark.parametrize("arch", ["x86-64", "x86-64-v3"])
def test_a_product_and_a_sum_are_rounded_once(arch: str) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(-1, 1, 600) * 2.0 ** rng.integers(-60, 60, 600) for _ in range(2))
    c = np.where(
        rng.random(600) < 0.5, -(a * b), rng.uniform(-1, 1, 600) * np.abs(a * b) * 2.0 ** rng.integers(-60, 60, 600)
    )
    limits = [np.inf, -np.inf, np.nan, 1e300, -1e300, 0.0, -0.0, 1e-300, 1.0]
    grid = np.array([(x, y, z) for x in limits for y in limits for z in (0.0, 1.0, np.inf, -np.inf, np.nan)])
    a, b, c = (np.concatenate([array, grid[:, i]]) for i, array in enumerate((a, b, c)))
    got = _applied("%y = math.fma %x0, %x1, %x2 : f64", arch, EMULATED if arch == "x86-64" else (), a, b, c)
    with np.errstate(all="ignore"):
        plain = a * b + c
    for x, y, z, result, near in zip(a, b, c, got, plain, strict=True):
        if not np.isfinite(near):
            overflows = np.isfinite(x) and np.isfinite(y) and abs(Fraction(x) * Fraction(y)) > 2**1023
            assert overflows or result == near or (np.isnan(result) and np.isnan(near)), (x, y, z)
            continue
        exact = Fraction(x) * Fraction(y) + Fraction(z)
        if arch == "x86-64" and min(abs(x), abs(y), abs(x * y)) < 2.0**-900:
            assert result == near, (x, y, z)
        else:
            assert result == float(exact), (x, y, z)


# --- sums of products -------------------------------------------------------------------------------

_FUNCTIONS = ("exp", "log", "sin", "cos", "tan", "atan", "tanh", "sigmoid", "gelu", "gelu_approx", "silu", "rsqrt")
_OF_COMPLEX = ("exp", "log", "sin", "cos", "tanh")


def _sums_of_products(g: Any, x: Any, y: Any, z: Any) -> list[Any]:
    """Return sums of products. The first are 0 or near 0, unless only one product is rounded."""
    one = g.constant(np.ones((), x.dtype.numpy))
    cancelled = [x * y - y * x, x * x - x * y - y * x + y * y, (x + one) * (y - one) - (y - one) * (x + one), x * y - z]
    return [*cancelled, x + (y - x) * z, ((x * y + z) * y + x) * z, x * y - z * x, g.where(x == y, x * y, z) + x]


@drawn("kind", ["f32", "f64", "f16", "bf16", "c64"])
def test_elementwise_numbers_are_the_same_at_all_levels(kind: str) -> None:
    """Results agree to the last bit, and sums of products are those of the evaluator.

    Exceptions are bf16, which IREE does not round between fused ops, and c64, whose products NumPy contracts itself.
    """
    rng, of_complex = np.random.default_rng(0), dtype(kind).is_complex
    x, y = rng.standard_normal((2, 150)) * 2 + (1j * rng.standard_normal((2, 150)) if of_complex else 0)
    y[::3] = x[::3]
    x, y = (a.astype(dtype(kind).numpy) for a in (x, y))
    arrays = {"x": x, "y": y, "z": x * y}
    g: Any = rlx.Graph("numbers")
    inputs = [g.input(name, a.shape, kind) for name, a in arrays.items()]
    sums = _sums_of_products(g, *inputs)
    functions = [g.activation(name, inputs[0]) for name in (_OF_COMPLEX if of_complex else _FUNCTIONS)]
    g.set_outputs([*sums, *functions, *([] if of_complex else [g.pow(g.abs(inputs[0]), inputs[1])])])
    results = {}
    for level in LEVELS:
        (program,) = compile_graphs([g], level=level)
        assert program.problem is None
        if program.lacks is None:
            results[level] = program.run(list(arrays.values()))
    expected = evaluate(g, arrays)[: len(sums)] if kind in ("f32", "f64", "f16") else []
    for level, got in results.items():
        for i, (array, wanted) in enumerate(zip(got, results["host"], strict=True)):
            np.testing.assert_array_equal(_wide(array), _wide(wanted), err_msg=f"{level}: {i}")
        for i, (array, wanted) in enumerate(zip(got, expected, strict=False)):
            np.testing.assert_array_equal(_wide(array), _wide(wanted), err_msg=f"{level}, evaluated: {i}")


def _wide(array: np.ndarray) -> np.ndarray:
    """Return the array in a dtype whose NaN NumPy recognises."""
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)

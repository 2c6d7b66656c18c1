"""Rare cases in C programs.

They include empty tensors, constants with the same text and several types, names of macros, windows with only padding, and the
headers of other compilers.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.targets.c import toolchain
from tests.drawing import drawn
from tests.targets.c.programs import program_of, write
from tests.targets.c.test_c import layer

DTYPES = ("i8", "u8", "i16", "i32", "i64", "u32", "bool", "f32")


def ends_of(dtype: str) -> tuple[int, int]:
    """The least and greatest integer of a dtype."""
    return int(rlx.dtype(dtype).min), int(rlx.dtype(dtype).max)


def check(graph: Any, inputs: dict[str, np.ndarray], folder: Path) -> None:
    """Check that every installed compiler compiles a graph without warnings, and that results agree with the evaluator."""
    sources = write(program_of(graph), folder)
    commands = [[c] for c in ("gcc", "arm-none-eabi-gcc") if shutil.which(c)]
    commands += [[*zig] for zig in (toolchain.zig(),) if zig]
    for command in commands:
        core = ["-mcpu=cortex-m4", "-mthumb"] if command[0].startswith("arm") else []
        for source in sources:
            toolchain.build([*command, *core, *toolchain.WARNINGS, "-Werror", "-O2", "-c", source, "-o", "o"], folder)
    got = rlx.Session("c").compile(graph, cache=False).run(inputs)
    for one, other in zip(got, rlx.evaluate(graph, inputs), strict=True):
        assert one.dtype == other.dtype
        assert np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


def test_constants_of_one_text_and_several_types(tmp_path: Path) -> None:
    """Results and tables may have the same text in C, but different bytes."""
    g: Any = rlx.Graph("same_text")
    numbers = np.array([1, 0, 1, 1, 0])
    outputs = {d: g.constant(numbers.astype(rlx.dtype(d).numpy)) for d in DTYPES}
    outputs |= {f"{d}_square": g.constant(numbers[:4].reshape(2, 2).astype(rlx.dtype(d).numpy)) for d in DTYPES}
    x = g.input("x", (3,), "i8")
    outputs |= {f"{d}_at": g.gather(outputs[d], x) for d in DTYPES}
    g.set_outputs(outputs)
    check(g, {"x": np.array([-100, 2, 100], np.int8)}, tmp_path)


def test_tensors_without_elements(tmp_path: Path) -> None:
    g: Any = rlx.Graph("nothing")
    x, state = g.input("x", (2, 0), "i8"), g.state("kept", (0, 3), "i8")
    w = g.constant(np.zeros((0, 3), np.int8))
    g.update(state, g.maximum(state, w))
    outputs = {"product": g.matmul(x, w), "turned": g.dot_general(x, w, (1,), (0,)), "given": x, "constant": w}
    outputs |= {"dense": g.q_matmul(x, w, g.constant(np.arange(3, dtype=np.int32)), dtype="i32"), "old": state}
    for kind in ("sum", "prod", "max", "min"):
        outputs[kind] = g.relu(g.reduce(kind, g.relu(x), (1,)))
        outputs[f"{kind}_of_none"] = g.reduce(kind, x, (0,))
    outputs["joined"] = g.concat([x, g.constant(np.ones((2, 2), np.int8))], 1)
    outputs["padded"] = g.pad(x, [(0, 0), (1, 2)], "constant", 5)
    g.set_outputs(outputs)
    check(g, {"x": np.zeros((2, 0), np.int8)}, tmp_path)


@pytest.mark.parametrize("kind", ["max", "min"])
def test_extremes_of_nothing_are_not_within_the_bounds_of_elements(kind: str, tmp_path: Path) -> None:
    """The maximum of a window with only padding is -128, even if all elements are at least 0. A following relu is needed."""
    g: Any = rlx.Graph("extremes")
    x = g.input("x", (1, 1, 2, 2), "i8")
    at_least_0 = g.maximum(x, g.constant(np.array(0, np.int8)))
    outputs: dict[str, Any] = {}
    if kind == "max":
        pooled = g.pool(at_least_0, "max", 1, 1, 1)
        outputs = {"pooled": pooled, "relu": g.relu(pooled), "wide": g.cast(pooled, "u32")}
    none = g.reduce(kind, g.narrow(g.minimum(at_least_0, g.constant(np.array(9, np.int8))), 3, 0, 0), (3,))
    outputs |= {"none": none, "limited": g.minimum(g.relu(none), g.constant(np.array(9, np.int8)))}
    g.set_outputs(outputs)
    check(g, {"x": np.array([[[[-7, 3], [0, 127]]]], np.int8)}, tmp_path)


def test_numbers_that_are_none(tmp_path: Path) -> None:
    """NaN and infinity in constant tables, and as single constants."""
    g: Any = rlx.Graph("none")
    x = g.input("x", (4,))
    table = np.array([np.nan, np.inf, -np.inf, -0.0], np.float32)
    lowest = g.maximum(x, g.constant(np.array(-np.inf, np.float32)))
    g.set_outputs({"table": g.constant(table), "sum": x + g.constant(table), "lowest": lowest})
    check(g, {"x": np.array([1, -np.inf, 0, 1e-45], np.float32)}, tmp_path)


@drawn("dtype", DTYPES, of_each=2)
def test_comparisons_of_what_is_known(dtype: str, tmp_path: Path) -> None:
    """Comparisons of a value with itself and with numbers beyond its range. Compilers warn about constant comparisons."""
    g: Any = rlx.Graph("compared")
    x = g.input("x", (6,), dtype)
    numpy = rlx.dtype(dtype).numpy
    kinds = ("eq", "ne", "lt", "le", "gt", "ge") if dtype != "bool" else ("eq", "ne")
    low, high = {"bool": (0, 1), "f32": (-1.5, np.inf)}.get(dtype) or ends_of(dtype)
    outputs: dict[str, Any] = {}
    for kind in kinds:
        outputs[kind] = g.compare(kind, x, x)
        outputs |= {
            f"{kind}_{n}": g.compare(kind, x, g.constant(np.array(b, numpy))) for n, b in (("l", low), ("h", high))
        }
        outputs[f"{kind}_turned"] = g.compare(kind, g.constant(np.array(low, numpy)), x)
    g.set_outputs(outputs)
    given = np.array([0, 1, low, high, np.nan if dtype == "f32" else 1, 0], numpy)
    check(g, {"x": given}, tmp_path)


@drawn("dtype", DTYPES[:6], of_each=2)
def test_products_of_elements_wrap(dtype: str, tmp_path: Path) -> None:
    g: Any = rlx.Graph("wraps")
    x = g.input("x", (2, 3, 2), dtype)
    g.set_outputs([g.reduce(kind, x, axes) for kind in ("prod", "sum") for axes in ((), (0,), (1, 2), (0, 1, 2))])
    numbers = np.random.default_rng(1).integers(*ends_of(dtype), (2, 3, 2))
    check(g, {"x": numbers.astype(rlx.dtype(dtype).numpy)}, tmp_path)


def test_names_of_macros_and_functions(tmp_path: Path) -> None:
    """Names that the headers define are not used for arrays."""
    names = (
        "UINT32_MAX INT64_C INT_FAST8_MIN SIZE_MAX M_PI HUGE_VALF FP_NAN isnan sqrtf rintf fabsf expf tanhf NAN signgam"
    )
    g: Any = rlx.Graph("EOF")
    total: Any = None
    inputs = {name: np.array([n, -1.5, np.inf], np.float32) for n, name in enumerate(names.split())}
    for name in inputs:
        x = g.input(name, (3,))
        total = x if total is None else total + g.sqrt(g.abs(x))
    table = g.constant(np.array([np.inf, 1, np.nan], np.float32))
    g.set_outputs({f"{name}_": g.round(total + table) for name in ("INT8_MAX", "powf")} | {"UINTPTR_MAX": total})
    check(g, inputs, tmp_path)


@pytest.mark.skipif(shutil.which("arm-none-eabi-gcc") is None, reason="needs arm-none-eabi-gcc")
@pytest.mark.parametrize("bits", [8, 4, 2])
@drawn("core", ["cortex-m4", "cortex-m7", "cortex-m33", "cortex-m0"])
def test_the_compiler_of_most_firmware_takes_it(core: str, bits: int, tmp_path: Path) -> None:
    """GCC for Arm has another ACLE header than Clang."""
    command = ["arm-none-eabi-gcc", f"-mcpu={core}", "-mthumb", *toolchain.WARNINGS, "-Werror", "-O2"]
    for source in write(program_of(layer(bits)[0]), tmp_path):
        toolchain.build([*command, "-c", source, "-o", "object.o"], tmp_path)


def test_bits_as_another_dtype(tmp_path: Path) -> None:
    """Bitcasts between all dtypes of one size. Bits of floats include infinities, NaN and -0."""
    words = np.array([0.0, -0.0, 1.5, np.inf, -np.inf, np.nan, -np.nan, 3e38], np.float32).view(np.int32)
    inputs = {d: words.view(rlx.dtype(d).numpy) for d in ("f32", "i32", "u32")}
    inputs |= {d: np.array([0, 1, *ends_of(d)]).astype(rlx.dtype(d).numpy) for d in ("i8", "u8", "i16", "i64")}
    g: Any = rlx.Graph("bits")
    tensors = {d: g.input(d, array.shape, d) for d, array in inputs.items()}
    sizes = {d: rlx.dtype(d).itemsize for d in inputs}
    pairs = [(a, b) for a in inputs for b in inputs if sizes[a] == sizes[b]]
    g.set_outputs({f"{a}_as_{b}": g.bitcast(g.maximum(tensors[a], tensors[a]), b) for a, b in pairs})
    check(g, inputs, tmp_path)

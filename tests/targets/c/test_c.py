"""The C back end: written files, rejected graphs, states, parameters and floats."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.cli import main as rlx_command
from rlx.support.errors import CompileError, UnsupportedError
from rlx.targets.c import targets, toolchain
from rlx.targets.c.lower.layer import bits_of, in_pairs, in_rows, joined
from rlx.targets.c.lower.names import identifier
from rlx.targets.c.lower.tables import table_of
from rlx.targets.c.lower.values import LEAST_I64, float_text, integer_text
from rlx.targets.lowering.names import UniqueNames
from rlx.targets.registry import target_of
from tests.targets.c.programs import program_of


def layer(bits: int = 8, channels: int = 4, size: int = 6, name: str = "layer") -> tuple[Any, dict[str, np.ndarray]]:
    """A convolution with an epilogue, and an input."""
    rng = np.random.default_rng(bits)
    bound = {8: 127, 4: 7, 2: 1}[bits]
    g: Any = rlx.Graph(name)
    x = g.input("image", (1, 3, size, size), "i8")
    w = rng.integers(-bound, bound + 1, (channels, 3, 3, 3)).astype(np.int8)
    sums = g.q_conv2d(x, g.constant(w), g.constant(np.arange(channels, dtype=np.int32)), x_zero_point=5, dtype="i32")
    g.set_outputs({"y": g.rescale(sums, 0.003, zero_point=-128)})
    return g, {"image": rng.integers(-128, 128, (1, 3, size, size)).astype(np.int8)}


def same(graph: Any, inputs: dict[str, np.ndarray], **options: Any) -> None:
    """Check that a session on `c` agrees with the evaluator."""
    got = rlx.Session("c").compile(graph, cache=False, **options).run(inputs)
    for one, other in zip(got, rlx.evaluate(graph, inputs), strict=True):
        assert one.dtype == other.dtype
        assert np.array_equal(one, other)


# --- written files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [8, 4, 2])
def test_weights_are_packed(bits: int) -> None:
    graph, inputs = layer(bits)
    same(graph, inputs)
    table = program_of(graph).tables["layer_y_weights"]
    depth = {8: 28, 4: 28, 2: 32}[bits]
    assert table.size == 4 * depth * bits // 8


def test_packed_weights_are_read_back() -> None:
    rows = np.arange(-8, 8, dtype=np.int8).reshape(2, 8)
    assert [bits_of(r) for r in (rows, rows // 8, rows * 2)] == [4, 2, 8]
    pair = in_pairs(rows[None], 4)[0].astype(int)
    assert np.array_equal(np.stack([pair & 15, pair >> 4])[:, [0, 2, 1, 3, 4, 6, 5, 7]], rows & 15)
    few = rows // 4
    pair = in_pairs(few[None], 2)[0].astype(int)[[0, 2, 1, 3]]
    assert np.array_equal(np.stack([np.r_[pair & 3, pair >> 4 & 3], np.r_[pair >> 2 & 3, pair >> 6]]), few & 3)
    together = joined(rows, 4)
    assert np.array_equal(np.stack([together[0] & 15, together[0] >> 4])[:, :8].astype(int), rows & 15)
    assert in_rows(np.array([[1, 2, 3, 4, 5]], np.int8), exchanged=True).tolist() == [[1, 3, 2, 4, 5, 0, 0, 0]]


def test_the_files_say_what_they_need(tmp_path: Path) -> None:
    (tmp_path / "layer.mlir").write_text(str(layer()[0]))
    out = tmp_path / "out"
    assert rlx_command.main(["compile", str(tmp_path / "layer.mlir"), "--target=cortexm", "-o", str(out)]) == 0
    assert sorted(p.name for p in out.iterdir()) == [
        "RLX.layer.pdsc",
        *(
            "layer.c",
            "layer.cmake",
            "layer.h",
            "layer.md",
            "layer_misra.txt",
            "layer_test.c",
            "layer_weights.c",
            "layer_weights.h",
        ),
    ]
    header, code = (out / "layer.h").read_text(), (out / "layer.c").read_text()
    program = program_of(layer()[0])
    assert f"#define LAYER_ARENA_SIZE {program.arena_size}\n" in header
    assert "void layer_run(layer_state *state, const int8_t image[3 * 6 * 6], int8_t y[4 * 4 * 4]);" in header
    assert "layer.mlir:" in code and "__ARM_FEATURE_DSP" in code
    assert set(re.findall(r"#include <(.*?)>", header + code)) <= {"stdint.h", "string.h", "arm_acle.h"}
    assert "malloc" not in code and "float" not in code
    readme = (out / "layer.md").read_text()
    assert "layer_run(&state, image, y);" in readme and "-mcpu=cortex-m4" in readme


def test_text_of_numbers() -> None:
    assert integer_text(-(2**31), rlx.i32) == "INT32_MIN"
    assert integer_text(-(2**63), rlx.i64) == LEAST_I64
    texts = [float_text(float(np.float32(v))) for v in (0.1, 1.0, 1e30, -2.5, float("inf"), float("nan"))]
    assert texts == ["0.1f", "1.0f", "1e+30f", "-2.5f", "INFINITY", "NAN"]
    limits = np.array([-(2**31), 2**31 - 1, 0], np.int32)
    assert table_of("t", limits, "int32_t", "").body == ["INT32_MIN, 2147483647, 0,"]


def test_names_are_identifiers() -> None:
    assert [identifier(n) for n in ("a b/c", "9", "int", "ünïcode", "*/")] == ["a_b_c", "x_9", "int_", "n_code", "x"]
    names = UniqueNames(identifier)
    assert [names.take(n) for n in ("a", "A", "a", "state")] == ["a", "A_2", "a_3", "state_"]


def test_names_of_users_cannot_leave_comments() -> None:
    g: Any = rlx.Graph("a */ b")
    x = g.input('x" */ int', (3,), "i8")
    g.set_outputs({"*/": g.maximum(x, x)})
    same(g, {'x" */ int': np.array([1, -2, 3], np.int8)})


@pytest.mark.parametrize(
    "name",
    ["c", "i", "sum", "row", "channel", "channels", "saturate_i8", "finish_y", "IN_ARENA", "k", "high", "r0", "state"],
)
def test_names_of_users_do_not_clash(name: str) -> None:
    """Inputs and outputs may have the names of variables, functions and macros of the kernels."""
    rng = np.random.default_rng(3)
    g: Any = rlx.Graph(name)
    x = g.input(name, (1, 3, 5, 5), "i8")
    w = g.constant(rng.integers(-127, 128, (6, 3, 3, 3)).astype(np.int8))
    depthwise = g.constant(rng.integers(-127, 128, (6, 1, 3, 3)).astype(np.int8))
    y = g.rescale(g.q_conv2d(x, w, padding=1, dtype="i32"), 0.002)
    y = g.rescale(g.q_conv2d(y, depthwise, padding=1, groups=6, dtype="i32"), 0.002)
    g.set_outputs({f"{name}_1": y, name.upper(): g.sum(g.cast(y, "i32"), axes=(2, 3)), "y": g.argmax(y, 1)})
    same(g, {name: rng.integers(-128, 128, (1, 3, 5, 5)).astype(np.int8)})


# --- running --------------------------------------------------------------------------------------------------


def test_states_and_parameters() -> None:
    g: Any = rlx.Graph("states")
    x, w = g.input("x", (4,), "i32"), g.param("w", (4,), "i32")
    total, last = g.state("total", (4,), "i32", init=3), g.state("last", (4,), "i32", init=7)
    g.update(total, total + x * w)
    g.update(last, total)  # the old value of another state
    g.set_outputs({"y": total + last})
    values = {"w": np.array([1, -2, 3, 2**31 - 1], np.int32)}
    loaded = rlx.Session("c").compile(g, cache=False)
    loaded.set_params(values)
    expected_total, expected_last = np.full(4, 3, np.int32), np.full(4, 7, np.int32)
    for step in range(3):
        given = np.array([step, 2, -3, 2**30], np.int32)
        (y,) = loaded.run({"x": given})
        assert np.array_equal(y, expected_total + expected_last)
        with np.errstate(over="ignore"):
            expected_total, expected_last = expected_total + given * values["w"], expected_total


def test_floats() -> None:
    rng = np.random.default_rng(0)
    g: Any = rlx.Graph("floats")
    x = g.input("x", (2, 3, 8, 8))
    w = g.constant(rng.normal(size=(4, 3, 3, 3)).astype(np.float32))
    y = g.max_pool(g.relu(g.conv(x, w, padding=1)), 2)
    z = g.softmax(g.reshape(y, (2, -1)) @ g.constant(rng.normal(size=(64, 5)).astype(np.float32)))
    g.set_outputs({"z": z, "best": g.argmax(z, -1), "q": g.cast(z * 100.0, "i8")})
    inputs = {"x": rng.normal(size=(2, 3, 8, 8)).astype(np.float32)}
    got, expected = rlx.Session("c").compile(g, cache=False).run(inputs), rlx.evaluate(g, inputs)
    assert np.allclose(got[0], expected[0], rtol=1e-4, atol=1e-6)
    assert np.array_equal(got[1], expected[1])
    assert np.abs(got[2].astype(int) - expected[2].astype(int)).max() <= 1


@pytest.mark.parametrize("dtype", ["i8", "f32"])
def test_results_with_a_multiplier_in_floats(dtype: str) -> None:
    rng = np.random.default_rng(1)
    g: Any = rlx.Graph("scaled")
    x = g.input("x", (5, 7), "i8")
    w = g.constant(rng.integers(-128, 128, (7, 3)).astype(np.int8))
    zero = {"out_zero_point": 4} if dtype == "i8" else {}
    g.set_outputs(
        [g.q_matmul(x, w, None, rng.uniform(1e-4, 1e-2, 3).astype(np.float32), x_zero_point=9, dtype=dtype, **zero)]
    )
    same(g, {"x": rng.integers(-128, 128, (5, 7)).astype(np.int8)})


def test_results_that_nothing_computes() -> None:
    g: Any = rlx.Graph("as_given")
    x = g.input("x", (2, 3), "i8")
    g.set_outputs({"a": x, "b": g.reshape(x, (6,)), "c": g.constant(np.arange(3, dtype=np.int16)), "d": g.transpose(x)})
    same(g, {"x": np.arange(6, dtype=np.int8).reshape(2, 3)})


def test_one_result_is_given_twice() -> None:
    g: Any = rlx.Graph("twice")
    x = g.input("x", (4,), "i8")
    y = g.maximum(x, g.constant(np.array(2, np.int8)))
    g.set_outputs({"a": y, "b": y, "c": g.reshape(y, (2, 2))})
    same(g, {"x": np.array([-1, 2, 3, 100], np.int8)})


def test_empty_tensors() -> None:
    g: Any = rlx.Graph("empty")
    x = g.input("x", (0, 3), "i8")
    g.set_outputs({"y": g.concat([x, g.constant(np.ones((2, 3), np.int8))]), "z": g.maximum(x, x)})
    same(g, {"x": np.zeros((0, 3), np.int8)})


def test_a_sum_is_not_written_over_what_is_read_later() -> None:
    """The result of a convolution with an epilogue does not share memory with its inputs."""
    rng = np.random.default_rng(2)
    g: Any = rlx.Graph("residual")
    x = g.maximum(g.input("x", (1, 3, 5, 5), "i8"), g.constant(np.array(-100, np.int8)))
    w = g.constant(rng.integers(-3, 4, (3, 3, 1, 1)).astype(np.int8))
    y = g.rescale(g.q_conv2d(x, w, dtype="i32"), 0.2) + x
    g.set_outputs({"y": g.rescale(g.q_conv2d(y, w, dtype="i32"), 0.1) + y})
    same(g, {"x": rng.integers(-128, 128, (1, 3, 5, 5)).astype(np.int8)})


# --- rejected graphs --------------------------------------------------------------------------------------------


def test_ops_that_are_not_claimed_are_all_listed() -> None:
    g: Any = rlx.Graph("sorting")
    x = g.input("x", (4,))
    g.set_outputs([g.cumprod(x, 0), g.cumsum(x, 0)])
    with pytest.raises(UnsupportedError, match=r"2 ops have no lowering for target cortexm \(m4\)") as caught:
        rlx.Pipeline(target="cortexm").compile(g).artifact()
    assert "rlx.cumsum" in str(caught.value) and str(caught.value).count("test_c.py:") == 2


def test_symbols_are_refused() -> None:
    g: Any = rlx.Graph("symbolic")
    g.set_outputs([g.input("x", ("n", 4), "i8") + 1])
    with pytest.raises(UnsupportedError, match="static sizes") as caught:
        rlx.Pipeline(target="cortexm").compile(g).artifact()
    assert "--bind=n=8, bind={'n': 8}" in str(caught.value)


@pytest.mark.parametrize("flag", ["--ram=100", "--flash=100"])
def test_what_does_not_fit_is_not_written(flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "layer.mlir").write_text(str(layer()[0]))
    out, program = tmp_path / "out", program_of(layer()[0])
    arguments = ["compile", str(tmp_path / "layer.mlir"), "--target=cortexm", f"--flag={flag}", "-o", str(out)]
    assert rlx_command.main(arguments) == 1
    needs = program.arena_size if "ram" in flag else program.constant_bytes
    assert f"{needs - 100} more than the 100" in capsys.readouterr().err
    assert not out.exists() or not list(out.iterdir())


def test_flags() -> None:
    chosen = target_of("cortexm", None, ("--part=stm32f746", "--ram=64k"))
    assert isinstance(chosen, targets.Target)
    assert (chosen.arch, chosen.ram, chosen.flash) == ("m7", 64 << 10, 1 << 20)
    for flags, message in (
        (("--part=z80",), "unknown part"),
        (("--ram=lots",), "expected a number of bytes"),
        (("--speed=9",), "has no flag"),
    ):
        with pytest.raises(CompileError, match=message):
            target_of("cortexm", "m4", flags)
    with pytest.raises(CompileError, match="has the core m7, not m4"):
        target_of("cortexm", "m4", ("--part=stm32f746",))
    with pytest.raises(CompileError, match="unknown architecture"):
        target_of("cortexm", "m99")


def test_an_unknown_part_names_options_that_the_command_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "layer.mlir").write_text(str(layer()[0]))
    arguments = ["compile", str(tmp_path / "layer.mlir"), "--target=cortexm", "-o", str(tmp_path / "out")]
    assert rlx_command.main([*arguments, "--part=foo"]) == 1
    hint = capsys.readouterr().err.partition("hint: ")[2]
    options = re.findall(r"--flag=--\w+=\w+", hint)
    assert len(options) == 2
    assert rlx_command.main([*arguments, *options]) == 0
    flags = re.search(r"flags=(\(.*?\))", hint)
    assert flags is not None
    chosen = target_of("cortexm", None, ast.literal_eval(flags[1]))
    assert isinstance(chosen, targets.Target) and (chosen.ram, chosen.flash) == (64 << 10, 512 << 10)


def test_a_missing_compiler_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(toolchain, "zig", lambda: None)
    with pytest.raises(CompileError, match="no C compiler on this machine") as caught:
        rlx.Session("c").compile(layer()[0], cache=False)
    assert "pip install ziglang" in str(caught.value)
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(CompileError, match="no such program"):
        rlx.Session("c").compile(layer()[0], cache=False)


def test_files_for_another_machine_do_not_run_here() -> None:
    artifact = rlx.Pipeline(target="cortexm").compile(layer()[0]).artifact()
    with pytest.raises(rlx.Error, match="a kind of file"):
        rlx.Program(artifact).run(layer()[1])


def test_threads() -> None:
    with pytest.raises(rlx.Error, match="one thread"):
        rlx.Session("c", threads=4).compile(layer()[0], cache=False).run(layer()[1])


def _normalised(g: rlx.Graph, x: rlx.Tensor) -> rlx.Tensor:
    scale, bias, mean, variance = (g.param(name, (3,)) for name in "sbmv")
    y = g.conv(x, g.param("w", (3, 2, 3, 3)))
    return g.batch_norm_inference(y, scale, bias, mean, variance)


@pytest.mark.parametrize(
    ("shape", "build"),
    [
        ((1, 2, 3, 3), lambda g, x: x + g.reshape(g.param("b", (2,)), (2, 1, 1))),
        ((2, 6), lambda g, x: x @ g.reshape(g.param("w", (30,)), (6, 5))),
        ((1, 2, 5, 5), lambda g, x: g.conv(x, g.reshape(g.param("w", (54,)), (3, 2, 3, 3)))),
        ((1, 2, 5, 5), _normalised),
        ((2, 3), lambda g, x: x + g.narrow(g.param("b", (4, 3)), 0, 1, 2)),
        ((6,), lambda g, x: x + g.reshape(g.narrow(g.param("b", (4, 3)), 0, 2, 2), (6,))),
    ],
)
def test_parameters_may_be_seen_in_other_shapes(shape: Any, build: Any) -> None:
    g = rlx.Graph("views")
    g.set_outputs([build(g, g.input("x", shape))])
    random = np.random.default_rng(0)
    values = {a.name: 1 + random.random(a.shape.static, np.float32) for a in g.arguments}
    program = rlx.Session("c").compile(g, params={a.name: values[a.name] for a in g.params})
    np.testing.assert_allclose(program.run({"x": values["x"]})[0], rlx.evaluate(g, values)[0], rtol=1e-5, atol=1e-5)

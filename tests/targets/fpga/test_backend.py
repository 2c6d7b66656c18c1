"""The public interface of the targets `fpga` and `fpga-sim`: supported and rejected graphs, files, options, reports."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.cli import main as command
from rlx.ir.graph.evaluate import collect_arguments, evaluate_function
from rlx.support.errors import ExecutionError
from rlx.targets.compilation import Compilation
from rlx.targets.fpga import backend, synthesis
from rlx.targets.fpga.backend import FpgaProgram, files
from rlx.targets.fpga.drive import Port
from rlx.targets.fpga.flags import PART_NAMES, PRESET_NAMES
from rlx.targets.fpga.lower.names import identifier
from rlx.targets.fpga.lower.product import Product
from rlx.targets.fpga.lower.requantiser import Requantiser
from rlx.targets.fpga.lower.window import WindowLayer
from rlx.targets.fpga.parts import DEFAULT_PART, PARTS
from rlx.targets.fpga.schedule import DEFAULT_PRESET, PRESETS
from rlx.targets.registry import target_of
from tests.drawing import drawn
from tests.packages import needs_package
from tests.quantization.networks import NETWORKS, batches, integer_inputs, integer_network, network
from tests.targets.fpga.integer_graphs import inputs_of
from tests.targets.fpga.models import MODELS, Quantised, tinyconv
from tests.targets.fpga.simulated import Hardware, check, design_of

pytestmark = [needs_package("pycde", "fpga"), needs_package("llvmlite", "fpga")]


def test_names_are_those_of_the_tables() -> None:
    assert set(PART_NAMES) == PARTS.keys() and set(PRESET_NAMES) == PRESETS.keys()
    target: Any = target_of("fpga")
    assert (target.arch, target.preset) == (DEFAULT_PART, DEFAULT_PRESET)


# --- running --------------------------------------------------------------------------------------


@drawn("name", MODELS)
def test_a_session_gives_what_the_evaluator_gives(name: str, seed: int) -> None:
    graph = tinyconv(size=10) if name == "tinyconv" else MODELS[name]()
    program = rlx.Session("fpga-sim").compile(graph, cache=False)
    rng = np.random.default_rng(seed)
    for _ in range(3):
        given = inputs_of(graph, rng)
        for found, wanted in zip(program.run(given), rlx.evaluate(graph, given), strict=True):
            np.testing.assert_array_equal(found, wanted, strict=True)
        (remark,) = program.remarks
        assert remark.endswith(" cycles") and int(remark.split()[0]) > 100


@drawn("name", NETWORKS, of_each=2)
def test_networks_of_the_quantiser(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    integers = integer_network(name)
    lir = Compilation(integers, target_of("fpga-sim")).lir
    # Recurrent networks are unrolled into many small layers.
    monkeypatch.setitem(PARTS, "xc7", replace(PARTS["xc7"], luts=60_000))
    check(lir, [integer_inputs(integers, b) for b in batches(network(name), 2, 99)], part="xc7")


@pytest.mark.parametrize("preset", ["precision", "latency"])
def test_products_of_computed_tensors(preset: str, seed: int) -> None:
    """Extreme zero points, sums that wrap, both orders of the stored matrix, batches and broadcast batches."""
    g: Any = rlx.Graph("products")
    x, y = g.input("x", (2, 1, 4, 6), "i8"), g.input("y", (3, 6, 4), "i8")
    wide = g.cast(y, "i32") * 30_000_000
    a, b = g.reshape(x, (8, 6)), g.reshape(g.transpose(y, (1, 0, 2)), (6, 12))
    outputs = {
        "batch": (g.cast(x, "i32") + 128) @ wide,
        "zeros": g.q_matmul(
            a, b, g.constant(np.arange(12, dtype=np.int32)), x_zero_point=-128, w_zero_point=127, dtype="i32"
        ),
        "own": g.cast(a, "i32") @ g.transpose(g.cast(a, "i32")),
        "narrow": g.matmul(a, b),
    }
    g.set_outputs(outputs)
    rng = np.random.default_rng(seed)
    design = check(g, [inputs_of(g, rng) for _ in range(3)], preset=preset, part="xc7")
    products = [layer for layer in design.network.layers if isinstance(layer, Product)]
    assert len(products) == 4 and {layer.by_columns for layer in products} == {True, False}


def test_clamps_that_do_not_meet() -> None:
    """Random graph 2100091: `min(max(y, 32), -48)` is -48."""
    g: Any = rlx.Graph("clamps")
    y = g.rescale(g.input("x", (40,), "i32"), 0.01)
    outputs = [g.minimum(g.maximum(y, 32), -48), g.maximum(g.minimum(y, -7), 9), g.minimum(g.maximum(y, -20), 30)]
    for i, output in enumerate(outputs):
        g.set_outputs({"y": output})
        check(g, [{"x": np.linspace(-20000, 20000, 40).astype(np.int32) + i}])


@pytest.mark.parametrize("first", ["alone", "output", "reader"])
def test_clamps_of_what_others_read(first: str) -> None:
    """A clamp without effect is another name of a stream. The next clamp must not change the stream for other readers."""
    g: Any = rlx.Graph("names")
    y = g.rescale(g.input("x", (20,), "i32"), 0.01)
    clamped = g.relu(g.maximum(y, -128))
    outputs = {"y": clamped}
    if first != "alone":
        outputs["other"] = y if first == "output" else y - 1
    g.set_outputs(outputs)
    design = check(g, [{"x": np.linspace(-20000, 20000, 20).astype(np.int32)}])
    assert len(design.network.layers) == {"alone": 1, "output": 2, "reader": 3}[first]


@pytest.mark.parametrize("dtype", ["i8", "u8", "i16", "i32"])
def test_bits(dtype: str, seed: int) -> None:
    """Bitwise ops on extreme numbers, and shifts by every count, including counts beyond the width."""
    g: Any = rlx.Graph("bits")
    x, y = g.input("x", (30,), dtype), g.input("y", (30,), dtype)
    kind = x.dtype.numpy
    info = np.iinfo(kind)
    outputs = {k: g.binary(k, x, y) for k in ("and", "or", "xor")}
    outputs |= {f"{k}_{n}": g.binary(k, x, g.constant(np.array(n, kind))) for k in outputs for n in (info.max, 5)}
    outputs["not"] = ~x
    counts = {0, 1, info.bits - 1, info.bits, 127, max(info.min, -1)}
    for shift in ("shift_left", "shift_right"):
        outputs |= {f"{shift}{i}": g.binary(shift, x, g.constant(np.array(n, kind))) for i, n in enumerate(counts)}
    g.set_outputs(outputs)
    rng = np.random.default_rng(seed)
    check(g, [inputs_of(g, rng) for _ in range(2)], part="xc7")


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
def test_constants_beside_what_is_computed(axis: int, seed: int) -> None:
    g: Any = rlx.Graph("beside")
    x, c = g.input("x", (2, 3, 2, 4), "u8"), g.constant(np.arange(48).reshape(2, 3, 2, 4).astype(np.uint8) * 5)
    flag = g.constant(np.array([True, False, True]))
    outputs = {"before": g.concat([c, x], axis=axis), "after": g.concat([x, c, x, c], axis=axis)}
    outputs["bools"] = g.concat([flag, g.input("b", (2,), "bool")], axis=0)
    g.set_outputs(outputs)
    rng = np.random.default_rng(seed)
    check(g, [inputs_of(g, rng) for _ in range(2)], part="xc7")


def test_all_that_has_no_layer_is_listed_at_once() -> None:
    """Unsupported ops, kinds of ops and dtypes are listed with their lines."""
    g: Any = rlx.Graph("many")
    x, f = g.input("x", (4, 4), "i8"), g.input("f", (4,), "f32")
    outputs = [g.cumsum(g.cast(x, "i32"), axis=0), g.popcount(x), g.binary("rem", x, x), g.exp(f), g.prod(x, axes=(0,))]
    g.set_outputs(outputs)
    message = refusal(g)
    for name in ("rlx.cumsum", "rlx.popcount", "binary rem (", "activation exp (", "reduce prod", "input 'f' is f32"):
        (line,) = (line for line in message.splitlines() if name in line)
        assert "test_backend.py:" in line or "input" in line
    assert "integer_only" in message


# --- states ---------------------------------------------------------------------------------------


def recurrent() -> Any:
    """A step of a recurrent network, `h = clamp(h @ w + x @ u)`, with the sum of all inputs so far and the previous input."""
    q = Quantised("recurrent")
    x, h = q.g.input("x", (1, 6), "i8"), q.g.state("h", (1, 5), "i8", init=-7)
    total, before = q.g.state("total", (1, 6), "i32", init=100), q.g.state("before", (1, 6), "i8")
    sums = q.g.q_matmul(x, q.weights(6, 5), q.bias(5), x_zero_point=-3, dtype="i32")
    nxt = q.requantised(sums + q.g.q_matmul(h, q.weights(5, 5), dtype="i32"), (5,), 11, 4)
    q.g.set_outputs({"y": nxt, "sum": total + q.g.cast(x, "i32"), "delta": q.g.maximum(x, before)})
    for state, value in ((h, nxt), (total, total + q.g.cast(x, "i32")), (before, x)):
        q.g.update(state, value)
    return q.g


@pytest.mark.parametrize("preset", ["size", "latency"])
def test_states_of_a_recurrent_step(preset: str, seed: int) -> None:
    graph = recurrent()
    rng = np.random.default_rng(seed)
    tensors = [inputs_of(graph, rng) for _ in range(7)]
    design = check(graph, tensors, preset=preset)
    assert len(design.network.states) == 3
    hardware = Hardware(graph, design)
    each = (hardware.run(tensors).cycles - hardware.run(tensors[:1]).cycles) / 6
    assert each <= design.network.interval <= 1.3 * each + 16
    # A reset restores the initial values.
    for found, wanted in zip(hardware.given(hardware.run(tensors[3:4])), hardware.wanted(tensors[3:4]), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_a_session_keeps_states(seed: int) -> None:
    graph = recurrent()
    program, reference = rlx.Session("fpga-sim").compile(graph, cache=False), graph
    rng = np.random.default_rng(seed)
    states: dict[str, np.ndarray] = {}
    for step in range(4):
        given = inputs_of(graph, rng)
        arrays = collect_arguments(reference, given | states)
        results = evaluate_function(reference.function, arrays, {})
        states = {r.updates: v for r, v in zip(graph.results, results, strict=True) if r.updates is not None}
        for found, wanted in zip(program.run(given), results, strict=False):
            np.testing.assert_array_equal(found, wanted, strict=True)
        for name, value in states.items():
            np.testing.assert_array_equal(program.state(name), value, strict=True)
        if step == 1:
            states["h"] = np.arange(5, dtype=np.int8)[None]
            program.set_state("h", states["h"])
    program.reset_state()
    assert (program.state("h") == -7).all() and (program.state("total") == 100).all()


def test_states_in_files() -> None:
    """A written design has been simulated for several tensors, and its testbench also runs several tensors."""
    content = files(Compilation(recurrent(), target_of("fpga")).artifact())
    assert "state 'total' of 6, first 100" in content["recurrent.md"].decode()
    assert len(content["recurrent_tb_x.mem"].split()) == 3 * 6 and len(content["recurrent_tb_y.mem"].split()) == 3 * 5


# --- options ----------------------------------------------------------------------------------------


def windows(design: Any) -> list[WindowLayer]:
    return [layer for layer in design.network.layers if isinstance(layer, WindowLayer) and layer.is_dense]


@drawn("preset", ["size", "latency", "energy"])
def test_options_change_hardware_and_no_bits(preset: str, seed: int) -> None:
    graph = tinyconv(size=8, bits=2)
    given = [inputs_of(graph, np.random.default_rng(seed)) for _ in range(2)]
    design = check(graph, given, preset=preset, parallel="4", lanes="2", ternary="no")
    assert [(w.parallel, w.lanes, w.ternary) for w in windows(design)] == [(4, 1, False), (4, 2, False), (2, 2, False)]
    options = {"ternary": "yes", "shared-requant": "yes", "clock-enable": "no", "parallel": "2"}
    design = check(graph, given, preset=preset, **options)
    assert all(w.ternary and w.parallel == 2 and not w.clock_enable for w in windows(design))
    assert any(layer.serial for layer in design.network.layers if isinstance(layer, Requantiser))
    design = check(graph, given, preset=preset, **{"shared-requant": "no", "clock-enable": "yes"})
    assert all(w.clock_enable for w in windows(design))
    assert not any(layer.serial for layer in design.network.layers if isinstance(layer, Requantiser))


def test_clock_enable_changes_what_enables_memories() -> None:
    text = {on: design_of(tinyconv(size=8), **{"clock-enable": on}).hardware() for on in ("yes", "no")}
    assert text["yes"] != text["no"] and text["no"] == design_of(tinyconv(size=8)).hardware()
    assert text["yes"] == design_of(tinyconv(size=8), **{"clock-enable": "yes", "lanes": "1"}).hardware()


def test_options_that_no_layer_can_follow() -> None:
    graph = tinyconv(size=8)
    message = refusal(graph, "--ternary=yes")
    assert "'conv1'" not in message and "conv1 (" in message and message.count("8 bits") == 3
    message = refusal(MODELS["autoencoder"](), "--parallel=64", "--lanes=64", "--part=ice40-up5k")
    assert "does not fit ice40-up5k" in message and "a smaller --parallel, a smaller --lanes" in message
    g: Any = rlx.Graph("primes")
    x = g.input("x", (1, 7), "i8")
    g.set_outputs([g.q_matmul(x, g.constant(np.ones((7, 11), np.int8)), dtype="i32")])
    assert "--parallel=8: no layer" in refusal(g, "--parallel=8") and "has 11" in refusal(g, "--parallel=8")
    assert "--lanes=5: no layer" in refusal(g, "--lanes=5") and "has 7" in refusal(g, "--lanes=5")


def test_reports(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.mlir").write_text(str(tinyconv(size=8)))
    words = ["compile", str(tmp_path / "model.mlir"), "--report"]
    for target, hint in (("cpu", "target cpu has no report"), ("fpga-sim", "target fpga-sim has no report")):
        assert command.main([*words, f"--target={target}"]) != 0
        assert hint in capfd.readouterr().err
    assert command.main([*words, "--target=fpga", "--emit=lir"]) != 0
    assert "only a program has a report" in capfd.readouterr().err
    monkeypatch.setattr(synthesis, "is_installed", lambda: False)
    assert command.main([*words, "--target=fpga", "-o", str(tmp_path / "rtl")]) != 0
    assert "rlx[fpga-synthesis]" in capfd.readouterr().err and not (tmp_path / "rtl").exists()
    found = synthesis.Synthesis(1, 2345, 3, 4, 99.5, {})
    monkeypatch.setattr(synthesis, "is_installed", lambda: True)
    monkeypatch.setattr(backend, "synthesise", lambda *_: found)
    assert command.main([*words, "--target=fpga", "--no-cache"]) == 0
    printed = capfd.readouterr().out
    assert "| 2345 |" in printed and "99.5" in printed and "| `conv1` |" in printed and "Simulate" not in printed


# --- files ----------------------------------------------------------------------------------------


def test_files_of_a_design(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model.mlir").write_text(str(tinyconv(size=8)))
    words = ["compile", str(tmp_path / "model.mlir"), "--target=fpga", "--preset=latency", "--freq=60"]
    assert command.main([*words, f"--output={tmp_path / 'rtl'}"]) == 0
    assert "cycles predicted" in capfd.readouterr().out
    found = {p.name for p in (tmp_path / "rtl").iterdir()}
    assert all(name.startswith("tinyconv") for name in found)
    ends = (".sv", ".f", "__conv1.sv", "__conv1__weights.mem", "_tb.sv", ".lpf", ".md")
    assert {f"tinyconv{end}" for end in ends} <= found
    assert "60 MHZ" in (tmp_path / "rtl" / "tinyconv.lpf").read_text()
    readme = (tmp_path / "rtl" / "tinyconv.md").read_text()
    assert "Multipliers are estimated for yosys 0.70" in readme
    assert "| `conv1` | conv 3x3" in readme and "preset `latency`" in readme and "model.mlir:" in readme
    verilog = (tmp_path / "rtl" / "tinyconv__conv1.sv").read_text()
    assert "module tinyconv__conv1(" in verilog and "rows_used" in verilog
    # The command keeps old files of this design and names them in a warning. It ignores files of other designs.
    for name in ("tinyconv__conv9", "other__conv1"):
        (tmp_path / "rtl" / f"{name}.sv").write_text(f"module {name}(); endmodule")
    assert command.main([*words, f"--output={tmp_path / 'rtl'}"]) == 0
    assert "also has files that this program has not: tinyconv__conv9.sv;" in capfd.readouterr().err
    assert (tmp_path / "rtl" / "tinyconv__conv9.sv").exists()


def test_the_report_has_what_was_simulated() -> None:
    artifact = Compilation(tinyconv(size=8), target_of("fpga")).artifact()
    predicted, simulated = artifact.info["predicted_cycles"], artifact.info["simulated_cycles"]
    assert abs(predicted - simulated) <= 0.1 * simulated
    assert f"| {predicted} | {simulated} |" in files(artifact)["tinyconv.md"].decode()


@pytest.mark.parametrize("kind", ["hw", "verilog"])
def test_texts_can_be_had(kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model.mlir").write_text(str(tinyconv(size=8)))
    assert command.main(["compile", str(tmp_path / "model.mlir"), "--target=fpga", f"--emit={kind}"]) == 0
    text = capfd.readouterr().out
    assert ('sym_name = "tinyconv__conv1"' if kind == "hw" else "module tinyconv__conv1(") in text


# --- rejected graphs --------------------------------------------------------------------------------


def refusal(graph: Any, *flags: str) -> str:
    with pytest.raises(rlx.Error) as caught:
        Compilation(graph, target_of("fpga", None, flags)).artifact()
    return str(caught.value)


def test_all_ops_without_layers_are_listed() -> None:
    g: Any = rlx.Graph("unclaimed")
    x = g.input("x", (2, 3), "i8")
    g.set_outputs([g.cumsum(g.cast(x, "i32"), axis=1), g.argsort(x, axis=1)])
    message = refusal(g)
    here = Path(__file__).name
    assert message.count(here) == 2 and "rlx.cumsum" in message and "rlx.argsort" in message


def test_all_uses_without_layers_are_listed() -> None:
    g: Any = rlx.Graph("uses")
    x, w = g.input("x", (1, 2, 3, 3), "i8"), g.input("w", (2, 2, 1, 1), "i8")
    several = g.constant(np.ones((2, 3, 2), np.int8))
    g.set_outputs([g.q_conv2d(x, w, dtype="i32"), g.reduce("prod", g.cast(x, "i32"), axes=(1,)), x @ several])
    message = refusal(g)
    assert message.count(Path(__file__).name) == 3
    assert "w must be a constant" in message and "reduce prod has no layer" in message
    assert "several constant matrices" in message and "concat" in message


def test_floats_params_states_and_symbols() -> None:
    g: Any = rlx.Graph("floats")
    g.set_outputs([g.input("x", (2,)) * 2.0])
    assert "f32" in refusal(g) and "rlx quantize --integer-only" in refusal(g)
    g = rlx.Graph("params")
    g.set_outputs([g.input("x", (2,), "i8") + g.param("w", (2,), "i8")])
    assert "takes no params, and 'params' has w" in refusal(g) and "constants" in refusal(g)
    g = rlx.Graph("symbols")
    g.set_outputs([g.input("x", ("rows", 2), "i8") + 1])
    assert "has the symbols rows" in refusal(g) and "--bind=rows=1" in refusal(g)


def test_a_model_that_does_not_fit_says_by_how_much(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    q = Quantised("large")
    q.g.set_outputs({"y": q.dense(q.g.input("x", (1, 2000), "i8"), 100)})
    message = refusal(q.g)
    assert "'large' does not fit ecp5-25k" in message and "memory blocks" in message
    assert "more than the 56 there are" in message and "xc7" in message
    (tmp_path / "model.mlir").write_text(str(q.g))
    words = ["compile", str(tmp_path / "model.mlir"), "--target=fpga", "--part=ice40-up5k"]
    assert command.main([*words, "-o", str(tmp_path / "rtl")]) != 0
    assert "does not fit ice40-up5k" in capfd.readouterr().err and not (tmp_path / "rtl").exists()


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--preset=latncy", "unknown preset: 'latncy'; did you mean 'latency'"),
        ("--part=ecp5", "unknown part: 'ecp5'"),
        ("--freq=fast", "expected megahertz"),
        ("--freq=0", "expected megahertz"),
        ("--unroll=4", "unknown flag '--unroll=4'"),
        ("--synthesise", "unknown flag"),
        ("--report=yes", "unknown flag"),
        ("--parallel=0", "whole number from 1 to 64"),
        ("--lanes=two", "whole number from 1 to 64"),
        ("--ternary=maybe", "unknown value of --ternary: 'maybe'"),
    ],
)
def test_wrong_flags(flag: str, message: str) -> None:
    with pytest.raises(rlx.CompileError, match=message):
        target_of("fpga", None, (flag,))


def test_names_that_clash() -> None:
    g: Any = rlx.Graph("conv1")
    x = g.input("conv1_out", (1, 1, 3, 3), "i8")
    w = g.constant(np.ones((1, 1, 1, 1), np.int8))
    g.set_outputs({"module": g.q_conv2d(x, w, dtype="i32")})
    check(g, [inputs_of(g, np.random.default_rng(0))])
    g = rlx.Graph("ports")
    x = g.input("a b", (3,), "i8")
    g.set_outputs({"a-b": x + 1})
    design = check(g, [{"a b": np.array([1, -2, 3], np.int8)}])
    assert design.network.ports == ({"a b": "a_b"}, {"a-b": "a_b_2"})
    assert "| `a_b_2` | a-b | out |" in files(Compilation(g, target_of("fpga")).artifact())["ports.md"].decode()
    assert [identifier(name) for name in ("2 x", "a__b", "__")] == ["x2_x", "a_b", "x"]


def test_a_damaged_program_is_refused() -> None:
    artifact = Compilation(tinyconv(size=8), target_of("fpga-sim")).artifact()
    for old, new in ((b'"image"', b'"other"'), (b'"clk"', b'"clock"'), (b'"i8"', b'"u8"')):
        with pytest.raises(rlx.Error):
            FpgaProgram(type(artifact)(**{**artifact.__dict__, "program": artifact.program.replace(old, new)}))


def test_a_design_that_stands_still_is_an_error() -> None:
    g: Any = rlx.Graph("still")
    g.set_outputs({"y": g.input("x", (4,), "i8") + 1})
    hardware = Hardware(g, design_of(g))
    with pytest.raises(ExecutionError, match="stands still"):
        hardware.simulator.run([np.zeros(4)], most_cycles=3)
    assert Port("x", 8, 4).bits == 8

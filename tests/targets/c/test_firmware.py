"""C programs in a firmware: prefixes, arrays filled from real numbers, self-tests, and descriptions for build systems."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.cli import main as rlx_command
from rlx.support.errors import UnsupportedError
from rlx.targets.c import emulate, toolchain
from rlx.targets.c.lower.names import layer_name, program_name
from rlx.targets.c.lower.program import CSource
from rlx.targets.c.lower.selftest import self_test_of
from rlx.targets.c.misra import DEVIATIONS
from rlx.targets.compilation import Compilation
from rlx.targets.options import CompileOptions
from rlx.targets.registry import target_of
from tests.targets.c.graphs import random_graph
from tests.targets.c.programs import program_of
from tests.targets.c.test_c import layer

STRICT = (*toolchain.WARNINGS, "-Werror")


@cache
def network(seed: int = 0) -> Any:
    """A network of integers with two layers, whose input and output have scales, and an index as another output."""
    rng = np.random.default_rng(seed)
    g: Any = rlx.Graph("network")
    x = g.input("image", (1, 2, 6, 6))
    with g.named("stem"):
        h = g.relu(g.conv(x, g.param("w1", (3, 2, 3, 3))) + g.param("b1", (3, 1, 1)))
    with g.named("head"):
        y = g.reshape(h, (1, -1)) @ g.param("w2", (48, 5))
    g.set_outputs({"scores": y, "best": g.argmax(y, -1)})
    params = {a.name: rng.normal(size=a.shape.static).astype(np.float32) for a in g.params}
    batches = [{"image": rng.uniform(-1, 2, (1, 2, 6, 6)).astype(np.float32)} for _ in range(4)]
    ranges = rlx.observe_ranges(g, batches, params=params, device=None, progress=False)
    return rlx.integer_only(g, ranges, params=params)


def files_for(graph: Any, name: str | None = None) -> dict[str, str]:
    """All files of a program, as `rlx compile` writes them."""
    compilation = Compilation(graph, target_of("cortexm"), CompileOptions(name=name))
    files: dict[str, bytes] = compilation.compiler.files(compilation.artifact())  # type: ignore[attr-defined]
    return {file: data.decode() for file, data in files.items()}


def write(folder: Path, *programs: dict[str, str]) -> None:
    for files in programs:
        for name, text in files.items():
            assert not (folder / name).exists(), name
            (folder / name).write_text(text, encoding="utf-8")


MAIN = """
#include "cat.h"
#include "dog.h"
#include <stdio.h>
int main(void)
{
    static cat_state one;
    static dog_state two;
    int8_t image[CAT_IMAGE_SIZE], scores[CAT_SCORES_SIZE];
    int32_t best[1];
    for (int i = 0; i < CAT_IMAGE_SIZE; i++) { image[i] = cat_quantize_image(0.02f * (float)i - 0.5f); }
    cat_run(&one, image, scores, best);
    for (int i = 0; i < CAT_SCORES_SIZE; i++) { printf("%.9g ", (double)cat_dequantize_scores(scores[i])); }
    for (int i = 0; i < DOG_IMAGE_SIZE; i++) { image[i] = dog_quantize_image(0.02f * (float)i - 0.5f); }
    dog_run(&two, image, scores, best);
    for (int i = 0; i < DOG_SCORES_SIZE; i++) { printf("%.9g ", (double)dog_dequantize_scores(scores[i])); }
    return (cat_self_test() == 0 && dog_self_test() == 0) ? 0 : 1;
}
"""


def test_two_networks_in_one_program_from_real_numbers(tmp_path: Path) -> None:
    """Two networks share a folder and a program. Numbers go in and come out through the scales of their headers."""
    graphs = {"cat": network(0), "dog": network(1)}
    write(tmp_path, *(files_for(graph, name) for name, graph in graphs.items()))
    (tmp_path / "main.c").write_text(MAIN)
    sources = sorted(p.name for p in tmp_path.glob("*.c"))
    toolchain.build([*toolchain.compiler(), *STRICT, *sources, "-o", "firmware"], tmp_path)
    run = subprocess.run([tmp_path / "firmware"], capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0
    numbers = (np.float32(0.02) * np.arange(72, dtype=np.float32) - np.float32(0.5)).reshape(1, 2, 6, 6)
    expected = []
    for graph in graphs.values():
        known = rlx.quantizations(graph)
        scores, _ = rlx.evaluate(graph, {"image": known["image"].quantize(numbers)})
        expected += known["scores"].dequantize(scores).reshape(-1).tolist()
    assert [float(text) for text in run.stdout.split()] == pytest.approx(expected, rel=1e-8)


def test_programs_of_one_folder_do_not_warn_of_each_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "network.mlir").write_text(network().text(locations=True))
    for name in ("cat", "cat2"):
        arguments = ["compile", tmp_path / "network.mlir", "--target=cortexm", f"--name={name}", "-o", tmp_path / "out"]
        assert rlx_command.main([str(a) for a in arguments]) == 0
        shown = capsys.readouterr()
        assert "warning" not in shown.err and f"out: {name} for cortexm (m4)" in shown.out
    (tmp_path / "out" / "cat_old.c").write_text("")
    assert rlx_command.main([str(a) for a in [*arguments[:3], "--name=cat", *arguments[4:]]]) == 0
    assert "cat_old.c; remove them" in capsys.readouterr().err
    assert len(list((tmp_path / "out").iterdir())) == 19


def test_functions_of_the_header_round_as_quantizations_do(tmp_path: Path) -> None:
    known = rlx.quantizations(network())
    text = '#include "n.h"\nvoid q(const float *x, int8_t *y, int n);\nvoid q(const float *x, int8_t *y, int n)\n'
    text += "{ for (int i = 0; i < n; i++) { y[i] = n_quantize_image(x[i]); } }\n"
    text += "void d(const int8_t *x, float *y, int n);\nvoid d(const int8_t *x, float *y, int n)\n"
    text += "{ for (int i = 0; i < n; i++) { y[i] = n_dequantize_image(x[i]); } }\n"
    (tmp_path / "library").write_bytes(toolchain.library({**files_for(network(), "n"), "q.c": text}))
    library = ctypes.CDLL(str(tmp_path / "library"))
    scale = np.float32(known["image"].scale)
    steps = np.concatenate(
        [np.arange(-300, 300, 0.25), [0.49999997, -0.49999997, np.inf, -np.inf, np.nan, 3e38, -3e38]]
    )
    with np.errstate(over="ignore"):
        numbers = np.concatenate([steps.astype(np.float32) * scale, np.linspace(-3, 3, 997)]).astype(np.float32)
    integers = np.empty(numbers.size, np.int8)
    library.q(numbers.ctypes.data_as(ctypes.c_void_p), integers.ctypes.data_as(ctypes.c_void_p), numbers.size)
    np.testing.assert_array_equal(integers, known["image"].quantize(numbers))
    every, back = np.arange(-128, 128).astype(np.int8), np.empty(256, np.float32)
    library.d(every.ctypes.data_as(ctypes.c_void_p), back.ctypes.data_as(ctypes.c_void_p), 256)
    np.testing.assert_array_equal(back, known["image"].dequantize(every))


def test_header_and_readme_describe_arrays() -> None:
    files = files_for(network(), "net")
    header, readme = files["net.h"], files["net.md"]
    known = rlx.quantizations(network())
    for name in ("image", "scores"):
        scale, zero = np.float32(known[name].scale), known[name].zero_point
        found = re.search(
            rf"#define NET_{name.upper()}_SCALE (\S+)f\n#define NET_{name.upper()}_ZERO_POINT \((-?\d+)\)", header
        )
        assert found and np.float32(found[1]) == scale and int(found[2]) == zero
        assert re.search(rf"\| `{name}` \| {name} \| (in|out)put \| .* \| {found[1]} \| {zero} \|", readme)
    assert "#define NET_IMAGE_SIZE (2 * 6 * 6)\n#define NET_IMAGE_DIMS {1, 2, 6, 6}" in header
    assert "image: input, i8[1, 2, 6, 6], NCHW" in header and "NET_BEST_SCALE" not in header
    assert '#define NET_OPTIONS "--target=cortexm --arch=m4 -O2"' in header
    assert f'#define NET_RLX_VERSION "{rlx.__version__}"' in header
    assert "image[i] = net_quantize_image(image_numbers[i]);" in readme


def test_files_are_the_same_every_time_and_the_hash_is_of_the_network(tmp_path: Path) -> None:
    written: list[dict[str, bytes]] = []
    for folder in (tmp_path / "one", tmp_path / "two"):
        folder.mkdir()
        (folder / "network.mlir").write_text(str(network()))
        words = ["compile", folder / "network.mlir", "--target=cortexm", "--no-cache", "-o", folder / "out"]
        assert rlx_command.main([str(w) for w in words]) == 0
        written.append({p.name: p.read_bytes() for p in (folder / "out").iterdir()})
    assert written[0] == written[1] and b" network.mlir:" in written[0]["network.c"]
    assert files_for(network(), "a") == files_for(rlx.parse(network().text(locations=True)), "a")
    hashes = {
        (n, s): program_of(rlx.passes.run(network(s), f"rlx-rename{{to={n}}}")).sha256 for n in "ab" for s in (0, 1)
    }
    assert hashes["a", 0] == hashes["b", 0] != hashes["a", 1] == hashes["b", 1]


def test_layers_have_the_names_of_the_model() -> None:
    program = program_of(network())
    assert [f.name for f in program.functions] == ["step_1_stem_conv", "step_2_head_dense", "step_3_argmax"]
    assert "network_stem_conv_weights" in program.tables
    assert [f.group.products for f in program.functions] == [3 * 16 * 18, 48 * 5, 0]
    files = files_for(rlx.parse(network().text(locations=True)))
    assert "/* Layer stem\n" in files["network.c"] and "| `step_2_head_dense` | head |" in files["network.md"]
    assert layer_name("encoder/block.0/" + "x" * 30 + "/query") == "query" and layer_name("*/") == layer_name("") == ""


def test_hostile_names_of_programs() -> None:
    names = {
        "main": "model",
        "": "model",
        "*/": "model",
        "9": "model_9",
        "double": "double",
        "test": "test_model",
        "string": "string_model",
    }
    names |= {
        "a b/c": "a_b_c",
        "../x": "x",
        "MATH": "MATH_model",
        "aux": "aux_model",
        "x" * 99: "x" * 63,
        "net-a.1": "net_a_1",
    }
    assert {name: program_name(name) for name in names} == names


@pytest.mark.parametrize("core", ["m4", "m0"])
def test_the_self_test_runs_in_the_emulator(core: str) -> None:
    pytest.importorskip("unicorn")
    program = program_of(network())
    text = self_test_of(program)
    assert emulate.EmulatedMachine(emulate.build(program, core, self_test=text), program).self_test() == 0
    row = re.search(r"expected_best\[3\]\[1\] = \{\n    \{\d\},\n    \{(\d)\}", text)
    assert row
    wrong = f"{text[: row.start(1)]}7{text[row.end(1) :]}"
    assert emulate.EmulatedMachine(emulate.build(program, core, self_test=wrong), program).self_test() == 202


def run_self_test(graph: Any, folder: Path) -> int:
    """Run the self-test of a graph on this machine; 0 means that it passes."""
    write(folder, files_for(graph, "net"))
    sources = ["net.c", "net_weights.c", "net_test.c"]
    toolchain.build([*toolchain.compiler(), *STRICT, "-DNET_TEST_MAIN", *sources, "-o", "test", "-lm"], folder)
    return subprocess.run([folder / "test"], timeout=60, check=False).returncode


def test_self_tests_with_states_parameters_and_floats(tmp_path: Path) -> None:
    g: Any = rlx.Graph("mixed")
    x, i, w = g.input("call", (2, 3)), g.input("failed", (4,), "i32"), g.param("w", (3, 5))
    total, flags = g.state("total", (2, 5), init=2), g.input("i", (4,), "bool")
    g.update(total, total + x @ w)
    rows = g.gather(g.constant(np.arange(12, dtype=np.int16).reshape(6, 2)), i)
    g.set_outputs({"state": total, "rows": rows, "some": g.where(flags, i, i + 1), "q": g.cast(total * 3.0, "i8")})
    assert run_self_test(g, tmp_path) == 0
    text = (tmp_path / "net_test.c").read_text()
    assert "within 0.0001 of" in text and "net_init(&state);" in text
    broken = (tmp_path / "net.c").read_text().replace("state->total[i] = 2.0f", "state->total[i] = 2.5f")
    (tmp_path / "net.c").write_text(broken)
    for file in ("net.h", "net_weights.h", "net_weights.c", "net_test.c"):
        shutil.copy(tmp_path / file, tmp_path / f"copy_{file}")
    toolchain.build(
        [*toolchain.compiler(), "-DNET_TEST_MAIN", "net.c", "net_weights.c", "net_test.c", "-o", "test", "-lm"],
        tmp_path,
    )
    assert subprocess.run([tmp_path / "test"], timeout=60, check=False).returncode == 1


def test_scales_of_graphs_that_dequantise_their_inputs() -> None:
    g: Any = rlx.Graph("qdq")
    x = g.dequantize(g.input("x", (4,), "i8"), g.constant(np.float32(0.5)), g.constant(np.int32(3)))
    g.set_outputs({"y": g.quantize(g.tanh(x), g.constant(np.float32(1 / 128)), g.constant(np.int32(-1)))})
    header = files_for(g)["qdq.h"]
    assert "#define QDQ_X_SCALE 0.5f\n#define QDQ_X_ZERO_POINT (3)" in header
    assert "#define QDQ_Y_SCALE 0.0078125f\n#define QDQ_Y_ZERO_POINT (-1)" in header


def test_scales_of_all_integers(tmp_path: Path) -> None:
    g: Any = rlx.Graph("wide")
    x, u, h = (g.input(n, (4,), d) for n, d in (("x", "i8"), ("u", "u8"), ("h", "i16")))
    k, b = g.input("k", (2,), "i64"), g.input("b", (2,), "u32")
    g.set_outputs({"y": g.cast(x, "i32") + g.cast(u, "i32") + g.cast(h, "i32"), "z": k + 1, "w": b + 1})
    scales = {
        "x": (0.5, 1),
        "u": (0.25, 200),
        "h": (0.001, -300),
        "k": (0.001, 5),
        "b": (2.0, 2**32 - 1),
        "y": (0.125, 7),
    }
    entries = ", ".join(f"{n} = [{scale!r}, {zero}]" for n, (scale, zero) in scales.items())
    text = str(g).replace('{rlx.name = "w"})', f'{{rlx.name = "w"}}) attributes {{rlx.quantized = {{{entries}}}}}')
    assert run_self_test(rlx.parse(text), tmp_path) == 0
    checks = ["net_quantize_u(-50.25f) == 0", "net_quantize_u(-49.6f) == 2", "net_quantize_h(1.0f) == 700"]
    checks += [
        "net_dequantize_k_(INT64_MIN) < -9e15f",
        "net_dequantize_b(0) == -8589934592.0f",
        "net_dequantize_y(15) == 1.0f",
    ]
    main = f'#include "net.h"\nint main(void) {{ return ({" && ".join(f"({check})" for check in checks)}) ? 0 : 1; }}\n'
    (tmp_path / "main.c").write_text(main)
    toolchain.build([*toolchain.compiler(), *STRICT, "-fsanitize=undefined", "main.c", "-o", "checked"], tmp_path)
    assert subprocess.run([tmp_path / "checked"], timeout=60, check=False).returncode == 0


def test_wrong_scales_are_refused() -> None:
    text = str(network()).replace("rlx.quantized = {image = [", "rlx.quantized = {image = [-")
    with pytest.raises(UnsupportedError, match=r"the scale of 'image' is -.*not a positive number"):
        Compilation(rlx.parse(text), target_of("cortexm")).artifact()
    wrong = re.sub(r"(image = \[[\d.e+-]+), -?\d+\]", r"\1, 300]", str(network()))
    with pytest.raises(UnsupportedError, match="the zero point of 'image' is 300, which i8 does not have"):
        Compilation(rlx.parse(wrong), target_of("cortexm")).artifact()


@pytest.mark.skipif(shutil.which("cmake") is None, reason="needs cmake")
def test_cmake_adds_both_libraries(tmp_path: Path) -> None:
    write(tmp_path, files_for(network(0), "cat"), files_for(network(1), "dog"))
    (tmp_path / "main.c").write_text(MAIN)
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.13)\nproject(firmware C)\ninclude(cat.cmake)\ninclude(dog.cmake)\n"
        "add_executable(firmware main.c)\ntarget_link_libraries(firmware PRIVATE cat_test dog_test)\n"
    )
    for command in (["cmake", "-S", ".", "-B", "build"], ["cmake", "--build", "build"]):
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=120)
    assert (
        subprocess.run([tmp_path / "build" / "firmware"], capture_output=True, timeout=60, check=False).returncode == 0
    )


def test_the_pack_names_files_that_exist() -> None:
    g: Any = rlx.Graph("<a & b>")
    g.set_outputs([g.relu(g.input("x", (3,), "i8"))])
    files = files_for(g)
    root = ET.fromstring(files["RLX.a_b.pdsc"])
    named = [file.attrib["name"] for file in root.iter("file")]
    assert root.tag == "package" and set(named) == set(files) - {
        "a_b_weights.h",
        "a_b.cmake",
        "RLX.a_b.pdsc",
        "a_b_misra.txt",
    }
    assert "The network _a___b_" in [d.text for d in root.iter("description")]


def widest() -> rlx.Graph:
    """The least integer of 64 bits: in a maximum, in a cast of floats, and in a table."""
    g: Any = rlx.Graph("widest")
    x, y = g.input("x", (3, 4), "i64"), g.input("y", (3,))
    table = g.constant(np.array([-(2**63), 0, 2**63 - 1]))
    greatest = g.max(x, 1)
    g.set_outputs([greatest + table, g.reverse(greatest, (0,)), g.cast(y, "i64")])
    return g


@pytest.mark.skipif(shutil.which("cppcheck") is None, reason="needs cppcheck")
@pytest.mark.parametrize(
    "build",
    [network, lambda: random_graph(1000, 6)[0], lambda: layer(4)[0], widest],
    ids=["net", "random", "packed", "widest"],
)
def test_cppcheck_reports_only_the_deviations(build: Any, tmp_path: Path) -> None:
    write(tmp_path, files_for(build(), "net"))
    sources = ["net.c", "net_weights.c", "net_test.c"]
    words = ["cppcheck", "--addon=misra", "--std=c99", "--enable=warning,style,performance,portability", "-q"]
    words += ["--template={file}:{line}: {id}", "--error-exitcode=3", *sources]
    run = partial(subprocess.run, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    clean = run([*words, "--suppressions-list=net_misra.txt"])
    assert clean.returncode == 0, clean.stderr
    rules = set(re.findall(r"misra-c2012-([\d.]+)", run(words).stderr))
    assert {"11.5"} <= rules <= {d.rule for d in DEVIATIONS}  # the addon works, and nothing else is suppressed


@pytest.mark.skipif(shutil.which("cppcheck") is None, reason="needs cppcheck")
def test_cppcheck_reports_only_the_deviations_of_two_networks(tmp_path: Path) -> None:
    """Rules on names of a whole firmware: 5.6 for types, and 5.9 for static functions."""
    for name in ("first", "second"):
        write(tmp_path, files_for(network(), name))
    words = ["cppcheck", "--addon=misra", "--std=c99", "-q", *sorted(p.name for p in tmp_path.glob("*.c"))]
    run = partial(subprocess.run, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    clean = run([*words, *(f"--suppressions-list={name}_misra.txt" for name in ("first", "second"))])
    assert clean.stderr == ""
    assert {"5.6", "5.9"} <= set(re.findall(r"misra-c2012-([\d.]+)", run(words).stderr))


@pytest.mark.skipif(shutil.which("cppcheck") is None, reason="needs cppcheck")
def test_deviations_of_other_files_are_reported(tmp_path: Path) -> None:
    """Files of the firmware whose names or folders contain the name of the network are not its files."""
    folder = tmp_path / "net_project"
    folder.mkdir()
    write(folder, files_for(network(), "net"))
    own = "int shifted(int a);\nint shifted(int a)\n{\n    return a >> 1;\n}\n"
    for name in ("main_net.c", "net_main.c", "internet.c"):
        (folder / name).write_text(own)
        for given in (name, str(folder / name)):
            words = ["cppcheck", "--addon=misra", "--std=c99", "-q", "--suppressions-list=net_misra.txt", given]
            run = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
            assert "misra-c2012-10.1" in run.stderr, (given, run.stderr)
    for given in ("net.c", str(folder / "net.c")):
        words = ["cppcheck", "--addon=misra", "--std=c99", "-q", "--suppressions-list=net_misra.txt", given]
        assert not subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=300, check=False).stderr


def test_deviations_are_documented() -> None:
    page = (Path(__file__).parents[3] / "docs" / "cortexm.md").read_text()
    rows = re.findall(r"^\| ([\d.]+) \| (required|advisory) \| (.+) \|$", page, re.MULTILINE)
    assert rows == [(d.rule, d.category, d.reason) for d in DEVIATIONS]


def test_programs_are_made_from_the_module_alone() -> None:
    """The pass has the scales too: they are an attribute of the function."""
    assert "NETWORK_IMAGE_SCALE" in next(iter(program_text(CSource(rlx.Pipeline(target="c").compile(network()).lir))))


def program_text(program: CSource) -> list[str]:
    from rlx.targets.c.lower.files import files_of

    return list(files_of(program).values())


def test_layers_have_the_names_of_nodes_of_onnx(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    rng = np.random.default_rng(0)
    helper, names = onnx.helper, {"w": (4, 1, 3, 3), "d": (64, 3)}
    weights = [onnx.numpy_helper.from_array(rng.normal(size=s).astype(np.float32), n) for n, s in names.items()]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="/stem/Conv", strides=[2, 2]),
        helper.make_node("Flatten", ["c"], ["f"], name="/head/Flatten"),
        helper.make_node("MatMul", ["f", "d"], ["y"], name="/head/MatMul"),
    ]
    given, made = (
        [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s)] for n, s in (("x", [1, 1, 9, 9]), ("y", [1, 3]))
    )
    graph = helper.make_graph(nodes, "g", given, made, weights)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "own.onnx"
    )
    np.savez(tmp_path / "own.npz", x=rng.random((4, 1, 1, 9, 9), np.float32))
    data, text = tmp_path / "own.npz", tmp_path / "own.mlir"
    assert (
        rlx_command.main(["quantize", str(tmp_path / "own.onnx"), "--integer-only", f"--data={data}", "-o", str(text)])
        == 0
    )
    assert rlx_command.main(["compile", str(text), "--target=cortexm", "--name=own", "-o", str(tmp_path / "own")]) == 0
    code = (tmp_path / "own" / "own.c").read_text()
    assert "STEP void step_1_stem_Conv(" in code and "STEP void step_2_head_MatMul_dense(" in code
    assert "own.onnx:/stem/Conv" in code and str(tmp_path) not in code

"""Back ends of other packages. Each test has separate processes, with packages that have entry points."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import rlx
from tests.installed import install, python

ROOT = Path(__file__).resolve().parents[2]
TOY = ROOT / "examples" / "toy_backend.py"
MODEL = """\
func.func @f(
    %x: tensor<2x4xf32> {rlx.name = "x"}, %w: tensor<4x3xf32> {rlx.kind = "param", rlx.name = "w"}) -> tensor<2x3xf32> {
  %0 = rlx.matmul(%x, %w) : (tensor<2x4xf32>, tensor<4x3xf32>) -> tensor<2x3xf32>
  %1 = rlx.softmax(%0) {axis = 1} : tensor<2x3xf32>
  return %1 : tensor<2x3xf32>
}
"""


def test_the_example_is_short_and_in_the_docs() -> None:
    assert len(TOY.read_text().splitlines()) < 155
    page = (ROOT / "docs" / "backends.md").read_text()
    assert f"```python\n{TOY.read_text()}```" in page


_SESSION = """
import json, pickle
import numpy as np, rlx
g = rlx.Graph("g")
x, total = g.input("x", (2, 4)), g.state("total", (2, 4))
g.update(total, total + x)
h = g.layer_norm(x, g.param("scale", (4,)), g.param("bias", (4,)))
g.set_outputs({"y": g.concat([h, total], 1), "z": g.where(x > 0, g.tanh(x), x)})
rng = np.random.default_rng(0)
arrays = {a.name: rng.normal(size=a.shape.static).astype("f4") for a in g.inputs + g.params}
expected = rlx.evaluate(g, {**arrays, "total": np.zeros((2, 4), "f4")})
for attempt in range(2):
    program = rlx.Session("toy").compile(g, params={n: arrays[n] for n in ("scale", "bias")})
    for got, wanted in zip(program.run({"x": arrays["x"]}), expected):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
    assert ("cached" in program.phases) == bool(attempt)
np.testing.assert_array_equal(program.state("total"), arrays["x"])
device = rlx.Device.of("TOY")
assert device is rlx.Device("toy") is rlx.Session("toy").device is pickle.loads(pickle.dumps(device))
assert (device.value, device.name, repr(device)) == ("toy", "TOY", "<Device.TOY: 'toy'>")
result = rlx.Pipeline("toy").compile(g)
assert result.dispatch.compile_ready and result.memory.arena_size and result.artifact().target == "toy"
for build, message in (
    (lambda g: g.cumsum(g.input("x", (4,)), 0), "no lowering for target toy"),
    (lambda g: g.input("x", (4,), "i32") + 1, "target toy does not support some dtypes"),
    (lambda g: g.gelu(g.input("x", (4,))), "toy has no gelu"),
):
    g = rlx.Graph("g")
    g.set_outputs([build(g)])
    try:
        rlx.Session("toy").compile(g)
    except rlx.UnsupportedError as problem:
        assert message in str(problem), problem
    else:
        raise AssertionError(message)
print("done")
"""

_COMMANDS = """
from rlx.cli import opt
from rlx.cli.main import main
arguments = ["--input=x=2x4xf32=1", "--param=w=4x3xf32=0"]
def call(*words):
    assert main([str(word) for word in words]) == 0, words
call("compile", "m.mlir", "--target=toy", "-o", "m.rlxa")
call("run", "m.rlxa", *arguments)
call("run", "m.mlir", "--device=toy", *arguments)
call("inspect", "m.rlxa")
call("inspect", "m.mlir", "--target=toy", "--stage=lir", "--stats")
call("compile", "m.mlir", "--target=toy", "--emit=json", "-o", "m.json")
call("compile", "m.mlir", "--target=toy", "--emit=lir", "-o", "lir.mlir")
import contextlib, io
with contextlib.redirect_stdout(io.StringIO()) as text:
    call("compile", "m.mlir", "--target=toy", "--dump-pipeline")
assert opt.main(["m.mlir", "--pass-pipeline=" + text.getvalue(), "-o", "opt.mlir"]) == 0
assert open("opt.mlir").read() == open("lir.mlir").read()
call("devices")
from rlx.cli import doctor
doctor._CHECKS = {"back ends": doctor._CHECKS["back ends"]}  # and those of other packages
call("doctor", "--json")
try:
    main(["compile", "--help"])
except SystemExit:
    pass
"""


def test_the_example(tmp_path: Path) -> None:
    install(tmp_path, "toy-backend", "toy_backend", TOY.read_text(), "toy")
    (tmp_path / "m.mlir").write_text(MODEL)
    out = python(tmp_path, _SESSION + _COMMANDS)
    assert out.startswith("done\n")
    assert "m.rlxa: f for toy (numpy), " in out and "\n6 steps\n" in out
    assert out.count("[[0.33333334 0.33333334 0.33333334]") == 2
    assert "@f compiled for toy (numpy)" in out
    assert "@f [lir]: 6 ops: " in out
    assert any(line.split()[:3] == ["toy", "toy", "yes"] for line in out.splitlines())
    assert "toy of toy-backend 1.0: toy" in out
    assert '"what": "device toy",\n  "ok": true,\n  "found": "compiled in ' in out
    assert re.search(r"stablehlo,.* toy\b.* \(default: cpu\)", " ".join(out.split()))  # and other installed targets


_FILES = """

def files(artifact):
    return {"steps.json": artifact.program, "README": b"NumPy runs it"}
"""


def test_a_program_of_several_files(tmp_path: Path) -> None:
    """A target that writes files writes a folder. A device target does too, if only the code is requested."""
    install(tmp_path, "toy-backend", "toy_backend", TOY.read_text() + _FILES, "toy")
    only_files = TOY.read_text().replace('("toy",)', '("paper",)').partition("class ToyProgram:")[0]
    install(tmp_path, "paper-backend", "paper_backend", only_files + _FILES)
    (tmp_path / "m.mlir").write_text(MODEL)
    commands = """
from rlx.cli.main import main
for more in (["--target=toy", "--emit=program", "-o", "toy"], ["--target=paper", "-o", "paper/"],
             ["--target=toy", "-o", "toy.rlxa"], ["--target=paper", "-o", "-"], ["--target=paper", "-o", "m.mlir"],
             ["--target=paper", "-o", "no/where"]):
    print(more[-1], main(["compile", "m.mlir", *more]))
"""
    out = python(tmp_path, commands)
    assert [line for line in out.splitlines() if re.fullmatch(r"\S+ [01]", line)] == [
        *("toy 0", "paper/ 0", "toy.rlxa 0", "- 1", "m.mlir 1", "no/where 1")
    ]
    assert "files: steps.json, README" in out
    for folder in ("toy", "paper"):
        assert sorted(p.name for p in (tmp_path / folder).iterdir()) == ["README", "steps.json"]
    assert (tmp_path / "toy.rlxa").read_bytes().startswith(b"PK") and (tmp_path / "m.mlir").read_text() == MODEL


_BROKEN = """
import logging, sys
import rlx
assert rlx.Session("cpu").target.name == "cpu"
assert not {"absent", "half", "usurper", "twin_a"} & sys.modules.keys()  # nothing was looked for
for name in ("twin", "half", "nothing"):
    try:
        rlx.Session(name)
    except rlx.Error as problem:
        print(problem)
    else:
        raise AssertionError(name)
from rlx.cli.main import main
from rlx.cli import doctor
doctor._CHECKS = {"back ends": doctor._CHECKS["back ends"]}
assert main(["doctor", "--json"]) == 1
assert main(["devices"]) == 0
print("usable:", rlx.Session("good").target.name)
"""


def test_what_is_broken_or_clashes_is_left_out(tmp_path: Path) -> None:
    toy = TOY.read_text()
    install(tmp_path, "absent-backend", "absent", "import no_such_module\n")
    install(tmp_path, "half-backend", "half", "def target_names():\n    return ('half',)\n")
    install(tmp_path, "usurper", "usurper", toy.replace('return ("toy",)', 'return ("cpu",)'))
    for name in ("twin_a", "twin_b"):
        install(tmp_path, name, name, toy.replace('return ("toy",)', 'return ("twin",)'))
    good = toy.replace('"toy"', '"good"') + "\n\ndef devices():\n    raise OSError('the cable is out')\n"
    install(tmp_path, "good-backend", "good", good)
    out = python(tmp_path, _BROKEN)
    assert "unknown device 'twin'; known: cpu, cuda, rocm, vulkan, metal, vmvx, xla, c, fpga-sim, numpy, good" in out
    for line in (
        "back end 'absent' of absent-backend 1.0 is left out: ModuleNotFoundError: No module named 'no_such_module'",
        "back end 'half' of half-backend 1.0 is left out: it has no target, ",
        "back end 'usurper' of usurper 1.0 is left out: back end 'iree' of rlx has a target 'cpu', too",
        "back end 'twin_a' of twin_a 1.0 is left out: back end 'twin_b' of twin_b 1.0 has a target 'twin', too",
        "back end 'twin_b' of twin_b 1.0 is left out: back end 'twin_a' of twin_a 1.0 has a target 'twin', too",
    ):
        assert line in out
    assert '"what": "back ends",\n  "ok": false' in out
    assert "back end 'good' of good-backend 1.0: OSError: the cable is out" in out
    assert "usable: good" in out


@pytest.mark.parametrize("name", ["stablehlo", "StableHLO"])
def test_a_kind_of_file_is_no_device(name: str) -> None:
    with pytest.raises(rlx.Error, match="which is a kind of file"):
        rlx.Session(name)


# By the name of the target: a text of the example, its replacement with a mistake, and the expected error.
_BREACHES = {
    "exits": ("import json\n", "import sys; sys.exit('no licence')\n", "is left out: SystemExit: no licence"),
    "letters": (
        'return ("letters",)',
        'return "letters"',
        "is left out: target_names must return a tuple of names, got ",
    ),
    "noname": ('return ("noname",)', "return None", "is left out: target_names must return a tuple of names, got None"),
    "short": (
        "def target(name: str, arch: str | None = None, ",
        "def target(name: str, ",
        "must be target(name, arch=None, ",
    ),
    "nofusions": (
        "fusions, costs, alternatives = ",
        "fuses, costs, alternatives = ",
        "its target 'nofusions' has no fusions, which every Target has",
    ),
    "nopipe": (
        "    def fingerprint",
        "    pipeline: Any = None\n\n    def fingerprint",
        "pipeline of its target 'nopipe' must be",
    ),
    "lowers": (
        'return ""  # the compiler reads LIR',
        "return None",
        "lowering of its target 'lowers' must return the text of a pipeline, got None",
    ),
    "nolower": (
        "    def lowering(self, level: int) -> str:\n        return",
        "    lowering = 'canonicalize'\n\n    def lowered(self, level: int) -> str:\n        return",
        "lowering of its target 'nolower' must be a function of the level of optimisation, got 'canonicalize'",
    ),
    "mir": (
        "    def fingerprint",
        "    pipeline = 'canonicalize'\n\n    def fingerprint",
        "no rlx-check-lir says what the target takes: canonical",
    ),
    "raw": ("return Compiled(json", "return (json", "compile_program must return a Compiled, got bytes"),
    "info": (
        ").encode())",
        ').encode(), {"speed": 1})',
        "does not fit its info_fields: info: expected no entries but ",
    ),
    "nojson": (").encode())", ").encode(), {1: {2}})", "what it says of a program is not JSON: "),
    "raises": (
        "    lir = compilation.lir\n",
        "    raise KeyError('steps')\n",
        "compile_program raised KeyError: 'steps'",
    ),
    "unloaded": (
        "    return ToyProgram(artifact",
        "    return 1 / 0, (artifact",
        "load raised ZeroDivisionError: division by zero",
    ),
    "fewer": (
        "return [value for value, state in results if",
        "return [0 for _ in () if",
        "returned 0 arrays for 1 outputs",
    ),
    "wider": (
        "(np.array(values[i]),",
        "(np.array(values[i], np.float64),",
        "must return f32[3] for 'output0', got float64[3]",
    ),
    "wrongly": ("(np.array(values[i]),", "(values[i][:2],", "must return f32[3] for 'output0', got float32[2]"),
    "tuple": ("return [value for value, state in results if", "return tuple(v for v, state in results if", ""),
}

_BREACH = """
import logging, sys
import numpy as np, rlx
logging.disable()
for name in sys.argv[1:]:
    g = rlx.Graph("g")
    g.set_outputs([g.tanh(g.input("x", (3,)))])
    try:
        rlx.Session(name).compile(g).run({"x": np.zeros(3, np.float32)})
    except rlx.Error as problem:
        print(name, str(problem).replace("\\n", " "))
    else:
        print(name, "ran")
"""


def test_a_breach_of_the_protocol_is_an_error_that_names_the_back_end(tmp_path: Path) -> None:
    for name, (text, instead, _) in _BREACHES.items():
        source = TOY.read_text().replace('"toy"', f'"{name}"')
        assert source.count(text) == 1, name
        source = source.replace(text, instead)
        if name == "tuple":
            source = source.replace("if state is None]", "if state is None)")
        install(tmp_path, f"{name}-backend", f"{name}_backend", source, name)
    out = python(tmp_path, _BREACH, *_BREACHES)
    said = dict(line.split(" ", 1) for line in out.splitlines())
    for name, (_, _, message) in _BREACHES.items():
        assert f"back end '{name}' of {name}-backend 1.0" in said[name] or name == "mir", said[name]
        assert message in said[name], said[name]


def test_an_alias_is_no_kind_of_file(tmp_path: Path) -> None:
    source = TOY.read_text().replace('return ("toy",)', 'return ("toy", "plaything")')
    source = source.replace(
        "device_names = target_names", 'def device_names() -> tuple[str, ...]:\n    return ("toy",)\n\n'
    )
    install(tmp_path, "toy-backend", "toy_backend", source)
    code = "import rlx\ntry:\n    rlx.Session('plaything')\nexcept rlx.Error as problem:\n    print(problem)"
    said = python(tmp_path, code)
    assert "'plaything' is another name of the target 'toy', and no device" in said
    assert "rlx.Session('toy')" in said

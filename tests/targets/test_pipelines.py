"""All passes are text: `rlx-opt` makes of a module the LIR, and the compiler's input, of `rlx compile`, to the byte."""

from __future__ import annotations

import io
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import mlir
from rlx.cli import main as rlx_command
from rlx.cli import opt
from rlx.ir.op.signature import bodies, find_function
from rlx.passes.check_lir import CheckLir
from rlx.passes.pipeline import PassPipeline
from rlx.targets.artifacts.container import unpack_archive
from rlx.targets.c.to_c import files_in
from rlx.targets.compilation import Compilation
from rlx.targets.options import LEVELS, CompileOptions
from rlx.targets.registry import RLX, backend_of, backends, target_of
from rlx.targets.stages import check_of
from rlx.targets.xla.parts import as_program
from rlx.targets.xla.portable import to_portable
from tests.drawing import drawn
from tests.packages import needs_package

# The targets that come with RLX. Others may be installed as well.
BACKENDS = [backend for backend in backends() if backend.origin == RLX]
TARGETS = list(dict.fromkeys(target_of(name).name for backend in BACKENDS for name in backend.targets))


def encoder() -> Any:
    """A block, which depends on the policy."""

    def build(m: Any) -> Any:
        row, square = (8,), (8, 8)
        shapes = [square, row] * 4 + [row, row, (8, 16), (16,), (16, 8), row, row, row]
        weights = [m.param(f"w{i}", shape) for i, shape in enumerate(shapes)]
        return {"y": m.transformer_encoder_block(m.input("x", (2, 3, 8)), *weights, num_heads=2)}

    return rlx.GraphModule.define("encoder", build)


def gated() -> Any:
    def build(m: Any) -> Any:
        h = m.linear(m.input("x", ("n", 8)), m.param("w", (8, 8)), m.param("b", (8,)), activation="relu")
        return {"y": m.rms_norm(h, m.param("scale", (8,)))}

    return rlx.GraphModule.define("gated", build).with_fusion_policy("fusable")


def counter() -> Any:
    """States, regions, and several dtypes."""
    g: Any = rlx.Graph("counter")
    x, count = g.input("x", (4,)), g.state("count", (4,), "i32")
    g.update(count, count + 1)
    g.set_outputs([g.while_(lambda v: g.max(v) > 0.1, lambda v: v * 0.5, x), g.softmax(g.cast(count, "f32"))])
    return g


def gradient() -> Any:
    g: Any = rlx.Graph("gradient")
    image, kernel = g.input("image", (1, 2, 6, 6)), g.param("kernel", (3, 2, 3, 3))
    g.set_outputs({"loss": g.mean(g.relu(g.conv(image, kernel, padding=1)) ** 2.0)})
    return rlx.grad(g)


def integers() -> Any:
    """A graph for targets without floats."""
    g: Any = rlx.Graph("integers")
    w = g.constant(np.arange(-12, 12, dtype=np.int8).reshape(8, 3))
    total = g.q_matmul(g.input("x", ("n", 8), "i8"), w, x_zero_point=3, dtype="i32")
    g.set_outputs([g.argmax(g.rescale(total, 0.01))])
    return g


MODELS: dict[str, Callable[[], Any]] = {f.__name__: f for f in (encoder, gated, counter, gradient, integers)}
OPTIONS = {
    "plain": [],
    "policy": ["--policy=fusable"],
    "precision": ["--precision=bf16"],
    "passes": ["--passes=builtin.module(rlx-simplify,func.func(canonicalize),rlx-decompose{ops=softmax,rms_norm})"],
    "all": ["--policy=fusable", "--precision=f16", "--passes=rlx-simplify"],
}


def called(command: Callable[[list[str]], int], *words: str) -> tuple[int, str]:
    """The exit code of a command and what it wrote to standard output."""
    with pytest.MonkeyPatch.context() as patch:
        output = io.TextIOWrapper(io.BytesIO())
        patch.setattr("sys.stdout", output)
        patch.setattr("sys.stderr", io.StringIO())
        code = command(list(words))
        output.flush()
        return code, output.buffer.getvalue().decode()  # type: ignore[attr-defined]


# The form of `--emit` that is what the compiler of a target is given, by back end.
INPUTS = {"iree": "linalg", "xla": "stablehlo", "tpu": "stablehlo", "c": "emitc", "fpga": "hw", "evaluator": "lir"}


def same(file: Path, emit: str, *options: str) -> bool:
    """Whether both commands make something, which must be the same; or both must refuse the graph."""
    code, text = called(rlx_command.main, "compile", str(file), *options, f"--emit={emit}", "--dump-pipeline")
    assert code == 0
    compiled = called(rlx_command.main, "compile", str(file), *options, f"--emit={emit}", "-o", "-")
    assert called(opt.main, str(file), f"--pass-pipeline={text}") == compiled
    return compiled[0] == 0


def same_at_all_stages(file: Path, target: str, *options: str) -> bool:
    """The same for LIR and for the input of a target's compiler; whether the target takes the graph."""
    options = (f"--target={target}", *options)
    taken = same(file, "lir", *options)
    name = backend_of(target).name
    if name != "fpga" or find_spec("pycde") is not None:
        # StableHLO has no sizes that are symbols: then both refuse it.
        assert same(file, INPUTS[name], *options) in (
            (True,) if taken and not has_symbols(file, *options) else (True, False)
        )
    return taken


def has_symbols(file: Path, *options: str) -> bool:
    return "#rlx.dims" in file.read_text() and not any(option.startswith("--bind") for option in options)


def has_no_floats(target: str) -> bool:
    return "f32" in check_of(target_of(target).pipeline).unsupported_dtypes


@drawn("target", TARGETS, of_each=5)
@pytest.mark.parametrize("options", OPTIONS)
def test_rlx_opt_makes_what_is_compiled(target: str, options: str, tmp_path: Path) -> None:
    taken = 0
    for name in MODELS if options == "plain" else ("encoder", "counter", "integers"):
        (tmp_path / f"{name}.mlir").write_text(str(MODELS[name]()))
        taken += same_at_all_stages(tmp_path / f"{name}.mlir", target, *OPTIONS[options])
    lacks = check_of(target_of(target).pipeline).unsupported_dtypes
    assert taken or (options in ("precision", "all") and lacks)


@pytest.mark.parametrize("target", TARGETS)
def test_sizes_are_bound(target: str, tmp_path: Path) -> None:
    (tmp_path / "sized.mlir").write_text(str((integers if has_no_floats(target) else gated)()))
    assert same_at_all_stages(tmp_path / "sized.mlir", target, "--bind=n=5")


@pytest.mark.parametrize(
    ("target", "arch"),
    [("cpu", "x86-64"), ("cpu", "aarch64"), ("cuda", "sm_86"), ("rocm", "gfx942"), ("vulkan", "ampere")],
)
def test_architectures_have_pipelines_of_their_own(target: str, arch: str, tmp_path: Path) -> None:
    (tmp_path / "counter.mlir").write_text(str(counter()))
    assert same_at_all_stages(tmp_path / "counter.mlir", target, f"--arch={arch}")
    assert f"target={target} arch={arch}" in target_of(target, arch).pipeline


def test_the_library_uses_the_same() -> None:
    options: dict[str, Any] = {"policy": "fusable", "precision": "bf16", "bind": {"n": 3}, "passes": "rlx-simplify"}
    graph = gated().as_hir
    for name in TARGETS:
        result = rlx.Pipeline(name, **options).compile(graph)
        compilation = Compilation(graph, target_of(name), CompileOptions(**options))
        try:
            expected = str(rlx.passes.run(graph, compilation.passes_to_lir))
        except rlx.UnsupportedError:
            # These have no bf16.
            assert has_no_floats(name) or name in ("vulkan", "metal", "vmvx", "cortexm", "c")
            continue
        assert str(compilation.lir) == str(result.lir) == expected
        assert compilation.lir is compilation.lir and result.lir.stage == "lir"


class _Reached(Exception):
    """Raised with a graph at MIR and at LIR, where fused ops are decomposed again."""


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"policy": "fusable"},
        {"precision": "bf16"},
        {"opt": 0},
        {"fast_math": True},
        {"opt": 0, "policy": "fusable"},
        {"dispatch": "force-common"},
        {"passes": "rlx-lower-blocks,rlx-decompose{ops=rms_norm}"},
        {"bind": {"n": 3}},
    ],
    ids=str,
)
@pytest.mark.parametrize("declared", ["direct", "fusable"])
def test_a_session_takes_a_module_as_its_graph(
    options: dict[str, Any], declared: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For any option and declared policy, sessions and pipelines have the same result for a module and its graph."""

    def reached(compilation: Compilation, **_: Any) -> Any:
        raise _Reached(stages(compilation))

    def stages(compilation: Compilation) -> str:
        return f"{compilation.mir}{compilation.lir}"

    monkeypatch.setattr(Compilation, "artifact", reached)
    module = gated().with_fusion_policy(declared)
    texts = {stages(rlx.Pipeline("cpu", **options).compile(given)) for given in (module, module.as_hir)}
    for given in (module, module.as_hir):
        with pytest.raises(_Reached) as text:
            rlx.Session("cpu").compile(given, **options)
        texts.add(str(text.value))
    assert len(texts) == 1


@pytest.mark.parametrize(
    "options", [["-O0"], ["-O1"], ["-O3"], ["--dispatch=force-common"], ["-O0", "--dispatch=softmax=common"]]
)
@drawn("target", TARGETS, of_each=3)
def test_levels_and_dispatch_are_in_the_text(target: str, options: list[str], tmp_path: Path) -> None:
    taken = []
    for model, bound in ((gradient, []), (integers, ["--bind=n=5"])):
        (tmp_path / "model.mlir").write_text(str(model()))
        taken.append(same_at_all_stages(tmp_path / "model.mlir", target, *options, *bound))
    assert any(taken)


@pytest.mark.parametrize("target", TARGETS)
def test_a_pipeline_checks_what_the_target_claims(target: str) -> None:
    chosen = target_of(target)
    pipeline = PassPipeline.parse(chosen.pipeline)
    assert str(pipeline) == chosen.pipeline
    last = pipeline.steps[-1].ours
    assert isinstance(last, CheckLir)
    assert last == check_of(chosen.pipeline)
    assert last.accepted >= ({"q_matmul", "requantize"} if has_no_floats(target) else {"matmul"})


@pytest.mark.parametrize(
    ("target", "options", "passes"),
    [
        ("xla", ["-O0"], "rlx-outline-weights,rlx-to-stablehlo{entry=main cpu=true}"),
        (
            "xla",
            ["-O1"],
            "rlx-float-products,rlx-kernel-layout,rlx-outline-weights,rlx-to-stablehlo{entry=main cpu=true}",
        ),
        ("stablehlo", [], "rlx-to-stablehlo{shardings=text entry=main}"),
        (
            "cortexm",
            ["--part=nrf52840", "-O1"],
            'rlx-to-c{ram=262144 flash=1048576 made-with="--target=cortexm --arch=m4 -O1 --flag=--ram=262144 '
            '--flag=--flash=1048576"}',
        ),
        ("fpga", ["--part=xc7", "--lanes=4", "--ternary=no"], "rlx-to-hw{part=xc7 lanes=4 ternary=false}"),
        ("fpga-sim", ["--preset=size"], "rlx-to-hw{preset=size simulated=true}"),
    ],
)
def test_the_lowering_has_what_the_target_is_told(target: str, options: list[str], passes: str, tmp_path: Path) -> None:
    (tmp_path / "model.mlir").write_text(str(integers()))
    words = ["compile", str(tmp_path / "model.mlir"), f"--target={target}", *options, "--dump-pipeline"]
    assert called(rlx_command.main, *words)[1].endswith(f",{passes})\n")


@pytest.mark.parametrize("target", TARGETS)
def test_the_text_of_a_lowering_is_that_of_its_passes(target: str) -> None:
    for level in LEVELS:
        lowering = target_of(target).lowering(level)
        assert str(PassPipeline.parse(lowering)) == f"builtin.module({lowering})"


def test_iree_is_given_what_the_text_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Except the hash of the program's description, and that the code of kernels is compiled before."""
    from rlx.targets.iree import backend

    texts = []

    def given(module: mlir.Module, *_: Any, **__: Any) -> Any:
        texts.append(backend.module_text(module))
        raise rlx.CompileError("that is enough")

    monkeypatch.setattr(backend, "take_out_kernels", given)
    compilation = Compilation(gradient(), target_of("cpu"))
    with pytest.raises(rlx.CompileError, match="that is enough"):
        compilation.artifact()
    with mlir.unregistered_dialects_allowed(), mlir.entered():
        module = mlir.ir.Module.parse(texts[0])
        del find_function(module, "gradient").attributes["iree.reflection"]
        assert str(module) == compilation.lowered_text()


@pytest.mark.parametrize("target", ["xla", "stablehlo"])
def test_a_portable_artifact_holds_what_the_text_makes(target: str) -> None:
    compilation = Compilation(gradient(), target_of(target))
    lowered, artifact = compilation.lowered(), compilation.artifact()
    programs = [artifact.program]
    if artifact.info["prepared"]:
        members = unpack_archive(artifact.program, ("main", "weights"))
        programs = [members["weights"], members["main"]]
    functions = bodies(lowered)
    assert len(functions) == len(programs) == (2 if target == "xla" else 1)
    for function, program in zip(functions, programs, strict=True):
        assert to_portable(as_program(lowered, function), artifact.info["stablehlo"]) == program


def test_c_is_the_text_of_the_files_in_the_module() -> None:
    compilation = Compilation(integers(), target_of("cortexm"), CompileOptions(bind={"n": 5}))
    held = files_in(compilation.lowered())
    files = backend_of("cortexm").compiler.files(compilation.artifact())  # type: ignore[attr-defined]
    assert {name: text.encode() for name, text in held.items()} == {n: t for n, t in files.items() if n in held}
    assert [n.removeprefix("integers") for n in held] == [".h", ".c", "_weights.h", "_weights.c"]
    text = backend_of("cortexm").compiler.emit("c", compilation)
    assert text == "\n".join(f"/* ---- {name} ---- */\n{held[name]}" for name in held)


@needs_package("pycde", "fpga")
@pytest.mark.parametrize("target", ["fpga", "fpga-sim"])
def test_circt_makes_the_same_of_the_module_that_is_printed(target: str) -> None:
    from rlx.targets.fpga import process
    from rlx.targets.fpga.backend import lowering_of

    compilation = Compilation(integers(), target_of(target), CompileOptions(bind={"n": 5}))
    to_hw = lowering_of(compilation)
    design = to_hw.design(compilation.lir)
    texts = (compilation.lowered_text(), to_hw.text(design))
    made = [process.simulation(t, design.top) if to_hw.simulated else process.verilog(t) for t in texts]
    assert made[0] == made[1]


def test_hardware_without_circt(monkeypatch: pytest.MonkeyPatch) -> None:
    from rlx.targets.fpga import process

    def missing() -> str:
        raise rlx.CompileError("CIRCT is not installed", hint="pip install 'rlx[fpga]'")

    monkeypatch.setattr(process, "version", missing)
    with pytest.raises(rlx.CompileError, match="rlx-to-hw: CIRCT is not installed") as caught:
        Compilation(integers(), target_of("fpga"), CompileOptions(bind={"n": 5})).lowered()
    assert "pip install 'rlx[fpga]'" in str(caught.value)


def test_these_are_all_targets() -> None:
    assert {name for backend in BACKENDS for name in backend.devices} <= set(TARGETS)
    assert len(TARGETS) == 14

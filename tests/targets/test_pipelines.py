"""A target's pipeline is text: `rlx-opt` converts a module to exactly the LIR that `rlx compile` compiles."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.cli import main as rlx_command
from rlx.cli import opt
from rlx.passes.check_lir import CheckLir
from rlx.passes.pipeline import PassPipeline
from rlx.targets.compilation import Compilation
from rlx.targets.registry import RLX, backends, target_of
from rlx.targets.stages import check_of
from tests.drawing import drawn

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


def same_lir(file: Path, *options: str) -> bool:
    """Whether both commands have the same result. Both must reject a graph that the target does not support."""
    code, text = called(rlx_command.main, "compile", str(file), *options, "--dump-pipeline")
    assert code == 0
    compiled = called(rlx_command.main, "compile", str(file), *options, "--emit=lir", "-o", "-")
    assert called(opt.main, str(file), f"--pass-pipeline={text}") == compiled
    assert compiled[0] or 'rlx.stage = "lir"' in compiled[1]
    return compiled[0] == 0


def has_no_floats(target: str) -> bool:
    return "f32" in check_of(target_of(target).pipeline).unsupported_dtypes


@drawn("target", TARGETS, of_each=5)
@pytest.mark.parametrize("options", OPTIONS)
def test_rlx_opt_makes_what_is_compiled(target: str, options: str, tmp_path: Path) -> None:
    taken = 0
    for name in MODELS if options == "plain" else ("encoder", "counter", "integers"):
        (tmp_path / f"{name}.mlir").write_text(str(MODELS[name]()))
        taken += same_lir(tmp_path / f"{name}.mlir", f"--target={target}", *OPTIONS[options])
    lacks = check_of(target_of(target).pipeline).unsupported_dtypes
    assert taken or (options in ("precision", "all") and lacks)


@pytest.mark.parametrize("target", TARGETS)
def test_sizes_are_bound(target: str, tmp_path: Path) -> None:
    (tmp_path / "sized.mlir").write_text(str((integers if has_no_floats(target) else gated)()))
    assert same_lir(tmp_path / "sized.mlir", f"--target={target}", "--bind=n=5")


@pytest.mark.parametrize(
    ("target", "arch"),
    [("cpu", "x86-64"), ("cpu", "aarch64"), ("cuda", "sm_86"), ("rocm", "gfx942"), ("vulkan", "ampere")],
)
def test_architectures_have_pipelines_of_their_own(target: str, arch: str, tmp_path: Path) -> None:
    (tmp_path / "counter.mlir").write_text(str(counter()))
    assert same_lir(tmp_path / "counter.mlir", f"--target={target}", f"--arch={arch}")
    assert f"target={target} arch={arch}" in target_of(target, arch).pipeline


def test_the_library_uses_the_same() -> None:
    options: dict[str, Any] = {"policy": "fusable", "precision": "bf16", "bind": {"n": 3}, "passes": "rlx-simplify"}
    graph = gated().as_hir
    for name in TARGETS:
        result = rlx.Pipeline(name, **options).compile(graph)
        compilation = Compilation(graph, target_of(name), **options)
        try:
            expected = str(rlx.passes.run(graph, compilation.pipeline_text))
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
@pytest.mark.parametrize("target", ["cpu", "xla"])
def test_levels_and_dispatch_are_in_the_text(target: str, options: list[str], tmp_path: Path) -> None:
    (tmp_path / "gated.mlir").write_text(str(gated()))
    assert same_lir(tmp_path / "gated.mlir", f"--target={target}", *options)


@pytest.mark.parametrize("target", TARGETS)
def test_a_pipeline_checks_what_the_target_claims(target: str) -> None:
    chosen = target_of(target)
    pipeline = PassPipeline.parse(chosen.pipeline)
    assert str(pipeline) == chosen.pipeline
    last = pipeline.steps[-1].ours
    assert isinstance(last, CheckLir)
    assert last == check_of(chosen.pipeline)
    assert last.accepted >= ({"q_matmul", "requantize"} if has_no_floats(target) else {"matmul"})


def test_these_are_all_targets() -> None:
    assert {name for backend in BACKENDS for name in backend.devices} <= set(TARGETS)
    assert len(TARGETS) == 13

"""The quirks in `quirks.py` still exist in IREE. If a test fails, the workaround can be removed."""

from __future__ import annotations

import functools
import platform
import re
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import mlir
from rlx.support.errors import Error
from rlx.targets.iree.compiler import compile_module
from rlx.targets.iree.passes import branches, scatter
from rlx.targets.iree.pipeline import lowering_passes
from rlx.targets.iree.quirks import QUIRKS
from rlx.targets.iree.targets import target
from tests.targets.iree.lapack_calls import lapack_call
from tests.targets.iree.loop_copies import copies_in_loop
from tests.targets.iree.quirk_probes import PROBES, fails, floats, needs, probe, run
from tests.targets.iree.vm_branches import lowered, wrong_branches

_PACKAGE = Path(rlx.__file__).parent


@probe("moved-away")
def _() -> bool:
    def plain(block: Any, target: Any, values: Any) -> None:
        with mlir.ir.InsertionPoint(block):
            mlir.dialect("cf").BranchOp(list(values), target)

    graph: Any = rlx.Graph("main")
    graph.set_outputs(graph.svd(graph.input("x", (4, 3)))[1])
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(branches, "_branch", plain)
        return bool(wrong_branches(compile_module(lowered(graph), target("cpu"), timeout_s=60).vmfb, Path(folder)))


@probe("carries-copied")
def _() -> bool:
    return copies_in_loop("rlx-iree-argument-affinity") > copies_in_loop(None)


@probe("many-bindings")
def _() -> bool:
    inputs = {f"x{i}": (floats(3), (3,)) for i in range(40)}
    return needs("rlx-iree-bindings", lambda g, *xs: [functools.reduce(g.add, xs)], **inputs)


@probe("scf-outside-kernels")
def _() -> bool:
    def build(g: Any, xs: Any, w: Any) -> list[Any]:
        def step(carry: Any, row: Any) -> Any:
            a, e = g.if_(g.sum(row) > 0.0, lambda a, e: (g.matmul(a, w), e), lambda a, e: (e, g.tanh(a)), *carry)
            return (a, e), a + e

        zeros = g.expand(g.constant(0.0), xs.shape.dims[1:])
        carries, stack = g.scan(step, (zeros, g.matmul(xs[0], w)), xs)
        return [*carries, stack]

    return needs("rlx-iree-branches", build, xs=(floats(5, 4, 4), ("steps", "batch", 4)), w=(floats(4, 4), (4, 4)))


@probe("kernels-overtaken")
def _() -> bool:
    graph: Any = rlx.Graph("main")
    outputs = []
    for i in range(3):
        s, x = graph.state(f"s{i}", (3,), "i32"), graph.input(f"x{i}", (3,), "i32")
        outputs.append(s + x)
        graph.update(s, s + 1)
    graph.set_outputs(outputs)
    text, arrays = lowered(graph), [np.arange(3, dtype=np.int32)] * 3
    unordered = re.sub(r'stream\.partitioning = #stream\.partitioning_config<"debug">', "", text)
    assert unordered != text
    return any((y != x).any() for y, x in zip(run(unordered, *arrays), arrays, strict=True))


@probe("tables-of-constants")
def _() -> bool:
    scatter = """"iree_linalg_ext.scatter"(%u, %{i}, %t) ({{
      ^bb0(%a: f32, %b: f32):
        %s = arith.addf %b, %a : f32
        "iree_linalg_ext.yield"(%s) : (f32) -> ()
      }}) {{dimension_map = array<i64: 0>, unique_indices = false}}
      : (tensor<2x3xf32>, tensor<2x1xi32>, tensor<5x3xf32>) -> tensor<5x3xf32>"""
    text = f"""#xy = affine_map<(a, b) -> (a, b)>
    func.func @main(%u: tensor<2x3xf32>, %i: tensor<2x1xi32>, %j: tensor<2x1xi32>) -> (tensor<5x3xf32>, tensor<5x3xf32>) {{
      %c = arith.constant dense<1.0> : tensor<5x3xf16>
      %e = tensor.empty() : tensor<5x3xf32>
      %t = linalg.generic {{indexing_maps = [#xy, #xy], iterator_types = ["parallel", "parallel"]}}
          ins(%c : tensor<5x3xf16>) outs(%e : tensor<5x3xf32>) {{
      ^bb0(%a: f16, %o: f32):
        %w = arith.extf %a : f16 to f32
        linalg.yield %w : f32
      }} -> tensor<5x3xf32>
      %x = {scatter.format(i="i")}
      %y = {scatter.format(i="j")}
      return %x, %y : tensor<5x3xf32>, tensor<5x3xf32>
    }}"""
    u, i, j = np.ones((2, 3), np.float32), np.array([[0], [1]], np.int32), np.array([[2], [3]], np.int32)
    x, y = run(text, u, i, j)
    return not (np.array_equal(x[:, 0], [2, 2, 1, 1, 1]) and np.array_equal(y[:, 0], [1, 1, 2, 2, 1]))


@probe("half-numbers")
def _() -> bool:
    text = """util.global private mutable @s : tensor<4xbf16>
    util.initializer {
      %one = arith.constant 1.0 : bf16
      %hidden = util.optimization_barrier %one : bf16
      %ones = flow.tensor.splat %hidden : tensor<4xbf16>
      util.global.store %ones, @s : tensor<4xbf16>
      util.return
    }
    func.func @main() -> tensor<4xbf16> {
      %s = util.global.load @s : tensor<4xbf16>
      return %s : tensor<4xbf16>
    }"""
    return fails(text)


@probe("arguments-overwritten")
def _() -> bool:
    text = """func.func @main(%c: tensor<8x4xf32>, %k: tensor<1x4xf32>) -> (tensor<8x4xf32>, tensor<8x4xf32>) {
      %y = tensor.insert_slice %k into %c[2, 0] [1, 4] [1, 1] : tensor<1x4xf32> into tensor<8x4xf32>
      return %c, %y : tensor<8x4xf32>, tensor<8x4xf32>
    }"""
    return bool(run(text, np.zeros((8, 4), np.float32), np.ones((1, 4), np.float32))[0].any())


@probe("returned-tables")
def _() -> bool:
    text = """func.func @main(%t: tensor<5x3xf32>, %u: tensor<2x3xf32>, %i: tensor<2x1xi32>)
        -> (tensor<5x3xf32>, tensor<5x3xf32>) {
      %0 = "iree_linalg_ext.scatter"(%u, %i, %t) ({
      ^bb0(%a: f32, %b: f32):
        %s = arith.addf %b, %a : f32
        "iree_linalg_ext.yield"(%s) : (f32) -> ()
      }) {dimension_map = array<i64: 0>, unique_indices = false}
        : (tensor<2x3xf32>, tensor<2x1xi32>, tensor<5x3xf32>) -> tensor<5x3xf32>
      return %t, %0 : tensor<5x3xf32>, tensor<5x3xf32>
    }"""
    places = np.array([[1], [3]], np.int32)
    return bool(run(text, np.zeros((5, 3), np.float32), np.ones((2, 3), np.float32), places)[0].any())


@probe("scattered-gathers")
def _() -> bool:
    g: Any = rlx.Graph("main")
    x, i = g.input("x", ((n := 90_000),), "f64"), g.input("i", (n,), "i32")
    g.set_outputs([g.scatter_add(g.gather(x, i), i, size=n)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scatter, "_own_rows", lambda rows: rows)
        return fails(lowered(g), np.zeros(n), np.zeros(n, np.int32))


@probe("complex-tiles")
def _() -> bool:
    x, w = floats(5, 40), floats(40, 17)
    return needs("rlx-iree-materialise", lambda g, x, w: [g.complex(x @ w, 1.0)], x=(x, x.shape), w=(w, w.shape))


@probe("splats-reduced")
def _() -> bool:  # more elements than rlx-constant-fold evaluates
    return needs("rlx-iree-splats", lambda g, x: [x / g.sum(g.full((7000, 10), 2.0), 1)[0]], x=(floats(4), (4,)))


@probe("two-positions")
def _() -> bool:
    build = lambda g, x: [g.expand_dims(s := g.sum(x, axes=0), 0) + g.expand_dims(s, 1)]  # noqa: E731
    return needs("rlx-iree-materialise", build, x=(floats(4, 4), (4, 4)))


@probe("thin-slices")
def _() -> bool:
    return needs("rlx-iree-materialise", lambda g, x: [g.reverse(x[:, ::2], (1,))], x=(floats(8, 8), (8, 8)))


@probe("batched-rows")
def _() -> bool:
    def build(g: Any, x: Any, y: Any) -> list[Any]:
        return [g.reshape(g.transpose(x, (1, 0)), (2, 3, 128)) @ y]

    return needs("rlx-iree-materialise", build, x=(floats(128, 6), (128, 6)), y=(floats(2, 128, 33), (2, 128, 33)))


@probe("several-elements")
def _() -> bool:
    graph: Any = rlx.Graph("main")
    x = graph.cast(graph.input("x", (2, 2), "f16"), "f32")
    difference = x[:, 0] - x[:, 1]
    graph.set_outputs([graph.iota((2,), 0, dtype="f32") * difference[0] + difference[1]])
    assert "rlx-iree-materialise" in lowering_passes(target("cpu")).split(",")
    try:
        compile_module(lowered(graph, "rlx-iree-materialise"), replace(target("cpu"), ladder=[()]), timeout_s=8)
    except Error:
        return True
    return False


@probe("sums-of-products")
def _() -> bool:
    text = """#xyz = affine_map<(a, b, c) -> (a, b, c)>
    func.func @main(%x: tensor<5x6x7xf32>, %w: tensor<7xf32>) -> tensor<5xf32> {
      %zero = arith.constant 0.0 : f32
      %e = tensor.empty() : tensor<5x6x7xf32>
      %products = linalg.generic {indexing_maps = [#xyz, affine_map<(a, b, c) -> (c)>, #xyz],
          iterator_types = ["parallel", "parallel", "parallel"]}
          ins(%x, %w : tensor<5x6x7xf32>, tensor<7xf32>) outs(%e : tensor<5x6x7xf32>) {
      ^bb0(%a: f32, %b: f32, %o: f32):
        %m = arith.mulf %a, %b : f32
        linalg.yield %m : f32
      } -> tensor<5x6x7xf32>
      %f = tensor.empty() : tensor<5xf32>
      %start = linalg.fill ins(%zero : f32) outs(%f : tensor<5xf32>) -> tensor<5xf32>
      %sums = linalg.generic {indexing_maps = [#xyz, affine_map<(a, b, c) -> (a)>],
          iterator_types = ["parallel", "reduction", "reduction"]}
          ins(%products : tensor<5x6x7xf32>) outs(%start : tensor<5xf32>) {
      ^bb0(%a: f32, %o: f32):
        %s = arith.addf %a, %o : f32
        linalg.yield %s : f32
      } -> tensor<5xf32>
      return %sums : tensor<5xf32>
    }"""
    return fails(text, floats(5, 6, 7), floats(7))


@probe("complex-padding")
def _() -> bool:
    text = """func.func @main(%x: tensor<3xcomplex<f32>>) -> tensor<5xcomplex<f32>> {
      %zero = complex.constant [0.0 : f32, 0.0 : f32] : complex<f32>
      %y = tensor.pad %x low[1] high[1] {
      ^bb0(%i: index):
        tensor.yield %zero : complex<f32>
      } : tensor<3xcomplex<f32>> to tensor<5xcomplex<f32>>
      return %y : tensor<5xcomplex<f32>>
    }"""
    return fails(text, np.ones(3, np.complex64))


@probe("empty-contraction")
def _() -> bool:
    text = """func.func @main(%x: tensor<3x0xf32>, %w: tensor<0x4xf32>) -> tensor<3x4xf32> {
      %zero = arith.constant 0.0 : f32
      %e = tensor.empty() : tensor<3x4xf32>
      %start = linalg.fill ins(%zero : f32) outs(%e : tensor<3x4xf32>) -> tensor<3x4xf32>
      %y = linalg.matmul ins(%x, %w : tensor<3x0xf32>, tensor<0x4xf32>) outs(%start : tensor<3x4xf32>) -> tensor<3x4xf32>
      return %y : tensor<3x4xf32>
    }"""
    return fails(text, floats(3, 0), floats(0, 4))


@probe("library-functions")
def _() -> bool:
    text = """func.func @main(%x: tensor<4xf64>) -> tensor<4xf64> {
      %y = math.tanh %x : tensor<4xf64>
      return %y : tensor<4xf64>
    }"""
    return fails(text, np.ones(4))


def _skip_unless_x86() -> None:
    if platform.machine() != "x86_64":
        pytest.skip("of x86-64 without some of its instructions")


@probe("small-halves")
def _() -> bool:
    _skip_unless_x86()
    text = """func.func @main(%x: tensor<4xf32>) -> tensor<4xf16> {
      %y = arith.truncf %x : tensor<4xf32> to tensor<4xf16>
      return %y : tensor<4xf16>
    }"""
    return not run(text, np.full(4, 3e-6, np.float32), arch="x86-64-v2")[0].any()


@probe("dropped-rounding")
def _() -> bool:
    text = """#i = affine_map<(i) -> (i)>
    func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
      %e = tensor.empty() : tensor<4xf32>
      %y = linalg.generic {indexing_maps = [#i, #i], iterator_types = ["parallel"]}
          ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) {
      ^bb0(%a: f32, %o: f32):
        %r = arith.truncf %a : f32 to bf16
        %w = arith.extf %r : bf16 to f32
        linalg.yield %w : f32
      } -> tensor<4xf32>
      return %y : tensor<4xf32>
    }"""
    return bool((run(text, np.full(4, 1.001, np.float32))[0] != 1).any())


@probe("indirect-calls")
def _() -> bool:
    return fails(lapack_call())


@probe("sums-in-order")
def _() -> bool:
    text = """func.func @main(%x: tensor<1000000xf32>) -> tensor<f32> {
      %c = arith.constant 0.0 : f32
      %e = tensor.empty() : tensor<f32>
      %z = linalg.fill ins(%c : f32) outs(%e : tensor<f32>) -> tensor<f32>
      %s = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> ()>], iterator_types = ["reduction"]}
          ins(%x : tensor<1000000xf32>) outs(%z : tensor<f32>) {
      ^bb0(%a: f32, %o: f32):
        %t = arith.addf %o, %a : f32
        linalg.yield %t : f32
      } -> tensor<f32>
      return %s : tensor<f32>
    }"""
    return abs(float(run(text, np.full(1_000_000, 0.1, np.float32))[0]) - 100_000) > 100


@probe("contracted-products")
def _() -> bool:
    _skip_unless_x86()
    x = floats(64)
    text = """#i = affine_map<(i) -> (i)>
    func.func @main(%x: tensor<64xf32>, %y: tensor<64xf32>) -> tensor<64xf32> {
      %e = tensor.empty() : tensor<64xf32>
      %z = linalg.generic {indexing_maps = [#i, #i, #i], iterator_types = ["parallel"]}
          ins(%x, %y : tensor<64xf32>, tensor<64xf32>) outs(%e : tensor<64xf32>) {
      ^bb0(%a: f32, %b: f32, %o: f32):
        %m = arith.mulf %a, %a : f32
        %s = arith.subf %m, %b : f32
        linalg.yield %s : f32
      } -> tensor<64xf32>
      return %z : tensor<64xf32>
    }"""
    return bool(run(text, x, x * x, arch="x86-64-v3")[0].any())


@probe("unfused-fma")
def _() -> bool:
    _skip_unless_x86()
    text = """func.func @main(%x: tensor<4xf64>, %z: tensor<4xf64>) -> tensor<4xf64> {
      %y = math.fma %x, %x, %z : tensor<4xf64>
      return %y : tensor<4xf64>
    }"""
    x = np.full(4, 1 + 2.0**-30)
    return not run(text, x, -(x * x), arch="x86-64-v2")[0].any()


@probe("wide-elements")
def _() -> bool:
    return fails("""func.func @main() -> tensor<2xcomplex<f64>> {
      %c = arith.constant dense<[(1.0, 2.0), (3.0, 4.0)]> : tensor<2xcomplex<f64>>
      return %c : tensor<2xcomplex<f64>>
    }""")


@probe("nearest-integers")
def _() -> bool:
    text = """#i = affine_map<(i) -> (i)>
    func.func @main(%x: tensor<4xf32>) -> tensor<4xi32> {
      %e = tensor.empty() : tensor<4xi32>
      %z = linalg.generic {indexing_maps = [#i, #i], iterator_types = ["parallel"]}
          ins(%x : tensor<4xf32>) outs(%e : tensor<4xi32>) {
      ^bb0(%a: f32, %o: i32):
        %s = arith.fptosi %a : f32 to i32
        linalg.yield %s : i32
      } -> tensor<4xi32>
      return %z : tensor<4xi32>
    }"""
    return run(text, np.full(4, 2.75, np.float32), name="vmvx")[0].tolist() != [2] * 4


@probe("wide-registers")
def _() -> bool:
    text = """#i = affine_map<(i) -> (i)>
    func.func @main(%x: tensor<4xi8>) -> tensor<4xi8> {
      %c = arith.constant 1 : i8
      %e = tensor.empty() : tensor<4xi8>
      %z = linalg.generic {indexing_maps = [#i, #i], iterator_types = ["parallel"]}
          ins(%x : tensor<4xi8>) outs(%e : tensor<4xi8>) {
      ^bb0(%a: i8, %o: i8):
        %s = arith.shrui %a, %c : i8
        linalg.yield %s : i8
      } -> tensor<4xi8>
      return %z : tensor<4xi8>
    }"""
    return run(text, np.full(4, -2, np.int8), name="vmvx")[0].tolist() != [127] * 4


@pytest.mark.parametrize("name", PROBES)
def test_quirk(name: str) -> None:
    (quirk,) = [q for q in QUIRKS if q.name == name]
    assert PROBES[name](), f"quirk {name} is gone: remove its workaround from {', '.join(quirk.where)}, and its entry"


def test_the_register_is_complete() -> None:
    """Every quirk has a test or a reason for having none. The files that work around it exist, and those for IREE name it."""
    names = [q.name for q in QUIRKS]
    assert len(set(names)) == len(names)
    assert {q.name for q in QUIRKS if q.not_shown is None} == set(PROBES)
    assert [path for q in QUIRKS for path in q.where if not (_PACKAGE / path).is_file()] == []
    for quirk in QUIRKS:
        for path in quirk.where:
            if path.startswith("targets/iree/"):  # the common lowering does not name compilers
                assert f"`{quirk.name}`" in (_PACKAGE / path).read_text(encoding="utf-8"), f"{path}: {quirk.name}"


def test_the_common_lowering_speaks_of_no_compiler() -> None:
    words = re.compile(r"iree|\b(util|flow|hal)\.", re.IGNORECASE)
    files = (_PACKAGE / "lower").rglob("*.py")
    assert [str(f) for f in files if words.search(f.read_text(encoding="utf-8"))] == []

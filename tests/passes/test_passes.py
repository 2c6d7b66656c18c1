"""The passes: properties that `tests/filecheck/passes` cannot express in text, and every op through each pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir.op import registry
from rlx.passes import CheckNumerics, base
from rlx.passes.checking.numerics import Comparison
from rlx.passes.levels import to_mir
from rlx.passes.pipeline import PassPipeline
from rlx.passes.rewrite import collect, erase_dead
from rlx.targets.options import LEVELS
from tests.conformance.cases import Case, cases, composite_groups, op_names
from tests.drawing import drawn, of_which
from tests.growth import check_linear

# f32 first. Ops that do not take it are tried in a dtype that they take.
_PREFERRED = ("f32", "i32", "bool", "c64")


def samples(op: str) -> Iterator[Case]:
    """Yield one case of each sample of an op."""
    chosen: dict[int, Case] = {}
    for case in cases(op):
        best = chosen.get(case.index)
        if best is None or (case.dtype in _PREFERRED and best.dtype not in _PREFERRED):
            chosen[case.index] = case
    yield from chosen.values()


def test_ops_that_read_dead_ops_twice_go_with_them() -> None:
    g = rlx.Graph()
    x = g.input("x", (3,))
    y = x
    for _ in range(200):
        y = g.sin(y)
        y = y * y
    g.set_outputs([x])
    erase_dead([y.value.owner.operation] * 2)
    assert len(g.function.entry_block.operations) == 1


def refuse_note(text: str) -> None:
    # Functions with foreign ops have no symbols to try; every case here has a value.
    pytest.fail(f"check-numerics did not check: {text}")


def offsets(case: Case, graph: rlx.Graph) -> dict[str, np.ndarray]:
    """Return ascending arrays for the arguments that must be ascending."""
    pairs = zip(case.operands, graph.arguments, strict=False)
    ascending = [argument for operand, argument in pairs if operand.ascending]
    sizes = {a.name: a.shape.dims[0] if isinstance(a.shape.dims[0], int) else 3 for a in ascending}
    return {a.name: (np.arange(sizes[a.name]) * 2).astype(a.shape.dtype.numpy) for a in ascending}


def test_up_to_level_1_nothing_is_rounded_otherwise() -> None:
    steps = {level: [step.name for step in PassPipeline.parse(to_mir(level)).steps] for level in LEVELS}
    assert steps[0] == ["rlx-lower-blocks", "rlx-decompose", "rlx-fuse"]
    added = [step for step in steps[1] if step not in steps[0]]
    assert added and all(base.find(step).exact for step in added if step.startswith("rlx-"))  # type: ignore[union-attr]
    assert set(steps[2]) - set(steps[1]) == {"rlx-recognize"} and steps[2] == steps[3]


@pytest.mark.parametrize("op", op_names())
@drawn("half", [0, 1], ids="half{}".format)
@of_which("op", groups=composite_groups())
def test_an_op_keeps_its_meaning_in_every_pass(op: str, half: int) -> None:
    pipeline = "rlx-lower-blocks,rlx-fuse,rlx-decompose,rlx-simplify,rlx-constant-fold,canonicalize,cse,"
    pipeline += "rlx-recognize,rlx-fuse,rlx-fuse-elementwise-regions,rlx-unfuse{recognised=true},rlx-decompose"
    chosen = list(samples(op))
    for case in chosen[half % len(chosen) :: 2]:
        graph = case.graph()
        check = CheckNumerics(case.index, refuse_note, Comparison(given=offsets(case, graph)))
        result = rlx.passes.run(graph, pipeline, instruments=[check])
        left = [o.name for o in collect(result.module) if registry.card(o.name).composite]
        assert left == [], str(case)
        assert result.stage == "mir"


def test_fused_blocks_have_the_value_of_primitives() -> None:
    for op in (name for name, spec in registry.SPECS.items() if spec.stage == "hir"):
        graph = next(samples(op)).graph()
        direct, fusable = (rlx.passes.run(graph, p) for p in ("rlx-lower-blocks,rlx-fuse", "rlx-lower-blocks"))
        random = np.random.default_rng(0)
        values = {a.name: random.uniform(-1, 1, a.shape.static).astype(a.shape.dtype.numpy) for a in graph.arguments}
        for a, b in zip(rlx.evaluate(direct, values), rlx.evaluate(fusable, values), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_a_module_may_declare_that_it_is_not_fused() -> None:
    module = rlx.GraphModule.hir("m")
    x, w, bias = module.input("x", (2, 3)), module.param("w", (3, 4)), module.param("b", (4,))
    module.set_outputs([module.linear(x, w, bias)])
    fused = rlx.passes.run(module, "rlx-lower-blocks,rlx-fuse")
    left = rlx.passes.run(module.with_fusion_policy("fusable"), "rlx-lower-blocks,rlx-fuse")
    assert [o.name for o in collect(fused.module)] == ["rlx.fused_matmul_bias_act"]
    assert [o.name for o in collect(left.module)] == ["rlx.matmul", "rlx.binary"]
    assert "fusion_policy" not in str(rlx.Pipeline().compile(module).lir)


def test_decomposed_ops_carry_the_users_line_and_what_made_them() -> None:
    g: Any = rlx.Graph("f")
    with g.named("head"):
        y = g.softmax(g.input("x", (2, 3)))  # this line
    g.set_outputs([y])
    result = rlx.passes.run(g, "rlx-decompose")
    for op in collect(result.module):
        assert "test_passes.py" in str(op.location)
        assert '"softmax"("head"(' in str(op.location)


def test_simplify_keeps_what_a_nan_or_an_infinity_would_show() -> None:
    g: Any = rlx.Graph("f")
    x = g.input("x", (3,))
    g.set_outputs([x * 0.0, x - x, x / x, g.pow(x, 0.0)])
    result = rlx.passes.run(g, "rlx-simplify")
    values = {"x": np.array([np.nan, np.inf, 0.0], np.float32)}
    for a, b in zip(rlx.evaluate(g, values), rlx.evaluate(result, values), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("source", ["bool", "i8", "i32", "u8", "u32", "i64", "f16", "bf16", "f32", "f64"])
@drawn("middle", ["bool", "i8", "i16", "i64", "u32", "f16", "bf16", "f32", "f64", "c64"], of_each=3)
def test_casts_are_joined_only_where_that_changes_nothing(source: str, middle: str) -> None:
    g: Any = rlx.Graph("f")
    x = g.input("x", (9,), source)
    targets = ["bool", "i8", "u8", "i32", "f16", "f32", "f64", "c64"]
    g.set_outputs([g.cast(g.cast(x, middle), t) for t in targets])
    result = rlx.passes.run(g, "rlx-simplify")
    edge = np.array([0, 1, -1, 200, -130, 40000, 3e9, 0.3, 2.0**53 + 2])
    with np.errstate(all="ignore"):
        value = edge.astype(rlx.dtype(source).numpy)
    for t, a, b in zip(targets, rlx.evaluate(g, {"x": value}), rlx.evaluate(result, {"x": value}), strict=True):
        np.testing.assert_array_equal(a, b, err_msg=f"{source} -> {middle} -> {t}")


def test_bind_gives_sizes_to_a_graph() -> None:
    g: Any = rlx.Graph("f")
    x = g.input("x", ("batch", "seq", 2))
    g.set_outputs([g.reshape(x, ("batch", "2*seq")), g.dim_size("seq")])
    result = rlx.passes.run(g, "rlx-bind{batch=3 seq=5}")
    assert result.symbols == frozenset()
    assert [o.shape for o in result.outputs] == [(3, 10), ()]
    assert "rlx.dims" not in str(result)
    value = np.ones((3, 5, 2), np.float32)
    assert rlx.evaluate(result, {"x": value})[1] == 5


def _layers(count: int) -> rlx.Graph:
    g: Any = rlx.Graph("f", stage="hir")
    x = y = g.input("x", ("n", 4))
    w = g.param("w", (4, 4))
    for _ in range(count):
        y = g.neg(g.neg(g.softmax(g.linear(y, w, activation="tanh")))) + x * 1.0
        y = g.reshape(g.reshape(g.transpose(g.transpose(y)), ("4*n",)), ("n", 4))
    g.set_outputs([y])
    return g


@pytest.mark.parametrize(
    "text", ["rlx-lower-blocks", "rlx-decompose", "rlx-simplify", "rlx-constant-fold", "rlx-bind{n=3}"]
)
def test_passes_are_linear_in_the_number_of_ops(text: str) -> None:
    def work(count: int) -> Callable[[], rlx.Graph]:
        graph = _layers(count)
        return lambda: rlx.passes.run(graph, text, verify_each=False)

    check_linear(work)


def _readers_of_one_input(count: int) -> rlx.Graph:
    g: Any = rlx.Graph("f", stage="hir")
    x = total = g.input("x", (3, 4))
    table = g.param("table", (4, 4))
    for i in range(count):
        up, gate = (x @ g.param(f"{name}{i}", (4, 4)) for name in ("up", "gate"))
        total = total + g.silu(gate) * up + g.relu(x @ g.exp(table)) * x
    g.set_outputs([total])
    return g


def _encoder_layers(count: int) -> rlx.Graph:
    g: Any = rlx.Graph("f", stage="hir")
    x = g.input("x", (2, 3, 4))
    mask = g.input("mask", (2, 3), "bool")

    def dense(x: Any, name: str) -> Any:
        return x @ g.param(f"{name}_w", (4, 4)) + g.param(f"{name}_b", (4,))

    def norm(x: Any, name: str) -> Any:
        return g.layer_norm(x, g.param(f"{name}_scale", (4,)), g.param(f"{name}_bias", (4,)))

    for i in range(count // 4):
        q, k, v = (dense(x, f"{name}{i}") for name in "qkv")
        attended = g.attention(q, k, v, mask, num_heads=2, head_dim=2, mask_kind="custom")
        hidden = norm(dense(attended, f"out{i}") + x, f"first{i}")
        x = norm(hidden + dense(g.gelu(dense(hidden, f"up{i}")), f"down{i}"), f"second{i}")
    g.set_outputs([x])
    return g


def _loops(count: int) -> rlx.Graph:
    g: Any = rlx.Graph("f", stage="hir")
    x, y = g.input("x", (4,)), g.input("y", (3, 4))
    for _ in range(count // 4):
        x, y = g.scan(lambda c, row: (g.tanh(c * 1.0 + row), c + g.exp(row)), x, y)
    g.set_outputs([x, y])
    return g


@pytest.mark.parametrize("build", [_readers_of_one_input, _encoder_layers, _loops])
def test_a_level_of_optimisation_is_linear_in_the_number_of_ops(build: Callable[[int], rlx.Graph]) -> None:
    def work(count: int) -> Callable[[], rlx.Graph]:
        graph = build(count)
        return lambda: rlx.passes.run(graph, to_mir(2), verify_each=False)

    check_linear(work, 20, 80)


def test_casts_of_weights_that_precision_makes_leave_loops() -> None:
    g: Any = rlx.Graph("f")
    x, w = g.input("x", (5, 2, 4)), g.param("w", (4, 4))
    g.set_outputs(g.scan(lambda c, row: (g.tanh((c + row) @ w), c), g.sum(x, 0), x)[1])
    mir = rlx.Pipeline(precision="bf16").compile(g).mir
    (scan,) = collect(mir.module, ["scan"])
    casts = [op for op in collect(mir.module, ["cast"]) if op.operands[0] == mir.argument("w").value]
    assert [op.block == scan.block for op in casts] == [True]


class Endless(rlx.CustomOp, name="tests.endless"):
    """An op that decomposes into itself."""

    def infer(self, x: rlx.Shape) -> rlx.Shape:
        return x

    def decompose(self, b: Any, x: Any) -> Any:
        return b.custom(Endless, x)


def test_an_op_that_decomposes_into_itself_is_an_error() -> None:
    g: Any = rlx.Graph("endless")
    g.set_outputs([g.custom(Endless, g.input("x", (2,)))])
    with pytest.raises(rlx.Error, match=r"'rlx[.]tests[.]endless' decomposes into itself") as caught:
        rlx.passes.run(g, "rlx-decompose")
    assert "test_passes.py" in (caught.value.location or "")

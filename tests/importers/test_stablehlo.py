"""`rlx.from_stablehlo`: output of the lowering, output of JAX, and texts that cannot be imported."""

from __future__ import annotations

import random
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.importers.stablehlo import imports
from rlx.importers.table import LARGEST_LITERAL
from rlx.ir.text.modules import print_op
from rlx.targets.compilation import Compilation
from rlx.targets.registry import target_of
from rlx.targets.stablehlo import lower_module
from rlx.targets.xla.portable import to_portable
from tests.drawing import drawn
from tests.importers.modules import ELEMENTS, values

RANDOM = np.random.default_rng(3)


def exported(graph: rlx.Graph) -> Any:
    """Return a graph as a StableHLO module."""
    return lower_module(Compilation(graph, target_of("stablehlo")).lir.module)


# --- output of the lowering -------------------------------------------------------------------------

# Ops that the lowering writes as one StableHLO op, so that the values are equal to the bit.
UNARY = ("abs", "exp", "neg", "sin", "cos", "tanh", "tan", "round", "relu", "sqrt", "log", "floor", "ceil")
BINARY = ("add", "sub", "mul", "div", "maximum", "minimum", "fmod")
OF_INTEGERS = (
    "add",
    "sub",
    "mul",
    "maximum",
    "minimum",
    "fmod",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "left_shift",
)


def step(g: Any, a: Any, b: Any, rng: random.Random) -> Any:
    """Return one more tensor, or None if a and b do not fit."""
    kind = rng.randrange(13)
    same = a.shape == b.shape
    if kind < 2 and a.dtype.is_float:
        return getattr(g, rng.choice(UNARY))(a)
    if kind < 5 and same and a.dtype.is_float:
        return getattr(g, rng.choice(BINARY))(a, b)
    if kind < 5 and same and a.dtype.is_integer:
        return getattr(g, rng.choice(OF_INTEGERS))(a, b)
    if kind == 5 and same and not a.dtype.is_bool:
        return g.where(g.compare(rng.choice(("lt", "ge", "eq", "ne")), a, b), a, b)
    if kind == 6 and a.dtype.is_float and a.rank == b.rank == 2 and a.dtype is b.dtype:
        return g.dot_general(a, b, [1], [1]) if a.shape[1] == b.shape[1] else None
    if kind == 7:
        return g.transpose(a, rng.sample(range(a.rank), a.rank))
    if kind == 8:
        return g.reshape(a, (-1, 1) if rng.random() < 0.5 else (1, *a.shape))
    if kind == 9 and a.rank < 4:
        return g.expand(a, (rng.randint(1, 3), *a.shape))
    if kind == 10 and a.rank and not a.dtype.is_bool:
        return getattr(g, rng.choice(("sum", "max", "min")))(a, rng.randrange(a.rank))
    if kind == 11 and same and a.rank:
        return g.concat([a, b], rng.randrange(a.rank))
    if kind == 12:
        return g.cast(a, "bool" if a.dtype.is_integer else "f32" if a.dtype.is_bool else "f64")
    return None


@drawn("seed", range(25), of_each=8)
def test_random_graphs_come_back(seed: int) -> None:
    rng = random.Random(seed)
    g: Any = rlx.Graph("random")
    tensors = [g.input("x", (3, 4)), g.input("y", (3, 4)), g.input("i", (3, 4), "i32")]
    tensors.append(g.constant(RANDOM.standard_normal((3, 4)).astype(np.float32)))
    while len(tensors) < 25:
        made = step(g, rng.choice(tensors[-8:]), rng.choice(tensors), rng)
        if made is not None and made.rank < 5 and np.prod(made.shape.static) < 500:
            tensors.append(made)
    g.set_outputs(tensors[-6:])
    arrays: list[Any] = [RANDOM.standard_normal((3, 4)).astype(np.float32) for _ in range(2)]
    arrays.append(RANDOM.integers(-4, 9, (3, 4)).astype(np.int32))
    module = exported(g)
    texts: list[Any] = [print_op(module), print_op(module, generic=True), to_portable(module)]
    expected = values(g, *arrays)
    for source in texts:
        back = rlx.from_stablehlo(source)
        back.verify()
        for found, wanted in zip(values(back, *arrays), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6, strict=True)


# --- output of JAX ----------------------------------------------------------------------------------


def _mlp(jax: Any, x: Any, w: Any) -> Any:
    return jax.nn.relu(x @ w + 1) @ w.T, jax.nn.log_softmax(x, -1)


def _attention(jax: Any, x: Any, w: Any) -> Any:
    q = jax.numpy.stack([x @ w, x @ w * 2]).transpose(1, 0, 2)
    scores = jax.numpy.einsum("qhd,khd->hqk", q, q) / np.sqrt(q.shape[-1])
    scores = jax.numpy.where(jax.numpy.tril(jax.numpy.ones(scores.shape[-2:], bool)), scores, -np.inf)
    return jax.numpy.einsum("hqk,khd->qhd", jax.nn.softmax(scores, -1), q)


def _norm(jax: Any, x: Any, w: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5), jax.nn.gelu(x, approximate=True)


def _mixed(jax: Any, x: Any, w: Any) -> Any:
    wide = jax.lax.dot(x.astype("bfloat16"), w.astype("bfloat16"), preferred_element_type="float32")
    counts = jax.lax.dot((x > 0).astype("int8"), (w > 0).astype("int8"), preferred_element_type="int32")
    some = (x > 0) & ~(x > 1) | (x < -1) ^ (x == 0)
    return (
        wide,
        counts,
        some,
        some.any(0),
        some.all(),
        jax.numpy.isfinite(1 / x),
        x[::2, 1:],
        x[:, ::-1].argsort is None,
    )


def _functions(jax: Any, x: Any, w: Any) -> Any:
    inner = jax.jit(lambda v: jax.numpy.clip(v, -1, 1) * 2)
    return inner(inner(x)) + jax.jit(inner)(x), jax.numpy.arange(12.0).reshape(3, 4) * x.max(), x.prod(1), abs(x).min()


def _complex(jax: Any, x: Any, w: Any) -> Any:
    wave = jax.lax.complex(x, x[:, ::-1]) * jax.numpy.exp(1j * x)
    return jax.numpy.abs(wave), wave.real @ w, jax.numpy.abs(jax.numpy.exp(1j * w))


def _numbers(jax: Any, x: Any, w: Any) -> Any:
    """Rounding, remainders and bits, of floats and of three kinds of integers."""
    lax, jnp = jax.lax, jax.numpy
    found = [jnp.floor(x), jnp.ceil(x * 3), jnp.sign(x), jnp.fmod(x * 9, 0.7), x % 0.3, (x * 5) // 0.4, jnp.trunc(x)]
    found += [jnp.log1p(abs(x)), jnp.expm1(x), jnp.cbrt(x), jnp.arctan2(x, x[::-1])]
    for kind in ("int32", "int8", "uint32"):
        a, b = (x * 50).astype("int32").astype(kind), (x[::-1] * 9).astype("int32").astype(kind)
        few = (abs(x) * 4).astype(kind)
        found += [a & b, a | b, a ^ b, ~a, a << few, a >> few, lax.shift_right_logical(a, few), lax.population_count(a)]
        found += [lax.rem(a, b), lax.div(a, b), lax.shift_right_arithmetic(a, few)]
        found += [jnp.sign(a)] if kind != "uint32" else []
    return found


@pytest.mark.parametrize("function", [_mlp, _attention, _norm, _mixed, _functions, _complex, _numbers])
def test_functions_of_jax(function: Any) -> None:
    jax = pytest.importorskip("jax")
    arrays = [RANDOM.standard_normal(shape).astype(np.float32) for shape in ((3, 4), (4, 5))]
    jitted = jax.jit(lambda x, w: function(jax, x, w), keep_unused=True)
    lowered = jitted.lower(*arrays)
    expected = [np.asarray(e) for e in jax.tree.leaves(jitted(*arrays))]
    for debug in (False, True):
        g = rlx.from_stablehlo(lowered.as_text(debug_info=debug))
        assert [a.name for a in g.inputs] == (["x", "w"] if debug else ["arg0", "arg1"])
        assert [o.name for o in g.outputs] == [f"out{i}" for i in range(len(expected))]
        for found, wanted in zip(values(g, *arrays), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=1e-6, strict=True)


def test_a_function_with_large_constants_carries_them(tmp_path: Path) -> None:
    """Large constants are parameters with values: in the evaluator, compiled programs, copies and transforms."""
    jax = pytest.importorskip("jax")
    w = RANDOM.standard_normal((40, 50)).astype(np.float32)
    assert w.size > LARGEST_LITERAL
    x = RANDOM.standard_normal((2, 40)).astype(np.float32)
    (tmp_path / "f.mlir").write_text(jax.jit(lambda x: (x @ w).sum()).lower(x).as_text())
    g = rlx.from_stablehlo(tmp_path / "f.mlir")
    assert [a.name for a in g.params] == list(g.weights) == ["constant0"]
    np.testing.assert_array_equal(g.weights["constant0"], w)
    for graph in (g, g.clone(), rlx.passes.run(g, "builtin.module(canonicalize)")):
        np.testing.assert_allclose(values(graph, x), [(x @ w).sum()], rtol=1e-4)
    np.testing.assert_allclose(rlx.Session(threads=1).compile(g).run({"arg0": x}), [(x @ w).sum()], rtol=1e-4)
    np.testing.assert_array_equal(rlx.evaluate(g, {"arg0": x, "constant0": w * 0}), [0])
    np.testing.assert_allclose(values(rlx.grad(g, ["arg0"]), x)[0], np.tile(w.sum(1), (2, 1)), rtol=1e-4)


@pytest.mark.parametrize("name", ["i8", "i16", "i32", "i64", "u8", "u32"])
def test_integers_are_divided_toward_zero(name: str) -> None:
    """All pairs are compared with exact arithmetic. Division by 0, and of the minimum by -1, is as in XLA."""
    kind = rlx.dtype(name)
    edges = [
        *range(-9, 10),
        100,
        127,
        128,
        255,
        32767,
        65537,
        int(kind.min),
        int(kind.min) + 1,
        int(kind.max),
        int(kind.max) - 1,
    ]
    edges += [int(v) for v in RANDOM.integers(int(kind.min), int(kind.max), 30)]
    numbers = [n for n in edges if kind.min <= n <= kind.max]
    pairs = [(a, b) for a in numbers for b in numbers]
    exact = [abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) if b else -1 for a, b in pairs]
    type_ = f"tensor<{len(pairs)}x{ELEMENTS[name][0]}>"
    text = f"func.func @f(%a: {type_}, %b: {type_}) -> {type_} {{ %0 = stablehlo.divide %a, %b : {type_} return %0 : {type_} }}"
    a, b = np.array(pairs, kind.numpy).T
    (found,) = values(rlx.from_stablehlo(text), a, b)
    np.testing.assert_array_equal(
        found, np.array([e % 2**64 for e in exact], np.uint64).astype(kind.numpy), strict=True
    )


def test_ops_are_where_the_file_says() -> None:
    text = """func.func @f(%x: tensor<2xf32> loc("in")) -> tensor<2xf32> {
      %0 = stablehlo.tanh %x : tensor<2xf32>
      %1 = stablehlo.negate %0 : tensor<2xf32> loc("model.py":7:3)
      return %1 : tensor<2xf32> }"""
    g = rlx.from_stablehlo(text)
    assert repr(g) == "<Graph f(in: f32[2]) -> out0: f32[2]>"
    assert [str(op.location) for op in g.function.entry_block.operations][:2] == [
        'loc("<text>":2:12)',
        'loc("model.py":7:3)',
    ]


# --- refused modules --------------------------------------------------------------------------------


def test_all_ops_that_have_no_rule_are_listed() -> None:
    body = """
      %0 = "stablehlo.collective_permute"(%x) {PAIRS} : (tensor<2xf32>) -> tensor<2xf32>
      %1 = "stablehlo.collective_permute"(%0) {PAIRS} : (tensor<2xf32>) -> tensor<2xf32>
      %2 = "stablehlo.all_reduce"(%1) ({ ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %c = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %c : tensor<f32> }) {replica_groups = dense<0> : tensor<1x1xi64>} : (tensor<2xf32>) -> tensor<2xf32>
      %3 = func.call @inner(%2) : (tensor<2xf32>) -> tensor<2xf32>
      return %3 : tensor<2xf32>""".replace("PAIRS", "source_target_pairs = dense<0> : tensor<1x2xi64>")
    inner = """%0 = "stablehlo.all_to_all"(%x) {split_dimension = 0 : i64, concat_dimension = 0 : i64, split_count = 1 : i64,
      replica_groups = dense<[[0]]> : tensor<1x1xi64>} : (tensor<2xf32>) -> tensor<2xf32>
      return %0 : tensor<2xf32>"""
    with pytest.raises(rlx.UnsupportedError) as caught:
        rlx.from_stablehlo(function(body) + function(inner, "private @inner"))
    assert caught.value.message == (
        "ops that cannot be imported from StableHLO, 4 of 3 kinds:\n"
        "  <text>:2:12: collective_permute, 2 in all\n  <text>:4:12: all_reduce, 1 in all\n  <text>:9:68: all_to_all, 1 in all"
    )


def test_an_op_without_a_place_is_where_its_function_is_called() -> None:
    call = '%0 = func.call @g(%x) : (tensor<2xf32>) -> tensor<2xf32> loc("model.py":7:3)\n return %0 : tensor<2xf32>'
    inner = """%0 = "stablehlo.all_to_all"(%x) {split_dimension = 0 : i64, concat_dimension = 0 : i64, split_count = 1 : i64,
      replica_groups = dense<[[0]]> : tensor<1x1xi64>} : (tensor<2xf32>) -> tensor<2xf32> loc(unknown)
      return %0 : tensor<2xf32>"""
    with pytest.raises(rlx.UnsupportedError, match=r"model.py:7:3: all_to_all, 1 in all"):
        rlx.from_stablehlo(function(call) + function(inner, "private @g"))


def function(body: str, name: str = "@f", shape: str = "tensor<2xf32>") -> str:
    return f"func.func {name}(%x: {shape}) -> {shape} {{{body} }}\n"


CHAIN = "".join(
    function(f"%0 = func.call @g{i + 1}(%x) : (tensor<2xf32>) -> tensor<2xf32>\n" * 1
             + f"%1 = func.call @g{i + 1}(%0) : (tensor<2xf32>) -> tensor<2xf32>\n return %1 : tensor<2xf32>",
             f"{'' if i == 0 else 'private '}@g{i}")
    for i in range(40)
) + function("%0 = stablehlo.tanh %x : tensor<2xf32> return %0 : tensor<2xf32>", "private @g40")  # fmt: skip
DEEP = "".join(
    function(f"%0 = func.call @f{i + 1}(%x) : (tensor<2xf32>) -> tensor<2xf32>\n return %0 : tensor<2xf32>", f"@f{i}")
    for i in range(70)
) + function("return %x : tensor<2xf32>", "@f70")  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (CHAIN, r"<text>:\d+:\d+: function 'g\d+' stands for more than 100000 ops"),
        (function("%0 = func.call @f(%x) : (tensor<2xf32>) -> tensor<2xf32> return %0 : tensor<2xf32>"),
         "function 'f' calls itself"),
        ("func.func private @g(tensor<2xf32>) -> tensor<2xf32>\n"
         + function("%0 = func.call @g(%x) : (tensor<2xf32>) -> tensor<2xf32> return %0 : tensor<2xf32>"),
         "function 'g' has no body"),
        (DEEP, "more than 64 deep"),
        (function("cf.br ^bb1\n ^bb1: return %x : tensor<2xf32>"), "branches between blocks"),
        (function("return %x : tensor<?xf32>", shape="tensor<?xf32>"), "(?s)tensor<.xf32> cannot be imported.*static sizes"),
        (function("%0 = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32> return %x : tensor<?xf32>",
                  shape="tensor<?xf32>"), "(?s)cannot be imported.*export it with static sizes"),
        (function("return %x : tensor<2xf6E2M3FN>", shape="tensor<2xf6E2M3FN>"), "cannot be imported: .*f6E2M3FN"),
        (function("return %x : !stablehlo.token", shape="!stablehlo.token"), "cannot be imported: expected a ranked"),
        (function("return %x : memref<2xf32>", shape="memref<2xf32>"), "cannot be imported: expected a ranked"),
        (function('%0 = mhlo.erf %x : tensor<2xf32>\n return %0 : tensor<2xf32>'),
         "(?s)<text>:1:.*'mhlo.erf' is of the dialect 'mhlo', not of StableHLO.*portable artifact"),
        (function('\n%0 = chlo.zeta %x, %x : tensor<2xf32>, tensor<2xf32> -> tensor<2xf32>\n return %0 : tensor<2xf32>'),
         "<text>:2:.*: chlo.zeta, 1 in all"),
        ("module {}", "has no public function"),
        ("", "expected StableHLO as text, as bytes or as a path, got an empty string"),
        ("what", "no such file"),
        (b"ML\xefR\rStableHLO_v1.4.0\0damaged", "bytecode"),
        (b"\xff\xfe", "neither UTF-8 text nor bytecode"),
        (5, "expected StableHLO as text"),
    ],
)  # fmt: skip
def test_what_is_refused(text: Any, message: str) -> None:
    with pytest.raises(rlx.Error, match=message):
        rlx.from_stablehlo(text)


def test_no_module_is_looked_up_for_an_op(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bindings search Python classes for an op's dialect. A failing search would be repeated for each op."""
    asked: list[str] = []

    class Finder:
        def find_spec(self, name: str, *_: Any) -> None:
            asked.append(name)

    text = function(
        "%0 = stablehlo.add %x, %x : tensor<2xf32>\n %1 = chlo.tan %0 : tensor<2xf32> -> tensor<2xf32>\n"
        "return %1 : tensor<2xf32>"
    )
    rlx.from_stablehlo(text)
    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    rlx.from_stablehlo(text)
    assert not asked


def tree(width: int, depth: int, call: str, leaf: str = "") -> str:
    """Return functions of `width` calls each, nested `depth` deep. The last one has no calls."""
    calls = "".join(f"%{i + 1} = {call}\n" for i in range(width))
    texts = []
    for level in range(depth + 1):
        body = "".join(
            line.replace("CALLEE", f"@g{level + 1}").replace("VALUE", f"%{i}" if i else "%x") + "\n"
            for i, line in enumerate(calls.splitlines())
        )
        body, result = (body, f"%{width}") if level < depth else (leaf, "%x")
        texts.append(function(f"{body} return {result} : tensor<2xf32>", f"{'private ' if level else ''}@g{level}"))
    return "".join(texts)


CALLS = {
    "call": "func.call CALLEE(VALUE) : (tensor<2xf32>) -> tensor<2xf32>",
    "composite": 'stablehlo.composite "a.b" VALUE {decomposition = CALLEE} : (tensor<2xf32>) -> tensor<2xf32>',
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize(
    ("width", "depth", "message"),
    [
        (2, 12, None),
        (2, 16, "stands for more than 100000 ops"),
        (2, 40, "stands for more than 100000 ops"),  # would take 2^40 steps
        (400, 2, "stands for more than 100000 ops"),
        (1, 64, None),
        (1, 65, "functions call each other more than 64 deep"),
        (1, 2000, "functions call each other more than 64 deep"),
        (2, 500, "functions call each other more than 64 deep"),
    ],
)
def test_calls_are_counted_before_they_are_followed(call: str, width: int, depth: int, message: str | None) -> None:
    text = tree(width, depth, call)
    if message is None:
        np.testing.assert_array_equal(values(rlx.from_stablehlo(text), np.ones(2, np.float32)), [[1, 1]])
    else:
        with pytest.raises(rlx.Error, match=message):
            rlx.from_stablehlo(text)


def test_calls_are_followed_from_the_entry_only() -> None:
    with pytest.raises(rlx.Error, match="more than 64 deep"):
        rlx.from_stablehlo(tree(1, 70, CALLS["call"]))
    assert rlx.from_stablehlo(tree(1, 70, CALLS["call"]), entry="g6").outputs


HUGE = 2**63 - 1
RESOURCES = '{-# dialect_resources: { builtin: { b: "0x040000000000803F00000040" } } #-}'


@pytest.mark.parametrize("element", [name for name, _, _ in ELEMENTS.values()])
@pytest.mark.parametrize(
    "form", ["dense_resource<b>", "dense_resource<missing>", "sparse<[[0]], ONE>", "sparse<[], []>"]
)
def test_constants_of_other_forms_are_refused(form: str, element: str) -> None:
    one = "true" if element == "i1" else "(1.0, 1.0)" if "complex" in element else "1.0" if "f" in element else "1"
    type_ = f"tensor<2x{element}>"
    text = f"func.func @f() -> {type_} {{ %0 = stablehlo.constant {form.replace('ONE', one)} : {type_} return %0 : {type_} }}"
    with pytest.raises(rlx.UnsupportedError, match=r"<text>:1:\d+: constant whose elements are not written as dense"):
        rlx.from_stablehlo(text + RESOURCES * ("<b>" in form))


@pytest.mark.parametrize("shape", [(HUGE,), (HUGE, HUGE), (2**62,), (0, HUGE, HUGE), (HUGE, 0, 2)], ids=str)
@pytest.mark.parametrize(
    "op",
    ["constant dense<1.0> : TYPE", "iota dim = 0 : TYPE", "broadcast_in_dim %x, dims = [] : (tensor<f32>) -> TYPE"],
)
def test_sizes_beyond_memory_are_refused_or_cannot_be_evaluated(op: str, shape: tuple[int, ...]) -> None:
    type_ = f"tensor<{'x'.join(map(str, shape))}xf32>"
    text = f"func.func @f(%x: tensor<f32>) -> {type_} {{ %0 = stablehlo.{op.replace('TYPE', type_)}\n return %0 : {type_} }}"
    with pytest.raises(rlx.Error, match=r"constant: .* cannot be addressed|more memory than there is"):
        values(rlx.from_stablehlo(text), np.array(1, np.float32))


def test_an_attribute_that_a_rule_does_not_know_is_no_detail() -> None:
    g: Any = rlx.Graph("g")
    with pytest.raises(rlx.UnsupportedError, match=r"f\.mlir:3: tanh with 'flavour' cannot be imported"):
        imports.build(g, "tanh", [g.input("x", (2,))], {"flavour": 1}, place="f.mlir:3")
    with pytest.raises(rlx.UnsupportedError, match="slice without 'limit_indices' cannot be imported"):
        imports.build(g, "slice", [g.argument("x")], {"start_indices": (0,), "strides": (1,)})


def test_the_page_lists_all_rules() -> None:
    page = (Path(__file__).parents[2] / "docs" / "importers.md").read_text()
    rows = re.findall(
        r"^\| (?:elementwise|shape|contraction|reduction|windows|positions|control|linear algebra|other) \|([^|;]*)",
        page,
        re.MULTILINE,
    )
    listed = {name for row in rows for name in re.findall(r"`([\w.]+)`", row.partition(" by ")[0])}
    listed -= {"func.call", "stablehlo.composite"}  # they are replaced by their callee
    assert listed == {name for name in imports.rules if " of " not in name}

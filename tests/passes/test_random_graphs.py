"""Random graphs through the passes: results stay equal, to the last bit if the pass claims it."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.passes.base import load
from rlx.passes.checking.numerics import differs, tolerances
from rlx.passes.levels import to_mir
from rlx.targets.options import LEVELS
from tests.conformance.random_graphs import Grower, seeded
from tests.drawing import drawn, graph_seed

_DTYPES = ("f32", "i32", "i8", "u8", "bool", "f16")


# Ops that may return a zero of either sign.
_OF_ANY_ZERO = ("max", "min", "relu")


class _Maker:
    """Builds a graph step by step from ops that the rules of `rlx-simplify` match."""

    def __init__(self, seed: int, *, regions: bool = False, shapes: bool = False):
        self.depth, self.has_extrema = 0, seed % 2 == 0
        self.random = random.Random(seed)
        self.g: Any = rlx.Graph("main")
        self.values: list[Any] = [self.g.input(f"x{i}", (2, 3), d) for i, d in enumerate(_DTYPES)]
        steps = [self.binary, self.binary, self.unary, self.cast, self.reshape, self.transpose, self.narrow]
        steps += [self.concat, self.where, self.expand, self.reduce, self.constant, self.halves]
        steps += [self.branch, self.loop, self.scan] * 2 * regions
        steps += [self.round_trip, self.slice, self.repeated, self.product, self.extremum] * 2 * shapes
        for _ in range(self.random.randint(5, 25)):
            made = self.random.choice(steps)(self.random.choice(self.values))
            if made is not None and made.rank <= 4 and made.shape.num_elements <= 64:
                self.values.append(made)
        results = self.values[len(_DTYPES) :] or self.values[:1]
        if regions and self.random.random() < 0.5:  # the others are unused
            results = self.random.sample(results, self.random.randint(1, len(results)))
        self.g.set_outputs(results)

    def other(self, x: Any) -> Any:
        """Return a second operand for x: a constant, x itself, or a value of the same shape and dtype."""
        number = self.random.choice([0, 0, 1, 1, -1, 2])
        if x.dtype.is_bool:
            number = number > 0
        elif number < 0 and not x.dtype.is_signed:
            number = 255
        alike = [v for v in self.values if v.shape == x.shape]
        shape = self.random.choice([(), (), x.shape.dims, (1,) * x.rank])
        constant = self.g.constant(np.full(shape, number).astype(x.dtype.numpy))
        return self.random.choice([constant, constant, *alike])

    def binary(self, x: Any) -> Any:
        kinds = ["add", "mul"] + ["max", "min"] * self.has_extrema + ([] if x.dtype.is_bool else ["sub"])
        kinds += ["div", "pow"] if x.dtype.is_float else []
        pair = [x, self.other(x)]
        self.random.shuffle(pair)
        return self.g.binary(self.random.choice(kinds), *pair)

    def unary(self, x: Any) -> Any:
        if x.dtype.is_bool:
            return None
        return self.g.activation(
            self.random.choice(["neg", "abs"] + ["relu"] * self.has_extrema + ["round"] * x.dtype.is_float), x
        )

    def cast(self, x: Any) -> Any:
        return self.g.cast(x, self.random.choice([*_DTYPES, "f64", "i64", "u32", "bf16"]))

    def reshape(self, x: Any) -> Any:
        size = x.shape.num_elements
        divisor = self.random.choice([d for d in range(1, size + 1) if size % d == 0] or [1])
        return self.g.reshape(x, self.random.choice([(divisor, size // divisor), (size,), x.shape.dims]))

    def transpose(self, x: Any) -> Any:
        return self.g.transpose(x, self.random.sample(range(x.rank), x.rank)) if x.rank else None

    def narrow(self, x: Any, axis: int | None = None) -> Any:
        if not x.rank:
            return None
        axis = self.random.randrange(x.rank) if axis is None else axis
        size = x.shape.dims[axis]
        start = self.random.randint(0, size)
        return self.g.narrow(x, axis, start, self.random.randint(0, size - start))

    def halves(self, x: Any) -> Any:
        """Split in two or three parts and join them again."""
        if not x.rank:
            return None
        axis = self.random.randrange(x.rank)
        size = x.shape.dims[axis]
        cuts = sorted(self.random.choices(range(size + 1), k=self.random.choice([1, 2])))
        ranges = zip([0, *cuts], [*cuts, size], strict=True)
        return self.g.concat([self.g.narrow(x, axis, lo, hi - lo) for lo, hi in ranges], axis)

    def concat(self, x: Any) -> Any:
        return self.g.concat([x, self.random.choice([x, self.narrow(x, 0)])], 0) if x.rank else None

    def where(self, x: Any) -> Any:
        flag = self.g.constant(np.full(self.random.choice([(), x.shape.dims]), self.random.random() < 0.5))
        return self.g.where(flag, x, self.other(x))

    def expand(self, x: Any) -> Any:
        return self.g.expand(x, self.random.choice([x.shape.dims, (2, *x.shape.dims)]))

    def reduce(self, x: Any) -> Any:
        kinds = ["max", "min"] * self.has_extrema + ["sum"] * (not x.dtype.is_bool) + ["mean"] * x.dtype.is_float
        if not kinds:
            return None
        axes = self.random.sample(range(x.rank), self.random.randint(0, x.rank))
        axes = [a for a in axes if x.shape.dims[a] == 1 or self.random.random() < 0.3]
        return self.g.reduce(self.random.choice(kinds), x, axes, keep_dims=self.random.random() < 0.5)

    def constant(self, x: Any) -> Any:
        generator = np.random.default_rng(self.random.randrange(1000))
        return self.g.constant(generator.integers(0, 2, x.shape.static).astype(x.dtype.numpy))

    def round_trip(self, x: Any) -> Any:
        """Transpose or reshape, compute, and undo the move, sometimes not exactly."""
        if x.rank != 2 or x.dtype.is_bool:
            return None
        rows, columns = x.shape.dims
        there = self.random.choice([self.g.transpose, lambda v: self.g.reshape(v, (columns, rows))])
        back = self.random.choice([self.g.transpose, lambda v: self.g.reshape(v, (rows, columns))])
        other = self.random.choice([v for v in self.values if v.shape == x.shape])
        y = self.random.choice([self.g.neg, self.g.relu, lambda v: self.g.cast(self.g.cast(v, "i32"), x.dtype)])(
            there(x)
        )
        return back(self.random.choice([lambda: y, lambda: y + there(other), lambda: y * self.constant(there(x))])())

    def slice(self, x: Any) -> Any:
        starts = [self.random.randint(0, max(0, d - 1)) for d in x.shape.dims]
        return self.g.slice(x, starts, x.shape.dims, [self.random.randint(1, 2) for _ in starts]) if x.rank else None

    def repeated(self, x: Any) -> Any:
        if x.dtype.is_bool or not x.rank:
            return None
        wide = self.g.expand(x, (2, *x.shape.dims))
        number = self.g.constant(np.array(2).astype(x.dtype.numpy))
        return self.random.choice(
            [self.g.neg, lambda v: v * number, lambda v: self.g.cast(v, "f32"), lambda v: number - v]
        )(wide)

    def product(self, x: Any) -> Any:
        if x.rank < 2 or x.dtype.is_bool:
            return None
        other = self.random.choice([v for v in self.values if v.shape == x.shape])
        turned = self.g.transpose(other, (*range(x.rank - 2), x.rank - 1, x.rank - 2))
        batch, last = tuple(range(x.rank - 2)), x.rank - 1
        wide = self.g.expand(turned, (2, *turned.shape.dims))
        return self.random.choice(
            [
                lambda: self.g.dot_general(x, turned, [last], [last - 1], batch, batch),
                lambda: self.g.matmul(self.g.expand(x, (2, *x.shape.dims)), wide),
                lambda: self.g.matmul(x, wide),
            ]
        )()

    def extremum(self, x: Any) -> Any:
        kind, keep = self.random.choice(["max", "min"] * self.has_extrema + ["sum"]), self.random.random() < 0.5
        if x.rank < 2 or x.dtype.is_bool or 0 in x.shape.dims:
            return None
        wide = self.random.choice([x, self.g.expand(x, (2, *x.shape.dims))])
        return self.g.reduce(kind, self.g.reduce(kind, wide, (0,), keep_dims=keep), (0,), keep_dims=keep)

    def branch(self, x: Any) -> Any:
        flag = self.random.choice([self.g.constant(np.array(True)), self.g.reduce("max", self.values[4], (0, 1))])
        return self.g.if_(flag, lambda: self.inside(x), lambda: self.inside(x))

    def loop(self, x: Any) -> Any:
        steps, which = self.random.randint(0, 3), self.random.choice([1, 2])

        def body(i: Any, c: Any, d: Any) -> Any:
            return i + 1, self.inside(x, c, d), self.random.choice([c, d, self.inside(x, c, d)])

        return self.g.while_(lambda i, *_: i < steps, body, 0, x, x, max_iterations=3)[which]

    def scan(self, x: Any) -> Any:
        if not x.rank:
            return None
        row = self.g.constant(np.ones(x.shape.static[1:], x.dtype.numpy))

        def body(own: Any, r: Any) -> Any:
            c, d = own
            return (self.inside(r, c, d), self.random.choice([c, d, self.inside(r, c, d)])), self.inside(c, r)

        (carry, other), rows = self.g.scan(body, (row, row), x)
        return self.random.choice([carry, other, rows])

    def inside(self, x: Any, *own: Any) -> Any:
        """Return the result of a region, shaped like x: of constants, of outside values, or of nested regions."""
        outside, self.depth = self.values, self.depth + 1
        kinds = [self.binary, self.unary, self.where, self.constant]
        kinds += [self.branch, self.loop, self.scan] if self.depth == 1 else []
        self.values = [*outside, *own]
        made = self.random.choice([x, *own, self.constant(x)])
        for _ in range(self.random.randint(0, 3)):
            following = self.random.choice(kinds)(made)
            if following is not None and following.shape == x.shape:
                made = following
        self.values, self.depth = outside, self.depth - 1
        return made


def with_regions(seed: int) -> Any:
    """Return a random graph with branches, loops and scans."""
    return _Maker(seed, regions=True).g


def inputs(graph: Any, seed: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    special = np.array([np.nan, np.inf, -np.inf, 0.5, -1.5, 0.0, -0.0])
    result = {}
    for argument in graph.arguments:
        kind = argument.shape.dtype
        whole = generator.integers(0 if kind.name in ("u8", "bool") else -128, 2 if kind.is_bool else 128, (2, 3))
        value = generator.choice(special, (2, 3)) if kind.is_float else whole
        result[argument.name] = value.astype(kind.numpy)
    return result


def check(graph: Any, seed: int, *pipelines: str) -> None:
    values = inputs(graph, seed)
    expected, text = rlx.evaluate(graph, values), str(graph)
    for pipeline in pipelines:
        result = rlx.passes.run(graph, pipeline)
        for i, (a, b) in enumerate(zip(expected, rlx.evaluate(result, values), strict=True)):
            if a.dtype == b.dtype == rlx.bf16.numpy:  # NumPy does not recognise its NaN
                a, b = a.astype(np.float32), b.astype(np.float32)
            message = f"{pipeline}, output {i} of\n{graph}"
            np.testing.assert_array_equal(a, b, err_msg=message)
            if a.dtype.kind == "f" and not any(f'"{kind}"' in text for kind in _OF_ANY_ZERO):
                np.testing.assert_array_equal(
                    np.signbit(a[a == 0]), np.signbit(b[a == 0]), err_msg=f"sign of 0: {message}"
                )


_PIPELINES = (
    *("rlx-simplify", "rlx-constant-fold", "rlx-recognize", "rlx-fuse-elementwise-regions"),
    "rlx-constant-fold,rlx-simplify,canonicalize,cse",
)
_OF_REGIONS = ("rlx-propagate-constants", "rlx-hoist-invariants", "rlx-prune-regions")


@drawn("number", range(100), of_each=6)
def test_a_random_graph_keeps_its_value(number: int, seed: int) -> None:
    made_from = graph_seed(seed, number)
    check(_Maker(made_from).g, made_from, *_PIPELINES)


@drawn("number", range(100), of_each=6)
def test_a_random_graph_of_shape_ops_keeps_its_value(number: int, seed: int) -> None:
    """Also, simplifying again changes nothing."""
    made_from = graph_seed(seed, number)
    graph = _Maker(made_from, shapes=True).g
    check(graph, made_from, "rlx-simplify", to_mir(1, fuse=False))
    once = rlx.passes.run(graph, "rlx-simplify")
    assert str(rlx.passes.run(once, "rlx-simplify")) == str(once)


def _real_functions(seed: int) -> Any:
    """Return a graph of terms that fast math rewrites, of positive numbers near 1."""
    choose, g = random.Random(seed), rlx.Graph("main")
    values = [g.input(f"x{i}", (2, 3)) for i in range(3)]
    terms = [
        *(lambda x, y: x + choose.choice([0.0, -0.0, 0.5]), lambda x, y: x - x + y, lambda x, y: y / y * x),
        *(lambda x, y: x / choose.choice([2.0, 3.0]), lambda x, y: x / g.sqrt(y), lambda x, y: 1.0 / g.sqrt(y) + x),
        *(lambda x, y: (x + 0.5) + 0.25, lambda x, y: (x * 0.5) * 1.5, lambda x, y: 0.0 * x + y, lambda x, y: 0.0 - (0.0 - y)),
        *(lambda x, y: g.exp(g.log(x)), lambda x, y: g.log(g.exp(y)), lambda x, y: g.sqrt(x * x)),
        *(lambda x, y: x ** choose.choice([2.0, 0.5, -0.5, -1.0]), lambda x, y: g.log(g.exp(x) * g.exp(y))),
        *(lambda x, y: x * y + x * values[0], lambda x, y: y * x - values[1] * x + y),
        lambda x, y: g.sum(g.sum(x * 0.25, 0), 0) * 0.2 + y,
        lambda x, y: g.mean(g.mean(y, 1, keep_dims=True), 0, keep_dims=True) + x,
        *(lambda x, y: g.sum(g.expand(x, (4, 2, 3)), 0) * 0.2, lambda x, y: g.mean(g.expand(x, (4, 2, 3)), 0)),
    ]  # fmt: skip
    for _ in range(8):
        values.append(g.clamp(choose.choice(terms)(choose.choice(values), choose.choice(values)), 0.5, 2.0))
    g.set_outputs(values[3:])
    return g


@drawn("number", range(60), of_each=4)
def test_fast_math_is_right_for_real_numbers(number: int, seed: int) -> None:
    """Results are close for ordinary numbers, and simplifying again changes nothing."""
    made_from = graph_seed(seed, number)
    graph, passes = _real_functions(made_from), "rlx-simplify{fast-math}"
    once = rlx.passes.run(graph, passes)
    assert str(rlx.passes.run(once, passes)) == str(once)
    rng = np.random.default_rng(made_from)
    values = {a.name: rng.uniform(0.5, 2, a.shape.static).astype(np.float32) for a in graph.arguments}
    for a, b in zip(rlx.evaluate(graph, values), rlx.evaluate(once, values), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5)


def test_fast_math_keeps_sums_of_f16_in_range() -> None:
    """A sum that is finite stays finite: it is not scaled afterwards, nor by a number of elements that f16 lacks."""
    g: Any = rlx.Graph("main")
    x, zero = g.input("x", (1000,), "f16"), g.input("zero", (1,), "f16")
    g.set_outputs([g.sum(x * 0.001), g.sum(g.expand(zero, (100_000, 1)))])
    inputs = {"x": np.full(1000, 100, np.float16), "zero": np.zeros(1, np.float16)}
    expected = rlx.evaluate(g, inputs)
    for a, b in zip(expected, rlx.evaluate(rlx.passes.run(g, "rlx-simplify{fast-math}"), inputs), strict=True):
        assert np.isfinite(a).all()
        np.testing.assert_allclose(a, b, rtol=2e-3)


def test_the_size_of_a_negated_unsigned_integer() -> None:
    check(_Maker(894).g, 894, *_PIPELINES)


@drawn("number", range(60), of_each=3)
def test_a_random_graph_with_regions_keeps_its_value(number: int, seed: int) -> None:
    made_from, inlined = graph_seed(seed, number), "rlx-lower-control-flow"
    pipelines = (
        *_PIPELINES,
        inlined,
        f"rlx-constant-fold,{inlined},rlx-constant-fold",
        *_OF_REGIONS,
        to_mir(1, fuse=False),
    )
    check(with_regions(made_from), made_from, *pipelines)


# --- claims of passes -------------------------------------------------------------------------------

_OPS = 12  # in a graph of the whole vocabulary
# Passes that must run first, to provide a plan to check and ops of MIR.
_BEFORE = {"rlx-check-plan": "rlx-plan-memory", "rlx-check-lir": "rlx-lower-blocks"}
# Tolerance for passes that claim equal results. The order in which NumPy sums f64 depends on alignment; all other
# floats are summed in wider ones and then rounded.
_EXACTLY = 1e-14


def _claiming() -> list[str]:
    """Return the passes of rlx ops that keep results and need no options."""
    packages = ("rlx.passes.", "rlx.plan.", "rlx.transforms.")
    kept = {name for name, cls in load().items() if cls.preserves_results and cls.__module__.startswith(packages)}
    return sorted(kept - {"rlx-bind"})


@cache
def _vocabulary(seed: int, number: int, mir: bool) -> tuple[Any, dict[str, np.ndarray], list[np.ndarray]]:
    """Return a random graph of all ops at HIR or MIR, inputs, and its results."""
    made = Grower(seeded(graph_seed(seed, number))).grow(_OPS)
    graph = rlx.passes.run(made.graph, "rlx-lower-blocks") if mir else made.graph
    return graph, made.values, rlx.evaluate(graph, made.values)


@cache
def _with_regions(seed: int, number: int) -> tuple[Any, dict[str, np.ndarray], list[np.ndarray]]:
    graph = with_regions(graph_seed(seed, number))
    values = inputs(graph, graph_seed(seed, number))
    return graph, values, rlx.evaluate(graph, values)


def _difference(graph: Any, expected: list[np.ndarray], result: Any, values: Any, *, exact: bool) -> str:
    names = [output.name for output in graph.outputs]
    limits = [_EXACTLY] * len(names) if exact else tolerances(graph.function)[: len(names)]
    return differs(expected, rlx.evaluate(result, values), names, limits)


@pytest.mark.parametrize("name", _claiming())
def test_a_pass_does_what_it_claims(name: str, seed: int, full: bool) -> None:
    claims = load()[name]
    for number in range(40 if full else 3):
        for graph, values, expected in (
            _vocabulary(seed, number, False),
            _vocabulary(seed, number, True),
            _with_regions(seed, number),
        ):
            given = rlx.passes.run(graph, _BEFORE[name]) if name in _BEFORE else graph
            try:
                result = rlx.passes.run(given, name)  # verifies the result
            except rlx.PassError as problem:  # a loop without a bound
                assert name == "rlx-lower-control-flow" and "cannot be unrolled" in problem.message
                continue
            said = _difference(graph, expected, result, values, exact=claims.exact)
            assert not said, f"{name}: {said}\n{graph}"
            if claims.idempotent:
                assert str(rlx.passes.run(result, name)) == str(result), f"{name} again, on\n{result}"


def test_claims_are_made() -> None:
    classes = [load()[name] for name in _claiming()]
    assert sum(cls.exact for cls in classes) >= 10 and sum(cls.idempotent for cls in classes) >= 25
    assert not any(cls.exact for cls in load().values() if not cls.preserves_results)


@drawn("target", ["cpu", "xla"])
@pytest.mark.parametrize("level", LEVELS)
def test_a_pipeline_keeps_results(level: int, target: str, seed: int, full: bool) -> None:
    taken = 0
    for number in range(40 if full else 5):
        graph, values, expected = _vocabulary(seed, number, False)
        try:
            result = rlx.Pipeline(target, opt=level).compile(graph).lir
        except rlx.UnsupportedError:
            continue
        taken += 1
        said = _difference(graph, expected, result, values, exact=False)
        assert not said, f"-O{level} for {target}: {said}\n{graph}"
    assert taken


def _recurrence(seed: int) -> Any:
    """Return a loss from a scan and a while with weights that every step computes again and carries that do not change."""
    choose, g = random.Random(seed), rlx.Graph("main")
    x, w, b = g.input("x", (4, 3)), g.param("w", (3, 3)), g.param("b", (3,))
    number = g.constant(np.float32(choose.choice([0.0, 1.0])))

    def step(carry: Any, row: Any) -> Any:
        h, scale, bias = carry
        made = choose.choice([lambda: w @ w, lambda: g.transpose(w), lambda: g.exp(w), lambda: w])()
        h = g.tanh(g.reshape(g.reshape(h, (1, 3)) @ made, (3,)) * scale + row)
        h = choose.choice([lambda: h + bias, lambda: g.if_(g.gt(scale, 0.5), lambda: h + bias, lambda: h * bias)])()
        return (h, choose.choice([scale, scale * scale]), bias), choose.choice([h, g.exp(b), h * scale])

    (h, scale, _), rows = g.scan(step, (b * 1.0, number, g.sin(b)), x)
    h = g.while_(lambda i, c: i < 2, lambda i, c: (i + 1, c + g.sin(b)), 0, h, max_iterations=2)[1]
    g.set_outputs([g.sum(h * h) + g.sum(rows) * 0.5 + scale])
    return g


@drawn("number", range(20), of_each=2)
@pytest.mark.parametrize("derived", ["primal", "grad", "hvp", "vmap"])
def test_derivatives_of_loops_keep_their_value(derived: str, number: int, seed: int) -> None:
    """Each pass on regions, and all passes of a level, keep results to the last bit."""
    made_from = graph_seed(seed, number)
    graph = _recurrence(made_from)
    if derived == "vmap":
        graph = rlx.vmap(graph, batched={"x": 0}, size=2)
    elif derived != "primal":
        graph = getattr(rlx, derived)(graph, wrt=["w", "b"])
    rng = np.random.default_rng(made_from)
    values = {a.name: rng.uniform(-1, 1, a.shape.static).astype(np.float32) for a in graph.arguments}
    expected = rlx.evaluate(graph, values)
    for pipeline in (*_OF_REGIONS, to_mir(1, fuse=False)):
        result = rlx.passes.run(graph, pipeline)
        for a, b in zip(expected, rlx.evaluate(result, values), strict=True):
            np.testing.assert_array_equal(a, b, err_msg=f"{pipeline} of\n{graph}")

"""Limits of polynomial sizes: beyond them there is an error, not a long computation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import rlx
from rlx.ir.dims import dim
from rlx.ir.dims.interval import add, multiply


def _product(n: int) -> Any:
    return dim.product(dim.symbol(f"a{i}") + dim.symbol(f"b{i}") for i in range(n))


def _nested(n: int) -> Any:
    size = dim.symbol("a")
    for i in range(n):
        size = (size * 3 + i) // 7 % 5 + dim.symbol(f"b{i}")
    return size


def _squared(n: int) -> Any:
    size: Any = dim.symbol("a") * 12345678901
    for _ in range(n):
        size = size * size
    return size


GROWING: dict[str, Callable[[int], Any]] = {
    "product of sums": _product,
    "the same as text": lambda n: dim.parse("*".join(f"(a{i}+b{i})" for i in range(n))),
    "the same in a type": lambda n: rlx.parse(
        'module {\n  func.func @m(%x: tensor<?xf32, #rlx.dims<["' + "*".join(f"(a{i}+b{i})" for i in range(n)) + '"]>>)'
        " {\n    return\n  }\n}\n"
    ),
    "nested divisions": _nested,
    "coefficients": _squared,
    "many factors": lambda n: dim.product(dim.symbol(f"a{i}") for i in range(n * 100)),
    "brackets": lambda n: dim.parse("(" * n * 50 + "a" + ")" * n * 50),
    "minus": lambda n: dim.parse("-" * n * 100 + "a"),
    "long text": lambda n: dim.parse("+".join(["a"] * n * 100)),
    "long name": lambda n: dim.symbol("a" * n * 200),
    "shape": lambda n: rlx.Shape(("n",) * n * 2),
    "quotients": lambda n: _product(6) // (dim.symbol("c") + n) % _product(n),
}


@pytest.mark.parametrize("name", GROWING)
def test_what_grows_without_bound_is_refused(name: str) -> None:
    with pytest.raises(rlx.Error) as caught:
        GROWING[name](40)
    assert len(str(caught.value)) < 6000


@pytest.mark.parametrize("name", GROWING)
def test_sizes_of_models_are_far_below(name: str) -> None:
    GROWING[name](3)


def test_bounds_of_sizes_beyond_floats_are_exact() -> None:
    huge = 10**400
    assert multiply((huge, huge), (0, float("inf"))) == (0, float("inf"))
    assert add((huge, huge), (0, float("inf"))) == (huge, float("inf"))
    assert str(dim.parse(f"(a*{10**200})//({10**190}*b+1)"))


def test_large_splats_are_neither_written_out_nor_read_into_memory() -> None:
    for element, value in {"f32": "0.5", "bf16": "1.0", "complex<f32>": "(0.0,1.0)", "i1": "true"}.items():
        type_ = f"tensor<99999999999x{element}>"
        constant = f'%0 = "rlx.constant"() {{value = dense<{value}> : {type_}}} : () -> {type_}'
        g = rlx.parse(f"module {{\n  func.func @m() -> {type_} {{\n    {constant}\n    return %0 : {type_}\n  }}\n}}\n")
        for pipeline in ("canonicalize,cse", "rlx-constant-fold", "rlx-decompose"):
            assert len(str(rlx.passes.run(g, pipeline))) < 1000


def test_regions_are_nested_so_deep_that_every_transform_can_follow() -> None:
    def nested(g: Any, depth: int) -> Any:
        p, x = g.input("p", (), "bool"), g.input("x", (4,))

        def inner(depth: int, v: Any) -> Any:
            return g.if_(p, lambda w: inner(depth - 1, w), lambda w: w * 2, v) if depth else v * v

        g.set_outputs([g.sum(inner(depth, x))])
        return g

    deep = nested(rlx.Graph(), 47)
    assert str(rlx.parse(str(deep))) == str(deep)
    rlx.hvp(deep, wrt=["x"])
    rlx.vmap(deep, batched={"x": 0}, size=2)
    with pytest.raises(rlx.ShapeError, match="regions may be nested"):
        nested(rlx.Graph(), 100)


def test_loops_in_loops_are_not_unrolled_without_bound() -> None:
    g = rlx.Graph()
    x = g.input("x", (4,))

    def loop(depth: int, v: Any) -> Any:
        if not depth:
            return v + 1
        return g.while_(lambda w: g.lt(g.sum(w), 9.0), lambda w: loop(depth - 1, w), v, max_iterations=1000)

    g.set_outputs([loop(4, x)])
    with pytest.raises(rlx.PassError, match="at most"):
        rlx.passes.run(g, "rlx-lower-control-flow")

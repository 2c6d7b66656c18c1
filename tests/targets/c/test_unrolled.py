"""Unrolled loops in C: the steps share functions and constants."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.targets.c import emulate
from rlx.targets.c.lower.files import files_of
from rlx.targets.c.lower.program import CSource
from rlx.targets.c.lower.selftest import self_test_of
from tests.targets.c.programs import program_of


def recurrent(steps: int) -> rlx.Graph:
    """A recurrent layer of integers over some steps: two products with weights, a sum, and a table of tanh."""
    rng = np.random.default_rng(0)
    g: Any = rlx.Graph("recurrent")
    x, start = g.input("x", (steps, 1, 8), "i8"), g.input("start", (1, 12), "i8")
    w, u = (g.constant(rng.integers(-127, 128, (n, 12)).astype(np.int8)) for n in (8, 12))
    table = g.constant(np.round(127 * np.tanh(np.arange(-128, 128) / 64)).astype(np.int8))

    def step(h: Any, one: Any) -> Any:
        sums = g.q_matmul(one, w, dtype="i32") + g.q_matmul(h, u, dtype="i32")
        h = g.gather(table, g.cast(g.rescale(sums, 0.004), "i32") + 128)
        return h, h

    last, every = g.scan(step, start, x)
    g.set_outputs({"last": last, "every": every})
    return g


def unrolled(steps: int) -> CSource:
    return program_of(rlx.passes.run(recurrent(steps), "rlx-lower-control-flow"))


def test_steps_share_functions_and_constants() -> None:
    pytest.importorskip("unicorn")
    few, many = unrolled(3), unrolled(9)
    assert few.constant_bytes == many.constant_bytes
    codes = [files_of(p)[p.files.source].count("STEP void") for p in (few, many)]
    assert codes[0] == codes[1] and len(many.functions) > 2 * len(few.functions)
    images = [emulate.build(p, self_test=self_test_of(p)) for p in (few, many)]
    assert images[1].code - images[0].code < 6 * 120  # calls
    for program, image in zip((few, many), images, strict=True):
        machine = emulate.EmulatedMachine(image, program)
        assert machine.self_test() == 0


def test_the_numbers_are_those_of_the_loop() -> None:
    graph, rng = recurrent(6), np.random.default_rng(1)
    inputs = {a.name: rng.integers(-128, 128, a.shape.static).astype(np.int8) for a in graph.inputs}
    got = rlx.Session("c").compile(graph, passes="rlx-lower-control-flow", cache=False).run(inputs)
    for one, other in zip(got, rlx.evaluate(graph, inputs), strict=True):
        np.testing.assert_array_equal(one, other)


def test_kernels_that_only_look_alike_are_not_shared() -> None:
    g: Any = rlx.Graph("alike")
    x, y = g.input("x", (4,), "i8"), g.input("y", (4,), "i16")
    g.set_outputs([g.maximum(x, g.constant(np.int8(3))), g.maximum(y, g.constant(np.int16(3))), x - g.reverse(x, (0,))])
    inputs = {"x": np.array([1, 5, -3, 127], np.int8), "y": np.array([1, 5, -3, 127], np.int16)}
    for one, other in zip(rlx.Session("c").compile(g, cache=False).run(inputs), rlx.evaluate(g, inputs), strict=True):
        np.testing.assert_array_equal(one, other)

"""Pickles and copies of graphs, types and programs, here and in another process."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx

IN_ANOTHER_PROCESS = """
import pickle, sys
import numpy as np, rlx
with open(sys.argv[1], "rb") as file:
    graph, shape, dtype, program, weights, array, module, session = pickle.load(file)
assert {shape: 1}[rlx.Shape((1, "2*n", "max(n,m)"), "bf16")] == 1 and dtype is rlx.bf16
assert rlx.evaluate(graph, {"x": [1, 2]})[0].tolist() == [4, 7]
assert program.run({"x": [1, 2]})[0].tolist() == [9, 12] and program.state("s").tolist() == [6, 6]
assert weights["w"].numpy().tolist() == [3, 4] and np.asarray(array).tolist() == [9, 12]
assert module.stage == "hir" and session.compile(module).inputs[0].name == "x"
print("right")
"""


def summed() -> rlx.Graph:
    """Return `w·x + 1`, with a state that counts."""
    g = rlx.Graph("summed")
    x, w = g.input("x", (2,)), g.param("w", (2,), value=np.array([3, 3], np.float32))
    s = g.state("s", (2,), init=0)
    g.update(s, s + 1.0)
    with g.named("scope"):
        g.set_outputs({"y": x * w + s + 1.0})
    return g


def defined() -> rlx.GraphModule:
    return rlx.Graph.define("layer", lambda h: h.linear(h.input("x", (2, 4)), h.param("w", (4, 3))))


def test_a_pickle_works_in_another_process(tmp_path: Path) -> None:
    g = summed()
    program = rlx.Session(threads=1).compile(g)
    program.set_state("s", [5, 5])
    (array,) = program.run_device({"x": [1, 2]})
    program.set_state("s", [5, 5])
    weights = rlx.weights.Weights.of({"w": np.array([3, 4], np.float32)})
    shape = rlx.Shape((1, "2*n", "max(n,m)"), "bf16")
    assert shape.type is not None and hash(shape)
    session = rlx.Session(threads=1)
    path = tmp_path / "all.pickle"
    with path.open("wb") as file:
        pickle.dump((g, shape, rlx.bf16, program, weights, array, defined(), session), file)
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    command = [sys.executable, "-c", IN_ANOTHER_PROCESS, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert done.stdout == "right\n", done.stderr


def pickled(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


COPIES = [pickled, copy.copy, copy.deepcopy]


@pytest.mark.parametrize("copied", COPIES)
def test_copies_of_graphs_are_independent(copied: Any) -> None:
    g = summed()
    other = copied(g)
    assert other.text(locations=True) == g.text(locations=True) and other.name == g.name
    other.set_outputs([other.argument("x") * 3.0])
    assert rlx.evaluate(g, {"x": [1, 2]})[0].tolist() == [4, 7] and rlx.evaluate(other, {"x": [1, 2]})[0][0] == 3
    module = copied(defined())
    assert type(module) is rlx.GraphModule and str(module) == str(defined())


@pytest.mark.parametrize("copied", COPIES)
def test_copies_of_programs_have_their_own_states(copied: Any) -> None:
    program = rlx.Session(threads=1).compile(summed())
    program.run({"x": [0, 0]})
    other = copied(program)
    assert other.run({"x": [0, 0]})[0].tolist() == [2, 2] and program.state("s").tolist() == [1, 1]
    program.set_param("w", [5, 5])
    assert other.run({"x": [1, 1]})[0].tolist() == [6, 6]
    buckets = rlx.Graph("b")
    buckets.set_outputs([buckets.input("x", ("n",)) + 1.0])
    bucketed = copied(rlx.Session(threads=1).compile(buckets, buckets={"n": [2, 4]}))
    assert bucketed.run({"x": [1, 2, 3]})[0].tolist() == [2, 3, 4]


def test_a_pickled_program_says_what_a_machine_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a program is refused when it is loaded, as from a file."""
    data = pickle.dumps(rlx.Session(threads=1).compile(summed()))
    from rlx.targets.iree import cpu

    monkeypatch.setattr(cpu, "host_features", lambda: "another CPU")
    monkeypatch.setattr(cpu, "host_cpu", lambda: frozenset())
    program = pickle.loads(data)
    with pytest.raises(rlx.Error, match="lacks"):
        program.run({"x": [1, 2]})


def test_functions_of_ops_are_pickled_by_name() -> None:
    for function in (
        rlx.ops.relu,
        rlx.ops.softmax,
        rlx.ops.norm,
    ):  # the last one is a family of ops that is called as one
        assert pickled(function) is function


@rlx.jit(static="times")
def jitted(x: Any, times: int = 2) -> Any:
    return rlx.ops.sum(x * x) * float(times)


def plain(x: Any) -> Any:
    return rlx.ops.sum(x * x * x)


@pytest.mark.parametrize("copied", COPIES)
def test_copies_of_functions_under_jit(copied: Any) -> None:
    """As for Python functions, a copy is the function itself and a pickle is its name; unnamed ones pickle their parts."""
    x = np.array([1, 2], np.float32)
    assert copied(jitted) is jitted
    unnamed = rlx.jit(plain, threads=1)
    assert copied(unnamed).graph_for(x).text() == unnamed.graph_for(x).text()
    for gradient in (unnamed.grad(), jitted.value_and_grad("x"), unnamed.grad().__copy__()):
        other = copied(gradient)
        assert other.graph_for(x).text() == gradient.graph_for(x).text()


def test_tensors_of_a_graph_are_copied_and_not_pickled() -> None:
    x = rlx.Graph().input("x", (2,))
    assert copy.copy(x) is x and copy.deepcopy({"x": [x]})["x"][0] is x
    with pytest.raises(rlx.Error, match="part of its graph and cannot be pickled"):
        pickle.dumps(x)

"""Odd values for every option, name, shape and function: they are accepted, or an `rlx.Error` is raised."""

from __future__ import annotations

import decimal
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.runtime.arguments import checked_seconds
from rlx.targets.iree import backend
from tests.conformance.failures import Failures


class _Incomparable:
    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not to be compared")

    __hash__ = object.__hash__


def odd() -> dict[str, Any]:
    """One value of each kind."""
    numbers: dict[str, Any] = {"int": 5, "-1": -1, "0": 0, "huge": 10**30, "1.5": 1.5, "nan": math.nan, "inf": math.inf}
    texts = {"text": "zzz", "empty": "", "NUL": "a\0b", "surrogate": "a\udc80", "float": "float"}
    return {
        **numbers,
        **texts,
        "None": None,
        "True": True,
        "bytes": b"x",
        "list": [1],
        "empty list": [],
        "pair": (1, 2),
        "nested": ((1, 2), (3,)),
        "dict": {"a": 1},
        "set": {1},
        "object": object(),
        "array": np.ones(2),
        "np.int64": np.int64(3),
        "np.float32": np.float32(2),
        "class": int,
        "function": print,
        "incomparable": _Incomparable(),
        "Decimal": decimal.Decimal(1),
        "complex": 1j,
        "generator": (i for i in range(3)),
        "slice": slice(1),
        "...": ...,
        "byte order": np.dtype(">f4"),
        "range": range(3),
    }


def graph(*sizes: Any) -> rlx.Graph:
    g = rlx.Graph("g")
    g.set_outputs([g.input("x", sizes or (2, 3)) + g.param("w", (3,))])
    return g


def stateful() -> rlx.Graph:
    g = graph()
    g.state("s", (3,))
    return g


def hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


class NotCompiled(rlx.Error):
    """Raised if the back end is reached, so the options were accepted."""


X, W = np.ones((2, 3), np.float32), np.ones(3, np.float32)
Given = Callable[[Any], Any]


def _building() -> dict[str, Given]:
    def named(value: Any) -> None:
        g = graph()
        with g.named(value):
            g.neg(g.argument("x"))

    def output(value: Any) -> None:
        g = graph()
        g.set_outputs(value)
        g.verify()

    def updated(value: Any) -> None:
        g = stateful()
        g.update(g.argument("s"), value)

    return {
        "Graph": rlx.Graph,
        "stage": lambda v: rlx.Graph("a", stage=v),
        "name of an input": lambda v: graph().input(v, (2,)),
        "shape of an input": lambda v: graph().input("y", v),
        "size of an input": lambda v: graph().input("y", (v,)),
        "dtype of an input": lambda v: graph().input("y", (2,), v),
        "donate": lambda v: graph().input("y", (2,), donate=v),
        "shape of a state": lambda v: graph().state("y", v),
        "init": lambda v: graph().state("y", (2,), init=v),
        "init of u8": lambda v: graph().state("y", (2,), "u8", init=v),
        "named": named,
        "set_outputs": output,
        "output": lambda v: output([v]),
        "name of an output": lambda v: output({v: None}) if hashable(v) else None,
        "update of": lambda v: stateful().update(v, W),  # type: ignore[arg-type]
        "update with": updated,
        "argument": lambda v: graph().argument(v),
        "dtype": rlx.dtype,
        "promote, left": lambda v: rlx.promote(v, "f32"),
        "promote, right": lambda v: rlx.promote(rlx.f32, v),
        "Shape": rlx.Shape,
        "dtype of a shape": lambda v: rlx.Shape((2,), v),
        "evaluate": lambda v: rlx.evaluate(v, {}),
        "values": lambda v: rlx.evaluate(graph(), v),
        "name of a value": lambda v: rlx.evaluate(graph(), {"x": X, "w": W, v: W}) if hashable(v) else None,
        "model": rlx.model,
        "Input": rlx.Input,
        "dtype of Input": lambda v: rlx.Input(2, dtype=v),
    }


def _compiling() -> dict[str, Given]:
    def compile_(value: Any = None, **options: Any) -> None:
        rlx.Session().compile(graph("n", 3) if value is None else value, **options)

    return {
        **{option: lambda v, o=option: rlx.Session(**{o: v}) for option in ("device", "arch", "threads", "flags")},
        **{
            option: lambda v, o=option: compile_(**{o: v})
            for option in ("bind", "buckets", "precision", "passes", "policy", "cache", "timeout")
        },
        "compile": lambda v: compile_(graph() if v is None else v),
        "size in bind": lambda v: compile_(bind={"n": v}),
        "symbol in bind": lambda v: compile_(bind={v: 2}) if hashable(v) else None,
        "sizes in buckets": lambda v: compile_(buckets={"n": v}),
        "size in buckets": lambda v: compile_(buckets={"n": [v]}),
        "tune": lambda v: checked_seconds("tune", v),  # the first function that uses it
        "tune_inputs": lambda v: compile_(tune=1e-3, tune_inputs=v),
        "array in tune_inputs": lambda v: compile_(tune=1e-3, tune_inputs={"x": v}),
        "target": lambda v: rlx.Pipeline(target=v),
        "arch of a pipeline": lambda v: rlx.Pipeline(target="cpu", arch=v),
        "passes.run": lambda v: rlx.passes.run(graph(), v),
        "graph of passes.run": lambda v: rlx.passes.run(v, "builtin.module(cse)"),
    }


def _running(program: rlx.Program, bare: rlx.Program, folder: Path) -> dict[str, Given]:
    return {
        "run": program.run,
        "run without inputs": bare.run,
        "name of one more input": lambda v: program.run({"x": X, v: X}) if hashable(v) else None,
        "set_param": lambda v: program.set_param(v, W),
        "set_params": program.set_params,
        "name in set_params": lambda v: program.set_params({v: W}) if hashable(v) else None,
        "Program": rlx.Program,
        "entry point of Program": lambda v: rlx.Program({"a": v}),
        "entry point": lambda v: program[v],
        "copy": lambda v: program.set_params({"w": W}, copy=v) if not isinstance(v, bool) else None,
        "cast": lambda v: program.set_params({"w": W}, cast=v) if not isinstance(v, bool) else None,
        "params of save": lambda v: program.save(folder / "p", params=v),
        "size of program_for": lambda v: program.program_for(n=v),
        "threads of load": lambda v: rlx.load(folder / "absent", threads=v),
        "state": program.state,
        "set_state": lambda v: program.set_state(v, W),
        "save": lambda v: program.save(folder / v if isinstance(v, str) else v),
        "load": lambda v: rlx.load(folder / "absent" / v if isinstance(v, str) else v),
    }


def _check(places: dict[str, Given]) -> None:
    failures = Failures()
    for place, call in places.items():
        for kind, value in odd().items():
            with failures.of(f"{place}: {kind}"):
                try:
                    call(value)
                except rlx.Error as problem:
                    assert problem.message and len(str(problem)) < 2000, f"{len(str(problem))} characters"
    failures.check()


def test_building() -> None:
    _check(_building())


def test_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise NotCompiled("the options were taken")

    monkeypatch.setattr(backend, "compile_program", refuse)
    _check(_compiling())


def test_running(session: Any, tmp_path: Path) -> None:
    g = stateful()
    program = session.compile(g, params={"w": W})
    bare = rlx.Graph("bare")
    bare.set_outputs([bare.constant(1.0)])
    _check(_running(program, session.compile(bare), tmp_path))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda g: g.state("s", ("n", 3)), r"state 's' must have sizes that are known, got f32\[n, 3\]"),
        (lambda g: g.state("s", (2,), init=np.ones(2)), "state 's': init must be a number, got ndarray"),
        (lambda g: g.state("s", (2,), "u8", init=256), "state 's': 256 does not fit u8"),
        (lambda g: g.state("s", (2,), "i32", init=0.5), "state 's': 0.5 does not fit i32"),
        (lambda g: g.state("s", (2,), "i64", init=2**53 + 1), "has more digits than a double"),
        (lambda g: g.state("s", (2,), "f16", init=1e5), "does not fit f16"),
        (lambda g: g.input("", (2,)), "name is a non-empty string"),
        (lambda g: g.input("a\0", (2,)), "without NUL"),
        (lambda g: g.input("\udc80", (2,)), "Unicode"),
        (lambda g: g.input("y", None), "input 'y': a shape is a sequence of sizes, not None"),
        (lambda g: g.input("y", {2: 3}), "input 'y': a shape is a sequence of sizes"),
        (lambda g: g.input("y", (2.0,)), "input 'y': a dimension is an integer"),
        (lambda g: g.input("y", (2,), ">f4"), "input 'y': '>f4' is not one of the dtypes"),
        (lambda g: g.set_outputs(5), "set_outputs takes tensors, or tensors by name, got int"),
        (lambda g: g.set_outputs({1: g.argument("x")}), "an output's name is a non-empty string, not 1"),
        (lambda g: g.set_outputs([graph().argument("x")]), "output 'output0' must be a tensor of this graph"),
        (lambda g: g.set_outputs([_of_a_region(g)]), "made inside a region that has ended"),
        (lambda g: g.argument("x") + graph().argument("x"), "belongs to another graph"),
        (lambda g: 1 if g.argument("x") > 0 else 2, "Python cannot branch on it"),
        (lambda g: [1 for _ in g.sum(g.argument("x"))], "cannot be iterated over"),
        (lambda g: 0.0 in g.argument("x"), "Python cannot branch on it"),
        (lambda g: sorted([g.argument("x"), g.argument("x")]), "Python cannot branch on it"),
        (lambda g: np.asarray(g.argument("x")), "has no value while it is traced"),
    ],
)
def test_messages_have_the_line(call: Any, message: str) -> None:
    g = graph()
    with pytest.raises(rlx.Error, match=rf"test_misuse\.py:\d+: [^\n]*{message}"):
        call(g)
    g.verify()
    assert [o.name for o in g.outputs] == ["output0"]  # unchanged


def _of_a_region(g: rlx.Graph) -> Any:
    kept = []
    x = g.argument("x")
    g.if_(g.constant(True), lambda: kept.append(x * 2.0) or kept[0], lambda: x)
    return kept[0]


@pytest.mark.parametrize("call", [float, int, complex, range, math.sqrt, "{:.2f}".format])
def test_tensors_are_no_numbers(call: Any) -> None:
    x: Any = graph().argument("x")
    with pytest.raises((TypeError, rlx.Error)):
        call(x)


def test_names_and_builders_of_other_types_are_refused(tmp_path: Path) -> None:
    program = rlx.Session().compile(graph(), params={"w": np.ones(3, np.float32)})
    with pytest.raises(rlx.Error, match=r"input 'x' .* is missing"):
        program.run({1: np.ones(4, np.float32)})  # type: ignore[dict-item]
    with pytest.raises(rlx.Error, match="expected a function that builds 'a', got 5"):
        rlx.Graph.define("a", 5)  # type: ignore[arg-type]
    (tmp_path / "w.txt").write_text("w = 1")
    weighted = rlx.Graph("weighted")
    weighted.set_outputs([weighted.param("w", (2,)) + 1.0])
    with pytest.raises(rlx.Error, match=r"(?s)cannot read .*w.txt.*expected a safetensors"):
        rlx.Session().compile(weighted, params=tmp_path / "w.txt")


def test_promote_takes_what_dtype_takes() -> None:
    assert rlx.promote("f32", "i32") is rlx.f32
    assert rlx.promote(np.int8, "u8") is rlx.i16
    assert rlx.promote(rlx.f16, np.dtype("bfloat16")) is rlx.f32


def test_outputs_are_set_again() -> None:
    g = graph()
    x = g.argument("x")
    g.set_outputs({"a": x, "b": x})
    g.set_outputs([x])
    g.set_outputs(out for out in (x, x))
    assert [o.name for o in g.outputs] == ["output0", "output1"]
    np.testing.assert_array_equal(rlx.evaluate(g, {"x": X, "w": W}), [X, X])


_SCRIPT = """
import numpy as np, rlx
g = rlx.Graph("g")
x = g.input("x", (2, 3))
g.set_outputs([x * 2.0])
print(rlx.Session(threads=1).compile(g, cache=False).run({"x": np.ones((2, 3), "f4")})[0].sum())
try:
    x @ x
except rlx.Error as error:
    print(ascii(str(error)))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no paths of any bytes")
def test_a_script_whose_path_is_no_text(tmp_path: Path) -> None:
    """A path of bytes that the locale cannot decode, and one with characters that MLIR escapes when printing."""
    for name, shown in ((b"caf\xe9.py", "caf"), ('é"\\.py'.encode(), '\\xe9"')):
        path = os.fsencode(tmp_path) + b"/" + name
        with open(path, "w", encoding="utf-8") as file:
            file.write(_SCRIPT)
        environment = os.environ | {"PYTHONPATH": str(Path(rlx.__file__).parents[1])}
        done = subprocess.run([sys.executable, path], capture_output=True, text=True, env=environment, timeout=300)
        assert done.returncode == 0, done.stderr
        total, message = done.stdout.splitlines()
        assert total == "12.0"
        assert shown in message and ":8: rlx.matmul" in message and "\\\\C3" not in message

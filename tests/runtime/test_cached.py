"""The contents and messages of the cache: the best available programs, with the lines of the present graph."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.targets import compilation
from rlx.targets.iree import backend, compiler
from rlx.targets.worker.process import Reply, WorkerDied
from tests.drawing import drawn

Inject = Callable[..., None]


@pytest.fixture
def inject(monkeypatch: pytest.MonkeyPatch) -> Inject:
    """Return a function that sets the outcomes of the next compile requests."""
    pending: list[WorkerDied | Reply] = []
    really = compiler.default_pool.request

    def request(command: Any, header: Any, body: bytes = b"", **options: Any) -> Reply:
        if not pending or header["kind"] != "compile":
            return really(command, header, body, **options)
        end = pending.pop(0)
        if isinstance(end, WorkerDied):
            raise end
        return end

    monkeypatch.setattr(compiler.default_pool, "request", request)
    return lambda *ends: pending.extend(ends)


def failed(message: str) -> Reply:
    """Return a failure from the compiler."""
    return Reply({"outcome": "compile", "diagnostics": [["error", message]], "target": ""}, b"", "")


TIME = WorkerDied(-9, True, "")
KILLED = WorkerDied(-9, False, "")
TERMINATED = WorkerDied(-15, False, "")
CRASHED = WorkerDied(-11, False, "")
NO_MEMORY = WorkerDied(-6, False, "LLVM ERROR: out of memory\nAllocation failed")
NO_SPACE = failed("failed to create the linker's output: No space left on device")


def graph() -> Any:
    g: Any = rlx.Graph("cached")
    g.set_outputs([g.relu(g.input("x", (2, 3)))])
    return g


def rung(compiled: Any) -> int:
    """Return which rung of the ladder a program is from."""
    return rlx.Session().target.attempts.index(tuple(compiled.artifact.info["flags"]))  # type: ignore[attr-defined]


_WEAKER = {
    "time": [TIME],
    "time-twice": [TIME, TIME],
    "killed": [KILLED, KILLED],
    "terminated": [KILLED, TERMINATED],
    "memory": [NO_MEMORY],
    "space": [NO_SPACE],
    "crash-and-time": [CRASHED, TIME],
}


@drawn("ends", _WEAKER, of_each=3)
def test_what_is_weaker_by_chance_is_not_kept(inject: Inject, tmp_path: Path, ends: str) -> None:
    inject(*_WEAKER[ends])
    weak = rlx.Session().compile(graph(), cache=tmp_path)
    assert rung(weak) > 0
    x = np.array([[-1, 0, 1], [2, -3, 4]], np.float32)
    np.testing.assert_array_equal(weak.run({"x": x})[0], np.maximum(x, 0))
    better = rlx.Session().compile(graph(), cache=tmp_path)
    assert ("cached" in better.phases, rung(better)) == (False, 0)
    assert "cached" in rlx.Session().compile(graph(), cache=tmp_path).phases


@pytest.mark.parametrize("ends", [[], [KILLED], [CRASHED], [failed("'linalg.generic' op is not supported")]])
def test_what_would_come_out_alike_is_kept(inject: Inject, tmp_path: Path, ends: list[Any]) -> None:
    inject(*ends)
    first = rlx.Session().compile(graph(), cache=tmp_path)
    again = rlx.Session().compile(graph(), cache=tmp_path)
    assert "cached" in again.phases
    assert again.artifact == first.artifact


def test_the_key_depends_on_the_compilers_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rlx.Session().compile(graph(), cache=tmp_path)
    monkeypatch.setattr(backend, "compiler_version", lambda: "4.0")
    assert "cached" not in rlx.Session().compile(graph(), cache=tmp_path).phases


def block() -> Any:
    def build(m: Any) -> Any:
        return {"y": m.linear(m.input("x", (2, 8)), m.param("w", (8, 8)), m.param("b", (8,)), activation="relu")}

    return rlx.GraphModule.define("block", build).as_hir


def test_what_is_in_the_cache_is_found_without_a_pass(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rlx.Session("xla").compile(block(), cache=tmp_path)

    def refuse(*_: Any, **__: Any) -> Any:
        raise rlx.PassError("a pass ran")

    monkeypatch.setattr(compilation, "run", refuse)
    assert "cached" in rlx.Session("xla").compile(block(), cache=tmp_path).phases
    with pytest.raises(rlx.PassError, match="a pass ran"):
        rlx.Session("xla").compile(block(), cache=tmp_path, precision="f16")


def test_the_key_depends_on_the_options(tmp_path: Path) -> None:
    options: list[dict[str, Any]] = [
        {},
        {"policy": "fusable"},
        {"precision": "bf16"},
        {"precision": "f16"},
        {"passes": "rlx-lower-blocks,rlx-decompose{ops=fused_matmul_bias_act}"},
    ]
    for session in (rlx.Session("xla"), rlx.Session("xla", flags=("--xla_backend_optimization_level=0",))):
        for given in options:
            assert "cached" not in session.compile(block(), cache=tmp_path, **given).phases, given
            assert "cached" in session.compile(block(), cache=tmp_path, **given).phases, given


# --- locations ------------------------------------------------------------------------------------------


def built(file: str, line: int, call: str) -> Any:
    """Return a graph with one call in a user's file."""
    g: Any = rlx.Graph("placed")
    names = {"g": g, "x": g.input("x", ("n", 4))}
    exec(compile("\n" * (line - 1) + f"y = {call}", file, "exec"), names)
    g.set_outputs([names["y"]])
    return g


# The last two are lowered to other ops, which have requirements on n themselves.
CALLS = ["g.narrow(x, 0, 0, x.shape.dims[0] - 3)", "g.rfft(x, axis=0)", "g.sort(x, axis=0)"]


@pytest.mark.parametrize("call", CALLS)
@drawn("device", ["cpu", "xla"])
def test_what_a_program_needs_is_told_of_the_graph_at_hand(device: str, call: str, tmp_path: Path) -> None:
    if device == "xla":
        pytest.importorskip("jax")
    session = rlx.Session(device)
    first = session.compile(built("first.py", 12, call), cache=tmp_path)
    second = session.compile(built("second.py", 30, call), cache=tmp_path)
    assert "cached" in second.phases
    places = [[place for _, _, place in p.artifact.info["requirements"]] for p in (first, second)]
    assert [set(found) for found in places] == [{"first.py:12"}, {"second.py:30"}]
    assert len(places[0]) == len(places[1])
    assert second.artifact.program == first.artifact.program


@pytest.mark.parametrize("kept", [False, True], ids=["in memory", "in a file"])
def test_an_error_names_the_line_of_the_graph_at_hand(kept: bool, tmp_path: Path) -> None:
    for file, line in (("first.py", 12), ("second.py", 30)):
        program = rlx.Session().compile(built(file, line, CALLS[0]), cache=tmp_path)
        if kept:
            program.save(tmp_path / "program.rlxa")
            program = rlx.load(tmp_path / "program.rlxa")
        with pytest.raises(rlx.ShapeError, match=rf"^{file}:{line}: .*n = 2"):
            program.run({"x": np.ones((2, 4), np.float32)})
        assert program.run({"x": np.ones((5, 4), np.float32)})[0].shape == (2, 4)

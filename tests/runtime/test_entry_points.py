"""Programs with several entry points, which share parameters and states."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import weakref
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir.graph.evaluate import evaluate_function
from rlx.runtime import call_inputs, program, program_values, shared_data, shared_states
from rlx.support import locks
from rlx.targets.iree import executable
from rlx.targets.xla import backend as xla
from rlx.weights import arrays as weight_arrays
from tests.drawing import drawn
from tests.interrupts import Interrupts
from tests.models.references import arrays, reference, weights, write_model
from tests.runtime.test_threads import at_once

N = 600  # rows of the cache, enough for the runtime to lend memory instead of copying it
PARAMS = {"w": np.array([1, 2, 3, 4], np.float32), "k": np.array(2, np.float32)}
PREFILL, DECODE = {"x": np.ones((3, 4), np.float32), "at": 5}, {"t": np.full((1, 4), 7, np.float32)}


def prefill() -> Any:
    """Write three rows at a position: the state is updated in place."""
    g: Any = rlx.Graph("fill")
    x, at, w = g.input("x", (3, 4)), g.input("at", (), "i32"), g.param("w", (4,))
    cache, count = g.state("cache", (N, 4), init=1.0), g.state("count", (), "i32")
    g.update(cache, g.dynamic_update_slice_in_dim(cache, x * w, at, 0))
    g.update(count, count + 1)
    g.set_outputs({"y": x * w, "before": cache * 1.0})
    return g


def decode() -> Any:
    """Move the rows by one."""
    g: Any = rlx.Graph("step")
    t, w, k = g.input("t", (1, 4)), g.param("w", (4,)), g.param("k", ())
    cache, own = g.state("cache", (N, 4), init=1.0), g.state("own", (), init=0.5)
    following = g.concat([g.narrow(cache, 0, 1, N - 1), t * k], 0)
    g.update(cache, following)
    g.update(own, own + k)
    g.set_outputs({"sum": g.sum(following, 0) * w, "own": own * 1.0})
    return g


GRAPHS = {"prefill": prefill, "decode": decode}


@pytest.fixture(scope="module", params=["cpu", "xla"])
def made(request: pytest.FixtureRequest) -> rlx.Program:
    if request.param == "xla":
        pytest.importorskip("jax")
    graphs = {name: graph() for name, graph in GRAPHS.items()}
    return rlx.Session(request.param, threads=1).compile(graphs, params=PARAMS)


@pytest.fixture
def programs_(made: rlx.Program) -> rlx.Program:
    """Return programs used by one test only."""
    return copy.deepcopy(made)


class Meaning:
    """The evaluator's results for a sequence of calls of entry points."""

    def __init__(self) -> None:
        self.graphs = {name: graph() for name, graph in GRAPHS.items()}
        self.params: dict[str, np.ndarray] = dict(PARAMS)
        self.reset()

    def reset(self) -> None:
        states = [a for g in self.graphs.values() for a in g.arguments if a.kind == "state"]
        self.states = {a.name: np.full(a.shape.static, a.init, a.shape.dtype.numpy) for a in states}

    def run(self, name: str, inputs: dict[str, Any]) -> list[np.ndarray]:
        graph = self.graphs[name]
        values = {**self.params, **self.states, **inputs}
        given = [np.asarray(values[a.name], a.shape.dtype.numpy) for a in graph.arguments]
        results = evaluate_function(graph.function, given, {})
        pairs = list(zip(results, graph.results, strict=True))
        self.states |= {o.updates: r for r, o in pairs if o.updates is not None}
        return [r for r, o in pairs if o.updates is None]


def same(found: list[Any], expected: list[np.ndarray]) -> None:
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(a), b, rtol=1e-5)


def test_any_order_of_calls_is_what_the_evaluator_gives(programs_: rlx.Program, seed: int) -> None:
    meaning, rng = Meaning(), np.random.default_rng(seed)
    held: list[tuple[Any, Any]] = []
    for _ in range(60):
        name = ("prefill", "decode")[int(rng.integers(2))]
        rows = rng.integers(0, 9, (3 if name == "prefill" else 1, 4)).astype(np.float32)
        inputs = {"x": rows, "at": int(rng.integers(0, N - 3))} if name == "prefill" else {"t": rows}
        run: Any = getattr(programs_[name], ("run", "run_device", "run_async")[int(rng.integers(3))])
        found = run(inputs)
        held.append((found if isinstance(found, list) else found.result(), meaning.run(name, inputs)))
        match int(rng.integers(12)):
            case 0:
                programs_.set_param("k", k := np.float32(rng.integers(1, 5)))
                meaning.params["k"] = np.asarray(k)
            case 1:
                programs_[name].set_params({"w": PARAMS["w"] * 2})
                meaning.params["w"] = PARAMS["w"] * 2
            case 2:
                value = rng.integers(0, 9, (N, 4)).astype(np.float32)
                (programs_ if rng.integers(2) else programs_[name]).set_state("cache", value)
                meaning.states["cache"] = value
            case 3:
                programs_.reset_state()
                meaning.reset()
            case 4:
                same([programs_.state(s) for s in meaning.states], list(meaning.states.values()))
                same([programs_["decode"].state("own")], [meaning.states["own"]])
        for pair in held[-4:]:  # results belong to the caller, whatever runs afterwards
            same(*pair)


@drawn("device", ["cpu", "xla"])
def test_a_language_model_goes_on_from_its_cache(device: str, tmp_path: Path) -> None:
    """In a small Llama with keys and values as states, both entry points give the logits of the whole text."""
    from rlx.models import load

    content = reference("llama")
    model = load(write_model(tmp_path / "llama", content["config"], weights(content["tensors"])))
    ids = arrays(content["inputs"])["input_ids"][:1, :5]

    def graph(past: int, tokens: int) -> Any:
        inner = model.graph(sequence=tokens, past=past, cache=True)
        g: Any = rlx.Graph(f"from_{past}")
        given = {"input_ids": g.input("ids", (1, tokens), "i32")}
        caches = {o.name: g.state(o.name, (1, 5, *o.shape.dims[2:])) for o in inner.outputs if o.name != "logits"}
        if past:
            given |= {f"past_{key}": g.narrow(cache, 1, 0, past) for key, cache in caches.items()}
        results = dict(zip([o.name for o in inner.outputs], rlx.call(inner, **given), strict=True))
        for key, cache in caches.items():
            g.update(cache, g.dynamic_update_slice_in_dim(cache, results[key], g.constant(np.int32(0)), 1))
        g.set_outputs({"logits": results["logits"]})
        return g

    places = {"prefill": (0, 4), "decode": (4, 1)}
    (whole,) = rlx.evaluate(model.graph(sequence=5), {"input_ids": ids})
    p = rlx.Session(device).compile({name: graph(*place) for name, place in places.items()})
    for _ in range(2):
        found = [p[name].run({"ids": ids[:, past : past + n]})[0] for name, (past, n) in places.items()]
        np.testing.assert_allclose(np.concatenate(found, 1), whole, rtol=1e-3, atol=1e-4)


def test_as_a_mapping(made: rlx.Program) -> None:
    assert list(made) == ["prefill", "decode"] == list(made.names) and len(made) == 2
    assert "decode" in made and "none" not in made and 3 not in made
    assert isinstance(made["decode"], rlx.Program)
    assert [a.name for a in made.params] == ["w", "k"] and [a.name for a in made.states] == ["cache", "count", "own"]
    assert (
        "<Program with entry points prefill, decode; 2 parameters, all set; states cache: f32[600, 4], count"
        in repr(made)
    )
    with pytest.raises(rlx.Error, match=r"there is no entry point 'decod' .*did you mean 'decode'.*prefill, decode"):
        made["decod"]
    with pytest.raises(rlx.Error, match="there is no state 'cach'"):
        made.state("cach")
    with pytest.raises(rlx.Error, match="there is no parameter 'v'"):
        made.set_param("v", 1.0)
    assert made["prefill"].cost().flops  # its source graph is known


def test_a_program_with_several_entry_points_is_a_mapping(made: rlx.Program) -> None:
    assert isinstance(made, Mapping)
    assert dict(made) == dict(made.items()) and list(made.values()) == [made["prefill"], made["decode"]]
    assert made.get("none") is None and made.get("decode") is made["decode"]
    with pytest.raises(KeyError):
        made["none"]
    single = made["decode"]
    assert len(single) == 0 and single and single.names == ()
    with pytest.raises(rlx.Error, match="there is no entry point 'decode': the program is of a single graph"):
        single["decode"]
    assert single != made["prefill"] and len({single, made["prefill"], made}) == 3


def test_calls_of_a_whole_program_name_the_entry_points(made: rlx.Program) -> None:
    calls: dict[str, Any] = {name: getattr(made, name) for name in ("run", "run_named", "run_device", "run_async")}
    calls |= {"profile": made.profile, "cost": made.cost, "program_for": made.program_for}
    calls |= {name: partial(getattr, made, name) for name in ("inputs", "outputs", "artifact", "buckets")}
    for name, call in calls.items():
        message = rf"{name}: the program has the entry points prefill, decode\n.*program\['prefill'\]\.{name}"
        with pytest.raises(rlx.Error, match=message):
            call()


def test_wrong_calls_change_nothing(programs_: rlx.Program) -> None:
    programs_["prefill"].run(PREFILL)
    before = programs_.state("cache")
    with pytest.raises(rlx.Error, match="input 't' must be"):
        programs_["decode"].run({"t": np.ones(3, np.float32)})
    with pytest.raises(rlx.Error, match="param 'k' must be"):
        programs_.set_params({"w": PARAMS["w"] * 0, "k": np.ones(2, np.float32)})
    with pytest.raises(rlx.Error, match="state 'cache' must be"):
        programs_.set_state("cache", np.ones(3, np.float32))
    np.testing.assert_array_equal(programs_.state("cache"), before)
    assert programs_["prefill"].run(PREFILL)[0][0].tolist() == PARAMS["w"].tolist()


def test_copies_have_states_of_their_own(programs_: rlx.Program) -> None:
    programs_["prefill"].run(PREFILL)
    for other in (copy.deepcopy(programs_), pickle.loads(pickle.dumps(programs_))):
        assert other.state("count") == 1
        other["prefill"].run(PREFILL)
        assert (other.state("count"), programs_.state("count")) == (2, 1)
    alone = pickle.loads(pickle.dumps(programs_["prefill"]))
    assert type(alone) is rlx.Program and alone.state("count") == 1
    alone.run(PREFILL)
    assert (alone.state("count"), programs_.state("count")) == (2, 1)


def test_nothing_keeps_programs_that_are_not_used(made: rlx.Program) -> None:
    p = copy.deepcopy(made)
    p["prefill"].run(PREFILL)
    p["decode"].run(DECODE)
    parts = [weakref.ref(part) for part in (p._data, p._data.states, *p._data.content.programs.values())]
    gc.disable()
    try:
        del p
        assert [part() for part in parts] == [None] * 4  # so that device memory is free at once
    finally:
        gc.enable()


# --- threads and interrupts -------------------------------------------------------------------------


def test_threads_lose_no_update(programs_: rlx.Program) -> None:
    programs_.load()
    done = threading.Event()

    def fill() -> None:
        for _ in range(20):
            programs_["prefill"].run(PREFILL)

    def step() -> None:
        for _ in range(20):
            programs_["decode"].run(DECODE)

    def set_weights() -> None:
        while not done.wait(0.01):
            programs_.set_params(PARAMS)
            assert 0 <= programs_.state("count") <= 40

    watcher = threading.Thread(target=set_weights)
    watcher.start()
    try:
        at_once(fill, step, fill, step)
    finally:
        done.set()
        watcher.join(60)
    assert (programs_.state("count"), programs_.state("own")) == (40, 0.5 + 40 * 2)


def test_calls_of_run_async_come_in_order(programs_: rlx.Program) -> None:
    calls = [("prefill", {**PREFILL, "at": i}) if i % 2 else ("decode", DECODE) for i in range(12)]
    meaning = Meaning()
    futures = [programs_[name].run_async(inputs) for name, inputs in calls]
    for future, (name, inputs) in zip(futures, calls, strict=True):
        same(future.result(60), meaning.run(name, inputs))
    same([programs_.state("cache")], [meaning.states["cache"]])


@drawn("share", range(4))
def test_an_interrupt_at_any_step_leaves_states_that_belong_together(share: int, programs_: rlx.Program) -> None:
    """In particular while states move from one program to the other."""
    p = programs_
    ours = [program, program_values, call_inputs, shared_data, shared_states, weight_arrays, locks]
    interrupts = Interrupts([*ours, executable, xla])

    def work() -> None:
        p["decode"].run(DECODE)
        p.set_param("k", 2.0)
        p.state("cache")

    def prepare() -> Meaning:
        p.reset_state()
        p["prefill"].run(PREFILL)
        meaning = Meaning()
        meaning.run("prefill", PREFILL)
        return meaning

    prepare()
    for step in interrupts.steps(work)[share::4]:
        meaning = prepare()
        interrupts.at(step, work)
        if at_once(partial(p.state, "own"))[0] != 0.5:  # in another thread, to find locks still held
            meaning.run("decode", DECODE)
        same([p.state(n) for n in meaning.states], list(meaning.states.values()))
        for name, inputs in (("prefill", {**PREFILL, "at": 9}), ("decode", DECODE)):
            same(p[name].run(inputs), meaning.run(name, inputs))


# --- refusals ---------------------------------------------------------------------------------------------


def small(name: str, kind: str = "", shape: tuple[int, ...] = (), dtype: str = "f32", init: float = 0.0) -> Any:
    """Return a graph with an input of a given size, and optionally a parameter or state `a`."""
    g: Any = rlx.Graph(name)
    outputs = [g.input("x", ("n", 2)) * 2.0]
    if kind:
        a = g.param("a", shape, dtype) if kind == "param" else g.state("a", shape, dtype, init=init)
        outputs.append(a * 1.0)
    g.set_outputs(outputs)
    return g


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (("param", (2,)), ("param", (3,)), r"'a' is a parameter f32\[2\] in 'one' and a parameter f32\[3\] in 'two'"),
        (("param", (2,)), ("param", (2,), "f16"), r"f32\[2\] in 'one' and a parameter f16\[2\] in 'two'"),
        (("state", (2,)), ("state", (2,), "f32", 1.0), "begins as 0 in 'one' and a state .* begins as 1 in 'two'"),
        (("state", (2,)), ("param", (2,)), "is a state .* in 'one' and a parameter"),
    ],
)
def test_what_has_one_name_must_be_one(first: Any, second: Any, message: str) -> None:
    with pytest.raises(rlx.Error, match=message):
        rlx.Session().compile({"one": small("one", *first), "two": small("two", *second)})


def test_wrong_calls_of_compile() -> None:
    session, g = rlx.Session(), small("g")
    cases: list[tuple[Any, dict[str, Any], str]] = [
        ({}, {}, "0 entry points"),
        ({"": g}, {}, "the name of an entry point is a non-empty string"),
        ({3: g}, {}, "the name of an entry point is a non-empty string, not 3"),
        ({"a": 3}, {}, "entry point 'a': compile takes a Graph or GraphModule, got int"),
        ({"a": rlx.Graph("none")}, {}, "entry point 'a': graph 'none' has no outputs"),
        ({"a": g}, {"bind": {"m": 3}}, "bind: no graph has a symbol m; they have n"),
        ({"a": g}, {"buckets": {"n": [3]}}, "buckets go with one graph"),
        ({"a": g}, {"tune": 3}, "tune goes with one graph"),
        ({"a": g}, {"params": {"w": 3}}, "there is no parameter 'w'"),
    ]
    for graphs, options, message in cases:
        with pytest.raises(rlx.Error, match=message):
            session.compile(graphs, **options)


def weighted(name: str, value: Any) -> Any:
    g: Any = rlx.Graph(name)
    w = g.param("w", (2,)) if value is None else g.param("w", (2,), value=np.array(value, np.float32))
    g.set_outputs({"y": g.input("x", ("n", 2)) * w})
    return g


def test_weights_that_came_with_graphs_and_sizes_that_are_bound() -> None:
    session, x = rlx.Session(), np.ones((3, 2), np.float32)
    p = session.compile({"a": weighted("a", [3, 4]), "b": weighted("b", None)}, bind={"n": 3}, precision="f16")
    for name in p:
        assert p[name].run({"x": x})[0].tolist() == [[3, 4]] * 3
        assert str(p[name].inputs[0].shape) == "f32[3, 2]"
    p = session.compile(
        {"a": weighted("a", [3, 4]), "b": weighted("b", [3, 4])}, params={"w": [5.0, 6.0]}, bind={"n": 3}
    )
    assert p["b"].run({"x": x})[0].tolist() == [[5, 6]] * 3
    with pytest.raises(rlx.Error, match="parameter 'w' came with other values in 'b' than in 'a'"):
        session.compile({"a": weighted("a", [3, 4]), "b": weighted("b", [3, 5])})


def test_entry_points_are_functions_of_one_program() -> None:
    """Weights and states are in memory once."""
    program = rlx.Session("cpu", threads=1).compile({name: graph() for name, graph in GRAPHS.items()}, params=PARAMS)
    meaning = Meaning()
    for name, inputs in (("prefill", PREFILL), ("decode", DECODE), ("prefill", PREFILL)):
        same(program[name].run(inputs), meaning.run(name, inputs))
    loaded: list[Any] = list(program._data.content.programs.values())
    assert len(loaded) == 2 and loaded[0].executable is loaded[1].executable


def test_one_of_several_entry_points_is_a_file_of_its_own(tmp_path: Path) -> None:
    """Its weights suffice, although the code has other functions with other weights."""
    program = rlx.Session("cpu", threads=1).compile({name: graph() for name, graph in GRAPHS.items()}, params=PARAMS)
    program["prefill"].save(tmp_path / "prefill.rlxa")
    alone = rlx.load(tmp_path / "prefill.rlxa")
    alone.set_params({"w": PARAMS["w"]})
    assert [a.name for a in alone.params] == ["w"]
    same(alone.run(PREFILL), Meaning().run("prefill", PREFILL))


def test_graphs_of_one_name_are_different_functions() -> None:
    def graph(factor: float) -> Any:
        g: Any = rlx.Graph("step")
        g.set_outputs(g.input("x", (3,)) * factor)
        return g

    program = rlx.Session("cpu").compile({"a": graph(2.0), "b": graph(3.0), "step_a": graph(5.0)})
    x = {"x": np.ones(3, np.float32)}
    assert [program[name].run(x)[0][0] for name in program] == [2, 3, 5]


def test_entry_points_are_profiled() -> None:
    program = rlx.Session("cpu", threads=1).compile({name: graph() for name, graph in GRAPHS.items()}, params=PARAMS)
    for name, inputs in (("prefill", PREFILL), ("decode", DECODE)):
        assert program[name].profile(inputs, runs=2).name == GRAPHS[name]().name


def test_graphs_of_one_name_are_profiled() -> None:
    def graph(factor: float) -> Any:
        g: Any = rlx.Graph("step")
        x = g.input("x", (64, 64))
        g.set_outputs(g.softmax(x @ x) * factor)
        return g

    program = rlx.Session("cpu").compile({"a": graph(2.0), "b": graph(3.0)})
    assert "softmax" in str(program["b"].profile({"x": np.ones((64, 64), np.float32)}, runs=2))

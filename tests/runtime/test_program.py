"""Use and misuse of compiled graphs."""

from __future__ import annotations

import gc
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import rlx
from tests.drawing import drawn


@pytest.fixture(scope="module")
def program(session: Any, linear_graph: Any) -> Any:
    return session.compile(linear_graph)


@pytest.fixture
def compiled(program: Any) -> Any:
    """Return the program without weights. Compilation is shared, but state is not."""
    return rlx.Program(program.artifact, threads=1)


def test_runs_as_the_evaluator(compiled: Any, linear_graph: Any, arrays: Any) -> None:
    compiled.set_param("w", arrays["w"])
    expected = rlx.evaluate(linear_graph, arrays)
    for result, wanted in zip(compiled.run({"x": arrays["x"]}), expected, strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-5)
    assert list(compiled.run_named({"x": arrays["x"]})) == ["y", "same"]


def test_arguments_and_outputs_are_described(session: Any) -> None:
    """Graphs, programs and bucketed programs behave alike."""
    g: Any = rlx.Graph("described")
    g.set_outputs({"best": g.argmax(g.input("x", ("n", 4), "f16"), axis=-1)})
    for holder in (g, session.compile(g), session.compile(g, buckets={"n": [2]})):
        (x,), (best,) = holder.inputs, holder.outputs
        assert (x.name, x.rank, x.dims[1], x.dtype, x.shape) == ("x", 2, 4, rlx.f16, ("n", 4))
        assert (best.name, best.rank, best.dims, best.dtype.numpy) == ("best", 1, x.dims[:1], np.int32)


@pytest.mark.parametrize("device", ["cpu", "xla"])
def test_names_may_be_longer_than_those_of_files(device: str, tmp_path: Path) -> None:
    """IREE's linker files begin with the name of the graph. These two graphs differ after 255 characters."""
    x = np.ones(2, np.float32)
    for number in (1.0, 2.0):
        g: Any = rlx.Graph("g" * 300 + str(int(number)))
        value, state = g.input("x" * 300, (2,)), g.state("s" * 300, (2,))
        g.update(state, state + value)
        g.set_outputs({"y" * 300: value * g.param("w" * 300, (2,)) + state + number})
        program = rlx.Session(device, threads=1).compile(g, params={"w" * 300: x * 3})
        program.save(tmp_path / "long.rlxa", params=True)
        loaded: Any = rlx.load(tmp_path / "long.rlxa")
        for each in (program, loaded):
            assert each.run({"x" * 300: x})[0].tolist() == [number + 3] * 2
            assert each.run({"x" * 300: x})[0].tolist() == [number + 4] * 2


def test_outputs_own_their_memory_and_inputs_stay(compiled: Any, arrays: Any) -> None:
    compiled.set_param("w", arrays["w"])
    x = arrays["x"].copy()
    y, same = compiled.run({"x": x})
    kept = y.copy()
    assert not np.shares_memory(same, x)
    same[:] = 7
    y_again = compiled.run({"x": x})[0]
    np.testing.assert_array_equal(x, arrays["x"])
    np.testing.assert_array_equal(y, kept)
    np.testing.assert_array_equal(y_again, kept)


def test_large_results_survive_everything_else(session: Any) -> None:
    g = rlx.Graph("large")
    x = g.input("x", (512, 1024))
    g.set_outputs([x * 2.0, x, g.reshape(x, (1024, 512))])
    compiled = session.compile(g)
    x = np.arange(512 * 1024, dtype=np.float32).reshape(512, 1024)
    flat = [r.reshape(-1) for r in compiled.run({"x": x})]
    del compiled
    gc.collect()
    garbage = [np.full(512 * 1024, -1.0, np.float32) for _ in range(8)]
    wanted = np.arange(512 * 1024, dtype=np.float32)
    np.testing.assert_array_equal(flat[0], 2 * wanted)
    for alias in flat[1:]:
        np.testing.assert_array_equal(alias, wanted)
        alias[:] = 0
    np.testing.assert_array_equal(x.reshape(-1), wanted)
    assert garbage[0][0] == -1


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, r"input 'x' \(f32\[2, 3\]\) is missing"),
        ({"X": np.zeros((2, 3), np.float32)}, r"input 'x' .* is missing; there is no input 'X' \(did you mean 'x'\?\)"),
        ({"x": np.zeros((2, 3))}, r"input 'x' must be f32\[2, 3\], got float64\[2, 3\]"),
        ({"x": np.zeros((3, 2), np.float32)}, r"got float32\[3, 2\]"),
        ({"x": np.zeros((6,), np.float32)}, r"got float32\[6\]"),
        ({"x": [[1, 2, 3], [4, 5]]}, "input 'x': the list is no array of numbers"),
        ({"x": "text"}, "must be an array"),
        ({"x": np.zeros((2, 3), np.float32), "z": 1}, "there is no input 'z'"),
        ({"x": np.zeros((2, 3), np.float32), "w": np.zeros((3, 4), np.float32)}, "it is a parameter"),
        ([np.zeros((2, 3), np.float32)] * 2, r"input 'x' must be f32\[2, 3\], got float32\[2, 2, 3\]"),
        ([np.zeros((3, 2), np.float32)], r"input 'x' must be f32\[2, 3\], got float32\[3, 2\]"),
        ("text", "must be an array"),
    ],
)
def test_bad_inputs_are_named(compiled: Any, arrays: Any, inputs: Any, message: str) -> None:
    compiled.set_param("w", arrays["w"])
    with pytest.raises(rlx.Error, match=message):
        compiled.run(inputs)


def test_one_input_needs_no_name(compiled: Any, arrays: Any) -> None:
    compiled.set_param("w", arrays["w"])
    x = arrays["x"]
    expected = compiled.run({"x": x})[0]
    given = [((x,), {}), (([x],), {}), (((x,),), {}), ((x.tolist(),), {}), ((_Lent(x),), {}), (([_Foreign(x)],), {})]
    given += [((), {"x": x}), (({},), {"x": x}), ((), {"inputs": {"x": x}}), ((), {"x": x.tolist()})]
    for args, named in given:
        for result in (
            compiled(*args, **named)[0],
            compiled.run(*args, **named)[0],
            compiled.run_named(*args, **named)["y"],
            np.asarray(compiled.run_device(*args, **named)[0]),
            compiled.run_async(*args, **named).result()[0],
        ):
            np.testing.assert_array_equal(result, expected)
    with pytest.raises(rlx.Error, match="run: input 'x' is passed twice"):
        compiled.run({"x": x}, x=x)
    with pytest.raises(rlx.Error, match=r"input 'x' .* is missing; there is no input 'X'"):
        compiled.run_async(X=x)


def test_several_inputs_need_names(session: Any) -> None:
    """The parameter of `run` is called `inputs`, and so may be an input."""
    g: Any = rlx.Graph("several")
    g.set_outputs({"y": g.input("inputs", (2,)) * 10.0 + g.input("mask", (2,))})
    program = session.compile(g)
    a, b = np.array([1, 2], np.float32), np.array([3, 4], np.float32)
    for result in (
        program.run({"inputs": a, "mask": b}),
        program.run(mask=b, inputs=a),
        program({"inputs": a}, mask=b),
    ):
        assert result[0].tolist() == [13, 24]
    for method in ("run", "run_named", "run_device", "run_async"):
        for wrong in (a, [a, b]):
            with pytest.raises(
                rlx.Error, match=r"2 inputs \(inputs, mask\), so inputs must be a mapping.*\n.*inputs=…, mask=…"
            ):
                getattr(program, method)(wrong)
    single: Any = rlx.Graph("scalar")
    single.set_outputs({"y": single.input("inputs", ()) * 2.0})
    scalar = session.compile(single)
    for value in (3, np.float32(3), {"inputs": 3}, [np.array(3, np.float32)]):
        assert scalar(value)[0] == 6
    with pytest.raises(rlx.Error, match=r"input 'inputs' must be f32\[\], got"):
        scalar([3])
    none: Any = rlx.Graph("none")
    none.set_outputs({"y": none.constant(np.ones(2, np.float32))})
    with pytest.raises(rlx.Error, match="the program has no inputs, got ndarray"):
        session.compile(none)(a)


def test_bad_params_are_named(compiled: Any, arrays: Any) -> None:
    with pytest.raises(rlx.Error, match=r"1 parameters are not set: 'w' \(f32\[3, 4\]\)"):
        compiled.run({"x": arrays["x"]})
    with pytest.raises(rlx.Error, match=r"there is no parameter 'W' \(did you mean 'w'\?\); there are w"):
        compiled.set_param("W", arrays["w"])
    with pytest.raises(rlx.Error, match=r"param 'w' must be f32\[3, 4\], got float32\[4, 3\]"):
        compiled.set_param("w", arrays["w"].T)
    with pytest.raises(rlx.Error, match="got float64"):
        compiled.set_params({"w": arrays["w"].astype(np.float64)})


def test_params_from_safetensors(compiled: Any, arrays: Any, tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    save_file({"w": arrays["w"], "unused": np.zeros(3, np.float32)}, path)
    compiled.set_params(path)
    np.testing.assert_allclose(compiled.run({"x": arrays["x"]})[0], arrays["x"] @ arrays["w"], rtol=1e-5)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(rlx.Error, match="cannot read"):
        compiled.set_params(path)
    with pytest.raises(rlx.Error, match="no such file"):
        compiled.set_params(tmp_path / "absent.safetensors")
    save_file({"v": arrays["w"]}, path)
    with pytest.raises(rlx.Error, match="has no tensor 'w'"):
        compiled.set_params(path)
    save_file({"w": np.full((3, 4), np.nan, np.float32)}, path)
    with pytest.raises(rlx.Error, match=r"tensor 'w'.*holds 12 NaN"):
        compiled.set_params(path)
    # The earlier values are still set.
    np.testing.assert_allclose(compiled.run({"x": arrays["x"]})[0], arrays["x"] @ arrays["w"], rtol=1e-5)


def test_weights_can_be_changed(compiled: Any, arrays: Any) -> None:
    for factor in (1.0, 2.0):
        weight = (arrays["w"] * factor).astype(np.float32)
        compiled.set_param("w", weight)
        weight[:] = 0  # does not affect the program
        np.testing.assert_allclose(compiled.run({"x": arrays["x"]})[0], arrays["x"] @ arrays["w"] * factor, rtol=1e-5)


class _Foreign:
    def __init__(self, array: np.ndarray):
        self.array = array

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self.array


class _Lent:
    def __init__(self, array: np.ndarray):
        self.array = array

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self.array.__dlpack__(**kwargs)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("wrap", [_Foreign, _Lent, np.asfortranarray, lambda a: np.repeat(a, 2, 1)[:, ::2]])
def test_inputs_of_other_kinds(compiled: Any, arrays: Any, wrap: Any) -> None:
    compiled.set_param("w", arrays["w"])
    result = compiled.run({"x": wrap(arrays["x"])})[0]
    np.testing.assert_allclose(result, arrays["x"] @ arrays["w"], rtol=1e-5)


def test_threads_share_a_program(compiled: Any, arrays: Any) -> None:
    compiled.set_param("w", arrays["w"])
    failures = []

    def work(seed: int) -> None:
        x = np.random.default_rng(seed).standard_normal((2, 3)).astype(np.float32)
        for _ in range(200):
            if not np.allclose(compiled.run({"x": x})[0], x @ arrays["w"], rtol=1e-4):
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_saves_and_loads(compiled: Any, arrays: Any, tmp_path: Path) -> None:
    path = tmp_path / "linear.rlxa"
    compiled.save(path)
    loaded = rlx.load(path, params={"w": arrays["w"]}, threads=1)
    np.testing.assert_allclose(loaded.run({"x": arrays["x"]})[0], arrays["x"] @ arrays["w"], rtol=1e-5)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(rlx.Error, match="damaged"):
        rlx.load(path)
    with pytest.raises(rlx.Error, match="no such file"):
        rlx.load(tmp_path / "absent")
    with pytest.raises(rlx.Error, match="cannot write"):
        compiled.save(tmp_path / "absent" / "linear.rlxa")
    assert [p.name for p in tmp_path.iterdir()] == ["linear.rlxa"]


def test_state_stays_between_runs(session: Any) -> None:
    g = rlx.Graph("counter")
    step = g.input("step", (2,))
    count = g.state("count", (2,), init=5)
    last = g.state("last", (2,))
    g.set_outputs({"before": count, "after": count + step})
    g.update(count, count + step)
    g.update(last, step)
    compiled = session.compile(g)
    one = np.array([1, 2], np.float32)
    first = compiled.run_named({"step": one})
    second = compiled.run_named({"step": 10 * one})
    np.testing.assert_array_equal(first["before"], [5, 5])
    np.testing.assert_array_equal(first["after"], [6, 7])
    np.testing.assert_array_equal(second["before"], [6, 7])
    np.testing.assert_array_equal(compiled.state("count"), [16, 27])
    np.testing.assert_array_equal(compiled.state("last"), [10, 20])
    compiled.run({"step": 3 * one})
    np.testing.assert_array_equal(compiled.state("last"), [3, 6])
    np.testing.assert_array_equal(first["before"], [5, 5])
    compiled.reset_state()
    np.testing.assert_array_equal(compiled.state("count"), [5, 5])
    with pytest.raises(rlx.Error, match=r"there is no state 'cuont' .did you mean 'count'"):
        compiled.state("cuont")
    np.testing.assert_array_equal(rlx.evaluate(g, {"step": one})[1], [6, 7])


def test_large_state_is_not_lent(session: Any) -> None:
    g = rlx.Graph("accumulator")
    x = g.input("x", (256, 1024))
    total = g.state("total", (256, 1024))
    g.set_outputs([total])
    g.update(total, total + x)
    compiled = session.compile(g)
    x = np.ones((256, 1024), np.float32)
    results = [compiled.run({"x": x})[0] for _ in range(4)]
    assert [float(r[3, 4]) for r in results] == [0, 1, 2, 3]
    assert float(x.sum()) == x.size
    value = compiled.state("total")
    compiled.run({"x": x})
    assert float(value[0, 0]) == 4


@drawn("device", [rlx.Device.CPU, rlx.Device.XLA])
def test_states_are_set(device: Any) -> None:
    """States before and after loading. Large ones alternate between buffers, and the caller's array is not changed."""
    shape = (300, 1024)
    g = rlx.Graph("setting")
    a, b = g.state("a", shape), g.state("b", shape, init=2)
    scalar = g.state("scalar", (), "i32")
    g.update(a, b)
    g.update(b, a)
    g.update(scalar, scalar + 1)
    g.set_outputs([a + g.param("w", ())])
    compiled = rlx.Session(device, threads=1).compile(g)
    given = np.ones(shape[::-1], np.float32).T
    compiled.set_state("a", given)
    compiled.set_state("scalar", np.int32(7))
    given[...] = -1
    compiled.set_param("w", np.zeros((), np.float32))
    assert float(compiled.run()[0].mean()) == 1
    assert (compiled.state("a").mean(), compiled.state("b").mean(), compiled.state("scalar")) == (2, 1, 8)
    again = np.full(shape, 5, np.float32)
    compiled.set_state("b", again)
    compiled.set_state("scalar", np.array(1, np.int32))
    for expected in (2, 5, 2, 5):
        again[...] = 0
        assert float(compiled.run()[0].mean()) == expected
    assert not again.any() and compiled.state("scalar") == 5
    compiled.set_param("w", np.ones((), np.float32))  # reloads the program
    compiled.set_state("b", np.full(shape, 9, np.float32))
    assert float(compiled.run()[0].mean()) == 3 and float(compiled.state("a").mean()) == 9
    with pytest.raises(rlx.Error, match=r"there is no state 'scaler' .did you mean 'scalar'"):
        compiled.set_state("scaler", given)
    with pytest.raises(rlx.Error, match=r"state 'a' must be f32\[300, 1024\], got float32\[1024, 300\]"):
        compiled.set_state("a", given.T)
    with pytest.raises(rlx.Error, match="state 'scalar' must be i32"):
        compiled.set_state("scalar", np.array(1.0, np.float32))


def test_donated_input_gives_the_same_result(session: Any) -> None:
    g = rlx.Graph("donated")
    x = g.input("x", (512, 512), donate=True)
    g.set_outputs([x + 1.0])
    compiled = session.compile(g)
    x = np.zeros((512, 512), np.float32)
    assert float(compiled.run({"x": x})[0].min()) == 1


@pytest.mark.parametrize("device", ["cpu", "xla"])
def test_donated_memory_is_passed_once(device: str) -> None:
    g: Any = rlx.Graph("summed")
    a, b, c = g.input("a", (600,), donate=True), g.input("b", (600,), donate=True), g.input("c", (600,))
    g.set_outputs({"y": a + b * c})
    program = rlx.Session(device, threads=1).compile(g)
    memory = np.ones(1200, np.float32)
    x, y, view = memory[:600], memory[600:], memory[300:900]
    for inputs, names in (
        ({"a": x, "b": x, "c": y}, ("a", "b")),
        ({"a": x, "b": y, "c": y}, ("b", "c")),
        ({"a": x, "b": view, "c": y.copy()}, ("a", "b")),
        ({"a": x.copy(), "b": x, "c": view}, ("b", "c")),
    ):
        for run in (program.run, program.run_async, program.run_device):
            with pytest.raises(rlx.Error, match=f"input '{names[0]}' is donated, and input '{names[1]}' has the same"):
                run(inputs)
    assert memory.tolist() == [1] * 1200
    (d,), (e,) = (program.run_device({"a": x.copy(), "b": y.copy(), "c": y}) for _ in range(2))
    for run in (program.run, program.run_device):
        with pytest.raises(rlx.Error, match="input 'a' is donated, and input 'c' has the same memory"):
            run({"a": d, "b": e, "c": d})
    assert not d.is_donated and not e.is_donated  # none is donated by a call that failed
    assert np.asarray(program.run({"a": d, "b": e, "c": y})[0]).tolist() == [4] * 600
    assert program.run({"a": x.copy(), "b": y.copy(), "c": y})[0].tolist() == [2] * 600  # neighbours in memory


def test_symbols_are_checked_and_bound(session: Any) -> None:
    g = rlx.Graph("symbolic")
    a, b = g.input("a", ("n", 3)), g.input("b", ("n", 3))
    g.set_outputs([g.concat([a, b], 0)])
    compiled = session.compile(g)
    for n in (1, 4, 0):
        a, b = np.ones((n, 3), np.float32), np.zeros((n, 3), np.float32)
        assert compiled.run({"a": a, "b": b})[0].shape == (2 * n, 3)
    with pytest.raises(rlx.Error, match="'n' is 2 from input 'a' dimension 0, but 3 from input 'b' dimension 0"):
        compiled.run({"a": np.ones((2, 3), np.float32), "b": np.ones((3, 3), np.float32)})
    bound = session.compile(g, bind={"n": 2})
    assert bound.inputs[0].shape == (2, 3)
    with pytest.raises(rlx.Error, match="no symbol m; it has n"):
        session.compile(g, bind={"m": 2})


def test_what_depends_on_a_symbol_is_checked_when_it_is_known(session: Any) -> None:
    g = rlx.Graph("ranges")
    x, table = g.input("x", ("n", 4)), g.input("table", ("m", 4))
    outputs = {
        "narrow": g.narrow(x, 0, 2, 3),
        "tail": x[4:],
        "conv": g.conv(g.reshape(x, (1, 4, "n")), np.ones((1, 4, 3), np.float32)),
        "row": g.gather(table, np.array([7], np.int32)),
        "top": g.topk(g.transpose(x), 5)[0],
    }
    g.set_outputs(outputs)
    compiled = session.compile(g)
    arrays = {"x": np.ones((6, 4), np.float32), "table": np.ones((1, 4), np.float32)}
    for run in (compiled.run, lambda values: rlx.evaluate(g, values)):
        assert [r.shape[0] for r in run(arrays)] == [3, 2, 1, 1, 4]
        with pytest.raises(rlx.ShapeError, match=r"test_program.py:\d+: rlx.(narrow|slice).*n = 3"):
            run(arrays | {"x": np.ones((3, 4), np.float32)})
        with pytest.raises(rlx.ShapeError, match=r"rlx.gather: axis 0 of the table is empty .*m = 0"):
            run(arrays | {"table": np.ones((0, 4), np.float32)})

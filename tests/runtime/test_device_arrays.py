"""Outputs that stay on the device, and asynchronous runs."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError, wait
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.targets.iree import transfer

SIZE = 300 * 1024  # too large to be copied for speed
DEVICES = [rlx.Device.CPU, rlx.Device.XLA]


@pytest.fixture(scope="module", params=DEVICES)
def device(request: Any) -> Any:
    if request.param is rlx.Device.XLA:
        pytest.importorskip("jax")
    return request.param


def compiled(device: Any, *, donate: bool = False, state: bool = False) -> Any:
    """Compile `2·x + 1`; with a state, add the sum of all earlier inputs."""
    g = rlx.Graph("line")
    x = g.input("x", (SIZE,), donate=donate)
    y = x * 2.0 + 1.0
    if state:
        total = g.state("total", (SIZE,))
        g.update(total, total + x)
        y = y + total
    g.set_outputs({"y": y})
    return rlx.Session(device, threads=1).compile(g)


@pytest.fixture(scope="module")
def program(device: Any) -> Any:
    return compiled(device)


X = np.arange(SIZE, dtype=np.float32) % 1000


def test_outputs_are_inputs_of_the_next_run(program: Any, device: Any) -> None:
    (y,) = program.run_device({"x": X})
    assert (y.shape, y.dtype, y.ndim, y.size, y.nbytes) == ((SIZE,), np.float32, 1, SIZE, 4 * SIZE)
    assert y.device == device.value and repr(y) == f"<DeviceArray y: float32[{SIZE}] on {device.value}>"
    np.testing.assert_array_equal(np.asarray(y), 2 * X + 1)
    (z,) = program.run_device({"x": y})
    np.testing.assert_array_equal(np.from_dlpack(z), 4 * X + 3)
    np.testing.assert_array_equal(program.run({"x": z})[0], 8 * X + 7)
    np.testing.assert_array_equal(program.run({"x": X})[0], np.asarray(y))
    assert not np.asarray(y).flags.writeable and z.__dlpack_device__()[0] == 1


def test_the_argument_may_be_changed_afterwards(program: Any) -> None:
    x = X.copy()
    (y,) = program.run_device({"x": x})
    x[...] = -1
    np.testing.assert_array_equal(np.asarray(y), 2 * X + 1)
    same = rlx.Graph("same")
    same.set_outputs([same.input("x", (SIZE,))])
    (z,) = rlx.Session(rlx.Device.XLA if y.device == "xla" else "cpu", threads=1).compile(same).run_device({"x": x})
    x[...] = -2
    assert (np.asarray(z) == -1).all()


def test_no_copy_is_made_between_programs_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    # IREE computes `2·x + 1` in the memory of `x` if it can, so that program always gets copies.
    g = rlx.Graph("reader")
    g.set_outputs([g.sum(g.input("x", (SIZE,)))])
    first, second = compiled("cpu"), rlx.Session("cpu", threads=1).compile(g)
    (y,) = first.run_device({"x": X})
    for _ in range(2):  # the first runs of a program get copies, to detect writes
        second.run({"x": y})
    copies = []
    kept = transfer.Lender._copy
    monkeypatch.setattr(transfer.Lender, "_copy", lambda self, array: copies.append(1) or kept(self, array))
    (z,) = second.run_device({"x": y})
    np.testing.assert_allclose(np.asarray(z), (2 * X + 1).sum(dtype=np.float64), rtol=1e-5)
    assert not copies


def test_xla_takes_its_own_buffers() -> None:
    pytest.importorskip("jax")
    program = compiled("xla")
    (y,) = program.run_device({"x": X})
    (z,) = program.run_device({"x": y})
    assert type(y._buffer).__module__.startswith("jaxlib") and type(z._buffer) is type(y._buffer)
    (other,) = compiled("cpu").run_device({"x": z})  # another device, by way of the host
    np.testing.assert_array_equal(np.asarray(other), 8 * X + 7)
    (back,) = program.run_device({"x": other})
    np.testing.assert_array_equal(np.asarray(back), 16 * X + 15)


def test_what_is_donated_is_used_up(device: Any) -> None:
    program, donating = compiled(device), compiled(device, donate=True)
    (y,) = program.run_device({"x": X})
    (z,) = program.run_device({"x": X})
    seen = np.asarray(z)  # shared memory or a copy
    for array in (y, z):
        assert not array.is_donated
        np.testing.assert_array_equal(donating.run_device({"x": array})[0], 4 * X + 3)
        assert array.is_donated and "donated" in repr(array)
        for use in (
            np.asarray,
            np.from_dlpack,
            lambda a: program.run({"x": a}),
            lambda a: donating.run_device({"x": a}),
        ):
            with pytest.raises(rlx.Error, match=r"device array \(output 'y', float32\[307200\]\) was donated"):
                use(array)
    np.testing.assert_array_equal(seen, 2 * X + 1)
    (y,) = program.run_device({"x": X})
    with pytest.raises(rlx.Error, match="there is no input 'z'"):
        donating.run({"x": y, "z": y})
    np.testing.assert_array_equal(np.asarray(y), 2 * X + 1)  # a refused call takes no memory


def test_device_arrays_are_checked_as_others_are(program: Any) -> None:
    g = rlx.Graph("short")
    g.set_outputs([g.input("x", (4,)) + 1.0])
    (short,) = rlx.Session("cpu", threads=1).compile(g).run_device({"x": [1, 2, 3, 4]})
    for run in (program.run, program.run_device, program.run_async):
        with pytest.raises(rlx.Error, match=r"input 'x' must be f32\[307200\], got float32\[4\]"):
            run({"x": short})
    np.testing.assert_array_equal(rlx.evaluate(g, {"x": short})[0], [3, 4, 5, 6])
    assert len(short) == 4 and rlx.Session("cpu", threads=1).compile(g).run({"x": short})[0][0] == 3


def test_several_runs_are_under_way_in_the_order_of_their_states(device: Any) -> None:
    program = compiled(device, state=True)
    x = X.copy()
    futures = []
    for number in range(6):
        x[...] = number
        futures.append(program.run_async({"x": x}))
    x[...] = -1  # the arrays were copied
    assert (program.state("total") == 15).all()  # waits for all runs
    totals = np.cumsum([0, 0, 1, 2, 3, 4])
    for number, future in enumerate(futures):
        assert future.done() and future.exception() is None
        assert (future.result()[0] == 2 * number + 1 + totals[number]).all()
    first = program.run_async({"x": x})
    assert (program.run({"x": x})[0] == -1 + 14).all()  # runs after the first
    assert (first.result()[0] == -1 + 15).all()
    program.run_async({"x": x})
    program.reset_state()
    assert not program.state("total").any()


def test_errors_of_runs_under_way() -> None:
    g = rlx.Graph("weighted")
    g.set_outputs([g.input("x", (2,)) * g.param("w", (2,))])
    program = rlx.Session("cpu", threads=1).compile(g)
    with pytest.raises(rlx.Error, match="parameters are not set"):
        program.run_async({"x": [1, 2]})
    program.set_param("w", [1, 2])
    with pytest.raises(rlx.Error, match=r"'x' .* is missing"):
        program.run_async({})
    begin = threading.Event()
    blocked = program._data.begin_order().submit(begin.wait, 30)
    futures = [program.run_async({"x": [1, 2]}) for _ in range(3)]
    assert futures[1].cancel() and not futures[2].done()
    begin.set()
    assert blocked.result(30)
    wait(futures, timeout=30)
    np.testing.assert_array_equal(futures[2].result()[0], [1, 4])
    with pytest.raises(CancelledError):
        futures[1].result()
    seen: list[Any] = []
    program.run_async({"x": [1, 2]}).add_done_callback(lambda f: seen.append(program.run({"x": f.result()[0]})))
    program.load()
    program.run({"x": [0, 0]})
    np.testing.assert_array_equal(seen[0][0], [1, 8])

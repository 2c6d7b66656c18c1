"""Parameters in the memory of the caller: who releases them, and when."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest

import rlx
from rlx.targets.iree import executable, lent_memory
from rlx.targets.iree.executable import IreeExecutable
from rlx.targets.iree.memory import ALIGNMENT, empty_aligned
from rlx.targets.iree.names import LENT_KEY, LENT_WEIGHTS
from rlx.weights.mapped import content_of

# A program with threads is loaded again and again. Its weights note the thread that deletes them.
_SCRIPT = """
import ctypes, sys
import numpy as np
import rlx
from rlx.targets.iree import executable, lent_memory, program

holds_lock, thread = ctypes.pythonapi.PyGILState_Check, ctypes.CDLL(None).gettid
deleted = []

class Watched(np.ndarray):
    def __del__(self):
        deleted.append((thread(), holds_lock()))

executable.lend = lambda array: LEND(array.view(Watched))
program.PARALLEL_FLOPS = 0
g = rlx.Graph("g")
x = g.input("x", (64, 256))
names = [f"w{i}" for i in range(20)]
for name in names:
    x = g.relu(x @ g.param(name, (256, 256)))
g.set_outputs(x)
compiled = rlx.Session("cpu", threads=2).compile(g, cache=False)
for _ in range(30):
    compiled.set_params({name: np.zeros((256, 256), np.float32) for name in names})
    compiled.run({"x": np.ones((64, 256), np.float32)})
lent_memory.reclaim()
assert set(deleted) == {(thread(), 1)}, set(deleted)
assert len(deleted) >= 29 * len(names), len(deleted)
"""


def test_weights_are_deleted_by_threads_of_python() -> None:
    run = [sys.executable, "-c", _SCRIPT.replace("LEND", "lent_memory.lend")]
    subprocess.run(run, check=True, timeout=300)


def _program() -> rlx.Program:
    g = rlx.Graph("product")
    g.set_outputs(g.input("x", (1, 512)) @ g.param("w", (512, 512)))
    return rlx.Session("cpu", threads=1).compile(g)


def test_weights_are_read_in_place_and_released_with_the_program() -> None:
    before = len(lent_memory._arrays)
    program, w = _program(), np.eye(512, dtype=np.float32)
    program.set_params({"w": w}, copy=False)
    x = np.arange(512, dtype=np.float32)[None]
    np.testing.assert_array_equal(program.run({"x": x})[0], x)
    assert any(np.shares_memory(w, array) for array in lent_memory._arrays.values())
    del program
    gc.collect()
    lent_memory.reclaim()
    assert len(lent_memory._arrays) <= before  # fewer, if those of other tests could be released too


def _lent() -> list[np.ndarray]:
    """Return the weights that modules read in the caller's memory."""
    gc.collect()
    return [array for loaded in executable._executables for array in getattr(loaded, "_weights", ())]


def _kernel_program(threads: int = 1) -> rlx.Program:
    """Return a program whose two entries read one weight by kernels only."""
    g, h = rlx.Graph("one"), rlx.Graph("four")
    for graph, rows in ((g, 1), (h, 4)):
        graph.set_outputs(graph.matmul_transposed(graph.input("x", (rows, 256)), graph.param("w", (384, 256))))
    return rlx.Session("cpu", threads=threads).compile({"one": g, "four": h})


@pytest.mark.parametrize("is_mapped", [False, True])
@pytest.mark.parametrize("offset", [0, 4, 8, 16, 32, 48])
def test_kernels_read_weights_at_any_address(offset: int, is_mapped: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    w, x = rng.standard_normal((384, 256), np.float32), rng.standard_normal((4, 256), np.float32)
    if is_mapped:
        (tmp_path / "w").write_bytes(bytes(offset) + w.tobytes())
        memory = np.frombuffer(content_of(tmp_path / "w"), np.uint8)
    else:
        memory = empty_aligned((offset + w.nbytes,), np.uint8)
        memory[offset:] = w.reshape(-1).view(np.uint8)
    weights = memory[offset:].view(np.float32).reshape(w.shape)
    program = _kernel_program()
    program.set_params({"w": weights}, copy=False)
    (four,) = program["four"].run({"x": x})
    (one,) = program["one"].run({"x": x[:1]})
    np.testing.assert_allclose(four, x @ w.T, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(one, four[:1])
    assert any(np.shares_memory(weights, array) for array in _lent()) == (offset % ALIGNMENT == 0)


def test_weights_of_kernels_can_be_replaced_and_are_named_if_they_are_missing() -> None:
    program, x = _kernel_program(), np.ones((1, 256), np.float32)
    with pytest.raises(rlx.Error, match="'w'"):
        program["one"].run({"x": x})
    for value in (1.0, 2.0):
        program.set_params({"w": np.full((384, 256), value, np.float32)})
        assert (program["one"].run({"x": x})[0] == 256 * value).all()
        assert (program["four"].run({"x": np.repeat(x, 4, 0)})[0] == 256 * value).all()
    loaded = IreeExecutable(program["one"].artifact.program, parameters={"w": np.zeros((384, 256), np.float32)})
    assert loaded.note(LENT_WEIGHTS, LENT_KEY) == '["w"]'
    with pytest.raises(rlx.ExecutionError, match="the parameter 'w' is missing"):
        IreeExecutable(program["one"].artifact.program, parameters={"v": np.zeros(3, np.float32)})


def test_weights_of_kernels_live_as_long_as_the_program() -> None:
    """IREE does not keep the memory of a part of a buffer."""
    program, x = _kernel_program(), np.ones((1, 256), np.float32)
    for number in range(3):
        w = np.full((384, 256), 1.0 + number, np.float32)
        alive = weakref.ref(w)
        program.set_params({"w": w}, copy=False)
        program["one"].run({"x": x})
        del w
        gc.collect()
        lent_memory.reclaim()
        others = [np.full((384, 256), np.nan, np.float32) for _ in range(8)]  # would get the memory, if it were free
        assert (program["one"].run({"x": x})[0] == 256 * (1.0 + number)).all() and others
        assert alive() is not None
    del program
    gc.collect()
    assert alive() is None

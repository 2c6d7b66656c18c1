"""Parameters in the memory of the caller: who releases them, and when."""

from __future__ import annotations

import gc
import subprocess
import sys

import numpy as np

import rlx
from rlx.targets.iree import lent_memory

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

"""The buffer pool of the CPU device: its contents, and when buffers are freed."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np

import rlx
from rlx.targets.iree.devices import device


def _held() -> int:
    """The bytes that the device has allocated, including its pool."""
    statistics = device("local-sync", 1).allocator.statistics
    return statistics["device_bytes_allocated"] - statistics["device_bytes_freed"]


def test_the_pool_holds_nothing_for_programs_that_are_gone() -> None:
    g: Any = rlx.Graph("g")
    x, state = g.input("x", (256, 1024)), g.state("s", (256, 1024))
    g.update(state, state + x)
    g.set_outputs([g.softmax(x) @ g.transpose(x) + g.sum(state)])
    gc.collect()
    program = rlx.Session(threads=1).compile(g)
    before, values = _held(), {"x": np.ones((256, 1024), np.float32)}
    program.run(values)
    program.run(values)
    assert _held() - before > 2 * values["x"].nbytes  # the state, and the pool
    del program
    gc.collect()
    assert _held() <= before


def test_the_pool_holds_nothing_of_sizes_that_change() -> None:
    g: Any = rlx.Graph("g")
    x = g.input("x", ("n", 1024))
    g.set_outputs([g.softmax(x) @ g.transpose(x)])
    gc.collect()
    program, before = rlx.Session(threads=1).compile(g), _held()
    for count in (64, 128, 192):
        program.run({"x": np.ones((count, 1024), np.float32)})
    assert _held() - before < 2**20

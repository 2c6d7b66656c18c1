"""Bits in kernels: conditions of lanes as numbers, positions of bits, and memory read as another dtype. Run with NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from rlx.ir.dtype import DType, bool_, f32, f64, i32, i64, u32, u64
from rlx.kernels.buffer import Buffer
from rlx.kernels.cpu_model import cpu_model
from rlx.kernels.elements import INDEX
from rlx.kernels.interpreter import Interpreter
from rlx.kernels.kernel import Kernel
from rlx.support.errors import ShapeError


@pytest.fixture
def k() -> Kernel:
    return Kernel(Interpreter(cpu_model("x86-64-v3")))


@pytest.mark.parametrize("lanes", [1, 4, 8, 64])
def test_lanes_where_a_condition_holds(k: Kernel, lanes: int) -> None:
    rng = np.random.default_rng(lanes)
    for holds in (np.zeros(lanes, bool), np.ones(lanes, bool), rng.random(lanes) < 0.5):
        condition = k.constants(holds.tolist(), bool_)
        assert [int(lane.data) for lane in k.lanes_where(condition)] == np.flatnonzero(holds).tolist()
        assert int(condition.lane_bits().data) == sum(1 << i for i in range(lanes) if holds[i])
        assert bool(k.any_lane(condition).data) == holds.any()


@pytest.mark.parametrize("dtype", [i32, u32, i64, u64], ids=lambda d: d.name)
def test_trailing_zeros(k: Kernel, dtype: DType) -> None:
    assert int(k.constant(0, dtype).trailing_zeros().data) == dtype.bits
    for place in range(dtype.bits):
        assert int((k.constant(-1 if dtype.is_signed else 1, dtype) << place).trailing_zeros().data) == place


def test_memory_as_another_dtype(k: Kernel) -> None:
    array = np.array([1.0, -0.0, np.nan, np.inf], np.float32)
    x = Buffer(k.machine, array, [2, 2], f32)
    assert x.bits(f32) is x
    assert [int(x.bits(u32)[i, j].data) for i in range(2) for j in range(2)] == array.view(np.uint32).tolist()
    x.bits(i32)[1, 0] = 0x40000000
    assert array[2] == 2.0
    with pytest.raises(ShapeError, match="f32 and f64 have different widths"):
        x.bits(f64)
    with pytest.raises(ShapeError, match="scratch memory has one dtype"):
        k.scratch(4).bits(i32)


def test_lane_bits_takes_conditions(k: Kernel) -> None:
    for value in (k.constants([1.0, 2.0], f32), k.constants([True] * 65, bool_)):
        with pytest.raises(ShapeError, match="expected a condition of at most 64 lanes"):
            value.lane_bits()


def test_registers_of_positions(k: Kernel) -> None:
    place = k.register(k.index(3))
    for i in k.range(4):
        place.value = place.value + i
    assert place.value.element is INDEX
    assert int(place.value.data) == 9

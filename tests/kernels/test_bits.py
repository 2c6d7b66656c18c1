"""Bits in kernels: conditions of lanes as numbers, positions of bits, and memory read as another dtype. Run with NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from rlx.ir.dtype import DType, bf16, bool_, f32, f64, i32, i64, u16, u32, u64
from rlx.kernels.buffer import Buffer
from rlx.kernels.cpu_model import cpu_model
from rlx.kernels.elements import INDEX
from rlx.kernels.functions import of_bf16, to_bf16
from rlx.kernels.interpreter import Interpreter
from rlx.kernels.kernel import Kernel
from rlx.kernels.values import Value
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
    with pytest.raises(ShapeError, match="scratch memory and tables have one dtype"):
        k.scratch(4).bits(i32)


def test_bf16_numbers(k: Kernel) -> None:
    """All bf16 numbers as f32, and f32 values near each of them as bf16, with ties."""
    words = np.arange(1 << 16, dtype=np.uint16)
    numbers = words.view(ml_dtypes.bfloat16)
    floats = numbers.astype(np.float32)
    np.testing.assert_array_equal(of_bf16(Value(k.machine, words, u16, words.size)).data, floats)
    for low in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF):
        near = (floats.view(np.uint32) + np.uint32(low)).view(np.float32)
        bits = to_bf16(Value(k.machine, near, f32, near.size)).data
        assert bits.dtype == np.uint16
        with np.errstate(all="ignore"):
            expected = near.astype(ml_dtypes.bfloat16)
        np.testing.assert_array_equal(bits.view(ml_dtypes.bfloat16).astype(np.float32), expected.astype(np.float32))


def test_bf16_is_read_by_its_bits(k: Kernel) -> None:
    array = np.array([1.0, -2.0], ml_dtypes.bfloat16)
    x = Buffer(k.machine, array, [2], bf16)
    assert [int(x.bits(u16)[i].data) for i in range(2)] == [0x3F80, 0xC000]
    x.view(1, 2).bits(u16)[0, 1] = 0x4000
    assert array[1] == 2.0
    for use in (lambda: x[0], lambda: x.__setitem__(0, 1.0)):
        with pytest.raises(ShapeError, match="kernels do not compute with bf16"):
            use()


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

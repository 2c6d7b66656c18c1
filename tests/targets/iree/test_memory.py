"""Memory ownership: arguments are not modified, and the caller owns results."""

from __future__ import annotations

import gc
import sys

import numpy as np
import pytest

from rlx.targets.iree import memory as memory_module
from rlx.targets.iree.abi import ArgumentType, TensorType
from rlx.targets.iree.executable import IreeExecutable
from rlx.targets.iree.memory import ALIGNMENT, address, array_over
from tests.targets.iree.executable_programs import (
    BIG,
    F32,
    ROW,
    borrowed,
    donated,
    litter,
    off_alignment,
    overlap,
    random,
    readonly,
)

# ---- ownership


@pytest.mark.parametrize("access", ["copy", "borrow"])
@pytest.mark.parametrize("name", ["double", "identity", "insert"])
def test_an_argument_is_never_changed(memory: IreeExecutable, name: str, access: str):
    rest = [random(*ROW)] if name == "insert" else []
    types = [ArgumentType(F32, BIG, access), *(TensorType(F32, ROW) for _ in rest)]  # type: ignore[arg-type]
    function = memory.function(name, types)
    x = random(*BIG)
    before = x.copy()
    want = 2 * before if name == "double" else before.copy()
    if rest:
        want[3] = rest[0]
    for _ in range(5):
        (y,) = function([x, *rest])
        np.testing.assert_array_equal(y, want)
        y[...] = -1
        np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize("access", ["copy", "borrow", "donate"])
@pytest.mark.parametrize("shift", [0, 1, 255])
def test_a_donated_argument_may_overlap_another(memory: IreeExecutable, access: str, shift: int):
    """The program writes into the donated argument, and reads the other one."""
    for given in (["donate", access], [access, "donate"]):
        first, last = (ArgumentType(F32, BIG, a) for a in given)  # type: ignore[arg-type]
        function = memory.function("insert_and_double", [first, TensorType(F32, ROW), last])
        for _ in range(4):
            block = memory_module.empty_aligned((512, 256), F32)
            block[...] = random(512, 256)
            x, z, row = block[:256], block[shift : shift + 256], random(*ROW)
            inserted, doubled = x.copy(), 2 * z
            inserted[3] = row
            y, d = function([x, row, z])
            np.testing.assert_array_equal(y, inserted)
            np.testing.assert_array_equal(d, doubled)


def test_small_arguments_are_never_changed_nor_shared(memory: IreeExecutable):
    x, row = random(8, 4), random(1, 4)
    before = x.copy()
    (y,) = memory.function("insert_small")([x, row])
    np.testing.assert_array_equal(x, before)
    np.testing.assert_array_equal(y[3], row[0])
    identity = memory.function("identity_small")
    (first,) = identity([x])
    (second,) = identity([x + 1])
    np.testing.assert_array_equal(first, before)
    np.testing.assert_array_equal(second, before + 1)


def test_a_borrowed_argument_is_read_where_it_lies(memory: IreeExecutable, monkeypatch: pytest.MonkeyPatch):
    function = memory.function("double", [borrowed(BIG)])
    x = random(*BIG)
    assert address(x) % ALIGNMENT == 0
    for _ in range(3):
        function([x])

    def fail(_: np.ndarray) -> None:
        raise AssertionError("copied")

    monkeypatch.setattr(function._passers[0], "_copy", fail)
    np.testing.assert_array_equal(function([x])[0], 2 * x)
    for elsewhere in (off_alignment(x), x[:, ::-1], readonly(x)):
        with pytest.raises(AssertionError, match="copied"):
            function([elsewhere])


@pytest.mark.parametrize("access", ["copy", "borrow", "donate"])
def test_arrays_that_cannot_be_lent_are_copied(memory: IreeExecutable, access: str):
    function = memory.function("double", [ArgumentType(F32, BIG, access)])  # type: ignore[arg-type]
    x = random(*BIG)
    for array in (off_alignment(x), readonly(x), np.asfortranarray(x), x[::-1], x[:, ::-1]):
        for _ in range(3):
            np.testing.assert_array_equal(function([array])[0], 2 * array)


def test_a_donated_argument_is_updated_in_place(memory: IreeExecutable):
    insert = memory.function("insert", [donated(BIG), TensorType(F32, ROW)])
    cache = random(*BIG)
    want = cache.copy()
    first = address(cache)
    for step in range(4):
        row = random(*ROW) + step
        want[3] = row
        (cache,) = insert([cache, row])
        np.testing.assert_array_equal(cache, want)
    assert address(cache) == first


def test_a_donated_array_outlives_its_owner_through_the_result(memory: IreeExecutable):
    identity = memory.function("identity", [donated(BIG)])
    want = random(*BIG)
    results = [identity([random(*BIG)])[0].reshape(-1)[:] for _ in range(4)]
    litter()
    for result in results:
        np.testing.assert_array_equal(result, want.reshape(-1))


def test_two_results_never_share_memory(memory: IreeExecutable):
    for name in ("same_twice", "identity_twice", "double_and_square"):
        for access in ("copy", "borrow", "donate"):
            function = memory.function(name, [ArgumentType(F32, BIG, access)])  # type: ignore[arg-type]
            for _ in range(4):
                a, b = function([random(*BIG)])
                assert not overlap(a, b), (name, access)
                kept = b.copy()
                a[...] = -1
                np.testing.assert_array_equal(b, kept)


def test_results_own_their_memory(memory: IreeExecutable):
    double = memory.function("double", [borrowed(BIG)])
    x = random(*BIG)
    kept = []
    for step in range(6):
        kept.append(double([x + step])[0].reshape(-1)[10:][::2])
        litter()
    for step, view in enumerate(kept):
        np.testing.assert_array_equal(view, (2 * (x + step)).reshape(-1)[10:][::2])


def test_results_outlive_the_executable(memory_vmfb: bytes):
    x = random(*BIG)
    view = IreeExecutable(memory_vmfb).function("double")([x])[0].T[5:]
    litter()
    np.testing.assert_array_equal(view, (2 * x).T[5:])
    view[...] = 0
    assert not view.any()


def test_copy_results(memory: IreeExecutable):
    (shared,) = memory.function("double")([random(*BIG)])
    (copied,) = memory.function("double", copy_results=True)([random(*BIG)])
    assert copied.base is None
    assert shared.base is not None
    np.testing.assert_array_equal(shared, copied)


def test_state_is_never_shared(memory_vmfb: bytes):
    executable = IreeExecutable(memory_vmfb)
    x, row = random(*BIG), random(*ROW)
    want = x.copy()
    for access in ("copy", "donate"):
        (result,) = executable.function("set_state", [ArgumentType(F32, BIG, access)])([x])  # type: ignore[arg-type]
        result[...] = -1
        x[...] = -2
        np.testing.assert_array_equal(executable.function("get_state")([])[0], want)
        x[...] = want
    (stepped,) = executable.function("step_state")([row])
    want[3] = row
    np.testing.assert_array_equal(stepped, want)
    stepped[...] = -1
    (got,) = executable.function("get_state")([])
    np.testing.assert_array_equal(got, want)
    got[...] = -1
    executable.function("step_state")([row + 1])
    want[3] = row + 1
    np.testing.assert_array_equal(executable.function("get_state")([])[0], want)


def test_executables_have_states_of_their_own(memory_vmfb: bytes):
    a, b = IreeExecutable(memory_vmfb), IreeExecutable(memory_vmfb)
    a.function("set_state")([random(*BIG)])
    assert not b.function("get_state")([])[0].any()


def test_array_over_keeps_its_owner():
    class Owner:
        pass

    owner = Owner()
    alive = [True]
    import weakref

    weakref.finalize(owner, alive.clear)
    source = np.arange(12, dtype=np.int16)
    array = array_over(source.reshape(3, 4), source, owner)
    view = array[1:].T.reshape(-1)[:2]
    base = array[::2].T
    del owner, array, view
    gc.collect()
    assert alive
    np.testing.assert_array_equal(base, np.arange(12).reshape(3, 4)[::2].T)
    del base
    gc.collect()
    assert not alive


@pytest.mark.skipif(sys.platform != "linux", reason="acts on glibc only")
def test_the_c_allocator_is_set_once(monkeypatch: pytest.MonkeyPatch):
    calls: list[tuple[int, int]] = []

    class Libc:
        def mallopt(self, name: int, value: int) -> None:
            calls.append((name, value))

    monkeypatch.setattr(memory_module.ctypes, "CDLL", lambda _: Libc())
    monkeypatch.setattr(memory_module.platform, "libc_ver", lambda: ("glibc", "2.36"))
    for variable, expected_calls in (("1", 0), ("", 2), ("0", 2)):
        monkeypatch.setenv("RLX_NO_MALLOPT", variable)
        monkeypatch.setattr(memory_module, "_configured", False)
        calls.clear()
        memory_module.configure_allocator()
        memory_module.configure_allocator()
        assert len(calls) == expected_calls, variable

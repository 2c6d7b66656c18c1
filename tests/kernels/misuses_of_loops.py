"""Wrong kernels, with their errors: loops, branches, registers."""

from __future__ import annotations

from typing import Any

from tests.kernels.misuses import misuse

# --- loops, branches, registers -----------------------------------------------------------------------


@misuse("computed inside a loop, which has ended", "k.register")
def value_of_an_ended_loop(k: Any, x: Any, n: Any, y: Any) -> None:
    last = x[0, 0]
    for i in k.range(4):
        last = x[i, 0]
    y[0, 0] = last + 1  # here


@misuse("computed inside a branch, which has ended", "k.register")
def value_of_an_ended_branch(k: Any, x: Any, n: Any, y: Any) -> None:
    value = x[0, 0]
    for _ in k.when(value > 0):
        value = value + 1
    y[0, 0] = value  # here


@misuse("was left by `break` or `return`", "k.repeat")
def break_of_a_loop(k: Any, x: Any, n: Any, y: Any) -> None:
    for i in k.parallel(4):
        for j in k.range(12):  # here
            y[i, j] = x[i, j]
            break


@misuse("was left by `break` or `return`", "k.repeat")
def return_of_a_loop(k: Any, x: Any, n: Any, y: Any) -> None:
    for i in k.parallel(4):  # here
        y[i, 0] = x[i, 0]
        return


@misuse("the step is 0, not positive", "")
def step_of_zero(k: Any, x: Any, n: Any, y: Any) -> None:
    for i in k.range(0, 4, 0):  # here
        y[i, 0] = 1.0


@misuse("unroll=0 is not positive", "")
def unroll_of_zero(k: Any, x: Any, n: Any, y: Any) -> None:
    for c in k.vectors(12, unroll=0):  # here
        y[0, c] = 1.0


@misuse("must call `k.stop_unless(condition)` once", "")
def endless_loop(k: Any, x: Any, n: Any, y: Any) -> None:
    for _ in k.repeat():  # here
        y[0, 0] = 1.0


@misuse("k.stop_unless is called in the body of k.repeat", "register")
def stop_in_a_branch(k: Any, x: Any, n: Any, y: Any) -> None:
    for _ in k.repeat():
        for _ in k.when(x[0, 0] > 0):
            k.stop_unless(x[0, 0] > 1)  # here
    y[0, 0] = 1.0


@misuse("k.stop_unless is called in the body of k.repeat", "register")
def stop_outside_of_a_loop(k: Any, x: Any, n: Any, y: Any) -> None:
    k.stop_unless(x[0, 0] > 1)  # here


@misuse("k.parallel is called once", "k.range")
def parallel_twice(k: Any, x: Any, n: Any, y: Any) -> None:
    for i in k.parallel(4):
        y[i, 0] = x[i, 0]
    for i in k.parallel(4):  # here
        y[i, 1] = x[i, 1]


@misuse("k.parallel is called once", "k.range")
def parallel_in_a_loop(k: Any, x: Any, n: Any, y: Any) -> None:
    for i in k.range(4):
        for j in k.parallel(12):  # here
            y[i, j] = x[i, j]


@misuse("k.parallel comes before memory is read or written", "all workgroups")
def parallel_after_a_read(k: Any, x: Any, n: Any, y: Any) -> None:
    first = x[0, 0]
    for i in k.parallel(4):  # here
        y[i, 0] = first


@misuse("k.parallel comes before memory is read or written", "all workgroups")
def parallel_after_a_write(k: Any, x: Any, n: Any, y: Any) -> None:
    y[0, 0] = 0.0
    for i in k.parallel(4):  # here
        y[i, 1] = x[i, 1]


@misuse("and before registers", "all workgroups")
def parallel_after_a_register(k: Any, x: Any, n: Any, y: Any) -> None:
    total = k.accumulator("add")
    for i in k.parallel(4):  # here
        for c in k.vectors(12):
            total.include(c, x[i, c])
        y[i, 0] = total.result()


@misuse("computed inside a loop, which has ended", "k.register")
def value_carried_by_python(k: Any, x: Any, n: Any, y: Any) -> None:
    for i in k.parallel(4):
        total: Any = 0.0
        for j in k.range(12):
            total = total + x[i, j]  # here
            y[i, j] = total


@misuse("after k.parallel", "second op")
def read_after_parallel(k: Any, x: Any, n: Any, y: Any) -> None:
    for i in k.parallel(4):
        y[i, 0] = x[i, 0]
    y[0, 0] = y[0, 0] + y[1, 0]  # here


@misuse("a register is not a condition", "r.value")
def register_as_a_condition(k: Any, x: Any, n: Any, y: Any) -> None:
    r = k.register(0.0)
    y[0, 0] = 1.0 if r else 2.0  # here


@misuse("the register is f32 of 1 lanes", "")
def vector_in_a_register(k: Any, x: Any, n: Any, y: Any) -> None:
    r = k.register(0.0)
    r.value = x[0, k.at(0)]  # here
    y[0, 0] = r.value


@misuse("raised TypeError: unsupported operand", "")
def arithmetic_of_a_register(k: Any, x: Any, n: Any, y: Any) -> None:
    r = k.register(0.0)
    y[0, 0] = r + 1  # here


@misuse("lanes do not mix", "")
def vectors_of_different_lanes(k: Any, x: Any, n: Any, y: Any) -> None:
    y[0, k.at(0)] = x[0, k.at(0)] + x[0, k.at(0, "f64")]  # here


@misuse("not in [0, ", "")
def shuffle_out_of_range(k: Any, x: Any, n: Any, y: Any) -> None:
    v = x[0, k.at(0)]
    y[0, 0] = v.shuffle(v, [99]).lane(0)  # here


@misuse("are not joined in pairs", "power of two")
def joined_lanes(k: Any, x: Any, n: Any, y: Any) -> None:
    v = x[0, k.at(0)]
    y[0, 0] = v.shuffle(v, [0, 1, 2]).sum()  # here


# --- loops without effect, and what they leave --------------------------------------------------------


@misuse("k.when has no effect, because nothing iterates over it", "for … in k.when(…):")
def branch_without_loop(k: Any, x: Any, n: Any, y: Any) -> None:
    k.when(x[0, 0] > 5.0)  # here
    y[0, 0] = 99.0


@misuse("k.range has no effect", "for … in k.range(…):")
def range_without_loop(k: Any, x: Any, n: Any, y: Any) -> None:
    for _ in k.when(x[0, 0] > 0.0):
        k.range(4)  # here
        y[0, 0] = 1.0


@misuse("k.when is a loop, not a context", "for … in k.when(…):")
def branch_as_context(k: Any, x: Any, n: Any, y: Any) -> None:
    with k.when(x[0, 0] > 5.0):  # here
        y[0, 0] = 99.0


@misuse("k.when is a loop, not a condition", "for … in k.when(…):")
def branch_as_condition(k: Any, x: Any, n: Any, y: Any) -> None:
    y[0, 0] = 1.0
    if k.when(x[0, 0] > 5.0):  # here
        y[0, 0] = 99.0


@misuse("k.vectors, which has ended", "register")
def value_of_the_last_vector(k: Any, x: Any, n: Any, y: Any) -> None:
    for c in k.vectors(x.shape[1]):
        v = x[0, c]
    y[0, 0] = v.sum()  # here


@misuse("this register was made inside a branch, which has ended", "before")
def register_of_a_branch(k: Any, x: Any, n: Any, y: Any) -> None:
    for _ in k.when(x[0, 0] > 0.0):
        r = k.register(5.0)
    y[0, 0] = r.value  # here


@misuse("a workgroup has -6 positions", "k.parallel(n, 16)")
def negative_chunk(k: Any, x: Any, n: Any, y: Any) -> None:
    for i in k.parallel(4, -6):  # here
        y[i, 0] = 1.0


@misuse("an accumulator takes the lanes of k.vectors, not 0", "r.value = r.value + x[i, j]")
def element_in_an_accumulator(k: Any, x: Any, n: Any, y: Any) -> None:
    total = k.accumulator("add")
    total.include(0, x[0, 0])  # here


@misuse("raised ValueError: not enough values to unpack", "takes=")
def another_rank(k: Any, x: Any, n: Any, y: Any) -> None:
    _, _, _last = x.shape  # here


@misuse("'add' of a value and", "r.value")
def register_as_a_value(k: Any, x: Any, n: Any, y: Any) -> None:
    r = k.register(1.0)
    y[0, 0] = x[0, 0] + r  # here

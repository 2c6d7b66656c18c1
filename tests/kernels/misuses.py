"""Wrong kernels, with their errors: values and memory."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

import rlx
from rlx.kernels.registry import CpuKernel


class Wrong(rlx.CustomOp, name="language.wrong"):
    """An op for kernels that are wrong: a matrix of floats, and a row of integers."""

    def infer(self, x: rlx.Shape, n: rlx.Shape, *, factor: float = 1.0) -> rlx.Shape:
        return x

    def evaluate(self, x: np.ndarray, n: np.ndarray, *, factor: float) -> np.ndarray:
        return x * factor


X, N = np.ones((4, 12), np.float32), np.arange(12, dtype=np.int32)
MISUSES: list[tuple[CpuKernel, str, str]] = []
Code = Callable[[Any, Any, Any, Any], None]


def misuse(message: str, hint: str) -> Callable[[Code], Code]:
    """Declare a wrong kernel. The line with `# here` is that of the error, or the function's."""

    def register(code: Code) -> Code:
        def called(k: Any, x: Any, n: Any, y: Any, *, factor: float) -> None:
            code(k, x, n, y)

        MISUSES.append((registered(called, code), message, hint))
        return code

    return register


def registered(called: Any, code: Any) -> CpuKernel:
    return rlx.kernel(Wrong, name=f"wrong_{code.__name__}", pays=lambda case: False)(called)


def place_of(code: Any) -> str:
    lines, first = inspect.getsourcelines(code)
    marked = [number for number, line in enumerate(lines) if line.rstrip().endswith("# here")]
    return f"{code.__code__.co_filename}:{first + marked[0]}" if marked else ""


# --- conditions and numbers of Python -----------------------------------------------------------------


@misuse("is not known while its code is being emitted", "k.where")
def if_of_a_value(k: Any, x: Any, n: Any, y: Any) -> None:
    if x[0, 0] > 1.0:  # here
        y[0, 0] = 1.0


@misuse("is not known while its code is being emitted", "k.where")
def and_of_values(k: Any, x: Any, n: Any, y: Any) -> None:
    y[0, 0] = k.where(x[0, 0] > 1 and x[0, 1] > 1, 1.0, x[0, 0])  # here


@misuse("is not known while its code is being emitted", "k.where")
def chained_comparison(k: Any, x: Any, n: Any, y: Any) -> None:
    y[0, 0] = k.where(0 < x[0, 0] < 1, x[0, 0], 1.0)  # here


@misuse("is not known while its code is being emitted", "k.range")
def range_of_a_value(k: Any, x: Any, n: Any, y: Any) -> None:
    for _ in range(n[0]):  # here
        y[0, 0] = 1.0


@misuse("is not known while its code is being emitted", "k.range")
def float_of_a_value(k: Any, x: Any, n: Any, y: Any) -> None:
    y[0, 0] = float(x[0, 0])  # here


@misuse("np.exp does not take a value", "rlx.kernels.functions")
def function_of_numpy(k: Any, x: Any, n: Any, y: Any) -> None:
    y[0, 0] = np.exp(x[0, 0])  # here


@misuse("not iterable", "v.lane(i)")
def iteration_of_a_value(k: Any, x: Any, n: Any, y: Any) -> None:
    y[0, 0] = sum(x[0, k.at(0)])  # here


@misuse("no positions", "v.lane(i)")
def item_of_a_value(k: Any, x: Any, n: Any, y: Any) -> None:
    y[0, 0] = x[0, k.at(0)][1]  # here


@misuse("no operator **", "v * v")
def power(k: Any, x: Any, n: Any, y: Any) -> None:
    y[0, 0] = x[0, 0] ** 2  # here


# --- element types ------------------------------------------------------------------------------------


@misuse("f32 and i32 do not mix", "v.to(f32)")
def mixed_dtypes(k: Any, x: Any, n: Any, y: Any) -> None:
    y[0, 0] = x[0, 0] + n[0]  # here


@misuse("i32 and index do not mix", "v.to(i32)")
def position_as_a_number(k: Any, x: Any, n: Any, y: Any) -> None:
    for i in k.range(4):
        y[i, 0] = (n[0] + i).to(rlx.f32)  # here


@misuse("expected a i32, got the float 1.5", "v.to(rlx.f32)")
def float_for_an_integer(k: Any, x: Any, n: Any, y: Any) -> None:
    y[0, 0] = (n[0] * 1.5).to(rlx.f32)  # here


@misuse("4294967295 is not a i32", "-2147483648 to 2147483647")
def number_out_of_range(k: Any, x: Any, n: Any, y: Any) -> None:
    y[0, 0] = (n[0] & 0xFFFFFFFF).to(rlx.f32)  # here


@misuse("i32 has no operation 'div'", "//")
def division_of_integers(k: Any, x: Any, n: Any, y: Any) -> None:
    y[0, 0] = (n[0] / 2).to(rlx.f32)  # here


@misuse("f32 has no operation 'floordiv'", "/ divides floats")
def floor_division_of_floats(k: Any, x: Any, n: Any, y: Any) -> None:
    y[0, 0] = x[0, 0] // 2  # here


@misuse("bool has no operation 'add'", "&, |")
def sum_of_conditions(k: Any, x: Any, n: Any, y: Any) -> None:
    c = x[0, 0] > 1
    y[0, 0] = (c + c).to(rlx.f32)  # here


@misuse("f32 to bool", "v != 0")
def conversion_to_bool(k: Any, x: Any, n: Any, y: Any) -> None:
    y[0, 0] = k.where(x[0, 0].to(rlx.bool_), x[0, 0], 0.0)  # here


@misuse("quad_products: expected vectors of u8 and i8, and a total of i32 with a quarter of the lanes", "")
def quads_of_other_types(k: Any, x: Any, n: Any, y: Any) -> None:
    k.constant(1, "u8", 16).quad_products(k.constant(1, "i8", 16), k.constant(0, "i32", 8))  # here


@misuse("table_entries: expected indices of u8 and 16 bytes", "")
def table_of_another_length(k: Any, x: Any, n: Any, y: Any) -> None:
    k.constant(1, "u8", 16).table_entries([1, 2, 3])  # here


@misuse("k.vector takes scalars, at least one", "v.shuffle joins vectors")
def vector_of_vectors(k: Any, x: Any, n: Any, y: Any) -> None:
    k.vector([k.constant(1.0, "f32", 4)])  # here


@misuse("different widths", "")
def bits_of_another_width(k: Any, x: Any, n: Any, y: Any) -> None:
    y[0, 0] = x[0, 0].bits("i64").to(rlx.f32)  # here


@misuse("the condition is f32", "v != 0")
def number_as_a_condition(k: Any, x: Any, n: Any, y: Any) -> None:
    y[0, 0] = k.where(x[0, 0], x[0, 0], 1.0)  # here


@misuse("k.when takes a condition, not f32", "v != 0")
def branch_on_a_number(k: Any, x: Any, n: Any, y: Any) -> None:
    for _ in k.when(x[0, 0]):  # here
        y[0, 0] = 1.0


@misuse("k.when takes one condition", "k.any_lane")
def branch_on_a_vector(k: Any, x: Any, n: Any, y: Any) -> None:
    for _ in k.when(x[0, k.at(0)] > 1):  # here
        y[0, 0] = 1.0


@misuse("at least one must be a value", "k.constant")
def choice_of_numbers(k: Any, x: Any, n: Any, y: Any) -> None:
    y[0, 0] = k.where(x[0, 0] > 1, 1.0, 0.0)  # here


@misuse("kernels do not compute with bf16", "")
def dtype_without_kernels(k: Any, x: Any, n: Any, y: Any) -> None:
    y[0, 0] = x[0, 0].to("bf16").to(rlx.f32)  # here


@misuse("i32 and f32 do not mix", "v.to(i32)")
def accumulator_of_another_dtype(k: Any, x: Any, n: Any, y: Any) -> None:
    total = k.accumulator("add", rlx.i32)
    for c in k.vectors(12):
        total.include(c, x[0, c])  # here
    y[0, 0] = total.result().to(rlx.f32)


@misuse("an accumulator is one of add, mul", "")
def unknown_accumulator(k: Any, x: Any, n: Any, y: Any) -> None:
    y[0, 0] = k.accumulator("sum").result()  # here


# --- memory -------------------------------------------------------------------------------------------


@misuse("takes 2 positions, got 1", "")
def too_few_positions(k: Any, x: Any, n: Any, y: Any) -> None:
    y[0, 0] = x[0]  # here


@misuse("f32 and i32 do not mix", "v.to(f32)")
def wrong_dtype_stored(k: Any, x: Any, n: Any, y: Any) -> None:
    y[0, 0] = n[0]  # here


@misuse("expected an element, got Value", "")
def vector_for_an_element(k: Any, x: Any, n: Any, y: Any) -> None:
    y[0, 0] = x[0, k.at(0)]  # here


@misuse("only the last axis", "")
def lanes_on_the_first_axis(k: Any, x: Any, n: Any, y: Any) -> None:
    for c in k.vectors(4):
        y[c, 0] = x[c, 0]  # here


@misuse("has no slices", "k.vectors")
def slice_of_a_row(k: Any, x: Any, n: Any, y: Any) -> None:
    y[0, :] = x[0, :]  # here


@misuse("position -1 is outside", "x.shape[1] - 1")
def negative_position(k: Any, x: Any, n: Any, y: Any) -> None:
    y[0, 0] = x[0, -1]  # here


@misuse("position 12 is outside of axis 1", "")
def position_after_the_end(k: Any, x: Any, n: Any, y: Any) -> None:
    y[0, 12] = x[0, 0]  # here


@misuse("a position must be an integer", "c.start")
def float_position(k: Any, x: Any, n: Any, y: Any) -> None:
    y[0, 0] = x[0, 1.0]  # here


@misuse("a position must be a scalar integer", "")
def value_as_a_position(k: Any, x: Any, n: Any, y: Any) -> None:
    y[0, 0] = x[0, x[0, 0]]  # here


@misuse("cannot be multiplied", "c.start")
def product_of_lanes(k: Any, x: Any, n: Any, y: Any) -> None:
    for c in k.vectors(6):
        y[0, c] = x[0, c * 2]  # here


@misuse("cannot be compared", "c.start")
def comparison_of_lanes(k: Any, x: Any, n: Any, y: Any) -> None:
    for c in k.vectors(12):
        y[0, c] = k.where(c < 3, x[0, c], 0.0)  # here


@misuse("is an operand or a table, which is read only", "workspace")
def written_operand(k: Any, x: Any, n: Any, y: Any) -> None:
    x[0, 0] = 1.0  # here


@misuse("another number of elements", "")
def view_of_another_size(k: Any, x: Any, n: Any, y: Any) -> None:
    y.view(4, 13)[0, 0] = 1.0  # here


@misuse("scratch memory and tables have one shape", "k.scratch")
def view_of_scratch(k: Any, x: Any, n: Any, y: Any) -> None:
    y[0, 0] = k.scratch(4, 4).view(16)[0]  # here


@misuse("is an operand or a table, which is read only", "scratch")
def written_table(k: Any, x: Any, n: Any, y: Any) -> None:
    k.table(np.ones(3))[0] = 1.0  # here


@misuse("a table is of numbers, and not empty", "")
def empty_table(k: Any, x: Any, n: Any, y: Any) -> None:
    y[0, 0] = k.table(np.ones(0))[0]  # here


@misuse("a table is of numbers, and not empty", "")
def table_of_conditions(k: Any, x: Any, n: Any, y: Any) -> None:
    y[0, 0] = k.table(np.ones(3), "bool")[0].to(rlx.f32)  # here


@misuse("at most 131072", "workspace")
def large_scratch(k: Any, x: Any, n: Any, y: Any) -> None:
    k.scratch(32768)
    y[0, 0] = k.scratch(1)[0]  # here


@misuse("are known, and positive", "workspace")
def scratch_of_a_value(k: Any, x: Any, n: Any, y: Any) -> None:
    y[0, 0] = k.scratch(n[0])[0]  # here


@misuse("is read at positions", "k.range")
def iteration_of_memory(k: Any, x: Any, n: Any, y: Any) -> None:
    for row in n:  # here
        y[0, 0] = row


@misuse("raised TypeError: unsupported operand", "")
def arithmetic_of_memory(k: Any, x: Any, n: Any, y: Any) -> None:
    y[0, 0] = x + 1  # here


@misuse("raised AttributeError", "")
def unknown_method(k: Any, x: Any, n: Any, y: Any) -> None:
    y[0, 0] = x[0, 0].tanh()  # here


@misuse("does not write the result", "y[i, c] = value")
def nothing_written(k: Any, x: Any, n: Any, y: Any) -> None:
    _ = x[0, 0] + 1


@misuse("is not a f32: it is too large", "")
def number_beyond_the_dtype(k: Any, x: Any, n: Any, y: Any) -> None:
    y[0, 0] = x[0, 0] * 1e39  # here

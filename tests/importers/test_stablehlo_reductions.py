"""`rlx.from_stablehlo` of reductions: the result of their region, and the dtype of the computation."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import rlx
from tests.importers.modules import ELEMENTS, values

JOINS: dict[str, Any] = {"add": np.add, "multiply": np.multiply, "maximum": np.maximum, "minimum": np.minimum}


def reduction(x: str, start: str, result: str, body: str, start_type: str, x_type: str) -> str:
    return f"""%{result} = "stablehlo.reduce"({x}, {start}) ({{ ^bb0(%x: TYPE, %y: TYPE): {body} }})
      {{dimensions = array<i64: 0>}} : (tensor<3x{x_type}>, tensor<{start_type}>) -> TYPE\n"""


@pytest.mark.parametrize("op", JOINS)
def test_a_reduction_is_what_its_region_says(op: str) -> None:
    """The region uses any ops of its arguments, constants and outside values. Elements are reduced in order."""
    join, start = JOINS[op], np.float32(2.5)
    sources = {"%x": 0, "%y": 1, "%i": start, "%k": np.float32(1)}
    for a, b in itertools.product(sources, repeat=2):
        for returned in ("%s", *sources, "%t"):
            body = f"%s = stablehlo.{op} {a}, {b} : TYPE\n %t = stablehlo.subtract %s, %x : TYPE\n"
            body += f"stablehlo.return {returned} : TYPE\n"
            text = "func.func @f(%a: tensor<3xf32>, %i: TYPE) -> TYPE {\n %k = stablehlo.constant dense<1.0> : TYPE\n"
            text += reduction("%a", "%i", "r", body, "f32", "f32") + "return %r : TYPE }"

            def region(x: Any, y: Any, a: str = a, b: str = b, returned: str = returned) -> Any:
                named = {**sources, "%x": x, "%y": y}
                named["%s"] = join(named[a], named[b])
                return {**named, "%t": named["%s"] - x}[returned]

            (found,) = values(
                rlx.from_stablehlo(text.replace("TYPE", "tensor<f32>")),
                np.array([1, 2, 3], np.float32),
                np.array(start),
            )
            assert found == region(start, region(region(1, 2), 3)), (a, b, returned)


def promoting(to: str) -> list[str]:
    return [n for n, (_, family, bits) in ELEMENTS.items() if family == ELEMENTS[to][1] and bits <= ELEMENTS[to][2]]


@pytest.mark.parametrize("to", [n for n in ELEMENTS if n != "bool"])
def test_reductions_compute_in_the_dtype_of_their_result(to: str) -> None:
    """Sums and products overflow the operands' dtypes. Start values are arguments, or neutral constants."""
    kinds = {n: k for n, k in JOINS.items() if to != "c64" or n in ("add", "multiply")}
    numbers: Any = {"bool": [1, 1, 0], "integer": [100, 3, 125], "float": [6e4, 6e4, 3], "complex": [1 + 2j, 3, 1j]}
    expected, arrays, arguments, body, outputs = [], [], [], "", []
    for operand, start in itertools.product(promoting(to), repeat=2):
        for kind, join in kinds.items():
            n = len(outputs)
            family = "bool" if operand == "bool" else ELEMENTS[operand][1]
            x = np.array(numbers[family]).astype(rlx.dtype(operand).numpy)
            begin = np.array(1 if start == "bool" else 7).astype(rlx.dtype(start).numpy)
            neutral = n % 2 and kind in ("add", "multiply")
            begin = np.array(int(kind == "multiply")).astype(begin.dtype) if neutral else begin
            arguments.append(f"%a{n}: tensor<3x{ELEMENTS[operand][0]}>, %i{n}: tensor<{ELEMENTS[start][0]}>")
            arrays += [x, begin]
            if neutral:
                number = ("false", "true")[int(begin)] if start == "bool" else str(np.real(begin).item())
                number = f"({number}, 0.0)" if start == "c64" else number
                body += f"%k{n} = stablehlo.constant dense<{number}> : tensor<{ELEMENTS[start][0]}>\n"
            joined = f"%s = stablehlo.{kind} %x, %y : TYPE\n stablehlo.return %s : TYPE\n"
            source = f"%{'k' if neutral else 'i'}{n}"
            body += reduction(f"%a{n}", source, f"r{n}", joined, ELEMENTS[start][0], ELEMENTS[operand][0])
            outputs.append(f"%r{n}")
            wide = np.append(x.astype(rlx.dtype(to).numpy), begin.astype(rlx.dtype(to).numpy))
            with np.errstate(over="ignore"):
                if rlx.dtype(to).is_float:
                    expected.append(join.reduce(wide.astype(np.float64)).astype(wide.dtype))
                else:
                    expected.append(join.reduce(wide, dtype=wide.dtype))
    types = ", ".join(["TYPE"] * len(outputs))
    text = f"func.func @f({', '.join(arguments)}) -> ({types}) {{ {body} return {', '.join(outputs)} : {types} }}"
    g = rlx.from_stablehlo(text.replace("TYPE", f"tensor<{ELEMENTS[to][0]}>"))
    kind = rlx.dtype(to)
    tolerance = 2 * kind.eps if kind.is_inexact else 0
    for found, wanted in zip(values(g, *arrays), expected, strict=True):
        assert found.dtype == kind.numpy
        wide = np.complex128 if kind.is_complex else np.float64 if kind.is_float else kind.numpy
        np.testing.assert_allclose(found.astype(wide), wanted.astype(wide), rtol=tolerance)

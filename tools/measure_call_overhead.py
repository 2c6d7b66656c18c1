"""Measure the overhead of a call of a compiled function: NumPy arrays in, NumPy arrays out.

Run ``python tools/measure_call_overhead.py``. Every figure is the best of several rounds, in microseconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np

from rlx.targets.iree.abi import Access, ArgumentType
from rlx.targets.iree.compiler import compile_module
from rlx.targets.iree.executable import IreeExecutable
from rlx.targets.iree.memory import empty_aligned
from rlx.targets.iree.targets import target

SIZES = (4, 1024, 32 * 1024, 64 * 1024, 1024 * 1024)
ACCESSES: tuple[Access, ...] = ("copy", "borrow", "donate")


def module_text() -> str:
    """Return functions with an argument of each size, with a result of each size, and with many arguments."""
    text = ""
    for size in SIZES:
        text += f"""
func.func @head_{size}(%x: tensor<{size}xf32>) -> tensor<4xf32> {{
  %y = tensor.extract_slice %x[0] [4] [1] : tensor<{size}xf32> to tensor<4xf32>
  %z = arith.addf %y, %y : tensor<4xf32>
  return %z : tensor<4xf32>
}}
func.func @wide_{size}(%x: tensor<1xf32>) -> tensor<{size}xf32> {{
  %c0 = arith.constant 0 : index
  %e = tensor.empty() : tensor<{size}xf32>
  %f = tensor.extract %x[%c0] : tensor<1xf32>
  %y = linalg.fill ins(%f : f32) outs(%e : tensor<{size}xf32>) -> tensor<{size}xf32>
  return %y : tensor<{size}xf32>
}}
"""
    for count in (1, 2, 8):
        names = [f"%x{number}" for number in range(count)]
        arguments = ", ".join(f"{name}: tensor<4xf32>" for name in names)
        results = ", ".join(["tensor<4xf32>"] * count)
        body = "".join(f"  %y{n} = arith.addf %x{n}, %x{n} : tensor<4xf32>\n" for n in range(count))
        values = ", ".join(f"%y{number}" for number in range(count))
        text += f"func.func @small_{count}({arguments}) -> ({results}) {{\n{body}"
        text += f"  return {values} : {results}\n}}\n"
    return text


def microseconds(function: Callable[[], object], seconds: float = 0.02, rounds: int = 7) -> float:
    """Return the best of several rounds of about ``seconds`` each."""
    started = time.perf_counter()
    function()
    count = max(3, int(seconds / max(time.perf_counter() - started, 1e-7)))
    best = float("inf")
    for _ in range(rounds):
        started = time.perf_counter()
        for _ in range(count):
            function()
        best = min(best, (time.perf_counter() - started) / count)
    return best * 1e6


def measure(executable: IreeExecutable) -> None:
    """Print the figures of one device."""
    for count in (1, 2, 8):
        function = executable.function(f"small_{count}")
        arrays = [np.ones(4, np.float32)] * count
        print(f"  {count} arguments and results of 16 B  {microseconds(partial(function, arrays)):9.2f}")
    for size in SIZES:
        array = empty_aligned((size,), np.float32)
        array[...] = 1
        figures = []
        for access in ACCESSES:
            types = [ArgumentType(np.dtype(np.float32), (size,), access)]
            function = executable.function(f"head_{size}", types)
            function([array])
            function([array])
            figures.append(f"{access} {microseconds(partial(function, [array])):8.2f}")
        print(f"  argument of {4 * size:8d} B  {'  '.join(figures)}")
    for size in SIZES:
        one = np.ones(1, np.float32)
        shared, copied = (executable.function(f"wide_{size}", copy_results=copy) for copy in (False, True))
        figures = [microseconds(partial(function, [one])) for function in (shared, copied)]
        print(f"  result of {4 * size:8d} B    default {figures[0]:8.2f}  copied {figures[1]:8.2f}")


def main() -> None:
    """Measure on the local devices."""
    vmfb = compile_module(module_text(), target("cpu")).vmfb
    for driver in ("local-sync", "local-task"):
        print(driver)
        measure(IreeExecutable(vmfb, driver=driver))


if __name__ == "__main__":
    main()

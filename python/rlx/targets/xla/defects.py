"""The register of defects of XLA's CPU client, and the options that avoid them.

Each defect has a program that reproduces it. `soundness.py` runs these programs in a separate process, because some end their
process. `tests/targets/xla/test_defects.py` fails when a defect no longer occurs without its options. Its entry can then be
removed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rlx.targets.xla.options import Options

# jaxlib 0.10 runs products, sums and elementwise ops with the library YNNPACK. JAX itself leaves this enabled.
_NO_YNN: Options = (("xla_cpu_experimental_ynn_fusion_type", ""),)


@dataclass(frozen=True)
class Defect:
    """A defect of XLA's CPU client.

    Attributes:
        name: Its name in messages.
        what: A description.
        workaround: The options that avoid it, for versions of jaxlib that have them.
        seen: The last version of jaxlib in which it was observed.
        program: A StableHLO module that reproduces it.
        arguments: The arguments of the module's function `main`.
        expected: The expected value of all elements of the result, or of the last element.
    """

    name: str
    what: str
    workaround: Options
    seen: str
    program: str
    arguments: Callable[[], Sequence[np.ndarray]]
    expected: float


def _reduced(combined: str, start: str, axis: int, sizes: Sequence[int], dtype: str, result: str) -> str:
    """The reduction of `x * y` over an axis, computed in one dtype and reduced in that of the result."""
    dims = "x".join(map(str, sizes))
    kept = "x".join(str(size) for i, size in enumerate(sizes) if i != axis)
    return f"""func.func @main(%x: tensor<{dims}x{dtype}>, %y: tensor<{dims}x{dtype}>) -> tensor<{kept}x{result}> {{
  %start = stablehlo.constant dense<{start}> : tensor<{result}>
  %product = stablehlo.multiply %x, %y : tensor<{dims}x{dtype}>
  %wide = stablehlo.convert %product : (tensor<{dims}x{dtype}>) -> tensor<{dims}x{result}>
  %reduced = stablehlo.reduce(%wide init: %start) applies stablehlo.{combined} across dimensions = [{axis}]
      : (tensor<{dims}x{result}>, tensor<{result}>) -> tensor<{kept}x{result}>
  return %reduced : tensor<{kept}x{result}>
}}"""


_LONG = 32769
_SUM_OF_PRODUCT = f"""func.func @main(%m: tensor<3x3xf32>, %x: tensor<{_LONG}x3xf32>) -> tensor<{_LONG}xf32> {{
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %product = stablehlo.dot_general %m, %x, contracting_dims = [1] x [1]
      : (tensor<3x3xf32>, tensor<{_LONG}x3xf32>) -> tensor<3x{_LONG}xf32>
  %sum = stablehlo.reduce(%product init: %zero) applies stablehlo.add across dimensions = [0]
      : (tensor<3x{_LONG}xf32>, tensor<f32>) -> tensor<{_LONG}xf32>
  return %sum : tensor<{_LONG}xf32>
}}"""


def _twice(array: np.ndarray) -> list[np.ndarray]:
    return [array, array]


def _bf16() -> list[np.ndarray]:
    import ml_dtypes

    return _twice(np.full((40, 300), 1 + 2**-7, ml_dtypes.bfloat16))


DEFECTS = (
    Defect(
        "high-rank-reduction",
        "the sum of a product of tensors of rank 7 ends the process",
        _NO_YNN,
        "0.10.2",
        _reduced("add", "0.0", 3, (3, 1, 2, 2, 8, 8, 8), "f32", "f32"),
        lambda: _twice(np.ones((3, 1, 2, 2, 8, 8, 8), np.float32)),
        2.0,
    ),
    Defect(
        "reduced-dot",
        "the sum of a matrix product has wrong last elements",
        _NO_YNN,
        "0.10.2",
        _SUM_OF_PRODUCT,
        lambda: [
            np.ones((3, 3), np.float32),
            np.repeat(np.arange(_LONG, dtype=np.float32) == _LONG - 1, 3).reshape(_LONG, 3).astype(np.float32),
        ],
        9.0,
    ),
    Defect(
        "saturated-bytes",
        "a reduction of products of bytes (i8, u8) is that of products which are cut off instead of wrapped",
        _NO_YNN,
        "0.10.2",
        _reduced("maximum", "-128", 1, (40, 300), "i8", "i8"),
        lambda: _twice(np.full((40, 300), 16, np.int8)),
        0.0,
    ),
    Defect(
        "unrounded-bf16",
        "a reduction of products of bf16 is that of products which were not rounded",
        _NO_YNN,
        "0.10.2",
        _reduced("add", "0.0", 1, (40, 300), "bf16", "f32"),
        _bf16,
        300 * (1 + 2**-6),
    ),
)
# The workarounds of all defects.
WORKAROUNDS: Options = tuple(dict.fromkeys(option for defect in DEFECTS for option in defect.workaround))

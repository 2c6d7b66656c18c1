"""`rlx-simplify`: removal of arithmetic and shape ops without effect."""

from __future__ import annotations

from dataclasses import dataclass

from rlx import mlir
from rlx.passes.base import Pass, option
from rlx.passes.pattern import patterns_in, rewrite
from rlx.passes.simplification import fast_math_rules, identities, simplify_cast_rules, simplify_shape_rules

_OF_SHAPES = (*patterns_in(simplify_cast_rules), *patterns_in(simplify_shape_rules))
_EXACT = (identities.EXACT, *_OF_SHAPES)
_FAST = (identities.FAST, *_OF_SHAPES, *patterns_in(fast_math_rules))


@dataclass(frozen=True)
class Simplify(Pass, name="rlx-simplify", exact=True, idempotent=True):
    """Remove ops without effect, and combine ops that cancel each other or can be one.

    All rewrites are exact for floats, including NaN, infinities and the signs of zeros. Therefore `x + 0` is kept,
    because it is 0 for -0, and so is `x·0`, because it may be NaN. `fast-math` assumes that NaN, infinities and
    negative zeros do not occur, and that sums may be rounded in another order.
    """

    fast_math: bool = option(False, "whether to treat floats as if they were real numbers")

    def run(self, module: mlir.Module) -> None:
        rewrite(module, _FAST if self.fast_math else _EXACT, self.name)

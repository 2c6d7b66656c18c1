"""`rlx.from_stablehlo` of the custom call of JAX's `approx_max_k` and `approx_min_k`."""

from __future__ import annotations

import numpy as np
import pytest

import rlx
from rlx.ir.dtype import DTYPES
from tests.importers.modules import values

APPROXIMATE = """
func.func @before(%a: tensor<T>, %b: tensor<T>, %i: tensor<i32>, %j: tensor<i32>) -> tensor<i1> {
  %0 = stablehlo.compare WAY, %a, %b : (tensor<T>, tensor<T>) -> tensor<i1>
  return %0 : tensor<i1>
}
func.func public @main(%x: tensor<12xT>) -> tensor<3xT> {
  %i = stablehlo.iota dim = 0 : tensor<12xi32>
  %s = stablehlo.constant dense<START> : tensor<T>
  %n = stablehlo.constant dense<-1> : tensor<i32>
  %0:2 = stablehlo.custom_call @ApproxTopK(%x, %i, %s, %n) {called_computations = [@before], mhlo.backend_config =
    {aggregate_to_topk = true, recall_target = 0.95 : f32, reduction_dim = 0 : i64, top_k = 3 : i64}} :
    (tensor<12xT>, tensor<12xi32>, tensor<T>, tensor<i32>) -> (tensor<3xT>, tensor<3xi32>)
  return %0#0 : tensor<3xT>
}
"""


@pytest.mark.parametrize("way", ["GT", "LT", "EQ"])
@pytest.mark.parametrize("kind", [d.name for d in DTYPES if d.is_float and d.bits >= 8])
def test_approximate_top_k_goes_by_its_comparison(kind: str, way: str) -> None:
    """The start value must not decide: an infinity that a format lacks is NaN, which is not less than 0."""
    own = rlx.dtype(kind)
    start = np.array(-np.inf if way == "GT" else np.inf).astype(own.numpy)
    text = APPROXIMATE.replace("START", f"0x{start[None].view(f'u{own.itemsize}')[0]:0{own.bits // 4}X}")
    text = text.replace("WAY", way).replace("xT>", f"x{own.mlir}>").replace("<T>", f"<{own.mlir}>")
    if way == "EQ":
        with pytest.raises(rlx.UnsupportedError, match="ApproxTopK' by a function that is not GT or LT"):
            rlx.from_stablehlo(text)
        return
    x = np.random.default_rng(2).permutation(2.0 ** np.arange(-3, 9))
    x = np.clip(x, 0, own.max).astype(own.numpy)
    (found,) = values(rlx.from_stablehlo(text), x)
    wanted = np.sort(x.astype(np.float64))[::-1][:3] if way == "GT" else np.sort(x.astype(np.float64))[:3]
    np.testing.assert_array_equal(found.astype(np.float64), wanted)

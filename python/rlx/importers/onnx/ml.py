"""Ops of `ai.onnx.ml`, into which the models of classical learning are exported, where their values are numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.importers.onnx.rules import imports
from rlx.ir.builder import Tensor
from rlx.ir.errors import UnsupportedError

_DOMAIN = "ai.onnx.ml"


def _per_feature(g: Any, values: Any) -> Tensor | float:
    """One number for all features, or one for each."""
    return float(values[0]) if len(values) == 1 else g.constant(np.array(values, np.float32))


@imports(f"{_DOMAIN}.ArrayFeatureExtractor")
def array_feature_extractor(g: Any, x: Tensor, which: Tensor) -> Tensor:
    chosen = g.gather(x, g.reshape(g.cast(which, "i32"), (-1,)), axis=x.shape.rank - 1)
    return g.reshape(chosen, (1, -1)) if x.shape.rank == 1 else chosen


@imports(f"{_DOMAIN}.Binarizer")
def binarizer(g: Any, x: Tensor, *, threshold: float = 0.0) -> Tensor:
    return g.cast(g.gt(x, threshold), x.dtype)


@imports(f"{_DOMAIN}.Scaler")
def scaler(g: Any, x: Tensor, *, offset: Any = (0.0,), scale: Any = (1.0,)) -> Tensor:
    return g.mul(g.sub(g.cast(x, "f32"), _per_feature(g, offset)), _per_feature(g, scale))


@imports(f"{_DOMAIN}.Imputer")
def imputer(
    g: Any,
    x: Tensor,
    *,
    imputed_value_floats: Any = None,
    imputed_value_int64s: Any = None,
    replaced_value_float: float = 0.0,
    replaced_value_int64: int = 0,
) -> Tensor:
    values = imputed_value_floats if x.dtype.is_float else imputed_value_int64s
    if not values:
        raise UnsupportedError(f"of {x.dtype} without values of that kind cannot be imported")
    replaced = replaced_value_float if x.dtype.is_float else replaced_value_int64
    missing = g.isnan(x) if replaced != replaced else g.eq(x, replaced)
    return g.where(missing, g.constant(np.array(values, x.dtype.numpy)), x)


@imports(f"{_DOMAIN}.Normalizer")
def normalizer(g: Any, x: Tensor, *, norm: str = "MAX") -> Tensor:
    x = g.cast(x, "f32")
    sizes = {
        "MAX": lambda: g.max(x, (-1,), True),
        "L1": lambda: g.sum(g.abs(x), (-1,), True),
        "L2": lambda: g.sqrt(g.sum(g.mul(x, x), (-1,), True)),
    }
    size = sizes[norm]()
    return g.where(g.eq(size, 0.0), x, g.div(x, g.where(g.eq(size, 0.0), 1.0, size)))


@imports(f"{_DOMAIN}.LinearRegressor")
def linear_regressor(
    g: Any, x: Tensor, *, coefficients: Any, intercepts: Any = None, post_transform: str = "NONE", targets: int = 1
) -> Tensor:
    if post_transform != "NONE":
        raise UnsupportedError(f"with '{post_transform}' cannot be imported")
    weights = np.array(coefficients, np.float32).reshape(targets, -1)
    result = g.matmul(g.cast(x, "f32"), g.constant(weights.T.copy()))
    return result if intercepts is None else g.add(result, g.constant(np.array(intercepts, np.float32)))


@imports(f"{_DOMAIN}.LabelEncoder")
def label_encoder(
    g: Any,
    x: Tensor,
    *,
    default_float: float = -0.0,
    default_int64: int = -1,
    default_tensor: np.ndarray | None = None,
    keys_floats: Any = None,
    keys_int64s: Any = None,
    keys_tensor: np.ndarray | None = None,
    values_floats: Any = None,
    values_int64s: Any = None,
    values_tensor: np.ndarray | None = None,
) -> Tensor:
    """The value of each key, by a comparison with all of them; NaN is a key as others are."""
    keys = keys_tensor if keys_tensor is not None else np.array(keys_floats or keys_int64s or ())
    values = values_tensor
    if values is None:
        floats = values_floats is not None
        values = np.array(values_floats if floats else values_int64s or (), np.float32 if floats else np.int64)
    if keys.dtype.kind not in "iuf" or values.dtype.kind not in "iuf" or not keys.size or keys.shape != values.shape:
        raise UnsupportedError("of what are not numbers cannot be imported")
    other = (
        default_tensor.reshape(())
        if default_tensor is not None
        else default_float
        if values.dtype.kind == "f"
        else default_int64
    )
    result = g.broadcast_to(g.constant(np.asarray(other, values.dtype)), x.shape)
    for key, value in zip(keys.tolist(), values, strict=True):
        same = g.isnan(x) if key != key else g.eq(x, key)
        result = g.where(same, g.constant(np.asarray(value)), result)
    return result

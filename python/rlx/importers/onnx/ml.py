"""Ops of `ai.onnx.ml`, the export format of classical machine learning models, on numeric values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlx.importers.onnx.ml_scores import reduce_targets, rows_of
from rlx.importers.onnx.rules import element_count, imports, static_dims
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.op.argument_groups import ArgumentGroup
from rlx.support.errors import UnsupportedError

_DOMAIN = "ai.onnx.ml"
_MOST_KEYS = 4096  # the largest number of keys; a value is compared with each of them


def _per_feature(g: Graph, values: Sequence[float]) -> Tensor | float:
    """Return one number for all features, or one for each feature."""
    return float(values[0]) if len(values) == 1 else g.constant(np.array(values, np.float32))


@imports(f"{_DOMAIN}.ArrayFeatureExtractor")
def array_feature_extractor(g: Graph, x: Tensor, which: Tensor) -> Tensor:
    chosen = g.gather(x, g.reshape(g.cast(which, "i32"), (-1,)), axis=x.shape.rank - 1)
    return g.reshape(chosen, (1, -1)) if x.shape.rank == 1 else chosen


@imports(f"{_DOMAIN}.Binarizer")
def binarizer(g: Graph, x: Tensor, *, threshold: float = 0.0) -> Tensor:
    return g.cast(g.gt(x, threshold), x.dtype)


@imports(f"{_DOMAIN}.Scaler")
def scaler(g: Graph, x: Tensor, *, offset: Sequence[float] = (0.0,), scale: Sequence[float] = (1.0,)) -> Tensor:
    return g.mul(g.sub(g.cast(x, "f32"), _per_feature(g, offset)), _per_feature(g, scale))


@imports(f"{_DOMAIN}.Imputer")
def imputer(
    g: Graph,
    x: Tensor,
    *,
    imputed_value_floats: Sequence[float] | None = None,
    imputed_value_int64s: Sequence[int] | None = None,
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
def normalizer(g: Graph, x: Tensor, *, norm: str = "MAX") -> Tensor:
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
    g: Graph,
    x: Tensor,
    *,
    coefficients: Sequence[float],
    intercepts: Sequence[float] | None = None,
    post_transform: str = "NONE",
    targets: int = 1,
) -> Tensor:
    weights = np.array(coefficients, np.float32).reshape(targets, -1)
    result = g.matmul(g.cast(rows_of(g, x), "f32"), g.constant(weights.T.copy()))
    result = result if intercepts is None else g.add(result, g.constant(np.array(intercepts, np.float32)))
    return reduce_targets(g, result, post_transform)


@imports(f"{_DOMAIN}.FeatureVectorizer")
def feature_vectorizer(g: Graph, *xs: Tensor, inputdimensions: Sequence[int] | None = None) -> Tensor:
    """Concatenate features. Each operand is cut or zero-padded to its number of columns."""
    parts: list[Tensor] = []
    for i, x in enumerate(xs):
        rows = g.reshape(x, (-1, 1)) if x.shape.rank == 1 else x
        (own,) = static_dims(rows, 1)
        count = inputdimensions[i] if inputdimensions else own
        rows = g.narrow(rows, 1, 0, count) if count < own else g.pad(rows, [(0, 0), (0, count - own)])
        parts.append(g.cast(rows, "f32"))
    return g.concat(parts, 1)


@imports(f"{_DOMAIN}.OneHotEncoder")
def one_hot_encoder(
    g: Graph,
    x: Tensor,
    *,
    cats_int64s: Sequence[int] | None = None,
    cats_strings: Sequence[str] | None = None,
    zeros: int = 1,
) -> Tensor:
    """Return a one-hot encoding with a column for each category. Values without a category, such as NaN, give zeros."""
    if not cats_int64s:
        raise UnsupportedError("of texts cannot be imported")
    kinds = g.constant(np.array(cats_int64s, np.int64))
    same = g.eq(g.expand_dims(g.cast(x, "i64"), -1), kinds)
    return g.cast(g.logical_and(same, g.expand_dims(g.eq(x, x), -1)) if x.dtype.is_float else same, "f32")


@imports(f"{_DOMAIN}.ZipMap")
def zip_map(
    g: Graph,
    x: Tensor,
    *,
    classlabels_int64s: Sequence[int] | None = None,
    classlabels_strings: Sequence[str] | None = None,
) -> Tensor:
    """Return the tensor itself. Its columns are the classes, in the order of their names."""
    return x


@dataclass(frozen=True, kw_only=True)
class LabelTable(ArgumentGroup):
    """The attributes of `LabelEncoder`, with ONNX's names."""

    default_float: float = -0.0
    default_int64: int = -1
    default_tensor: np.ndarray | None = None
    keys_floats: Sequence[float] | None = None
    keys_int64s: Sequence[int] | None = None
    keys_tensor: np.ndarray | None = None
    values_floats: Sequence[float] | None = None
    values_int64s: Sequence[int] | None = None
    values_tensor: np.ndarray | None = None

    @property
    def keys(self) -> np.ndarray:
        """The keys."""
        return (
            self.keys_tensor if self.keys_tensor is not None else np.array(self.keys_floats or self.keys_int64s or ())
        )

    @property
    def values(self) -> np.ndarray:
        """The value of each key."""
        if self.values_tensor is not None:
            return self.values_tensor
        if self.values_floats is not None:
            return np.array(self.values_floats, np.float32)
        return np.array(self.values_int64s or (), np.int64)


@imports(f"{_DOMAIN}.LabelEncoder")
def label_encoder(g: Graph, x: Tensor, *, table: LabelTable) -> Tensor:
    """Return the value of each key, by comparison with all keys. NaN can be a key."""
    keys, values = table.keys, table.values
    element_count(keys.size, "keys", _MOST_KEYS)
    if keys.dtype.kind not in "iuf" or values.dtype.kind not in "iuf" or not keys.size or keys.shape != values.shape:
        raise UnsupportedError("of what are not numbers cannot be imported")
    other = (
        table.default_tensor.reshape(())
        if table.default_tensor is not None
        else table.default_float
        if values.dtype.kind == "f"
        else table.default_int64
    )
    result = g.broadcast_to(g.constant(np.asarray(other, values.dtype)), x.shape)
    for key, value in zip(keys.tolist(), values, strict=True):
        same = g.isnan(x) if key != key else g.eq(x, key)
        result = g.where(same, g.constant(np.asarray(value)), result)
    return result

"""Former experimental ONNX ops, which old files and ONNX Runtime still use."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx.importers.onnx.rules import imports
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.support.errors import UnsupportedError


@imports("Affine")
def affine(g: Graph, x: Tensor, *, alpha: float = 1.0, beta: float = 0.0) -> Tensor:
    return g.add(g.mul(x, alpha), beta)


@imports("Scale")
def scale_(g: Graph, x: Tensor, *, scale: float = 1.0) -> Tensor:
    return g.mul(x, scale)


@imports("ScaledTanh")
def scaled_tanh(g: Graph, x: Tensor, *, alpha: float = 1.0, beta: float = 1.0) -> Tensor:
    return g.mul(g.tanh(g.mul(x, beta)), alpha)


@imports("ParametricSoftplus")
def parametric_softplus(g: Graph, x: Tensor, *, alpha: float = 1.0, beta: float = 1.0) -> Tensor:
    return g.mul(g.softplus(g.mul(x, beta)), alpha)


@imports("ImageScaler")
def image_scaler(g: Graph, x: Tensor, *, bias: Sequence[float] | None = None, scale: float = 1.0) -> Tensor:
    """Scale the image by one factor and add a bias to each channel."""
    scaled = g.mul(x, scale)
    return g.add(scaled, g.constant(np.array(bias, np.float32).reshape(-1, 1, 1))) if bias else scaled


@imports("Crop")
def crop(g: Graph, x: Tensor, *, border: Sequence[int], scale: Sequence[int] | None = None) -> Tensor:
    """Cut the borders (left, top, right, bottom).

    With `scale`, keep this number of rows and columns from the top left corner of the cut.
    """
    if x.shape.rank != 4 or len(border) != 4:
        raise UnsupportedError(f"of {x.shape} by {len(border)} borders has no meaning")
    left, top, right, bottom = border
    rows, columns = x.shape.dims[2:]
    height, width = scale or (rows - top - bottom, columns - left - right)
    return g.narrow(g.narrow(x, 2, top, height), 3, left, width)

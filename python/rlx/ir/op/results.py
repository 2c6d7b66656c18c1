"""Named tuples for the results of ops, with the field names of other libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rlx.ir.graph.builder import Tensor


class TopKResult(NamedTuple):
    """Result of `topk`."""

    values: Tensor
    indices: Tensor


class SlogdetResult(NamedTuple):
    """Result of `slogdet`."""

    sign: Tensor
    logabsdet: Tensor


class QRResult(NamedTuple):
    """Result of `qr`."""

    Q: Tensor
    R: Tensor


class EighResult(NamedTuple):
    """Result of `eigh`."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class SVDResult(NamedTuple):
    """Result of `svd`."""

    U: Tensor
    S: Tensor
    Vh: Tensor

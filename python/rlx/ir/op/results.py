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


class EigResult(NamedTuple):
    """Result of `eig`."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class EighResult(NamedTuple):
    """Result of `eigh`."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class SVDResult(NamedTuple):
    """Result of `svd`."""

    U: Tensor
    S: Tensor
    Vh: Tensor


class LUResult(NamedTuple):
    """Result of `rlx.linalg.lu`."""

    p: Tensor
    l: Tensor  # noqa: E741 (SciPy's name)
    u: Tensor


class PermutedLUResult(NamedTuple):
    """Result of `rlx.linalg.lu` with `permute_l`."""

    pl: Tensor
    u: Tensor


class LUFactorResult(NamedTuple):
    """Result of `lu_factor`."""

    lu: Tensor
    piv: Tensor


class ChoFactorResult(NamedTuple):
    """Result of `cho_factor`."""

    c: Tensor
    lower: bool


class LstsqResult(NamedTuple):
    """Result of `lstsq`."""

    x: Tensor
    residuals: Tensor
    rank: Tensor
    s: Tensor


class PolarResult(NamedTuple):
    """Result of `polar`."""

    u: Tensor
    p: Tensor

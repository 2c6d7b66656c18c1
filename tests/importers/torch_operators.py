"""PyTorch's own samples of its operators, each exported as a module and imported, with PyTorch's results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

import rlx
from tests.peers.opinfo import Peer, Refused, as_array, mapped, peers, quiet, results_of
from tests.peers.vocabulary import Entry

# Operators with refused samples, in any of `KINDS`: RLX lacks the function or factorisation, the size of the result
# depends on values, the results are random, or PyTorch cannot export them.
_REFUSED = """
    _batch_norm_with_update _native_batch_norm_legit _segment_reduce.lengths _segment_reduce.offsets allclose
    argwhere as_strided as_strided.partial_views as_strided_copy as_strided_scatter bernoulli bincount cauchy
    cdouble chalf combinations corrcoef cov cummax cummin equal exponential frexp gcd geometric hash_tensor histc
    histogram histogramdd i0 igamma igammac index_put item lcm linalg.ldl_factor linalg.ldl_factor_ex
    linalg.ldl_solve linalg.lstsq linalg.lstsq.grad_oriented linspace.tensor_overload log_normal
    logspace.tensor_overload masked_select max_pool2d_with_indices_backward mode multinomial narrow
    native_batch_norm native_group_norm native_layer_norm nn.functional.avg_pool1d nn.functional.avg_pool2d
    nn.functional.avg_pool3d nn.functional.batch_norm nn.functional.conv_transpose1d nn.functional.conv_transpose2d
    nn.functional.conv_transpose3d nn.functional.ctc_loss nn.functional.dropout2d nn.functional.dropout3d
    nn.functional.embedding nn.functional.embedding_bag nn.functional.feature_alpha_dropout.with_train
    nn.functional.fractional_max_pool2d nn.functional.fractional_max_pool3d nn.functional.gaussian_nll_loss
    nn.functional.group_norm nn.functional.instance_norm nn.functional.linear_cross_entropy.chunked
    nn.functional.linear_cross_entropy.chunked_none nn.functional.local_response_norm nn.functional.one_hot
    nn.functional.pdist nn.functional.rrelu nonzero nonzero_static normal normal.in_place normal.number_mean
    pca_lowrank polygamma.polygamma_n_0 polygamma.polygamma_n_1 polygamma.polygamma_n_2 polygamma.polygamma_n_3
    polygamma.polygamma_n_4 put rand_like randint randint_like randn randn_like repeat_interleave resize_ resize_as_
    signal.windows.kaiser sparse.mm.reduce sparse.sampled_addmm special.airy_ai special.bessel_j0 special.bessel_j1
    special.bessel_y0 special.bessel_y1 special.chebyshev_polynomial_t special.chebyshev_polynomial_u
    special.chebyshev_polynomial_v special.chebyshev_polynomial_w special.erfcx special.hermite_polynomial_h
    special.hermite_polynomial_he special.i0e special.i1 special.i1e special.laguerre_polynomial_l
    special.legendre_polynomial_p special.log_ndtr special.modified_bessel_i0 special.modified_bessel_i1
    special.modified_bessel_k0 special.modified_bessel_k1 special.ndtri special.polygamma.special_polygamma_n_0
    special.scaled_modified_bessel_k0 special.scaled_modified_bessel_k1 special.shifted_chebyshev_polynomial_t
    special.shifted_chebyshev_polynomial_u special.shifted_chebyshev_polynomial_v
    special.shifted_chebyshev_polynomial_w special.spherical_bessel_j0 special.zeta svd_lowrank tensor_split
    to_sparse uniform unique unique_consecutive
"""
REFUSED = frozenset(_REFUSED.split())
# Operators with results that PyTorch does not define: contents of empty tensors, order of equal elements and of
# eigenvalues, signs of vectors.
UNSAID = frozenset(
    (
        *("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"),
        *("argsort", "sort", "topk", "kthvalue", "msort"),
        *("linalg.eig", "linalg.eigh", "linalg.eigvals", "linalg.svd", "svd"),
    )
)
KINDS = ("f32", "i64", "bool")


class Applied(torch.nn.Module):
    """A module that applies an operator. The tensors among its arguments are those of `forward`."""

    def __init__(self, function: Any, arguments: Any, kwargs: Any):
        super().__init__()
        self.function, self.given = function, (arguments, kwargs)
        self.tensors: list[Any] = []
        mapped(self.given, self.tensors.append)

    def forward(self, *tensors: Any) -> Any:
        """Return the operator's result, with its tensors replaced by the given ones."""
        following = iter(tensors)
        arguments, kwargs = mapped(self.given, lambda _: next(following))
        return self.function(*arguments, **kwargs)


def imported(name: str, kind: str, limit: int | None = None) -> Iterator[Peer | Refused]:
    """Yield the samples of an operator in a dtype, at most `limit` of them, as graphs."""
    return peers(name, kind, limit, _imported)


def _imported(label: str, function: Any, arguments: Any, kwargs: Any, expected: Any) -> Peer:
    module = Applied(function, arguments, kwargs).eval()
    tensors = [t.detach().clone() for t in module.tensors]
    with quiet():
        graph = rlx.from_torch(module, tuple(tensors))
    return Named(label, Entry(lambda *_: None), graph, [as_array(t) for t in tensors], results_of(expected))


class Named(Peer):
    """A sample whose inputs have the names of an exported program."""

    @property
    def values(self) -> dict[str, Any]:
        """Return the inputs of the graph, by name."""
        return dict(zip((i.name for i in self.graph.inputs), self.arrays, strict=True))

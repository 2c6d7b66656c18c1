"""PyTorch's operators that are not in the table, with the reasons."""

from __future__ import annotations

_REASONS = {
    "RLX has no such function of numbers": """
        acos acosh asin asinh atanh copysign digamma erf erfc erfinv frexp i0 igamma igammac lgamma logit nextafter signbit
        mvlgamma.mvlgamma_p_1 mvlgamma.mvlgamma_p_3 mvlgamma.mvlgamma_p_5 polygamma.polygamma_n_0 polygamma.polygamma_n_1
        polygamma.polygamma_n_2 polygamma.polygamma_n_3 polygamma.polygamma_n_4 round.decimals_3 round.decimals_neg_3
        special.airy_ai special.bessel_j0 special.bessel_j1 special.bessel_y0 special.bessel_y1
        special.chebyshev_polynomial_t special.chebyshev_polynomial_u special.chebyshev_polynomial_v
        special.chebyshev_polynomial_w special.erfcx special.hermite_polynomial_h special.hermite_polynomial_he
        special.i0e special.i1 special.i1e special.laguerre_polynomial_l special.legendre_polynomial_p special.log_ndtr
        special.modified_bessel_i0 special.modified_bessel_i1 special.modified_bessel_k0 special.modified_bessel_k1
        special.ndtr special.ndtri special.polygamma.special_polygamma_n_0 special.scaled_modified_bessel_k0
        special.scaled_modified_bessel_k1 special.shifted_chebyshev_polynomial_t special.shifted_chebyshev_polynomial_u
        special.shifted_chebyshev_polynomial_v special.shifted_chebyshev_polynomial_w special.spherical_bessel_j0
        special.zeta
    """,
    "RLX has no division of integers, no remainders and no bit operations": """
        __rmod__ bitwise_left_shift bitwise_right_shift fmod gcd lcm remainder unravel_index
    """,
    "RLX has no factorisation of matrices": """
        cholesky cholesky_inverse cholesky_solve geqrf linalg.cholesky linalg.cholesky_ex linalg.cond linalg.det linalg.eig
        linalg.eigh linalg.eigvals linalg.eigvalsh linalg.householder_product linalg.ldl_factor linalg.ldl_factor_ex
        linalg.ldl_solve linalg.lstsq linalg.lstsq.grad_oriented linalg.lu linalg.lu_factor linalg.lu_factor_ex
        linalg.lu_solve linalg.matrix_norm linalg.matrix_rank linalg.matrix_rank.hermitian linalg.norm
        linalg.norm.subgradients_at_zero linalg.pinv linalg.pinv.hermitian linalg.pinv.singular linalg.qr linalg.slogdet
        linalg.solve_triangular linalg.svd linalg.svdvals logdet lu lu_solve lu_unpack matrix_exp norm.nuc ormqr
        pca_lowrank pinverse qr svd svd_lowrank triangular_solve
    """,
    "PyTorch's random numbers are its own": """
        bernoulli cauchy exponential geometric log_normal multinomial native_dropout_backward
        nn.functional.fractional_max_pool2d nn.functional.fractional_max_pool3d nn.functional.rrelu normal
        normal.in_place normal.number_mean rand_like randint randint_like randn randn_like uniform
    """,
    "the size of the result would depend on values": """
        _segment_reduce.lengths _segment_reduce.offsets argwhere bincount masked_select nonzero nonzero_static unique
        unique_consecutive
    """,
    "it is about memory, Python or PyTorch's own machinery": """
        _batch_norm_with_update _chunk_cat _native_batch_norm_legit _unsafe_masked_index
        _unsafe_masked_index_put_accumulate _upsample_bilinear2d_aa as_strided as_strided.partial_views as_strided_copy
        as_strided_scatter bmm.triton_optimized broadcast_shapes cdouble chalf empty empty_like empty_permuted
        empty_strided hash_tensor item jiterator_2inputs_2outputs jiterator_4inputs_with_extra_args jiterator_binary
        jiterator_binary_return_by_ref jiterator_unary max_pool2d_with_indices_backward native_batch_norm new_empty
        new_empty_strided put resize_ resize_as_ scalar_tensor sparse.mm.reduce sparse.sampled_addmm to_sparse
        torch._scaled_mm torch._scaled_mm_v2 torch.ops.aten._efficient_attention_forward
        torch.ops.aten._flash_attention_forward torch.ops.aten._safe_softmax.default
    """,
    "the positions of a running or pooled extremum are no result in RLX": """
        cummin nn.functional.max_unpool1d nn.functional.max_unpool1d.grad nn.functional.max_unpool2d
        nn.functional.max_unpool2d.grad nn.functional.max_unpool3d nn.functional.max_unpool3d.grad
    """,
    "it would be made of parts that others in the table cover": """
        allclose arange diagonal_scatter fft.hfft2 fft.hfftn fft.ihfft2 fft.ihfftn gradient grid_sampler_2d grid_sampler_3d
        histc histogram histogramdd index_reduce.mean istft linspace linspace.tensor_overload logcumsumexp logspace
        logspace.tensor_overload masked.argmax masked.argmin masked.log_softmax masked.logaddexp masked.logsumexp
        masked.median masked.norm masked.normalize masked.softmax masked.softmin masked.std masked.var median mode
        nanmedian nanquantile nn.functional.ctc_loss nn.functional.embedding_bag nn.functional.grid_sample
        nn.functional.interpolate.area nn.functional.interpolate.bicubic nn.functional.interpolate.nearest-exact
        nn.functional.linear_cross_entropy nn.functional.linear_cross_entropy.chunked
        nn.functional.linear_cross_entropy.chunked_none nn.functional.multi_head_attention_forward
        nn.functional.multi_margin_loss nn.functional.multilabel_margin_loss nn.functional.pdist
        nn.functional.triplet_margin_with_distance_loss quantile scatter_reduce.mean signal.windows.bartlett
        signal.windows.blackman signal.windows.cosine signal.windows.exponential signal.windows.gaussian
        signal.windows.general_cosine signal.windows.general_hamming signal.windows.hamming signal.windows.hann
        signal.windows.kaiser signal.windows.nuttall stft tril_indices triu_indices
    """,
}
UNSAID = {name: reason for reason, names in _REASONS.items() for name in names.split()}

//===- RlxContraction.td - Matrix products, linear systems ------------------------------------===//

#ifndef RLX_CONTRACTION_TD
#define RLX_CONTRACTION_TD

include "RlxEnums.td"

def RLX_MatmulOp : RLX_Op<"matmul", "contraction", [RLX_IsProduct]> {
  let summary = "Matrix product with broadcast batch axes";
  let description = [{
    `lhs […, M, K]`, `rhs […, K, N]`, result `[…, M, N]`; batch axes broadcast as in NumPy. Rank at least 2.
    f16 and bf16 accumulate in f32 and round once; integers wrap.
  }];
  let arguments = (ins RLX_NumberTensor:$lhs, RLX_NumberTensor:$rhs);
  let results = (outs RLX_NumberTensor:$result);
}

def RLX_MatmulTransposedOp : RLX_Op<"matmul_transposed", "contraction", [RLX_IsProduct]> {
  let summary = "Product with the transpose of a matrix: x·wᵀ";
  let description = [{
    `x […, K]` f32, `w [N, K]` f32, f16 or bf16, as model files store the weights of linear layers. The numbers of `w` are
    converted to f32 when they are read. The result is f32 `[…, N]`.
  }];
  let arguments = (ins RLX_F32Tensor:$x, RLX_FloatTensor:$w);
  let results = (outs RLX_F32Tensor:$result);
}

def RLX_DotGeneralOp : RLX_Op<"dot_general", "contraction", [RLX_IsProduct]> {
  let summary = "Contraction over any axes with any batch axes";
  let description = [{
    The axes of the result are the batch axes, then the free axes of `lhs`, then those of `rhs`. Batch and contracting
    axes are paired in list order. f16 and bf16 accumulate in f32.
  }];
  let arguments = (ins RLX_NumberTensor:$lhs, RLX_NumberTensor:$rhs,
                       DenseI64ArrayAttr:$lhs_contracting, DenseI64ArrayAttr:$rhs_contracting,
                       DenseI64ArrayAttr:$lhs_batch, DenseI64ArrayAttr:$rhs_batch);
  let results = (outs RLX_NumberTensor:$result);
}

def RLX_GroupedMatmulOp : RLX_Op<"grouped_matmul", "linear_algebra", [RLX_IsProduct]> {
  let summary = "Each row times the matrix of its own group (mixture of experts)";
  let description = [{
    `x [M, K]`, `w [E, K, N]`, integer `indices [M]`, clamped to `[0, E)`: `result[m] = x[m]·w[indices[m]]`, shape
    `[M, N]`. f16 and bf16 accumulate in f32.
  }];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$w, RLX_IndexTensor:$indices);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_LoraMatmulOp : RLX_Op<"lora_matmul", "linear_algebra", [RLX_IsProduct]> {
  let summary = "x·w + scale·(x·a)·b";
  let description = [{
    `x […, K]`, `w [K, N]`, `a [K, R]`, `b [R, N]`, result `[…, N]` (Hu et al., LoRA, eq. 3).
  }];
  let arguments = (ins RLX_FloatTensor:$x, RLX_FloatTensor:$w, RLX_FloatTensor:$a, RLX_FloatTensor:$b,
                       DefaultValuedAttr<RLX_Finite, "1.0">:$scale);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_DenseSolveOp : RLX_Op<"dense_solve", "linear_algebra"> {
  let summary = "The solution of a system of linear equations";
  let description = [{
    `a [N, N]`, `b [N]` or `[N, K]`; the result `x` has the shape of `b` and solves `a·x = b`, by Gaussian elimination
    with partial pivoting. A singular `a` gives infinities or NaN, or large numbers where rounding hides the
    singularity. f16 and bf16 are solved in f32.
  }];
  let arguments = (ins RLX_InexactTensor:$a, RLX_InexactTensor:$b);
  let results = (outs RLX_InexactTensor:$result);
}

def RLX_BatchedDenseSolveOp : RLX_Op<"batched_dense_solve", "linear_algebra"> {
  let summary = "The solutions of a batch of systems of linear equations";
  let description = [{
    `a [B, N, N]`, `b [B, N]` or `[B, N, K]`; each system as in `dense_solve`.
  }];
  let arguments = (ins RLX_InexactTensor:$a, RLX_InexactTensor:$b);
  let results = (outs RLX_InexactTensor:$result);
}

// Offsets and positions of sparse matrices.
def RLX_OffsetTensor : RLX_TensorOf<["i32", "i64"], "tensor of i32 or i64">;

def RLX_CsrMatmulOp : RLX_Op<"csr_matmul", "csr"> {
  let summary = "Product of a sparse matrix in rows (CSR) with vectors or matrices";
  let description = [{
    `data [Z]`, `indices [Z]`, `indptr [M + 1]`, `x [N, b…]`, result `[M, b…]`: row `i` is the sum of
    `data[j]·x[indices[j]]` for `indptr[i] <= j < indptr[i + 1]`. `indptr` must not decrease; entries before its first and
    after its last offset are not part of the matrix. Repeated columns are added, and entries whose column is outside
    `[0, N)` are dropped. `width` is 0, or at least the number of entries of the longest row. If it is not 0, `indptr` must
    begin with 0 and end with `Z`; compiled code relies on both. f16 and bf16 are computed in f32.
  }];
  let arguments = (ins RLX_NumberTensor:$data, RLX_OffsetTensor:$indices, RLX_OffsetTensor:$indptr, RLX_NumberTensor:$x,
                       DefaultValuedAttr<RLX_Natural, "0">:$width);
  let results = (outs RLX_NumberTensor:$result);
}

def RLX_CsrMatmulTransposedOp : RLX_Op<"csr_matmul_transposed", "csr"> {
  let summary = "Product of the transpose of a sparse matrix in rows (CSR) with vectors or matrices";
  let description = [{
    The matrix of `csr_matmul`, transposed: `x [M, b…]`, result `[columns, b…]`, where row `c` is the sum of
    `data[j]·x[i]` over all entries `j` of a row `i` with `indices[j] = c`. `columns` is a list of one
    dimension, and `width` as in `csr_matmul`. f16 and bf16 are computed in f32.
  }];
  let arguments = (ins RLX_NumberTensor:$data, RLX_OffsetTensor:$indices, RLX_OffsetTensor:$indptr, RLX_NumberTensor:$x,
                       RLX_ShapeAttr:$columns, DefaultValuedAttr<RLX_Natural, "0">:$width);
  let results = (outs RLX_NumberTensor:$result);
}

def RLX_CsrSampledMatmulOp : RLX_Op<"csr_sampled_matmul", "csr"> {
  let summary = "Entries of a product of dense matrices at the positions of a sparse matrix (SDDMM)";
  let description = [{
    `indices [Z]`, `indptr [M + 1]` and `width` as in `csr_matmul`, `x [M, b…]`, `y [N, b…]`, result `[Z]`: the sum of
    `x[i]·y[indices[j]]` over the axes `b…`, for the row `i` of entry `j`. Entries outside of all rows or columns are 0.
    f16 and bf16 are computed in f32.
  }];
  let arguments = (ins RLX_OffsetTensor:$indices, RLX_OffsetTensor:$indptr, RLX_NumberTensor:$x, RLX_NumberTensor:$y,
                       DefaultValuedAttr<RLX_Natural, "0">:$width);
  let results = (outs RLX_NumberTensor:$result);
}

#endif // RLX_CONTRACTION_TD

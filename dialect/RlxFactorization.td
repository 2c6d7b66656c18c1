//===- RlxFactorization.td - Factorisations of matrices -------------------------------------===//
//
// All take matrices of the last two axes, `[…, M, N]`, whose sizes are static. f16 and bf16 compute in f32.
//
//===----------------------------------------------------------------------------------------===//

#ifndef RLX_FACTORIZATION_TD
#define RLX_FACTORIZATION_TD

include "RlxEnums.td"

def RLX_CholeskyOp : RLX_Op<"cholesky", "triangular"> {
  let summary = "The lower triangular matrix whose product with its transpose is a positive definite matrix";
  let description = [{
    `result·resultᵀ = a`. Of `a [..., N, N]` only the lower triangle is read. Of a matrix that is not positive definite, the
    columns from the first pivot on that is not positive are NaN.
  }];
  let arguments = (ins RLX_FloatTensor:$a);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_TriangularSolveOp : RLX_Op<"triangular_solve", "triangular"> {
  let summary = "The solutions of systems of linear equations with triangular matrices";
  let description = [{
    The `x` with `a·x = b`, for `a [..., N, N]` and `b [..., N, K]`. The other triangle of `a` is not read, nor is its diagonal if
    `unit_diagonal` says that it is 1. A zero on the diagonal gives infinities and NaN.
  }];
  let arguments = (ins RLX_FloatTensor:$a, RLX_FloatTensor:$b, DefaultValuedAttr<BoolAttr, "true">:$lower,
                       DefaultValuedAttr<BoolAttr, "false">:$unit_diagonal);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_LuOp : RLX_Op<"lu", "lu"> {
  let summary = "Triangular factors of matrices, with partial pivoting";
  let description = [{
    `a[permutation] = L·U` for `a [..., M, N]` and `K = min(M, N)`: `lu [..., M, N]` has `U` in its upper triangle and, below, `L`,
    whose diagonal is 1. `pivots [..., K]` are the rows that step by step were exchanged with row 0, 1, …, and `permutation
    [..., M]` is what they come to. Among equally large pivots the first is taken; where all are zero, the column of `L` is zero.
  }];
  let arguments = (ins RLX_FloatTensor:$a);
  let results = (outs RLX_FloatTensor:$lu, RLX_I32Tensor:$pivots, RLX_I32Tensor:$permutation);
}

def RLX_QrOp : RLX_Op<"qr", "qr"> {
  let summary = "Orthonormal columns, and the upper triangular matrix of what they are multiplied with";
  let description = [{
    `q·r = a`, with `q [..., M, K]` and `r [..., K, N]` for `a [..., M, N]` and `K = min(M, N)`, by Householder's reflections:
    signs are as in LAPACK, an element of the diagonal of `r` has the opposite sign of what it was reflected from.
  }];
  let arguments = (ins RLX_FloatTensor:$a);
  let results = (outs RLX_FloatTensor:$q, RLX_FloatTensor:$r);
}

def RLX_EighOp : RLX_Op<"eigh", "eigh"> {
  let summary = "Eigenvalues and eigenvectors of symmetric matrices";
  let description = [{
    `a·vectors = vectors·diag(values)`, with `values [..., N]` in ascending order and orthonormal columns in `vectors [..., N, N]`.
    Of `a` only the lower triangle is read. The element of largest magnitude of each vector is positive.
  }];
  let arguments = (ins RLX_FloatTensor:$a);
  let results = (outs RLX_FloatTensor:$values, RLX_FloatTensor:$vectors);
}

def RLX_SvdOp : RLX_Op<"svd", "svd"> {
  let summary = "Singular values and singular vectors of matrices";
  let description = [{
    `u·diag(s)·vt = a`, with `s [..., K]` in descending order, orthonormal columns in `u [..., M, K]` and orthonormal rows in
    `vt [..., K, N]`, for `a [..., M, N]` and `K = min(M, N)`. The element of largest magnitude of each column of `u` is positive.
  }];
  let arguments = (ins RLX_FloatTensor:$a);
  let results = (outs RLX_FloatTensor:$u, RLX_FloatTensor:$s, RLX_FloatTensor:$vt);
}

#endif // RLX_FACTORIZATION_TD

//===- RlxFactorization.td - Factorisations of matrices -------------------------------------===//
// All ops take matrices in the last two axes, `[…, M, N]`, with static sizes. f16 and bf16 compute in f32.
// Matrices may be complex. `xᴴ` is the conjugate transpose; that of a real matrix is its transpose.
//
//===----------------------------------------------------------------------------------------===//

#ifndef RLX_FACTORIZATION_TD
#define RLX_FACTORIZATION_TD

include "RlxEnums.td"

def RLX_CholeskyOp : RLX_Op<"cholesky", "triangular"> {
  let summary = "Cholesky factor: the lower triangular matrix whose product with its conjugate transpose is the operand";
  let description = [{
    `result·resultᴴ = a` for positive definite `a [..., N, N]`, real or complex. Only the lower triangle of `a` is read,
    and of a complex diagonal the real parts. If a matrix is
    not positive definite, the columns are NaN from its first pivot that is not positive.
  }];
  let arguments = (ins RLX_InexactTensor:$a);
  let results = (outs RLX_InexactTensor:$result);
}

def RLX_TriangularSolveOp : RLX_Op<"triangular_solve", "triangular"> {
  let summary = "Solutions of linear systems with triangular matrices";
  let description = [{
    The solution `x` of `a·x = b`, for `a [..., N, N]` and `b [..., N, K]`. The other triangle of `a` is not read.
    With `unit_diagonal` the diagonal is not read either and counts as 1. A zero on the diagonal gives infinities and
    NaN.
  }];
  let arguments = (ins RLX_InexactTensor:$a, RLX_InexactTensor:$b, DefaultValuedAttr<BoolAttr, "true">:$lower,
                       DefaultValuedAttr<BoolAttr, "false">:$unit_diagonal);
  let results = (outs RLX_InexactTensor:$result);
}

def RLX_LuOp : RLX_Op<"lu", "lu"> {
  let summary = "Triangular factors of matrices, with partial pivoting";
  let description = [{
    `a[permutation] = L·U` for `a [..., M, N]` and `K = min(M, N)`: `lu [..., M, N]` has `U` in its upper triangle and
    `L`, with unit diagonal, below. Pivots have the largest magnitude, or of complex numbers the largest `|re| + |im|`. `pivots [..., K]` are the rows that were swapped with row 0, 1, … in each step,
    and `permutation [..., M]` is the resulting permutation. Among equally large pivots the first is taken; if all are
    zero, the column of `L` is zero.
  }];
  let arguments = (ins RLX_InexactTensor:$a);
  let results = (outs RLX_InexactTensor:$lu, RLX_I32Tensor:$pivots, RLX_I32Tensor:$permutation);
}

def RLX_QrOp : RLX_Op<"qr", "qr"> {
  let summary = "QR decomposition: orthonormal columns times an upper triangular matrix";
  let description = [{
    `q·r = a`, with `q [..., M, K]` and `r [..., K, N]` for `a [..., M, N]` and `K = min(M, N)`, by Householder
    reflections. Signs are as in LAPACK: a diagonal element of `r` has the opposite sign of the element that it was
    reflected from. The diagonal of a complex `r` is real.
  }];
  let arguments = (ins RLX_InexactTensor:$a);
  let results = (outs RLX_InexactTensor:$q, RLX_InexactTensor:$r);
}

def RLX_EighOp : RLX_Op<"eigh", "eigh"> {
  let summary = "Eigenvalues and eigenvectors of symmetric and Hermitian matrices";
  let description = [{
    `a·vectors = vectors·diag(values)`, with `values [..., N]` in ascending order and orthonormal columns in
    `vectors [..., N, N]`. Only the lower triangle of `a` is read, and of a complex diagonal the real parts. The
    values are real. The element of largest magnitude of each vector is real and positive.
  }];
  let arguments = (ins RLX_InexactTensor:$a);
  let results = (outs RLX_FloatTensor:$values, RLX_InexactTensor:$vectors);
}

def RLX_SvdOp : RLX_Op<"svd", "svd"> {
  let summary = "Singular values and singular vectors of matrices";
  let description = [{
    `u·diag(s)·vt = a`, with `s [..., K]` in descending order, orthonormal columns in `u [..., M, K]` and orthonormal rows in
    `vt [..., K, N]`, for `a [..., M, N]` and `K = min(M, N)`. `s` is real. The element of largest magnitude of each column
    of `u` is real and positive.
  }];
  let arguments = (ins RLX_InexactTensor:$a);
  let results = (outs RLX_InexactTensor:$u, RLX_FloatTensor:$s, RLX_InexactTensor:$vt);
}

def RLX_EigOp : RLX_Op<"eig", "eig"> {
  let summary = "Eigenvalues and eigenvectors of matrices";
  let description = [{
    `a·vectors = vectors·diag(values)`, with complex `values [..., N]` in no particular order and columns of norm 1 in
    complex `vectors [..., N, N]`. The element of largest magnitude of each vector is real and positive. Both are c64 for
    f32, and c128 for f64. They are NaN if the QR algorithm does not converge within `30·N` sweeps.
  }];
  let arguments = (ins RLX_InexactTensor:$a);
  let results = (outs RLX_ComplexTensor:$values, RLX_ComplexTensor:$vectors);
}

#endif // RLX_FACTORIZATION_TD

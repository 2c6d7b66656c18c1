//===- RlxContraction.td - Products of matrices, linear systems -------------------------------===//

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

def RLX_DotGeneralOp : RLX_Op<"dot_general", "contraction", [RLX_IsProduct]> {
  let summary = "Contraction over any axes with any batch axes";
  let description = [{
    The result's axes are the batch axes, then the free axes of `lhs`, then those of `rhs`. Batch and contracting
    axes pair up in the order in which they are listed. f16 and bf16 accumulate in f32.
  }];
  let arguments = (ins RLX_NumberTensor:$lhs, RLX_NumberTensor:$rhs,
                       DenseI64ArrayAttr:$lhs_contracting, DenseI64ArrayAttr:$rhs_contracting,
                       DenseI64ArrayAttr:$lhs_batch, DenseI64ArrayAttr:$rhs_batch);
  let results = (outs RLX_NumberTensor:$result);
}

def RLX_GroupedMatmulOp : RLX_Op<"grouped_matmul", "linear_algebra", [RLX_IsProduct]> {
  let summary = "Each row times the matrix of its own group (mixture of experts)";
  let description = [{
    `x [M, K]`, `w [E, K, N]`, `indices [M]` of integers, clamped into `[0, E)`: `result[m] =
    x[m]·w[indices[m]]`, shape `[M, N]`.
    f16 and bf16 accumulate in f32.
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
    `a [N, N]`, `b [N]` or `[N, K]`; the result `x` of the shape of `b` has `a·x = b`. Gaussian elimination with
    partial pivoting; a singular `a` gives infinities or NaN, or where rounding hides that it is singular, large
    numbers. f16 and bf16 are solved in f32.
  }];
  let arguments = (ins RLX_FloatTensor:$a, RLX_FloatTensor:$b);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_BatchedDenseSolveOp : RLX_Op<"batched_dense_solve", "linear_algebra"> {
  let summary = "The solutions of a batch of systems of linear equations";
  let description = [{
    `a [B, N, N]`, `b [B, N]` or `[B, N, K]`; each as `dense_solve`.
  }];
  let arguments = (ins RLX_FloatTensor:$a, RLX_FloatTensor:$b);
  let results = (outs RLX_FloatTensor:$result);
}

#endif // RLX_CONTRACTION_TD

//===- RlxShape.td - Ops that move elements ---------------------------------------------------===//

#ifndef RLX_SHAPE_TD
#define RLX_SHAPE_TD

include "RlxEnums.td"

def RLX_ReshapeOp : RLX_Op<"reshape", "shape", Views> {
  let summary = "The same elements in row-major order in another shape";
  let description = [{`shape` has the same number of elements as `x`; its dimensions may be symbolic.}];
  let arguments = (ins RLX_Tensor:$x, RLX_ShapeAttr:$shape);
  let results = (outs RLX_Tensor:$result);
}

def RLX_TransposeOp : RLX_Op<"transpose", "shape", Rearrangements> {
  let summary = "Permuted axes";
  let description = [{`result.dim(i) = x.dim(perm[i])`.}];
  let arguments = (ins RLX_Tensor:$x, DenseI64ArrayAttr:$perm);
  let results = (outs RLX_Tensor:$result);
}

def RLX_ShardOp : RLX_Op<"shard", "sharding", Views> {
  let summary = "The same tensor, sharded over devices";
  let description = [{
    The result is `x`. `sharding` lists for each dimension the axes of the module's mesh (`rlx.mesh`) that it is
    sharded over: `"data, _"`, `"data+model, _"`; `_` means none. It is used by targets that run on several devices
    (XLA through `stablehlo` and `to_jax`) and has no effect elsewhere.
  }];
  let arguments = (ins RLX_Tensor:$x, StrAttr:$sharding);
  let results = (outs RLX_Tensor:$result);
}

def RLX_NarrowOp : RLX_Op<"narrow", "shape", Rearrangements> {
  let summary = "A contiguous range of one axis";
  let description = [{
    `result = x[…, start : start + length, …]`. `start` and `length` are lists of one dimension each, so they may be
    symbolic.
  }];
  let arguments = (ins RLX_Tensor:$x, I64Attr:$axis, RLX_ShapeAttr:$start, RLX_ShapeAttr:$length);
  let results = (outs RLX_Tensor:$result);
}

def RLX_SliceOp : RLX_Op<"slice", "shape", Rearrangements> {
  let summary = "A strided box";
  let description = [{
    `result = x[starts[0]:limits[0]:strides[0], …]` with `0 <= start <= limit <= dim` and `stride >= 1`.
    Starts and limits may be symbolic.
  }];
  let arguments = (ins RLX_Tensor:$x, RLX_ShapeAttr:$starts, RLX_ShapeAttr:$limits,
                       RLX_Steps:$strides);
  let results = (outs RLX_Tensor:$result);
}

def RLX_ConcatOp : RLX_Op<"concat", "shape", [RLX_MovesData]> {
  let summary = "Two tensors joined along one axis";
  let description = [{
    Tensors of one dtype that agree on every other axis. More than two are joined by a chain, which lowers to one copy
    of each tensor.
  }];
  let arguments = (ins RLX_Tensor:$lhs, RLX_Tensor:$rhs, I64Attr:$axis);
  let results = (outs RLX_Tensor:$result);
}

def RLX_ExpandOp : RLX_Op<"expand", "shape", Rearrangements> {
  let summary = "Broadcast to a shape";
  let description = [{NumPy's `broadcast_to`: axes align at the right; size 1 and missing axes repeat.}];
  let arguments = (ins RLX_Tensor:$x, RLX_ShapeAttr:$shape);
  let results = (outs RLX_Tensor:$result);
}

def RLX_ReverseOp : RLX_Op<"reverse", "shape", Rearrangements> {
  let summary = "Reversed order along some axes";
  let description = [{NumPy's `flip` along `axes`, which are sorted and distinct.}];
  let arguments = (ins RLX_Tensor:$x, DenseI64ArrayAttr:$axes);
  let results = (outs RLX_Tensor:$result);
}

def RLX_PadOp : RLX_Op<"pad", "padding", [RLX_MovesData]> {
  let summary = "Elements added before and after every axis";
  let description = [{
    `low` and `high` list the number of elements before and after each axis; they are not negative and may be
    symbolic. `mode` selects the elements: `value` (`constant`), the tensor mirrored at the edge element (`reflect`,
    at most `dim - 1` elements), the edge element (`replicate`), or the other side (`circular`, at most `dim`
    elements). Axes are padded one after the other, as in NumPy.
  }];
  let arguments = (ins RLX_Tensor:$x, RLX_ShapeAttr:$low, RLX_ShapeAttr:$high,
                       DefaultValuedAttr<RLX_PadMode, "\"constant\"">:$mode,
                       DefaultValuedAttr<F64Attr, "0.0">:$value);
  let results = (outs RLX_Tensor:$result);
}

def RLX_TriangularOp : RLX_Op<"triangular", "padding", [RLX_Updates, RLX_MovesData]> {
  let summary = "A triangle of each matrix, zero elsewhere";
  let description = [{
    `x […, M, N]`. The lower triangle keeps the elements with `column <= row + diagonal`, the upper one those
    with `column >= row + diagonal`.
  }];
  let arguments = (ins RLX_Tensor:$x, DefaultValuedAttr<BoolAttr, "false">:$upper,
                       DefaultValuedAttr<I64Attr, "0">:$diagonal);
  let results = (outs RLX_Tensor:$result);
}

def RLX_GatherOp : RLX_Op<"gather", "index", [RLX_MovesData]> {
  let summary = "Slices of a table at given indices";
  let description = [{
    NumPy's `take` with `mode="clip"`: `result[a…, i…, b…] = table[a…, indices[i…], b…]` where `a…` are the axes
    before `axis`. Negative indices do not count from the end: every index is clamped to `[0, dim)`. The gathered axis
    must not be empty unless the result is.
  }];
  let arguments = (ins RLX_Tensor:$table, RLX_IndexTensor:$indices, I64Attr:$axis);
  let results = (outs RLX_Tensor:$result);
}

def RLX_GatherBatchedOp : RLX_Op<"gather_batched", "index", [RLX_MovesData]> {
  let summary = "Slices of a batch of tables, each at its own indices";
  let description = [{
    The indices have the `axis` leading batch axes of the table:
    `result[n…, i…, b…] = table[n…, indices[n…, i…], b…]`. Indices are clamped to `[0, dim)`.
  }];
  let arguments = (ins RLX_Tensor:$table, RLX_IndexTensor:$indices, I64Attr:$axis);
  let results = (outs RLX_Tensor:$result);
}

def RLX_EmbeddingOp : RLX_Op<"embedding", "index", [RLX_MovesData]> {
  let summary = "Rows of a table";
  let description = [{`table [V, E]`, integer `indices […]`; `result […, E] = table[indices]`, with indices clamped.}];
  let arguments = (ins RLX_Tensor:$table, RLX_IndexTensor:$indices);
  let results = (outs RLX_Tensor:$result);
}

def RLX_GatherNdOp : RLX_Op<"gather_nd", "scatter", [RLX_MovesData]> {
  let summary = "Slices of a tensor at tuples of indices";
  let description = [{
    The last axis of `indices […, K]` contains positions on the first `K` axes of `x` after the `batch_dims` leading
    axes that both share: `result[n…, i…, b…] = x[n…, indices[n…, i…, 0], …, indices[n…, i…, K-1], b…]`. Every index
    is clamped to its axis; negative indices do not count from the end.
  }];
  let arguments = (ins RLX_Tensor:$x, RLX_IndexTensor:$indices, DefaultValuedAttr<RLX_Natural, "0">:$batch_dims);
  let results = (outs RLX_Tensor:$result);
}

def RLX_ScatterNdOp : RLX_Op<"scatter_nd", "scatter", [RLX_Updates, RLX_IsReduction]> {
  let summary = "A tensor with slices combined into it at tuples of indices";
  let description = [{
    `indices [i…, K]`, `updates [i…, b…]` where `b…` are the axes of `x` after the first `K`. For each position `i…`
    in row-major order, `result[indices[i…, :], b…]` is combined with `updates[i…, b…]` by `reduction`. A position
    with an index out of range is dropped. f16 and bf16 sums and products accumulate in f32; the order of `add` and
    `mul` is not specified.
  }];
  let arguments = (ins RLX_ComputeTensor:$x, RLX_IndexTensor:$indices, RLX_ComputeTensor:$updates,
                       DefaultValuedAttr<RLX_ScatterReduction, "\"set\"">:$reduction);
  let results = (outs RLX_ComputeTensor:$result);
}

def RLX_ScatterAddOp : RLX_Op<"scatter_add", "scatter", [RLX_IsReduction]> {
  let summary = "Rows added at given positions";
  let description = [{
    `updates [i…, b…]`, `indices [i…]`, result `[size, b…]`: zeros, to which every row of `updates` is added at its
    index. Repeated indices accumulate; indices outside `[0, size)` are dropped. `size` is a list of one dimension.
    f16 and bf16 accumulate in f32.
  }];
  let arguments = (ins RLX_NumberTensor:$updates, RLX_IndexTensor:$indices, RLX_ShapeAttr:$size);
  let results = (outs RLX_NumberTensor:$result);
}

#endif // RLX_SHAPE_TD

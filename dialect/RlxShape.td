//===- RlxShape.td - Shape, indexing and order ------------------------------------------------===//

#ifndef RLX_SHAPE_TD
#define RLX_SHAPE_TD

include "RlxEnums.td"

def RLX_ReshapeOp : RLX_Op<"reshape", "shape"> {
  let summary = "The same elements in row-major order under another shape";
  let description = [{`shape` holds as many elements as `x`; its dimensions may be symbolic.}];
  let arguments = (ins RLX_Tensor:$x, RLX_ShapeAttr:$shape);
  let results = (outs RLX_Tensor:$result);
}

def RLX_TransposeOp : RLX_Op<"transpose", "shape"> {
  let summary = "Permuted axes";
  let description = [{`result.dim(i) = x.dim(perm[i])`.}];
  let arguments = (ins RLX_Tensor:$x, DenseI64ArrayAttr:$perm);
  let results = (outs RLX_Tensor:$result);
}

def RLX_NarrowOp : RLX_Op<"narrow", "shape"> {
  let summary = "A contiguous range of one axis";
  let description = [{
    `result = x[…, start : start + length, …]`. `start` and `length` are lists of one dimension each,
    so that they may be symbolic.
  }];
  let arguments = (ins RLX_Tensor:$x, I64Attr:$axis, RLX_ShapeAttr:$start, RLX_ShapeAttr:$length);
  let results = (outs RLX_Tensor:$result);
}

def RLX_SliceOp : RLX_Op<"slice", "shape"> {
  let summary = "A strided box";
  let description = [{
    `result = x[starts[0]:limits[0]:strides[0], …]` with `0 <= start <= limit <= dim` and `stride >= 1`.
    Starts and limits may be symbolic.
  }];
  let arguments = (ins RLX_Tensor:$x, RLX_ShapeAttr:$starts, RLX_ShapeAttr:$limits,
                       DenseI64ArrayAttr:$strides);
  let results = (outs RLX_Tensor:$result);
}

def RLX_ConcatOp : RLX_Op<"concat", "shape"> {
  let summary = "Two tensors joined along one axis";
  let description = [{
    Tensors of one dtype that agree on every other axis. More than two are joined by a chain, which lowers to one copy of each.
  }];
  let arguments = (ins RLX_Tensor:$lhs, RLX_Tensor:$rhs, I64Attr:$axis);
  let results = (outs RLX_Tensor:$result);
}

def RLX_ExpandOp : RLX_Op<"expand", "shape"> {
  let summary = "Broadcast to a shape";
  let description = [{NumPy's `broadcast_to`: axes align at the right; size 1 and missing axes repeat.}];
  let arguments = (ins RLX_Tensor:$x, RLX_ShapeAttr:$shape);
  let results = (outs RLX_Tensor:$result);
}

def RLX_GatherOp : RLX_Op<"gather", "index"> {
  let summary = "Slices of a table at given indices";
  let description = [{
    NumPy's `take`: `result[a…, i…, b…] = table[a…, indices[i…], b…]` where `a…` are the axes before
    `axis`. Negative indices do not count from the end: every index is clamped into `[0, dim)`.
    The gathered axis must not be empty unless the result is.
  }];
  let arguments = (ins RLX_Tensor:$table, RLX_IndexTensor:$indices, I64Attr:$axis);
  let results = (outs RLX_Tensor:$result);
}

def RLX_GatherBatchedOp : RLX_Op<"gather_batched", "index"> {
  let summary = "Slices of a batch of tables, each at its own indices";
  let description = [{
    The indices carry the `axis` leading batch axes of the table:
    `result[n…, i…, b…] = table[n…, indices[n…, i…], b…]`. Indices are clamped into `[0, dim)`.
  }];
  let arguments = (ins RLX_Tensor:$table, RLX_IndexTensor:$indices, I64Attr:$axis);
  let results = (outs RLX_Tensor:$result);
}

def RLX_EmbeddingOp : RLX_Op<"embedding", "index"> {
  let summary = "Rows of a table";
  let description = [{`table [V, E]`, `indices […]` of integers; `result […, E] = table[indices]`, clamped.}];
  let arguments = (ins RLX_Tensor:$table, RLX_IndexTensor:$indices);
  let results = (outs RLX_Tensor:$result);
}

#endif // RLX_SHAPE_TD

//===- RlxReduction.td - Reductions, running reductions, sorting ------------------------------===//

#ifndef RLX_REDUCTION_TD
#define RLX_REDUCTION_TD

include "RlxEnums.td"

def RLX_ReduceOp : RLX_Op<"reduce", "reduce", [RLX_IsReduction]> {
  let summary = "Reduction over axes";
  let description = [{
    `axes` are sorted and distinct; with `keep_dims` they stay with size 1. Over no elements, `sum` is 0, `prod`
    is 1, `mean` is NaN, `max` and `min` are the lowest and highest value (infinities for floats).
    `max` and `min` propagate NaN. f16 and bf16 accumulate in f32. Integer sums and products wrap;
    `mean` takes floats and complex numbers. On bool, `max` is any and `min` is all.
  }];
  let arguments = (ins RLX_ComputeTensor:$x, RLX_Reduction:$kind, DenseI64ArrayAttr:$axes,
                       DefaultValuedAttr<BoolAttr, "false">:$keep_dims);
  let results = (outs RLX_ComputeTensor:$result);
}

def RLX_SoftmaxOp : RLX_Op<"softmax", "reduce", [RLX_IsRowwise, RLX_IsReduction, RLX_IsBounded]> {
  let summary = "Normalised exponentials along an axis";
  let description = [{
    `exp(x - max x) / sum exp(x - max x)`; computed in f32 for f16 and bf16. A row of only -inf gives NaN.
  }];
  let arguments = (ins RLX_FloatTensor:$x, I64Attr:$axis);
  let results = (outs RLX_FloatTensor:$result);
}

def RLX_CumsumOp : RLX_Op<"cumsum", "reduce", [RLX_IsRowwise, RLX_IsReduction]> {
  let summary = "Running sum along an axis";
  let description = [{
    `result[i] = x[0] + … + x[i]`; with `exclusive`, without `x[i]`. f16 and bf16 accumulate in f32.
  }];
  let arguments = (ins RLX_NumberTensor:$x, I64Attr:$axis,
                       DefaultValuedAttr<BoolAttr, "false">:$exclusive);
  let results = (outs RLX_NumberTensor:$result);
}

def RLX_ArgmaxOp : RLX_Op<"argmax", "reduce", [RLX_MovesData]> {
  let summary = "Position of the largest element along an axis";
  let description = [{
    An i32 tensor without the axis (size 1 with `keep_dims`). Ties go to the lower index; the first NaN wins.
    The axis must not be empty.
  }];
  let arguments = (ins RLX_OrderedTensor:$x, I64Attr:$axis,
                       DefaultValuedAttr<BoolAttr, "false">:$keep_dims);
  let results = (outs RLX_I32Tensor:$result);
}

def RLX_TopkOp : RLX_Op<"topk", "reduce", [RLX_MovesData]> {
  let summary = "The k largest elements of the last axis, largest first";
  let description = [{
    `x […, N]` gives values `[…, k]` and i32 indices `[…, k]`, `0 <= k <= N`. Ties go to the lower index;
    NaN counts as the largest.
  }];
  let arguments = (ins RLX_RealTensor:$x, RLX_Natural:$k);
  let results = (outs RLX_RealTensor:$values, RLX_I32Tensor:$indices);
}

def RLX_ArgminOp : RLX_Op<"argmin", "reduce", [RLX_MovesData]> {
  let summary = "Position of the smallest element along an axis";
  let description = [{
    An i32 tensor without the axis (size 1 with `keep_dims`). Ties go to the lower index; the first NaN wins.
    The axis must not be empty.
  }];
  let arguments = (ins RLX_OrderedTensor:$x, I64Attr:$axis,
                       DefaultValuedAttr<BoolAttr, "false">:$keep_dims);
  let results = (outs RLX_I32Tensor:$result);
}

def RLX_CumprodOp : RLX_Op<"cumprod", "cumulative", [RLX_IsRowwise, RLX_IsReduction]> {
  let summary = "Running product along an axis";
  let description = [{
    `result[i] = x[0] · … · x[i]`; with `exclusive`, without `x[i]`. f16 and bf16 accumulate in f32; integers wrap.
  }];
  let arguments = (ins RLX_NumberTensor:$x, I64Attr:$axis,
                       DefaultValuedAttr<BoolAttr, "false">:$exclusive);
  let results = (outs RLX_NumberTensor:$result);
}

def RLX_CummaxOp : RLX_Op<"cummax", "cumulative", [RLX_IsRowwise, RLX_MovesData]> {
  let summary = "Running maximum along an axis";
  let description = [{`result[i] = max(x[0], …, x[i])`; NaN propagates.}];
  let arguments = (ins RLX_RealTensor:$x, I64Attr:$axis);
  let results = (outs RLX_RealTensor:$result);
}

def RLX_ArgsortOp : RLX_Op<"argsort", "order", [RLX_MovesData]> {
  let summary = "The positions that sort an axis";
  let description = [{
    An i32 tensor of the shape of `x`. The sort is stable, also with `descending`; NaN counts as the largest,
    and -0 equals 0.
  }];
  let arguments = (ins RLX_OrderedTensor:$x, I64Attr:$axis, DefaultValuedAttr<BoolAttr, "false">:$descending);
  let results = (outs RLX_I32Tensor:$result);
}

def RLX_SortOp : RLX_Op<"sort", "order", [RLX_IsRowwise, RLX_MovesData]> {
  let summary = "The sorted elements of an axis";
  let description = [{The elements of `x` at `argsort(x)`. The sort is stable, and NaN counts as the largest.}];
  let arguments = (ins RLX_OrderedTensor:$x, I64Attr:$axis, DefaultValuedAttr<BoolAttr, "false">:$descending);
  let results = (outs RLX_OrderedTensor:$result);
}

#endif // RLX_REDUCTION_TD

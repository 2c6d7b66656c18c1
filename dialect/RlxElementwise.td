//===- RlxElementwise.td - Elementwise ops and leaf ops: constants, positions, sizes ----------===//

#ifndef RLX_ELEMENTWISE_TD
#define RLX_ELEMENTWISE_TD

include "RlxEnums.td"

def RLX_ActivationOp : RLX_Op<"activation", "elementwise", [
      RLX_IsElementwise,
      RLX_When<RLX_IsCheap, "kind", ["relu", "neg", "abs", "round", "floor", "ceil", "sqrt", "rsqrt"]>,
      RLX_When<RLX_IsBounded, "kind", ["sigmoid", "tanh", "sin", "cos", "atan", "erf", "erfc"]>,
      RLX_When<RLX_IsWideRange, "kind", ["exp", "log", "rsqrt", "tan", "exp2", "expm1", "log2", "log10", "log1p", "sinh", "cosh"]>
    ]> {
  let summary = "Elementwise function of one tensor";
  let description = [{
    `result = kind(x)`, same shape and dtype. All kinds take floats; `neg`, `abs` and `relu` also take integers;
    `exp`, `neg`, `sqrt`, `sin`, `cos`, `tanh` and `log` also take c64, and `abs` of c64 is f32; the other elementary
    functions of c64, which are compositions of these, are `complex_function`. Integer arithmetic wraps.
  }];
  let arguments = (ins RLX_NumberTensor:$x, RLX_Activation:$kind);
  let results = (outs RLX_NumberTensor:$result);
}

def RLX_CastOp : RLX_Op<"cast", "elementwise", [RLX_IsElementwise, RLX_IsCheap]> {
  let summary = "Conversion to another dtype";
  let description = [{
    `result = dtype(x)`. Float to integer truncates toward zero and saturates, and NaN becomes 0; integer to narrower
    integer wraps; anything to bool is `x != 0`; complex to real keeps the real part. Float to narrower float rounds
    to nearest even.
  }];
  let arguments = (ins RLX_Tensor:$x, RLX_DTypeAttr:$dtype);
  let results = (outs RLX_Tensor:$result);
}

def RLX_BinaryOp : RLX_Op<"binary", "elementwise", [
      RLX_IsElementwise,
      RLX_When<RLX_IsCommutative, "kind", ["add", "mul", "max", "min", "and", "or", "xor"]>,
      RLX_When<RLX_IsCheap, "kind", ["add", "sub", "mul", "div", "max", "min", "trunc_div", "and", "or", "xor",
        "shift_left", "shift_right"]>,
      RLX_When<RLX_IsWideRange, "kind", ["pow"]>
    ]> {
  let summary = "Elementwise function of two tensors";
  let description = [{
    `result = kind(lhs, rhs)`. Operands have one dtype and broadcast as in NumPy. Integer arithmetic wraps; on bool,
    `add` and `max` are logical or, `mul` and `min` are logical and. `div` takes floats and complex numbers. `max` and
    `min` give NaN when either operand is NaN, and do not take complex numbers. An integer `pow` with a negative
    exponent is the truncated quotient: 0 unless the base is 1 or -1 (and 0 for base 0). `atan2` takes floats, with
    the special cases of C99. `rem` takes floats, where it is exact (`fmod` of C) and NaN for an infinite `lhs` or for
    `rhs = 0`, and integers. `trunc_div`, `and`, `or`, `xor` and both shifts take integers only. A quotient by 0 is -1
    (all bits are 1), with remainder `lhs`. The quotient of the least integer by -1 wraps, with remainder 0. A shift
    by a negative number, or by at least the number of bits, gives 0, or -1 for `shift_right` of a negative number.
  }];
  let arguments = (ins RLX_ComputeTensor:$lhs, RLX_ComputeTensor:$rhs, RLX_Binary:$kind);
  let results = (outs RLX_ComputeTensor:$result);
}

def RLX_CompareOp : RLX_Op<"compare", "elementwise", [
      RLX_IsElementwise,
      RLX_IsCheap,
      RLX_When<RLX_IsCommutative, "kind", ["eq", "ne"]>
    ]> {
  let summary = "Elementwise comparison";
  let description = [{
    `result = kind(lhs, rhs)`, a bool tensor. Operands have one dtype and broadcast as in NumPy. NaN is unequal to
    everything. Complex numbers support only `eq` and `ne`.
  }];
  let arguments = (ins RLX_ComputeTensor:$lhs, RLX_ComputeTensor:$rhs, RLX_Comparison:$kind);
  let results = (outs RLX_BoolTensor:$result);
}

def RLX_WhereOp : RLX_Op<"where", "elementwise", [RLX_IsElementwise, RLX_IsCheap]> {
  let summary = "Elementwise choice";
  let description = [{
    `result = condition ? on_true : on_false`. All three broadcast as in NumPy; the branches have one dtype.
  }];
  let arguments = (ins RLX_BoolTensor:$condition, RLX_Tensor:$on_true, RLX_Tensor:$on_false);
  let results = (outs RLX_Tensor:$result);
}

def RLX_PopcountOp : RLX_Op<"popcount", "bits", [RLX_IsElementwise, RLX_IsCheap]> {
  let summary = "Number of bits that are 1";
  let description = [{`result` is the number of bits of `x` that are 1, in the same dtype; the sign bit counts.}];
  let arguments = (ins RLX_IndexTensor:$x);
  let results = (outs RLX_IndexTensor:$result);
}

def RLX_BitcastOp : RLX_Op<"bitcast", "bits", [RLX_IsElementwise, RLX_IsCheap]> {
  let summary = "The same bits as another dtype";
  let description = [{
    `result` has the bits of `x`, read as `dtype`, which has the same width. Neither dtype may be bool or complex.
    Every derivative through it is zero.
  }];
  let arguments = (ins RLX_Tensor:$x, RLX_DTypeAttr:$dtype);
  let results = (outs RLX_Tensor:$result);
}

def RLX_StopGradientOp : RLX_Op<"stop_gradient", "elementwise", !listconcat(Views, [RLX_IsElementwise, RLX_IsCheap])> {
  let summary = "The value, with no derivative";
  let description = [{`result = x`; every derivative through it is zero.}];
  let arguments = (ins RLX_Tensor:$x);
  let results = (outs RLX_Tensor:$result);
}

def RLX_ClampOp : RLX_Op<"clamp", "elementwise", [RLX_IsElementwise, RLX_IsCheap]> {
  let summary = "Values clamped between two bounds";
  let description = [{
    `result = minimum(maximum(x, low), high)`. All three have one dtype; `low` and `high` broadcast to the shape of
    `x`. Where `low > high` the result is `high`; NaN in any of them gives NaN.
  }];
  let arguments = (ins RLX_RealTensor:$x, RLX_RealTensor:$low, RLX_RealTensor:$high);
  let results = (outs RLX_RealTensor:$result);
}

def RLX_ComplexOp : RLX_Op<"complex", "complex", [RLX_IsElementwise, RLX_IsCheap]> {
  let summary = "Complex numbers from their parts";
  let description = [{`result = real + i·imag`; the parts are f32 or f64, and broadcast as in NumPy.}];
  let arguments = (ins RLX_PartTensor:$real, RLX_PartTensor:$imag);
  let results = (outs RLX_ComplexTensor:$result);
}

def RLX_RealOp : RLX_Op<"real", "complex", [RLX_IsElementwise, RLX_IsCheap]> {
  let summary = "Real part";
  let description = [{`result = Re x`, in f32 for c64 and f64 for c128.}];
  let arguments = (ins RLX_ComplexTensor:$x);
  let results = (outs RLX_PartTensor:$result);
}

def RLX_ImagOp : RLX_Op<"imag", "complex", [RLX_IsElementwise, RLX_IsCheap]> {
  let summary = "Imaginary part";
  let description = [{`result = Im x`, in f32 for c64 and f64 for c128.}];
  let arguments = (ins RLX_ComplexTensor:$x);
  let results = (outs RLX_PartTensor:$result);
}

def RLX_ConjugateOp : RLX_Op<"conjugate", "complex", [RLX_IsElementwise, RLX_IsCheap]> {
  let summary = "Complex conjugate";
  let description = [{`result = Re x - i·Im x`.}];
  let arguments = (ins RLX_ComplexTensor:$x);
  let results = (outs RLX_ComplexTensor:$result);
}

def RLX_ComplexNormSqOp : RLX_Op<"complex_norm_sq", "complex", [RLX_IsElementwise, RLX_IsCheap]> {
  let summary = "Squared modulus";
  let description = [{`result = (Re x)^2 + (Im x)^2`, in f32 for c64 and f64 for c128.}];
  let arguments = (ins RLX_ComplexTensor:$x);
  let results = (outs RLX_PartTensor:$result);
}

def RLX_ComplexFunctionOp : RLX_Op<"complex_function", "complex", [RLX_IsElementwise]> {
  let summary = "Elementary function of a complex tensor";
  let description = [{
    `result = kind(x)`, for the functions that `activation` supports only for floats. Branch cuts are NumPy's: the
    sign of a zero part determines the side of a cut. Infinities, NaN and signed zeros follow C99, annex G. All
    functions except `tan`, `sinh`, `cosh`, `log2` and `log10` are computed in f64.
  }];
  let arguments = (ins RLX_ComplexTensor:$x, RLX_ComplexFunction:$kind);
  let results = (outs RLX_ComplexTensor:$result);
}

def RLX_ConstantOp : RLX_Op<"constant", "leaf"> {
  let summary = "A tensor known at compile time";
  let description = [{
    `result = value`. The shape is static. Weights are parameters of the function, not constants.
  }];
  let arguments = (ins ElementsAttr:$value);
  let results = (outs RLX_Tensor:$result);
}

def RLX_IotaOp : RLX_Op<"iota", "leaf"> {
  let summary = "Positions along one axis";
  let description = [{
    `result[i_0, …] = i_axis`, in `dtype`. Shape and dtype are attributes; dimensions may be symbolic.
  }];
  let arguments = (ins RLX_ShapeAttr:$shape, I64Attr:$axis, RLX_DTypeAttr:$dtype);
  let results = (outs RLX_RealTensor:$result);
}

def RLX_DimSizeOp : RLX_Op<"dim_size", "leaf"> {
  let summary = "The size of a dimension, as a scalar";
  let description = [{
    `size` is a list of one dimension, usually an expression in symbols; the result is its value, i32 of rank 0.
  }];
  let arguments = (ins RLX_ShapeAttr:$size);
  let results = (outs RLX_I32Tensor:$result);
}

#endif // RLX_ELEMENTWISE_TD

//===- RlxEnums.td - Enumerations, stored as strings ------------------------------------------===//

#ifndef RLX_ENUMS_TD
#define RLX_ENUMS_TD

include "RlxBase.td"

class RLX_Enum<string enumName, string description, list<string> cases_>
    : Attr<CPred<"::llvm::isa<::mlir::StringAttr>($_self)">, description> {
  let storageType = "::mlir::StringAttr";
  let returnType = "::llvm::StringRef";
  string className = enumName;
  list<string> cases = cases_;
}

def RLX_Activation : RLX_Enum<"Activation", "elementwise function of one tensor", [
  "gelu",         // x/2 (1 + erf(x/sqrt 2))
  "gelu_approx",  // x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
  "silu", "relu", "sigmoid", "tanh", "exp", "log", "sqrt", "rsqrt", "neg", "abs",
  "sin", "cos", "tan", "atan",
  "round",        // half to even
  "floor", "ceil",
  "exp2", "expm1",        // 2^x, e^x - 1
  "log2", "log10", "log1p",
  "cbrt", "erf", "erfc",  // erfc(x) = 1 - erf(x)
  "asin", "acos", "sinh", "cosh", "asinh", "acosh", "atanh"
]>;

def RLX_ComplexFunction : RLX_Enum<"ComplexFunction", "elementwise function of one complex tensor", [
  "tan", "atan",
  "expm1",        // e^x - 1
  "log2", "log10", "log1p",
  "asin", "acos", "sinh", "cosh", "asinh", "acosh", "atanh",
  "exp2",
  "rsqrt",        // 1 / square root
  "sigmoid"       // 1 / (1 + e^-x)
]>;

def RLX_Binary : RLX_Enum<"Binary", "elementwise function of two tensors", [
  "add", "sub", "mul", "div", "max", "min", "pow",
  "rem",          // lhs - rhs trunc(lhs / rhs), with the sign of lhs
  "trunc_div",    // trunc(lhs / rhs)
  "atan2",        // the angle of the point (rhs, lhs)
  "and", "or", "xor",
  "shift_left",
  "shift_right"   // signed integers keep their sign
]>;

def RLX_Comparison : RLX_Enum<"Comparison", "comparison of two tensors",
  ["eq", "ne", "lt", "le", "gt", "ge"]>;

def RLX_Reduction : RLX_Enum<"Reduction", "reduction over axes",
  ["sum", "mean", "max", "min", "prod"]>;

def RLX_MaskKind : RLX_Enum<"MaskKind", "keys that a query sees", [
  "none",
  "causal",          // keys up to the query's own position, counted from the end
  "sliding_window",  // the query's own key and the `window` keys before it
  "custom",          // a mask operand: nonzero keeps, zero drops
  "bias"             // a mask operand that is added to the scores
]>;

def RLX_EmptyRows : RLX_Enum<"EmptyRows", "result of a query that sees no key", [
  "zeros",
  "nan"  // like a plain softmax of scores that are all -inf
]>;

def RLX_RopeStyle : RLX_Enum<"RopeStyle", "pairing of lanes", [
  "neox",  // lane i with lane i + n_rot/2
  "gptj"   // lane 2i with lane 2i + 1
]>;

def RLX_Pooling : RLX_Enum<"Pooling", "result of a pooling window", ["max", "mean", "sum"]>;

def RLX_PadMode : RLX_Enum<"PadMode", "elements beyond the edge", [
  "constant",
  "reflect",    // mirrored, without the edge element itself
  "replicate",  // the edge element again
  "circular"    // elements from the other side
]>;

def RLX_ScatterReduction : RLX_Enum<"ScatterReduction", "combination of an update with the element at its position", [
  "set",  // the last update of an element wins
  "add", "mul", "max", "min"
]>;

def RLX_Interpolation : RLX_Enum<"Interpolation", "resampling of an image", ["nearest", "bilinear"]>;

def RLX_FftNorm : RLX_Enum<"FftNorm", "direction of a Fourier transform that divides, as in NumPy", [
  "backward",  // 1/N on the inverse
  "ortho",     // 1/sqrt(N) on both
  "forward"    // 1/N on the forward transform
]>;

def RLX_LossReduction : RLX_Enum<"LossReduction", "reduction of elementwise losses",
  ["none", "mean", "sum"]>;

def RLX_StraightThrough : RLX_Enum<"StraightThrough", "gradient of rounding (straight-through estimator)", [
  "identity",          // dy
  "clipped_identity",  // dy within the representable range, else 0
  "tanh",              // dy (1 - tanh(x/(qmax scale))^2)
  "hard_tanh"          // dy (1 - |x|/(qmax scale)), at least 0
]>;

def RLX_ScaleMode : RLX_Enum<"ScaleMode", "source of the scale of a fake quantisation", [
  "per_batch",  // max|x|/qmax of this tensor
  "ema",        // a running mean of it, carried by the caller
  "fixed"       // an operand
]>;

def RLX_FixedPoint : RLX_Enum<"FixedPoint", "multiplication of an integer by a fixed-point number", [
  "double",  // multiplier with 31 fractional bits, rounded twice: after the product, and after the shift
  "single",  // multiplier with 31 fractional bits, rounded once
  "short"    // multiplier with 15 fractional bits, rounded once
]>;

def RLX_AttentionInput : RLX_Enum<"AttentionInput", "an operand of attention", [
  "query", "key", "value",
  "mask"  // a mask of kind bias
]>;

def RLX_Activations : RLX_Enum<"Activations", "precision of the activations in a product with packed weights", [
  "f32",
  "i16",  // each block is rounded to 16-bit integers with one scale
  "i8"    // each block is rounded to 8-bit integers with one scale
]>;

#endif // RLX_ENUMS_TD

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
  "round"         // half to even
]>;

def RLX_Binary : RLX_Enum<"Binary", "elementwise function of two tensors",
  ["add", "sub", "mul", "div", "max", "min", "pow"]>;

def RLX_Comparison : RLX_Enum<"Comparison", "comparison of two tensors",
  ["eq", "ne", "lt", "le", "gt", "ge"]>;

def RLX_Reduction : RLX_Enum<"Reduction", "reduction over axes",
  ["sum", "mean", "max", "min", "prod"]>;

def RLX_MaskKind : RLX_Enum<"MaskKind", "which keys a query may see", [
  "none",
  "causal",          // keys up to the query's own position, counted from the end
  "sliding_window",  // the `window` keys before the query's own, and that one
  "custom",          // a mask operand: nonzero keeps, zero drops
  "bias"             // a mask operand that is added to the scores
]>;

def RLX_RopeStyle : RLX_Enum<"RopeStyle", "pairing of lanes", [
  "neox",  // lane i with lane i + n_rot/2
  "gptj"   // lane 2i with lane 2i + 1
]>;

#endif // RLX_ENUMS_TD

//===- RlxBase.td - The rlx dialect: base definitions -----------------------------------------===//
// The dialect, its attribute, the constraints on operands, and the base classes of ops.
// The record of an op contains everything that readers and generators need to know about it.
//
//===------------------------------------------------------------------------------------------===//

#ifndef RLX_BASE_TD
#define RLX_BASE_TD

include "mlir/IR/AttrTypeBase.td"
include "RlxTraits.td"

def RLX_Dialect : Dialect {
  let name = "rlx";
  let cppNamespace = "::rlx";
  let summary = "Tensor ops of RLX, from transformer blocks to primitives";
  let description = [{
    Values are ranked tensors. A dimension is static or a symbol. The `#rlx.dims` encoding of a type names the sizes
    of its dynamic dimensions in order: `tensor<?x4x?xf32, #rlx.dims<["batch", "2*seq"]>>`. A name has the same size
    everywhere in a module, and arithmetic on names is exact.

    Attributes are plain builtin attributes. Axes are canonical: `0 <= axis < rank`. Index operands are integers of
    any width. Out-of-range indices have defined behaviour (gathers clamp).
  }];
}

//===------------------------------------------------------------------------------------------===//
// Attributes
//===------------------------------------------------------------------------------------------===//

class RLX_AttrDef<string attrName, string attrMnemonic> : AttrDef<RLX_Dialect, attrName> {
  let mnemonic = attrMnemonic;
}

def RLX_DimsEncoding : RLX_AttrDef<"Dims", "dims"> {
  let summary = "The sizes of a tensor type's dynamic dimensions, in order";
  let description = [{
    An array of strings, one for each `?` of the type: a symbol (`"seq"`) or an expression in
    symbols with `+ - * // %`, `min` and `max` (`"past+seq"`, `"(seq-1)//2+1"`).
  }];
  let parameters = (ins "::mlir::ArrayAttr":$symbols);
  let assemblyFormat = "`<` $symbols `>`";
}

/// A list of dimensions: integers, and strings for symbolic ones.
def RLX_ShapeAttr : Attr<CPred<"::llvm::isa<::mlir::ArrayAttr>($_self)">, "list of dimensions"> {
  let storageType = "::mlir::ArrayAttr";
  let returnType = "::mlir::ArrayAttr";
}

/// Named attributes of a user-registered op.
def RLX_DictAttr : Attr<CPred<"::llvm::isa<::mlir::DictionaryAttr>($_self)">, "dictionary"> {
  let storageType = "::mlir::DictionaryAttr";
  let returnType = "::mlir::DictionaryAttr";
}

def RLX_DTypeAttr : TypeAttrBase<"::mlir::Type", "element type">;

/// The interval of an attribute, or of each element of a list: `[` and `]` include an end, `(` and `)` do not. NaN is in
/// no interval. RLX's verifier reads this (`rlx.dialect.spec`); the card checks limits that depend on operands.
class RLX_In<string interval_> : AttrConstraint<CPred<"true">, "in " # interval_> {
  string interval = interval_;
}

class RLX_IntIn<string interval> : ConfinedAttr<I64Attr, [RLX_In<interval>]>;
class RLX_FloatIn<string interval> : ConfinedAttr<F64Attr, [RLX_In<interval>]>;
class RLX_IntsIn<string interval> : ConfinedAttr<DenseI64ArrayAttr, [RLX_In<interval>]>;

def RLX_Count : RLX_IntIn<"[1, 2^31)">;           // counts: heads, groups
def RLX_Amount : RLX_IntIn<"[0, 2^31)">;
def RLX_Natural : RLX_IntIn<"[0, 2^63)">;
def RLX_Bits : RLX_IntIn<"[2, 16]">;
def RLX_ZeroPoint : RLX_IntIn<"[-128, 127]">;
def RLX_WideZeroPoint : RLX_IntIn<"[-32768, 32767]">;
def RLX_Steps : RLX_IntsIn<"[1, 2^31)">;          // kernels, strides, dilations
def RLX_Amounts : RLX_IntsIn<"[0, 2^31)">;        // padding
// Floats that are finite in f32, the dtype in which the ops with these attributes compute.
def RLX_Finite : RLX_FloatIn<"[-3.4e38, 3.4e38]">;
def RLX_NonNegative : RLX_FloatIn<"[0, 3.4e38]">; // an epsilon in a divisor, a standard deviation
def RLX_Positive : RLX_FloatIn<"(0, 3.4e38]">;
def RLX_Fraction : RLX_FloatIn<"[0, 1]">;

//===------------------------------------------------------------------------------------------===//
// Operand and result constraints
//===------------------------------------------------------------------------------------------===//

/// A ranked tensor whose element type is one of `dtypes`: names as in `rlx.DType`, or groups of the table of dtypes
/// (python/rlx/dialect/dtypes.py): "floats", "integers", "complexes", "bool", "storage".
class RLX_TensorOf<list<string> dtypes_, string description>
    : Type<CPred<"::llvm::isa<::mlir::RankedTensorType>($_self)">, description,
           "::mlir::RankedTensorType"> {
  list<string> dtypes = dtypes_;
}

defvar Floats   = ["floats"];
defvar Integers = ["integers"];
defvar Complexes = ["complexes"];
defvar Storage = ["storage"];

def RLX_Tensor : RLX_TensorOf<!listconcat(Floats, Integers, ["bool"], Complexes, Storage), "tensor of any dtype">;
def RLX_ComputeTensor : RLX_TensorOf<!listconcat(Floats, Integers, ["bool"], Complexes), "tensor of a dtype with arithmetic">;
def RLX_NumberTensor : RLX_TensorOf<!listconcat(Floats, Integers, Complexes), "tensor of numbers">;
def RLX_RealTensor : RLX_TensorOf<!listconcat(Floats, Integers), "tensor of real numbers">;
def RLX_OrderedTensor : RLX_TensorOf<!listconcat(Floats, Integers, ["bool"]), "tensor of ordered values">;
def RLX_FloatTensor : RLX_TensorOf<Floats, "tensor of floats">;
def RLX_InexactTensor : RLX_TensorOf<!listconcat(Floats, Complexes), "tensor of floats or complex numbers">;
def RLX_IndexTensor : RLX_TensorOf<Integers, "tensor of integers">;
def RLX_BoolTensor : RLX_TensorOf<["bool"], "tensor of booleans">;
def RLX_ComplexTensor : RLX_TensorOf<Complexes, "tensor of complex numbers">;
def RLX_PartTensor : RLX_TensorOf<["f32", "f64"], "tensor of floats that can be parts of complex numbers">;
def RLX_I8Tensor : RLX_TensorOf<["i8"], "tensor of 8-bit integers">;
def RLX_QuantizedTensor : RLX_TensorOf<["i8", "u8"], "tensor of 8-bit integers, signed or not">;
def RLX_RequantizedTensor : RLX_TensorOf<["i8", "i32", "f32"], "tensor of signed 8-bit or 32-bit integers, or f32">;
def RLX_CacheTensor : RLX_TensorOf<!listconcat(Floats, ["u8"]), "tensor of floats, or of packed bytes">;
def RLX_U8Tensor : RLX_TensorOf<["u8"], "tensor of bytes">;
def RLX_U32Tensor : RLX_TensorOf<["u32"], "tensor of unsigned 32-bit integers">;
def RLX_F32Tensor : RLX_TensorOf<["f32"], "tensor of f32">;
def RLX_I32Tensor : RLX_TensorOf<["i32"], "tensor of 32-bit integers">;

//===------------------------------------------------------------------------------------------===//
// Ops
//===------------------------------------------------------------------------------------------===//

/// A tensor op. It is pure. `family` is the file of its card in `rlx.ops` or `rlx.blocks`; `stage` is the highest
/// stage at which it is valid: `rlx-lower-blocks` removes all HIR ops.
class RLX_Op<string mnemonic, string family_, list<Trait> traits = []>
    : Op<RLX_Dialect, mnemonic, !listconcat([Pure], traits)> {
  string family = family_;
  string stage = "mir";
}

/// A block of a model: one op that represents a subgraph.
class RLX_Block<string mnemonic, string family_, list<Trait> traits = []>
    : RLX_Op<mnemonic, family_, traits> {
  let stage = "hir";
}

#endif // RLX_BASE_TD

//===- RlxBase.td - The rlx dialect: base definitions -----------------------------------------===//
//
// The dialect, its one attribute, the constraints on operands, and the base classes of ops.
// Everything that a reader or a generator needs to know about an op stands in its record.
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
    Values are ranked tensors. A dimension is static or a symbol; the sizes of the dynamic
    dimensions of a type, in order, are named by its `#rlx.dims` encoding:
    `tensor<?x4x?xf32, #rlx.dims<["batch", "2*seq"]>>`. The same name is the same size all over a
    module, and the arithmetic between names is exact.

    Attributes are plain builtin attributes. Axes are canonical: `0 <= axis < rank`.
    Index operands are integers of any width; out-of-range indices have a meaning (gathers clamp).
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

/// Named attributes of an op that a user has registered.
def RLX_DictAttr : Attr<CPred<"::llvm::isa<::mlir::DictionaryAttr>($_self)">, "dictionary"> {
  let storageType = "::mlir::DictionaryAttr";
  let returnType = "::mlir::DictionaryAttr";
}

def RLX_DTypeAttr : TypeAttrBase<"::mlir::Type", "element type">;

/// Between which numbers an attribute lies, each element where it is a list: `[` and `]` include an end, `(` and `)` do
/// not. NaN lies nowhere. Our verifier reads this (`rlx.dialect.spec`); limits that depend on operands are the card's.
class RLX_In<string interval_> : AttrConstraint<CPred<"true">, "in " # interval_> {
  string interval = interval_;
}

class RLX_IntIn<string interval> : ConfinedAttr<I64Attr, [RLX_In<interval>]>;
class RLX_FloatIn<string interval> : ConfinedAttr<F64Attr, [RLX_In<interval>]>;
class RLX_IntsIn<string interval> : ConfinedAttr<DenseI64ArrayAttr, [RLX_In<interval>]>;

def RLX_Count : RLX_IntIn<"[1, 2^31)">;           // how many there are: heads, groups
def RLX_Amount : RLX_IntIn<"[0, 2^31)">;
def RLX_Natural : RLX_IntIn<"[0, 2^63)">;
def RLX_Bits : RLX_IntIn<"[2, 16]">;
def RLX_ZeroPoint : RLX_IntIn<"[-128, 127]">;
def RLX_WideZeroPoint : RLX_IntIn<"[-32768, 32767]">;
def RLX_Steps : RLX_IntsIn<"[1, 2^31)">;          // kernels, strides, dilations
def RLX_Amounts : RLX_IntsIn<"[0, 2^31)">;        // padding
// Floats that are numbers in f32, in which the ops compute that have them.
def RLX_Finite : RLX_FloatIn<"[-3.4e38, 3.4e38]">;
def RLX_NonNegative : RLX_FloatIn<"[0, 3.4e38]">; // what keeps a divisor from zero, a standard deviation
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
def RLX_PartTensor : RLX_TensorOf<["f32", "f64"], "tensor of floats that complex numbers have as parts">;
def RLX_I8Tensor : RLX_TensorOf<["i8"], "tensor of 8-bit integers">;
def RLX_QuantizedTensor : RLX_TensorOf<["i8", "u8"], "tensor of 8-bit integers, signed or not">;
def RLX_RequantizedTensor : RLX_TensorOf<["i8", "i32", "f32"], "tensor of signed 8-bit or 32-bit integers, or f32">;
def RLX_U32Tensor : RLX_TensorOf<["u32"], "tensor of unsigned 32-bit integers">;
def RLX_F32Tensor : RLX_TensorOf<["f32"], "tensor of f32">;
def RLX_I32Tensor : RLX_TensorOf<["i32"], "tensor of 32-bit integers">;

//===------------------------------------------------------------------------------------------===//
// Ops
//===------------------------------------------------------------------------------------------===//

/// A tensor op, which is pure. `family` is the file of its card in `rlx.ops` or `rlx.blocks`; `stage` is the
/// highest stage at which it may stand: HIR ops are gone after `rlx-lower-blocks`.
class RLX_Op<string mnemonic, string family_, list<Trait> traits = []>
    : Op<RLX_Dialect, mnemonic, !listconcat([Pure], traits)> {
  string family = family_;
  string stage = "mir";
}

/// A block of a model: one op that stands for a sub-graph.
class RLX_Block<string mnemonic, string family_, list<Trait> traits = []>
    : RLX_Op<mnemonic, family_, traits> {
  let stage = "hir";
}

#endif // RLX_BASE_TD

//===- RlxTraits.td - What an op says of itself beside its signature --------------------------===//
//
// Passes, transforms, lowerings and reports ask an op for these (`rlx.ir.op.opview.has_trait`, `OpSpec.has_trait`) where
// they would otherwise keep lists of names. `tests/dialect/test_traits.py` holds every claim to the op's evaluator.
//
//===------------------------------------------------------------------------------------------===//

#ifndef RLX_TRAITS_TD
#define RLX_TRAITS_TD

include "mlir/IR/OpBase.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

/// A trait; with `attribute`, an op has it only where that attribute is one of `cases`.
class RLX_Trait<string traitName_, string says_> : NativeOpTrait<traitName_> {
  string traitName = traitName_;
  string says = says_;
  string attribute = "";
  list<string> cases = [];
}

/// A trait that an op has for some cases of an enumerated attribute.
class RLX_When<RLX_Trait declared, string attribute_, list<string> cases_>
    : RLX_Trait<declared.traitName, declared.says> {
  let attribute = attribute_;
  let cases = cases_;
}

// What an op does to numbers: one of five, or none where it runs regions, draws numbers or has numerics of its own. (The
// identity is two of them.) `rlx-precision` follows from these.

def RLX_IsProduct : RLX_Trait<"product", "adds up products of its operands' elements, which is where the work is">;
def RLX_IsReduction : RLX_Trait<"reduction",
  "adds up, multiplies or compares many elements, or normalises by such numbers">;
def RLX_IsElementwise : RLX_Trait<"elementwise",
  "each element of the result is a function of one element of each operand, broadcast as in NumPy">;
def RLX_IsLocal : RLX_Trait<"local", "each element of a result is computed from a few elements of the operands">;
def RLX_IsRowwise : RLX_Trait<"rowwise",
  "each row of the result, along `axis` or the last axis, is computed from the same row of the first operand: it may be "
  "written over it">;
def RLX_Updates : RLX_Trait<"updates",
  "the result is the first operand, of which some elements are replaced, by what also depends on the element itself or on other "
  "operands: it may be written over it">;
def RLX_MovesData : RLX_Trait<"moves_data",
  "each element of a result is an element of an operand, or a fill, or the position of one">;

// Of the ops that move data, what the result still knows of the operand.

def RLX_Rearranges : RLX_Trait<"rearranges",
  "each element of the result is one of the first operand, and shapes and attributes say which">;
def RLX_IsView : RLX_Trait<"view", "the result has the elements of the operand in the same order: the same bytes">;

// Facts about arithmetic.

def RLX_IsCommutative : RLX_Trait<"commutative", "the operands may change places">;
def RLX_IsCheap : RLX_Trait<"cheap", "an instruction or two for each element: cheaper to compute again than to store">;
def RLX_IsBounded : RLX_Trait<"bounded", "results are moderate, however large or small the operands">;
def RLX_IsWideRange : RLX_Trait<"wide_range",
  "leaves the range of f16 on harmless operands; PyTorch's autocast keeps these in f32">;

defvar Views = [RLX_MovesData, RLX_Rearranges, RLX_IsView];
defvar Rearrangements = [RLX_MovesData, RLX_Rearranges];

#endif // RLX_TRAITS_TD

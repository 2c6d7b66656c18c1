//===- RlxTraits.td - Traits: facts about ops beyond their signatures -------------------------===//
// Passes, transforms, lowerings and reports query traits (`rlx.ir.op.opview.has_trait`, `OpSpec.has_trait`) instead of
// keeping lists of op names. `tests/dialect/test_traits.py` checks every trait against the op's evaluator.
//
//===------------------------------------------------------------------------------------------===//

#ifndef RLX_TRAITS_TD
#define RLX_TRAITS_TD

include "mlir/IR/OpBase.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

/// A trait. With `attribute`, an op has the trait only if that attribute is one of `cases`.
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

// The numerics of an op: one of five, or none if it runs regions, draws numbers or has its own numerics. (The identity
// has two of them.) `rlx-precision` is derived from these.

def RLX_IsProduct : RLX_Trait<"product", "sums products of its operands' elements, which dominate the work">;
def RLX_IsReduction : RLX_Trait<"reduction",
  "sums, multiplies or compares many elements, or normalises by such results">;
def RLX_IsElementwise : RLX_Trait<"elementwise",
  "each element of the result is a function of one element of each operand, broadcast as in NumPy">;
def RLX_IsLocal : RLX_Trait<"local", "each element of a result is computed from a few elements of the operands">;
def RLX_IsRowwise : RLX_Trait<"rowwise",
  "each row of the result, along `axis` or the last axis, is computed from the same row of the first operand, which it may "
  "overwrite">;
def RLX_Updates : RLX_Trait<"updates",
  "the result is the first operand with some elements replaced by values that may also depend on the element itself or on "
  "other operands; it may overwrite the first operand">;
def RLX_MovesData : RLX_Trait<"moves_data",
  "each element of a result is an element of an operand, or a fill, or the position of one">;

// For ops that move data: how the result relates to the operand.

def RLX_Rearranges : RLX_Trait<"rearranges",
  "each element of the result is an element of the first operand, determined by shapes and attributes">;
def RLX_IsView : RLX_Trait<"view", "the result has the elements of the operand in the same order: the same bytes">;

// Facts about arithmetic.

def RLX_IsCommutative : RLX_Trait<"commutative", "the operands may be swapped">;
def RLX_IsCheap : RLX_Trait<"cheap", "one or two instructions per element: cheaper to recompute than to store">;
def RLX_IsBounded : RLX_Trait<"bounded", "results are moderate for all operands, however large or small">;
def RLX_IsWideRange : RLX_Trait<"wide_range",
  "exceeds the range of f16 for moderate operands; PyTorch's autocast keeps these ops in f32">;

defvar Views = [RLX_MovesData, RLX_Rearranges, RLX_IsView];
defvar Rearrangements = [RLX_MovesData, RLX_Rearranges];

#endif // RLX_TRAITS_TD

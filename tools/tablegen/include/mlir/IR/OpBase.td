// The definitions of MLIR's file of this name that dialect/*.td uses, for the reader in tools/tablegen. LLVM reads MLIR's own
// file. Names, parameters and fields are those of MLIR. Definitions that only generators of C++ need are omitted.

#ifndef OP_BASE
#define OP_BASE

def ins;
def outs;
def region;

// --- constraints -------------------------------------------------------------------------------

class Pred;
class CPred<code condition> : Pred;

class Constraint<Pred condition, string text = ""> {
  string summary = text;
}

class AttrConstraint<Pred condition, string text = ""> : Constraint<condition, text>;
class TypeConstraint<Pred condition, string text = ""> : Constraint<condition, text>;
class Region<Pred condition, string text = ""> : Constraint<condition, text>;

// --- operands and results ----------------------------------------------------------------------

class Type<Pred condition, string text = "", string cppClass = "::mlir::Type"> : TypeConstraint<condition, text>;

class Variadic<Type type> : TypeConstraint<CPred<"true">, "variadic of " # type.summary> {
  Type baseType = type;
}

class Optional<Type type> : TypeConstraint<CPred<"true">, type.summary> {
  Type baseType = type;
}

// --- attributes --------------------------------------------------------------------------------

class Attr<Pred condition, string text = ""> : AttrConstraint<condition, text> {
  code storageType = ?;
  code returnType = ?;
  string defaultValue = ?;
  Attr baseAttr = ?;
}

class DefaultValuedAttr<Attr attr, string value> : Attr<CPred<"true">, attr.summary> {
  let defaultValue = value;
  let baseAttr = attr;
}

class OptionalAttr<Attr attr> : Attr<CPred<"true">, attr.summary> {
  let baseAttr = attr;
}

// MLIR accepts any number of constraints. The dialect uses one.
class ConfinedAttr<Attr attr, list<AttrConstraint> constraints>
    : Attr<CPred<"true">, attr.summary # " " # constraints[0].summary> {
  let baseAttr = attr;
  list<AttrConstraint> attrConstraints = constraints;
}

class TypeAttrBase<string cppClass, string text> : Attr<CPred<"true">, text>;

def BoolAttr : Attr<CPred<"true">, "bool attribute">;
def I64Attr : Attr<CPred<"true">, "64-bit signless integer attribute">;
def F64Attr : Attr<CPred<"true">, "64-bit float attribute">;
def StrAttr : Attr<CPred<"true">, "string attribute">;
def DenseI64ArrayAttr : Attr<CPred<"true">, "i64 dense array attribute">;
def ElementsAttr : Attr<CPred<"true">, "constant vector/tensor attribute">;

// --- regions -----------------------------------------------------------------------------------

def AnyRegion : Region<CPred<"true">, "any region">;
class SizedRegion<int count> : Region<CPred<"true">, "region with " # count # " blocks"> {
  int blocks = count;
}

// --- dialects and ops --------------------------------------------------------------------------

class Dialect {
  string name = ?;
  string cppNamespace = name;
  string summary = ?;
  string description = ?;
}

class Trait;
class NativeOpTrait<string name> : Trait {
  string trait = name;
}

def Terminator : NativeOpTrait<"IsTerminator">;
def AttrSizedOperandSegments : NativeOpTrait<"AttrSizedOperandSegments">;

class Op<Dialect dialect, string mnemonic, list<Trait> properties = []> {
  Dialect opDialect = dialect;
  string opName = mnemonic;
  string summary = "";
  string description = "";
  dag arguments = (ins);
  dag results = (outs);
  dag regions = (region);
  list<Trait> traits = properties;
}

#endif // OP_BASE
